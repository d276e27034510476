"""Operations to be killed in: how the machine is before, and what is done."""

from __future__ import annotations

import secrets
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.recovery.claims import CLAIM, make_claim, make_claim_of_two, make_linked_claim
from tests.recovery.vgpu_host import MDEV_GPU, VENDOR_GPU
from tests.recovery.world import UUID_BARE, World
from tests.support.domains import UUID_PC, UUID_Q35
from tests.support.fake_host import FLEX, GPU
from vgpumgr.app.operations.channels import restart_channel
from vgpumgr.app.operations.passthrough import PassthroughService
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.app.operations.shares import set_share
from vgpumgr.app.operations.vgpu_layouts import VgpuLayouts
from vgpumgr.app.operations.vgpus import VgpuService
from vgpumgr.app.transactions import open_change
from vgpumgr.domain.devices import Controller
from vgpumgr.errors import ChannelStartError, VgpuAttributeError, VgpumgrError
from vgpumgr.mig.layout.planner import plan_layout
from vgpumgr.mig.layout.target import GpuTarget, TargetInstance, list_owner_pins
from vgpumgr.model.choices import Transport
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.request import AttachRequest
from vgpumgr.planning.vgpus import VgpuTarget

Act = Callable[[World], object]


def nothing(_world: World) -> None:
    """No preparation."""


@dataclass(frozen=True)
class Scenario:
    """``prepare`` runs before, undisturbed; ``act`` is what is killed. ``fails``: it ends with an error."""

    name: str
    act: Act
    prepare: Act = nothing
    mig: bool = True
    running: bool = False
    fails: bool = False
    #: several operations, one after the other
    is_several: bool = False

    def build(self, world: World) -> None:
        """The machine before the operation."""
        name_ids("aaaa")
        world.make(mig=self.mig, running=self.running)
        self.prepare(world)

    def run(self, world: World) -> None:
        """The operation; what it refuses is no failure of the test."""
        with suppress(VgpumgrError):
            self.run_whole(world)

    def run_whole(self, world: World) -> None:
        """The operation, and its error."""
        name_ids("bbbb")
        self.act(world)

    def check(self, error: str | None) -> None:
        """That undisturbed it ends as it should: a scenario that is refused shows nothing."""
        assert (error is not None) is self.fails, f"{self.name}: {error}"


def name_ids(prefix: str) -> None:
    """Attachments get numbers, operations random names: states can be compared as they are."""
    count = iter(range(10_000))
    random = secrets.token_bytes

    def token_hex(size: int = 32) -> str:
        return f"{prefix}{next(count):04x}" if size == 4 else random(size).hex()

    def uuid4() -> uuid.UUID:
        return uuid.UUID(f"{prefix}0000-0000-4000-8000-{next(count):012x}")

    secrets.token_hex = token_hex  # type: ignore[assignment]
    uuid.uuid4 = uuid4


def attach(vm: str = "vm01", **more: object) -> Act:
    request = AttachRequest(vm, "1g.10gb", hello_timeout_s=0.2)
    return lambda world: world.service.attach(replace(request, **more))  # type: ignore[arg-type]


def take_named(profile: str, vm: str = "vm01") -> Act:
    """Attaches the MIG device that another program made, or a share of it."""

    def act(world: World) -> None:
        gpu = next(iter(world.nvml.gpus.values()))
        (mig,) = [c.uuid for i in gpu.instances for c in i.compute_instances]
        assert mig is not None
        world.service.attach(AttachRequest(vm, profile, gpu=str(mig), hello_timeout_s=0.2))

    return act


take = take_named("2g.20gb")


def detach(vm: str = "vm01", **more: bool) -> Act:
    return lambda world: world.service.detach(vm, **more)


def restart(vm: str = "vm01", **more: Any) -> Act:
    return lambda world: restart_channel(world.parts, vm=vm, **more)


def change(memory_bytes: int, compute: int, vm: str = "vm01") -> Act:
    return lambda world: set_share(world.parts, vm=vm, memory_bytes=memory_bytes, compute=compute)


def change_at_exit(memory_bytes: int, vm: str = "vm01") -> Act:
    return lambda world: set_share(world.parts, vm=vm, memory_bytes=memory_bytes, at_exit=True)


def change_priority(priority: str, vm: str = "vm01") -> Act:
    return lambda world: set_share(world.parts, vm=vm, priority=priority)


def use_memory(memory_bytes: int) -> Act:
    """The programs of every VM use so much of their shares."""

    def act(world: World) -> None:
        world.channels.used = dict.fromkeys(world.channels.running, memory_bytes)
        world.save()

    return act


