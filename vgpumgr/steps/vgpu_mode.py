"""The step that lets a GPU hold time-sliced vGPUs of several sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vgpumgr.engine.step import Step
from vgpumgr.errors import ReadBackError
from vgpumgr.model.identity import GpuUuid

if TYPE_CHECKING:
    from vgpumgr.engine.context import OperationContext


@dataclass(frozen=True)
class SetMixedSizes(Step):
    """Switches mixed sizes on; the GPU has no vGPU then. A boot forgets it."""

    gpu: GpuUuid
    kind: ClassVar[str] = "mdev.mixed-sizes"
    by_helper: ClassVar[bool] = True

    def describe(self) -> str:
        """For people."""
        return f"let {self.gpu} hold vGPUs of several sizes"

    def do(self, context: OperationContext) -> None:
        """Asks NVML and reads back."""
        context.nvml.set_mixed_sizes(self.gpu, True)
        if not self.observe(context):
            raise ReadBackError(f"mixed vGPU sizes were switched on on {self.gpu}, and are off")

    def undo(self, context: OperationContext) -> None:
        """Switches them off again."""
        context.nvml.set_mixed_sizes(self.gpu, False)

    def observe(self, context: OperationContext) -> bool:
        """Whether they are on."""
        return any(g.gpu == self.gpu and g.mixed_sizes for g in context.nvml.list_vgpus())
