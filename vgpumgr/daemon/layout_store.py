"""The layouts that come back after a boot: where they are kept, and how they are written down."""

from __future__ import annotations

from collections.abc import Sequence

from vgpumgr.daemon.parts import Parts
from vgpumgr.mig.layout.change import LayoutPlan
from vgpumgr.model.gpu import Gpu
from vgpumgr.plan.remember_step import RememberLayouts, list_spared
from vgpumgr.store.layouts import LayoutFile

LAYOUTS_FILE = "layouts.json"


def open_layouts(parts: Parts) -> LayoutFile:
    """The remembered layouts of the machine."""
    return LayoutFile(parts.state_dir / LAYOUTS_FILE)


def plan_remembering(
    parts: Parts, plan: LayoutPlan, gpus: Sequence[Gpu]
) -> tuple[RememberLayouts, ...]:
    """The step that remembers the GPUs of a plan, without what belongs to attachments; none where the
    plan is about no GPU with MIG.
    """
    asked = {uuid for uuid, _ in plan.explanations} | {step.gpu_uuid for step in plan.steps}
    chosen = tuple(gpu.uuid for gpu in gpus if str(gpu.uuid) in asked and gpu.mig.supported)
    if not chosen:
        return ()
    known = open_layouts(parts).read_layouts()
    earlier = tuple(known[gpu] for gpu in chosen if gpu in known)
    return (RememberLayouts(chosen, earlier, list_spared(parts.store.list_attachments())),)
