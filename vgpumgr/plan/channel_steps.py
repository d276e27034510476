"""Steps on the channel: keeper, worker, the guest's hello."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from vgpumgr.errors import ChannelStartError, LiveUnsupportedError
from vgpumgr.model.sizes import format_size
from vgpumgr.plan.world import World
from vgpumgr.virtio.channel import ChannelSpec

#: a worker loads the CUDA driver and makes a context before it is ready
WORKER_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class StartChannel:
    """Starts keeper and worker on the attachment's slice and waits until its CUDA is up."""

    id: str
    vm_name: str
    ring: bool
    serial: bool
    memory_bytes: int
    kind: ClassVar[str] = "channel.start"

    @property
    def target(self) -> Mapping[str, object]:
        """The channel by its id, which is the attachment's."""
        return {
            "id": self.id,
            "ring": self.ring,
            "serial": self.serial,
            "memory_bytes": self.memory_bytes,
        }

    def describe(self) -> str:
        """For people."""
        ways = [f"ring of {format_size(self.memory_bytes)}"] if self.ring else []
        ways += ["virtio-serial"] if self.serial else []
        return f"start the worker ({', '.join(ways)})"

    def do(self, world: World) -> None:
        """Starts both."""
        assert world.record.mig is not None
        assert world.record.channel is not None
        owner = world.hypervisor.read_qemu_owner()
        if owner != world.record.channel.qemu_owner:
            world.remember_channel(qemu_owner=owner)
        spec = ChannelSpec(
            id=self.id,
            vm_name=self.vm_name,
            cuda_device=str(world.record.mig.uuid),
            ring=self.ring,
            serial=self.serial,
            memory_bytes=self.memory_bytes,
            number=world.record.number,
            socket_owner=owner,
        )
        world.channels.start(spec)
        if not world.wait(lambda: self._is_settled(world), WORKER_TIMEOUT_S):
            why = f"waited {WORKER_TIMEOUT_S:g} s"
        elif not (status := world.channels.read_status(self.id)) or not status.worker_ready:
            why = "it ended again and again"
        else:
            return
        status = world.channels.read_status(self.id)
        raise ChannelStartError(
            f"the worker of {self.vm_name} did not become ready",
            cause=status.problem if status else "its keeper is gone",
            why=why,
        )

    def undo(self, world: World) -> None:
        """Ends both."""
        world.channels.stop(self.id)

    def observe(self, world: World) -> bool:
        """Whether a keeper runs."""
        return world.channels.read_status(self.id) is not None

    def _is_settled(self, world: World) -> bool:
        """Whether the worker is ready or will never be."""
        status = world.channels.read_status(self.id)
        return status is None or status.worker_ready or status.worker_failed


@dataclass(frozen=True)
class RestartWorker:
    """Gives a channel another worker where the keeper has given up starting one."""

    id: str
    kind: ClassVar[str] = "channel.restart"

    @property
    def target(self) -> Mapping[str, object]:
        """The channel."""
        return {"id": self.id}

    def describe(self) -> str:
        """For people."""
        return "start another worker"

    def do(self, world: World) -> None:
        """Starts it and waits until its CUDA is up."""
        world.channels.restart_worker(self.id)
        world.wait(lambda: self.observe(world) or _has_given_up(world, self.id), WORKER_TIMEOUT_S)
        status = world.channels.read_status(self.id)
        if status is None or not status.worker_ready:
            cause = status.problem if status else "its keeper is gone"
            raise ChannelStartError("the worker does not start", cause=cause)

    def undo(self, world: World) -> None:
        """Nothing: a worker that does not start is as it was."""

    def observe(self, world: World) -> bool:
        """Whether it is ready."""
        status = world.channels.read_status(self.id)
        return status is not None and status.worker_ready


def _has_given_up(world: World, channel_id: str) -> bool:
    status = world.channels.read_status(channel_id)
    return status is None or status.worker_failed


@dataclass(frozen=True)
class StopChannel:
    """Ends worker and keeper."""

    id: str
    kind: ClassVar[str] = "channel.stop"

    @property
    def target(self) -> Mapping[str, object]:
        """The channel."""
        return {"id": self.id}

    def describe(self) -> str:
        """For people."""
        return "stop the worker"

    def do(self, world: World) -> None:
        """Ends both; a keeper that is dead already is no error."""
        world.channels.stop(self.id)

    def undo(self, world: World) -> None:
        """Nothing: a detach goes on, it is not taken back."""

    def observe(self, world: World) -> bool:
        """Whether no keeper runs."""
        return world.channels.read_status(self.id) is None


@dataclass(frozen=True)
class AwaitHello:
    """Waits for the hello of the guest's agent: before it, nothing in the guest can use the
    devices.
    """

    id: str
    timeout_s: float
    required: bool
    kind: ClassVar[str] = "channel.hello"

    @property
    def target(self) -> Mapping[str, object]:
        """The channel, and how long."""
        return {"id": self.id, "timeout_s": self.timeout_s}

    def describe(self) -> str:
        """For people."""
        return f"wait for the guest's agent (at most {self.timeout_s:g} s)"

    def do(self, world: World) -> None:
        """Waits; without a hello the attachment counts from the next start, or fails where that is
        not enough.
        """
        if world.wait(lambda: self.observe(world), self.timeout_s):
            world.hello = True
            return
        why = (
            f"no hello from the guest in {self.timeout_s:g} s: vgpumgr-guestd does not run in it, "
            "or its kernel could not place the device"
        )
        if self.required:
            raise LiveUnsupportedError("the running guest does not use its new devices", why=why)
        world.notes.append(f"usable from the VM's next start, or as soon as its agent runs: {why}")

    def undo(self, world: World) -> None:
        """Nothing to take back."""

    def observe(self, world: World) -> bool:
        """Whether the guest has said hello."""
        status = world.channels.read_status(self.id)
        return status is not None and status.hello


@dataclass(frozen=True)
class ResizeChannel:
    """Lets the ring have its full size at the VM's next start, after a live start with a small one."""

    id: str
    memory_bytes: int
    live_bytes: int
    kind: ClassVar[str] = "channel.resize"

    @property
    def target(self) -> Mapping[str, object]:
        """The channel and its size from the next start on."""
        return {"id": self.id, "memory_bytes": self.memory_bytes}

    def describe(self) -> str:
        """For people."""
        return f"make the ring {format_size(self.memory_bytes)} from the next start on"

    def do(self, world: World) -> None:
        """Tells the keeper; the memory in use stays as it is."""
        world.channels.set_memory(self.id, self.memory_bytes)

    def undo(self, world: World) -> None:
        """Puts the small size back."""
        if world.channels.read_status(self.id) is not None:
            world.channels.set_memory(self.id, self.live_bytes)

    def observe(self, world: World) -> bool:
        """The size at the next start cannot be seen; that the channel runs is enough to undo."""
        return world.channels.read_status(self.id) is not None
