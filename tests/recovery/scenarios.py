"""Operations to be killed in: how the machine is before, and what is done."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from tests.recovery.world import UUID_BARE, World
from tests.support.domains import UUID_PC, UUID_Q35
from tests.support.fake_host import GPU
from vgpumgr.daemon.recovery import Policy
from vgpumgr.domain.devices import Controller
from vgpumgr.errors import ChannelStartError, VgpumgrError
from vgpumgr.plan.attach import AttachRequest
from vgpumgr.plan.record import Transport

Act = Callable[[World], object]


def nothing(_world: World) -> None:
    """No preparation."""


@dataclass(frozen=True)
class Scenario:
    """``prepare`` runs before, undisturbed; ``act`` is what is killed."""

    name: str
    act: Act
    prepare: Act = nothing
    mig: bool = True
    running: bool = False

    def build(self, world: World) -> None:
        """The machine before the operation."""
        name_ids("aaaa")
        world.make(mig=self.mig, running=self.running)
        self.prepare(world)

    def run(self, world: World) -> None:
        """The operation; what it refuses is no failure of the test."""
        name_ids("bbbb")
        with suppress(VgpumgrError):
            self.act(world)


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


def detach(vm: str = "vm01", **more: bool) -> Act:
    return lambda world: world.service.detach(vm, **more)


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


GPU_WHOLE = {"profile": "passthrough", "gpu": str(GPU)}
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
    Scenario("attach that fails", both(fail("channels", "start", STUCK), attach()), mig=False),
    Scenario(
        "attach that fails late",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm03")),
        mig=False,
    ),
    Scenario("attach one more", attach("vm03", add=True), attach("vm03")),
    Scenario("attach three at once", attach(count=3), mig=False),
    Scenario("attach three live", attach(count=3), say_hello, running=True),
    Scenario("attach three parts of instances", attach(profile=PART, count=3), mig=False),
    Scenario("attach a part beside another", attach("vm02", profile=PART), attach(profile=PART)),
    Scenario(
        "attach three, of which the last fails",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm03", profile=PART, count=3)),
    ),
    Scenario("detach from a shut off VM", detach(), attach()),
    Scenario(
        "detach one of two", detach("aaaa0001"), both(attach("vm03"), attach("vm03", add=True))
    ),
    Scenario(
        "detach a part beside another",
        detach("vm02"),
        both(attach(profile=PART), attach("vm02", profile=PART)),
    ),
    Scenario("detach all three", detach(every=True), attach(profile=PART, count=3), mig=False),
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
    Scenario("attach a VF live", attach("vm02", profile="vf"), plug_port, running=True),
    Scenario(
        "attach a mediated device that fails late",
        both(fail("hypervisor", "set_notes config", STUCK), attach("vm02", profile="mtty-2")),
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
    Scenario("recover restarts a keeper", recover(), both(attach(), lose_keepers)),
    Scenario("recover gives devices again", recover(readd=True), both(attach(), lose_devices)),
    Scenario(
        "recover frees what a VM had",
        recover(release=True),
        both(attach("vm03"), undefine(UUID_BARE)),
    ),
    Scenario("recover follows a name", recover(), both(attach(), rename)),
)