def connect_qemu(world: World) -> None:
    """A QEMU has the rings of all channels."""
    running = world.channels.running
    running.update({id_: replace(status, qemu_pid=77) for id_, status in running.items()})
    world.save()


def recover(**policy: bool) -> Act:
    return lambda world: world.recovery.recover(Policy(**policy))


def both(*acts: Act) -> Act:
    def act(world: World) -> None:
        for one in acts:
            one(world)

    return act


def fail(part: str, method: str, error: Exception) -> Act:
    """The next call of that method fails."""

    def act(world: World) -> None:
        getattr(world, part).fail[method] = error

    return act


def say_hello(world: World) -> None:
    world.channels.hello = True
    world.save()


def undefine(uuid: str) -> Act:
    def act(world: World) -> None:
        del world.hypervisor.machines[uuid]
        world.save()

    return act


def lose_devices(world: World) -> None:
    machine = world.hypervisor.machines[UUID_PC]
    assert machine.config is not None
    machine.config = machine.config.changed(shmems=())
    world.save()


def rename(world: World) -> None:
    machine = world.hypervisor.machines[UUID_PC]
    assert machine.config is not None
    machine.name, machine.config = "vm09", machine.config.changed(name="vm09")
    world.save()


def lose_keepers(world: World) -> None:
    world.channels.running.clear()
    world.save()


def hang_keepers(world: World) -> None:
    for id_, status in world.channels.running.items():
        world.channels.running[id_] = replace(status, worker_ready=False, keeper_hangs=True)
    world.save()


#: a part of a GPU instance: three fit into one
PART = "1c.3g.40gb"


def plug_port(world: World) -> None:
    """A free root port, for a device that is plugged."""
    machine = world.hypervisor.machines[UUID_Q35]
    port = Controller(type="pci", index=9, model="pcie-root-port")
    for scope in ("config", "live"):
        domain = getattr(machine, scope)
        if domain is not None:
            setattr(machine, scope, domain.changed(controllers=(*domain.controllers, port)))
    world.save()


def vgpu(verb: str, **asked: object) -> Act:
    """A verb of ``vgpumgr mdev``; ``vgpu`` None means the only one that there is."""

    def act(world: World) -> None:
        if "vgpu" in asked and asked["vgpu"] is None:
            (known,) = [e.uuid for e in VgpuService(world.parts).list_vgpus().vgpus]
            asked["vgpu"] = known
        getattr(VgpuService(world.parts), verb)(**asked)

    return act


def pci(verb: str, selector: PciAddress, **asked: object) -> Act:
    """A verb of ``vgpumgr passthrough`` or ``vgpumgr vf``."""

    def act(world: World) -> None:
        getattr(PassthroughService(world.parts), verb)(selector=str(selector), **asked)

    return act


def apply_layout(gpu: PciAddress, vgpus: dict[str, int], *instances: str) -> Act:
    """``vgpumgr mig layout apply`` of a layout that says what one GPU has."""

    def act(world: World) -> None:
        gpus = tuple(world.nvml.gpus.values())
        chosen = next(g for g in gpus if g.pci == gpu)
        wanted = tuple(TargetInstance(name) for name in instances)
        target = GpuTarget(chosen.uuid, bool(wanted), wanted)
        layouts = VgpuLayouts(world.parts)
        targets = [
            VgpuTarget(str(chosen.uuid), tuple(vgpus.items()), instances=Counter(instances) or None)
        ]
        with open_change(world.parts, "change MIG instances") as transaction:
            plan = plan_layout(gpus, [target], list_owner_pins(world.parts.list_owners(gpus)))
            layouts.run(transaction, plan, layouts.plan(targets, gpus))

    return act


