"""Channels without processes: a table, or with ``serve`` a real ivshmem server that QEMU can connect to."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgpumgr.errors import ChannelStartError, ShareInUseError
from vgpumgr.host.confinement import Fact
from vgpumgr.virtio.channel import (
    ChannelPaths,
    ChannelSpec,
    ChannelStatus,
    HostLibrary,
    LimitUse,
    ShareUse,
)
from vgpumgr.virtio.keeper import check_programs


class FakeChannels:
    """Implements ``virtio.channel.Channels``; ``hello`` decides whether guests answer."""

    def __init__(self, directory: Path, *, serve: bool = False, hello: bool = False) -> None:
        self.directory = directory
        self.running: dict[str, ChannelStatus] = {}
        self.specs: dict[str, ChannelSpec] = {}
        self.next_memory: dict[str, int] = {}
        #: memory and percent of time that channels of shares keep to, and memory that is used of them
        self.shares: dict[str, tuple[int, float]] = {}
        self.used: dict[str, int] = {}
        self.priorities: dict[str, str] = {}
        self.share_more: dict[str, Any] = {}
        #: whether the command is killed when it has changed a share
        self.killed_in_set = False
        self.hello = hello
        self.fail: dict[str, Exception] = {}
        self.never_ready = False
        #: why there can be no sandbox
        self.obstacle: str | None = None
        #: where real ones look whether they are installed
        self.programs: tuple[Path, ...] = ()
        self.lib = directory / "lib"
        self._serve = serve
        self._servers: dict[str, socket.socket] = {}

    def paths(self, channel_id: str) -> ChannelPaths:
        directory = self.directory / channel_id
        return ChannelPaths(str(directory / "ring.sock"), str(directory / "serial.sock"))

    def start(self, spec: ChannelSpec) -> None:
        self._enter("start")
        self.specs[spec.id] = spec
        self.running[spec.id] = ChannelStatus(
            id=spec.id,
            keeper_pid=1000,
            worker_pid=1001,
            worker_ready=not self.never_ready,
            hello_ring=False,
            hello_serial=False,
            memory_bytes=spec.memory_bytes,
            worker_failed=self.never_ready,
            problem="no CUDA device" if self.never_ready else None,
            limits=tuple(LimitUse(key, limit, None) for key, limit in spec.limits.items()),
        )
        if spec.compute is not None and spec.limits.device_memory is not None:
            self.shares[spec.id] = (spec.limits.device_memory, spec.compute)
            self.priorities[spec.id] = spec.priority
        if self._serve:
            self._listen(spec)

    def stop(self, channel_id: str, *, keeps_sockets: bool = False) -> None:  # noqa: ARG002
        self._enter("stop")
        self.running.pop(channel_id, None)
        if server := self._servers.pop(channel_id, None):
            server.close()

    def check_installed(self) -> None:
        check_programs(self.programs, self.lib)

    def find_obstacle(self) -> str | None:
        return self.obstacle

    def restart_worker(self, channel_id: str) -> None:
        self._enter("restart_worker")
        status = self.running[channel_id]
        self.running[channel_id] = replace(
            status,
            worker_pid=(status.worker_pid or 1000) + 1,
            worker_ready=not self.never_ready,
            worker_failed=self.never_ready,
            problem="no CUDA device" if self.never_ready else None,
        )

    def set_memory(self, channel_id: str, memory_bytes: int) -> None:
        self._enter("set_memory")
        if channel_id not in self.running:
            raise ChannelStartError("no keeper")
        self.next_memory[channel_id] = memory_bytes

    def start_arbiter(self, spec: ChannelSpec) -> None:
        self._enter("start_arbiter")
        assert spec.compute is not None
        self.share_more.pop("kept", None)

    def set_share(self, channel_id: str, memory_bytes: int, compute: float, priority: str) -> None:
        self._enter("set_share")
        if self.used.get(channel_id, 0) > memory_bytes:
            raise ShareInUseError("more is used")
        self.shares[channel_id] = (memory_bytes, compute)
        self.priorities[channel_id] = priority
        if self.killed_in_set:
            raise KeyboardInterrupt

    def read_status(self, channel_id: str) -> ChannelStatus | None:
        status = self.running.get(channel_id)
        if status is not None and channel_id in self.shares:
            memory, compute = self.shares[channel_id]
            limits = tuple(
                replace(use, limit=memory, used=self.used.get(channel_id, 0))
                if use.key.name == "device-memory"
                else use
                for use in status.limits
            )
            policy = str(self.specs[channel_id].compute_policy)
            more = {"priority": self.priorities[channel_id], **self.share_more}
            share = ShareUse(compute, policy, **more)
            status = replace(status, limits=limits, share=share)
        return status and replace(status, hello_ring=self.hello)

    def audit(self, channel_id: str) -> tuple[Fact, ...]:  # noqa: ARG002
        return ()

    def list_libraries(self, channel_id: str) -> tuple[HostLibrary, ...]:  # noqa: ARG002
        return ()

    def list_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self.running))

    def _enter(self, name: str) -> None:
        if error := self.fail.pop(name, None):
            raise error

    def _listen(self, spec: ChannelSpec) -> None:
        path = Path(self.paths(spec.id).ring)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not spec.ring:
            return
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        self._servers[spec.id] = server
        threading.Thread(
            target=_serve_ivshmem, args=(server, spec.memory_bytes), daemon=True
        ).start()


def _serve_ivshmem(server: socket.socket, size: int) -> None:
    """The hand-over of QEMU's ivshmem specification: version, own id, memory, one peer, own doorbell."""
    kept: list[socket.socket] = []
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        kept.append(client)
        memory = os.memfd_create("ring")
        os.ftruncate(memory, size)
        bells = [os.eventfd(0), os.eventfd(0)] if hasattr(os, "eventfd") else [memory, memory]
        with contextlib.suppress(OSError):
            client.sendall(struct.pack("<qq", 0, 0))
            for number, descriptor in ((-1, memory), (1, bells[0]), (0, bells[1])):
                socket.send_fds(client, [struct.pack("<q", number)], [descriptor])
