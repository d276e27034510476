"""Every verb that changes a machine, as the application has it, and the machines that they are tried on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.recovery.scenarios import BACKED, FIRST_VF, PART, SLICED, VENDOR, VENDOR_BACKED, name_ids
from tests.recovery.world import World
from tests.support.boards import make_instance
from tests.support.fake_host import FLEX, GPU
from vgpumgr.app.application import Application
from vgpumgr.errors import VgpumgrError
from vgpumgr.host.machine import Machine
from vgpumgr.model.vgpu import Framework, VgpuSpec

Act = Callable[[World], object]

#: vGPUs whose names are known: one that runs, one that is only defined, one of somebody else
ACTIVE = "11111111-aaaa-4000-8000-000000000001"
DEFINED = "11111111-aaaa-4000-8000-000000000002"
FOREIGN = "11111111-aaaa-4000-8000-000000000003"


def open_application(world: World) -> Application:
    """The whole application on the machine."""
    parts = world.parts
    machine = Machine("pairs", parts.state_dir, parts.state_dir, parts.run_dir, "test:///default")
    return Application(machine, parts)


def _call(operation: str, **asked: Any) -> Act:
    def act(world: World) -> object:
        return getattr(open_application(world), operation)(**asked)

    return act


def attach(vm: str, profile: str = "1g.10gb", **more: Any) -> Act:
    return _call("attach", vm=vm, profile=profile, hello_timeout_s=0.2, **more)


def _layout(gpu: int, *instances: str, vgpus: str = "", allow: tuple[str, ...] = ()) -> Act:
    lines = ["schema: vgpumgr/mig-layout/v1", "layouts:", "  one:", f"    - gpus: {gpu}"]
    lines.append(f"      instances: [{', '.join(instances)}]" if instances else "      mig: off")
    lines += [f"      vgpus: {{{vgpus}}}"] if vgpus else []
    text = "\n".join(lines)
    return _call("apply_layout", text=text, source="one.yaml", name="one", allow=allow)


def write_checkpoint(world: World) -> None:
    """What the machine has, with one instance more on GPU 1."""
    nvml = world.nvml
    kept, (_, second) = nvml.gpus, nvml.gpus.values()
    profile = next(p for p in second.profiles if str(p.name) == "3g.40gb")
    made = make_instance(second.index, 1, profile, 0)
    changed = replace(
        second, mig=replace(second.mig, current=True, pending=True), instances=(made,)
    )
    nvml.gpus = {**kept, second.uuid: changed}
    text = json.dumps(open_application(world).checkpoint_mig().file)
    nvml.gpus = kept
    (world.root / "checkpoint.json").write_text(text)


def _restore_layout(world: World) -> object:
    text = (world.root / "checkpoint.json").read_text()
    return open_application(world).restore_mig(text=text, source="checkpoint.json")


def _destroy_idle(world: World) -> object:
    """The first GPU instance of GPU 0 that no VM has."""
    application = open_application(world)
    rows = application.list_mig_instances(selector="0").instances
    names = [
        f"0/{r.id}" for r in rows if r.vm is None and not any(c.vm for c in r.compute_instances)
    ]
    return application.destroy_mig(instances=names[:1] or ["0/99"])


def _restore(world: World) -> object:
    """Its problems are its error."""
    document = open_application(world).restore()
    if document.problems:
        raise VgpumgrError("; ".join(document.problems))
    return document


@dataclass(frozen=True)
class Verb:
    """A verb of the command line with its arguments."""

    name: str
    act: Act


VERBS = (
    Verb("attach", attach("vm03")),
    Verb("attach --gpu 0", attach("vm02", gpu="0")),
    Verb("attach of a part", attach("vm03", PART, count=2)),
    Verb("attach of a GPU", attach("vm03", "passthrough", gpu=str(GPU))),
    Verb("attach of a VF", attach("vm02", "vf:2")),
    Verb("attach of mtty", attach("vm02", "mtty-2")),
    Verb("attach of a vGPU", attach("vm02", SLICED["profile"])),
    Verb("attach of a vendor's vGPU", attach("vm02", VENDOR["profile"])),
    Verb("attach of a MIG-backed vGPU", attach("vm02", BACKED["profile"])),
    Verb("attach of a vendor's MIG-backed vGPU", attach("vm02", VENDOR_BACKED["profile"])),
    Verb("detach", _call("detach", vm="vm01", every=True)),
    Verb("virtio restart", _call("restart_channel", vm="vm01")),
    Verb("virtio restart with limits", _call("restart_channel", vm="vm01", limits=("events=7",))),
    Verb("mig layout apply", _layout(0, "2g.20gb", "3g.40gb", "1g.10gb")),
    Verb("mig layout apply, taking away", _layout(0, "2g.20gb")),
    Verb("mig layout apply, whatever is used", _layout(0, "2g.20gb", "4g.40gb", allow=("vm01",))),
    Verb("mig layout apply on GPU 1", _layout(1, "3g.40gb", "2g.20gb", "1g.10gb")),
    Verb("mig layout apply with vGPUs", _layout(1, "1g.10gb", "1g.10gb", vgpus="A100X-1-10C: 2")),
    Verb("mig layout restore", _restore_layout),
    Verb("mig create", _call("create_mig", gpu="0", profile="1g.10gb")),
    Verb("mig create on GPU 1", _call("create_mig", gpu="1", profile="2g.20gb", count=2)),
    Verb("mig destroy", _destroy_idle),
    Verb("mig destroy of GPU 0", _call("destroy_mig", gpus=["0"])),
    Verb("mig enable", _call("set_mig_mode", gpu="1", enabled=True)),
    Verb("mig disable", _call("set_mig_mode", gpu="1", enabled=False)),
    Verb("mdev create", _call("create_vgpu", type="mtty-2", auto=True)),
    Verb("mdev create with an instance", _call("create_vgpu", type="A100-1-10C", define=True)),
    Verb("mdev create on GPU 1", _call("create_vgpu", type="A100X-8C", auto=True)),
    Verb("mdev delete", _call("delete_vgpu", vgpu=ACTIVE)),
    Verb("mdev define", _call("define_vgpu", vgpu=ACTIVE, auto=True)),
    Verb("mdev start", _call("start_vgpu", vgpu=DEFINED)),
    Verb("mdev stop", _call("stop_vgpu", vgpu=DEFINED)),
    Verb("mdev adopt", _call("adopt_vgpu", vgpu=FOREIGN)),
    Verb("passthrough bind", _call("bind_pci", selector=str(GPU), persist=True)),
    Verb("passthrough bind of a vGPU's function", _call("bind_pci", selector="0000:0f:00.4")),
    Verb("passthrough unbind", _call("unbind_pci", selector=str(GPU))),
    Verb("vf enable", _call("enable_vfs", selector=str(FLEX), count=3, persist=True)),
    Verb("vf disable", _call("disable_vfs", selector=str(FLEX))),
    Verb("gpu drain", _call("drain_gpu", selector="0", reason="x")),
    Verb("gpu drain of GPU 1", _call("drain_gpu", selector="1", reason="another")),
    Verb("gpu resume", _call("resume_gpu", selector="1")),
    Verb("restore", _restore),
    Verb("recover", _call("recover")),
)


def _do(*acts: Act) -> Act:
    def act(world: World) -> None:
        for one in acts:
            one(world)

    return act


def _create_foreign(world: World) -> None:
    """As by ``echo UUID > create``, without us."""
    world.vgpus.create(VgpuSpec(FOREIGN, Framework.MDEV, "mtty", "mtty-2", "Dual port serial"))


def _say_hello(world: World) -> None:
    world.channels.hello = True
    world.save()


@dataclass(frozen=True)
class Prepared:
    """A machine: what was done to it before; ``booted``: in a boot that is over."""

    name: str
    mig: bool
    prepare: Act
    running: bool = False
    booted: bool = False

    def build(self, root: Path) -> None:
        """Makes it in a directory."""
        name_ids("aaaa")
        world = World(root, boot_id="boot-0" if self.booted else "boot-1")
        world.make(mig=self.mig, running=self.running)
        self.prepare(world)
        if self.booted:
            world.reboot()
        write_checkpoint(world)


_MTTY = _call("create_vgpu", type="mtty-2", uuid=ACTIVE)
_BOUND = _call("bind_pci", selector=str(GPU), persist=True)
_VFS = _call("enable_vfs", selector=str(FLEX), count=2, persist=True)
_DRAINED = _call("drain_gpu", selector="1", reason="x")
_USED = _do(
    _call("define_vgpu", type="A100-1-10C", vgpu=DEFINED),
    attach("vm01", gpu="0"),
    _layout(0, "2g.20gb", "1g.10gb", "1g.10gb"),
    _MTTY,
    _create_foreign,
    _BOUND,
    _VFS,
)


MACHINES = (
    Prepared("off", False, _do(_say_hello, _create_foreign)),
    Prepared("mig", True, _do(_create_foreign, _MTTY)),
    Prepared("used", True, _USED),
    Prepared(
        "sliced",
        False,
        _do(
            attach("vm01", VENDOR["profile"]),
            _call("create_vgpu", type="A100-8C", uuid=ACTIVE, define=True),
            _call("define_vgpu", type="mtty-2", vgpu=DEFINED),
            _call("enable_vfs", selector=str(FLEX), count=3),
            _call("bind_pci", selector=str(FIRST_VF)),
        ),
    ),
    Prepared("running", False, _do(_say_hello, attach("vm01"), _MTTY, _DRAINED), running=True),
    Prepared("booted", True, _USED, booted=True),
)
