"""How a keeper is started: its command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vgpumgr.host.machine import LIB_DIR
from vgpumgr.virtio.sandbox import is_unconfined, list_sandbox_options

KEEPER_PROGRAM = LIB_DIR / "bin" / "vgpumgr-keeper"
DEFAULT_SIZE_BYTES = 64 << 20
"""Ring memory for 16 guest processes; a guest on q35 can place a hot-plugged BAR of 1 MiB only."""


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    """How to start a keeper; ``socket_owner`` is (uid, gid) of QEMU, which must connect."""

    worker: Path
    worker_args: Sequence[str] = ()
    shm_size_bytes: int = DEFAULT_SIZE_BYTES
    serial: Path | None = None
    socket_owner: tuple[int, int] | None = None
    socket_mode: int = 0o600
    env: Mapping[str, str] = field(default_factory=dict)
    #: the worker's device nodes; see ``host.gpu_nodes``
    devices: Sequence[str] = ()
    #: None: unless the environment allows a worker without a sandbox
    confined: bool | None = None
    #: directories of control groups, which are there
    cgroups: Sequence[str] = ()
    #: of a share: percent of the GPU's time, what that means, and the socket of the GPU's arbiter
    compute: float | None = None
    compute_policy: str | None = None
    priority: str = "normal"
    arbiter: Path | None = None

    def arguments(self, directory: Path) -> list[str]:
        """The keeper's command line."""
        words = [str(KEEPER_PROGRAM), "--dir", str(directory), "--worker", str(self.worker)]
        words += ["--shm-size", str(self.shm_size_bytes), "--socket-mode", f"{self.socket_mode:o}"]
        if self.serial is not None:
            words += ["--serial", str(self.serial)]
        if self.socket_owner is not None:
            words += ["--socket-owner", f"{self.socket_owner[0]}:{self.socket_owner[1]}"]
        for name, value in self.env.items():
            words += ["--env", f"{name}={value}"]
        environ = {**os.environ, **self.env}
        if not is_unconfined(environ) if self.confined is None else self.confined:
            words += list_sandbox_options(
                directory, self.worker, self.worker_args, environ, self.devices
            )
        for path in self.cgroups:
            words += ["--cgroup", path]
        if self.compute is not None:
            words += ["--compute", str(self.compute), "--compute-policy", str(self.compute_policy)]
            words += ["--priority", self.priority, "--arbiter", str(self.arbiter)]
        return [*words, "--detach", "--", *self.worker_args]