#: attach: time-sliced and MIG-backed, mediated device and vendor-VFIO
SLICED = {"profile": "GRID A100-8C"}
VENDOR = {"profile": "NVIDIA A100X-8C"}
BACKED = {"profile": "GRID A100-1-10C"}
VENDOR_BACKED = {"profile": "NVIDIA A100X-1-10C"}
FIRST_VF = PciAddress(0, 3, 0, 1)
GPU_WHOLE = {"profile": "passthrough", "gpu": str(GPU)}
SHARE = "share:8GiB,30%"
#: of an instance of MIG
INSTANCE_SHARE = "share:4GiB,50%@1g.10gb"
STUCK = ChannelStartError("the worker does not start")
SCENARIOS = (
    Scenario("attach to a shut off VM", attach()),
    Scenario("attach turns MIG mode on", attach(), mig=False),
    Scenario("attach adds a controller", attach("vm03")),
    Scenario("attach live, with an agent", attach(), say_hello, running=True),
    Scenario("attach live, without an agent", attach(), running=True),
    Scenario("attach to a running q35", attach("vm02"), running=True),
    Scenario("attach for the next start", attach(config=True), running=True),
    Scenario("attach by serial", attach(transport=Transport.SERIAL)),
    Scenario("attach by ring", attach("vm02", transport=Transport.RING)),
    Scenario("attach beside another", attach("vm02", gpu="0"), attach(gpu="0")),
    Scenario(
        "attach that fails", both(fail("channels", "start", STUCK), attach()), mig=False, fails=True
    ),
    Scenario(
        "attach that fails late",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm03")),
        mig=False,
        fails=True,
    ),
    Scenario("attach one more", attach("vm03", add=True), attach("vm03")),
    Scenario("attach three at once", attach(count=3), mig=False),
    Scenario("attach three live", attach(count=3), say_hello, running=True),
    Scenario("attach three parts of instances", attach(profile=PART, count=3), mig=False),
    Scenario("attach a part beside another", attach("vm02", profile=PART), attach(profile=PART)),
    Scenario(
        "attach three, of which the last fails",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm03", profile=PART, count=3)),
        fails=True,
    ),
    Scenario("attach a share", attach(profile=SHARE), mig=False),
    Scenario(
        "attach a share beside another",
        attach("vm02", profile=SHARE),
        attach(profile=SHARE),
        mig=False,
    ),
    Scenario(
        "attach a share that fails late",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm03", profile=SHARE)),
        mig=False,
        fails=True,
    ),
    Scenario("detach a share", detach(), attach(profile=SHARE), mig=False),
    Scenario("attach by a claim", attach(**CLAIM), make_claim, mig=False),
    Scenario(
        "attach by a claim that fails late",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm03", **CLAIM)),
        make_claim,
        mig=False,
        fails=True,
    ),
    Scenario("detach what a claim gives", detach(), both(make_claim, attach(**CLAIM)), mig=False),
    Scenario("attach by a claim of two GPUs", attach(**CLAIM), make_claim_of_two, mig=False),
    Scenario(
        "detach what a claim of two GPUs gives",
        detach(every=True),
        both(make_claim_of_two, attach(**CLAIM)),
        mig=False,
        is_several=True,
    ),
    Scenario(
        "attach by a claim on another host's GPU", attach(**CLAIM), make_linked_claim, mig=False
    ),
    Scenario(
        "detach what a claim gives of another host",
        detach(),
        both(make_linked_claim, attach(**CLAIM)),
        mig=False,
    ),
    Scenario("grow a share", change(16 << 30, 50), attach(profile=SHARE), mig=False),
    Scenario("shrink a share", change(4 << 30, 10), attach(profile=SHARE), mig=False),
    Scenario(
        "change a share, which fails",
        both(fail("hypervisor", "set_notes config", STUCK), change(16 << 30, 10)),
        attach(profile=SHARE),
        mig=False,
        fails=True,
    ),
    Scenario(
        "shrink a share at its programs' end",
        change_at_exit(4 << 30),
        both(attach(profile=SHARE), use_memory(5 << 30)),
        mig=False,
    ),
    Scenario("raise a share's priority", change_priority("high"), attach(profile=SHARE), mig=False),
    Scenario(
        "give up shrinking a share",
        change(8 << 30, 30),
        both(attach(profile=SHARE), use_memory(5 << 30), change_at_exit(4 << 30)),
        mig=False,
    ),
    Scenario(
        "recover shrinks a share whose programs have ended",
        recover(),
        both(
            attach(profile=SHARE), use_memory(5 << 30), change_at_exit(4 << 30), use_memory(1 << 30)
        ),
        mig=False,
    ),
    Scenario(
        "change a share, which shrinks another first",
        change(16 << 30, 20, "vm02"),
        both(
            attach(profile=SHARE),
            use_memory(5 << 30),
            change_at_exit(4 << 30),
            attach("vm02", profile=SHARE),
            use_memory(1 << 30),
        ),
        mig=False,
        is_several=True,
    ),
    Scenario("attach a share of an instance", attach(profile=INSTANCE_SHARE), mig=False),
    Scenario(
        "attach a share of an instance beside another",
        attach("vm02", profile=INSTANCE_SHARE),
        attach(profile=INSTANCE_SHARE),
        mig=False,
    ),
    Scenario(
        "attach three shares of two instances", attach(profile=INSTANCE_SHARE, count=3), mig=False
    ),
    Scenario(
        "attach two shares of an instance that fail late",
        both(
            fail("hypervisor", "set_notes config", STUCK),
            attach("vm03", profile=INSTANCE_SHARE, count=2),
        ),
        mig=False,
        fails=True,
    ),
    Scenario(
        "attach a share of an instance that fails late beside another",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm03", profile=INSTANCE_SHARE)),
        attach(profile=INSTANCE_SHARE),
        mig=False,
        fails=True,
    ),
    Scenario(
        "detach one share of an instance",
        detach(),
        both(attach(profile=INSTANCE_SHARE), attach("vm02", profile=INSTANCE_SHARE)),
        mig=False,
    ),
    Scenario(
        "detach the last share of an instance",
        detach("vm02"),
        both(
            attach(profile=INSTANCE_SHARE), attach("vm02", profile=INSTANCE_SHARE), detach("vm01")
        ),
        mig=False,
    ),
    Scenario(
        "detach all shares of an instance",
        detach(every=True),
        attach(profile=INSTANCE_SHARE, count=2),
        mig=False,
        is_several=True,
    ),
    Scenario(
        "grow a share of an instance",
        change(5 << 30, 60),
        attach(profile=INSTANCE_SHARE),
        mig=False,
    ),
    Scenario("attach a share takes an instance", take_named("share:4GiB,50%")),
    Scenario(
        "attach a share of a taken instance",
        take_named("share:4GiB,50%", "vm02"),
        take_named("share:4GiB,50%"),
    ),
    Scenario("detach the last share leaves an instance", detach(), take_named("share:4GiB,50%")),
    Scenario("attach takes an instance", take),
    Scenario("attach takes an instance live", take, say_hello, running=True),
    Scenario(
        "attach that fails late leaves an instance",
        both(fail("hypervisor", "set_notes config", STUCK), take),
        fails=True,
    ),
    Scenario("detach leaves an instance", detach(), take),
    Scenario("detach from a shut off VM", detach(), attach()),
    Scenario(
        "detach one of two", detach("aaaa0002"), both(attach("vm03"), attach("vm03", add=True))
    ),
    Scenario(
        "detach a part beside another",
        detach("vm02"),
        both(attach(profile=PART), attach("vm02", profile=PART)),
    ),
    Scenario(
        "detach all three",
        detach(every=True),
        attach(profile=PART, count=3),
        mig=False,
        is_several=True,
    ),
    Scenario("detach turns MIG mode off", detach(), attach(), mig=False),
    Scenario("detach takes a controller along", detach("vm03"), attach("vm03")),
    Scenario("detach live", detach(), both(say_hello, attach()), running=True),
    Scenario(
        "detach hands MIG mode over",
        detach(),
        both(attach(gpu="0"), attach("vm02", gpu="0")),
        mig=False,
    ),
    Scenario(
        "detach from an undefined VM", detach(UUID_BARE), both(attach("vm03"), undefine(UUID_BARE))
    ),
    Scenario("attach a whole GPU", attach(**GPU_WHOLE)),
    Scenario("attach a VF that is to be made", attach("vm02", profile="vf:2")),
    Scenario("attach a mediated device", attach("vm02", profile="mtty-2")),
    Scenario("attach a whole GPU live", attach(**GPU_WHOLE), running=True),
    Scenario(
        "attach a mediated device live", attach("vm02", profile="mtty-2"), plug_port, running=True
    ),
    Scenario("attach a VF live", attach("vm02", profile="vf"), plug_port, running=True),
    Scenario(
        "attach a mediated device that fails late",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm02", profile="mtty-2")),
        fails=True,
    ),
    Scenario("detach a whole GPU", detach(), attach(**GPU_WHOLE)),
    Scenario("detach the last VF", detach("vm02"), attach("vm02", profile="vf:2")),
    Scenario(
        "detach hands VFs over",
        detach(),
        both(attach(profile="vf:2"), attach("vm02", profile="vf")),
    ),
    Scenario(
        "detach a mediated device live",
        detach("vm02"),
        both(plug_port, attach("vm02", profile="mtty-2")),
        running=True,
    ),
    Scenario("attach a vGPU", attach("vm02", **SLICED), mig=False),
    Scenario("attach a vendor's vGPU", attach("vm02", **VENDOR), mig=False),
    Scenario("attach a vendor's vGPU live", attach("vm02", **VENDOR), plug_port, False, True),
    Scenario("attach a MIG-backed vGPU", attach("vm02", **BACKED)),
    Scenario("attach a vendor's MIG-backed vGPU", attach("vm02", **VENDOR_BACKED)),
    Scenario(
        "attach a MIG-backed vGPU that fails late",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm02", **VENDOR_BACKED)),
        fails=True,
    ),
    Scenario("attach a MIG-backed vGPU beside another", attach("vm02", **BACKED), attach(**BACKED)),
    Scenario("detach a vGPU", detach("vm02"), attach("vm02", **SLICED), mig=False),
    Scenario("detach a vendor's vGPU", detach("vm02"), attach("vm02", **VENDOR), mig=False),
    Scenario("detach a MIG-backed vGPU", detach("vm02"), attach("vm02", **BACKED)),
    Scenario(
        "detach a vendor's MIG-backed vGPU live",
        detach("vm02"),
        both(plug_port, attach("vm02", **VENDOR_BACKED)),
        running=True,
    ),
    Scenario("mdev create", vgpu("create", type="mtty-2", auto=True)),
    Scenario("mdev create on a vendor's", vgpu("create", type="A100X-8C", auto=True), mig=False),
    Scenario("mdev create makes an instance", vgpu("create", type="A100-1-10C", define=True)),
    Scenario(
        "mdev create that fails takes its instance away",
        both(
            fail("vgpus", "create", VgpuAttributeError("refused")),
            vgpu("create", type="A100X-1-10C"),
        ),
        fails=True,
    ),
    Scenario("mdev delete", vgpu("delete", vgpu=None), vgpu("create", type="mtty-2", auto=True)),
    Scenario(
        "mdev delete takes the instance along",
        vgpu("delete", vgpu=None),
        vgpu("create", type="A100-1-10C", define=True),
    ),
    Scenario(
        "mdev delete of a vendor's",
        vgpu("delete", vgpu=None),
        vgpu("create", type="A100X-1-10C", auto=True),
    ),
    Scenario("mdev define", vgpu("define", vgpu=None, auto=True), vgpu("create", type="mtty-2")),
    Scenario("mdev define of a new one", vgpu("define", type="mtty-2", auto=True)),
    Scenario("mdev stop", vgpu("stop", vgpu=None), vgpu("create", type="A100-1-10C", define=True)),
    Scenario("mdev start", vgpu("start", vgpu=None), vgpu("define", type="A100-8C"), mig=False),
    Scenario("passthrough bind", pci("bind", GPU)),
    Scenario("passthrough bind, to stay", pci("bind", GPU, persist=True, companions="stub")),
    Scenario("passthrough unbind", pci("unbind", GPU), pci("bind", GPU, persist=True)),
    Scenario("vf enable", pci("enable_vfs", FLEX, count=3, persist=True)),
    Scenario(
        "vf enable with another number",
        pci("enable_vfs", FLEX, count=3),
        pci("enable_vfs", FLEX, count=2),
    ),
    Scenario(
        "vf disable",
        pci("disable_vfs", FLEX),
        both(pci("enable_vfs", FLEX, count=3), pci("bind", FIRST_VF)),
    ),
    Scenario("a layout makes vGPUs", apply_layout(MDEV_GPU, {"A100-8C": 2}), mig=False),
    Scenario(
        "a layout makes instances with vGPUs",
        apply_layout(VENDOR_GPU, {"A100X-1-10C": 2}, "1g.10gb", "1g.10gb"),
        mig=False,
    ),
    Scenario(
        "a layout takes vGPUs away",
        apply_layout(VENDOR_GPU, {"A100X-8C": 1}),
        both(*[vgpu("create", type="A100X-8C", auto=True)] * 3),
        mig=False,
    ),
    Scenario("restart of a channel", restart(), attach()),
    Scenario("restart of a running VM's worker", restart(), both(attach(), connect_qemu)),
    Scenario("restart of its keeper, too", restart(keeper=True), both(attach(), connect_qemu)),
    Scenario("restart with other limits", restart(limits=("events=7",)), attach()),
    Scenario(
        "restart of a running VM with other limits",
        restart(keeper=True, limits=("events=7",)),
        both(attach(), connect_qemu),
    ),
    Scenario("restart of a channel without a keeper", restart(), both(attach(), lose_keepers)),
    Scenario("restart of a keeper that hangs", restart(), both(attach(), hang_keepers)),
    Scenario("recover restarts a keeper", recover(), both(attach(), lose_keepers)),
    Scenario("recover gives devices again", recover(readd=True), both(attach(), lose_devices)),
    Scenario(
        "recover frees what a VM had",
        recover(release=True),
        both(attach("vm03"), undefine(UUID_BARE)),
    ),
    Scenario("recover follows a name", recover(), both(attach(), rename)),
)
