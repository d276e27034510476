"""The step that lets a GPU hold time-sliced vGPUs of several sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from vgpumgr.errors import ReadBackError
from vgpumgr.model.identity import GpuUuid
from vgpumgr.nvml.protocol import Nvml


class NvmlWorld(Protocol):
    """What the step needs of an operation's world."""

    @property
    def nvml(self) -> Nvml:
        """The driver."""


@dataclass(frozen=True)
class SetMixedSizes:
    """Switches mixed sizes on; the GPU has no vGPU then. A boot forgets it."""

    gpu: GpuUuid
    kind: ClassVar[str] = "mdev.mixed-sizes"

    @property
    def target(self) -> Mapping[str, object]:
        """The GPU."""
        return {"gpu": str(self.gpu)}

    def describe(self) -> str:
        """For people."""
        return f"let {self.gpu} hold vGPUs of several sizes"

    def do(self, world: NvmlWorld) -> None:
        """Asks NVML and reads back."""
        world.nvml.set_mixed_sizes(self.gpu, True)
        if not self.observe(world):
            raise ReadBackError(f"mixed vGPU sizes were switched on on {self.gpu}, and are off")

    def undo(self, world: NvmlWorld) -> None:
        """Switches them off again."""
        world.nvml.set_mixed_sizes(self.gpu, False)

    def observe(self, world: NvmlWorld) -> bool:
        """Whether they are on."""
        return any(g.gpu == self.gpu and g.mixed_sizes for g in world.nvml.list_vgpus())
