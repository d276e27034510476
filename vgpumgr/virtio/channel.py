"""What the forward backend offers: a channel for an attachment, and what domain and guest need for it.

A channel is a keeper (it owns the ring's memory and the sockets for as long as the attachment lives) with a worker (it
runs the guest's calls on one CUDA device). Nothing here talks to libvirt or chooses a device. A guest needs the agent,
the CUDA shims, a unit and a loader path: its package is made of the native part (``_lib/guest``) and the templates
(``_lib/templates/guest``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from vgpumgr.host.confinement import Fact
from vgpumgr.model.choices import ComputePolicy, Priority
from vgpumgr.model.limits import DEFAULT_LIMITS, LimitKey, Limits

#: memory of a ring that is there when the guest starts
RING_BYTES = 64 << 20
#: what a running q35 guest can still place: its kernel gives hot-plugged devices behind a bridge
# 2 MiB windows
LIVE_RING_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """Another host of the pool, which runs a channel's calls: this host's name, that one's, and the claim whose lease
    is there. ``is_late``: the lease begins with the first call, and ``host`` is empty without it.
    """

    own: str
    host: str
    claim: str
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A channel to start. ``cuda_device`` is what CUDA_VISIBLE_DEVICES must say (``MIG-...``, ``GPU-...``), and empty
    of a channel with a ``link``.
    """

    id: str
    vm_name: str
    cuda_device: str
    ring: bool
    serial: bool
    memory_bytes: int = RING_BYTES
    #: of the attachment in its VM: the guest orders its devices by it
    number: int = 0
    #: uid and gid of the QEMU that will connect; None: our own
    socket_owner: tuple[int, int] | None = None
    #: UUID of the GPU, and its instances that ``cuda_device`` stands for: whose device nodes the worker sees
    gpu: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    limits: Limits = DEFAULT_LIMITS
    #: of a share: percent of the GPU's time, which its arbiter keeps, and what that means; None: all of it
    compute: float | None = None
    compute_policy: ComputePolicy | None = None
    priority: Priority = Priority.NORMAL
    #: None: unless the environment allows a worker without a sandbox
    confined: bool | None = None
    #: None: a worker of this host runs its calls
    link: LinkTarget | None = None


@dataclass(frozen=True, slots=True)
class ChannelPaths:
    """Sockets that the domain's devices name: libvirt connects to ``ring``, QEMU listens at
    ``control``.
    """

    ring: str
    control: str


def list_agent_options(paths: ChannelPaths, socket: str, *, serial: bool) -> list[str]:
    """The guest's agent's, where it stands in the place of QEMU; programs ask it for lanes at ``socket``."""
    words = ["--socket", socket, "--mode", "0600", "--transport", "serial" if serial else "ring"]
    way = ["--serial-listen", paths.control] if serial else ["--ivshmem-socket", paths.ring]
    return [*words, *way]


@dataclass(frozen=True, slots=True)
class Lane:
    """One guest process on the channel, as the guest names it: for display only."""

    id: int
    pid: int
    name: str
    ring: bool
    calls: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    memory_bytes: int = 0


#: stands for calls for whose names there was no place
OTHER_CALLS = "others"


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """A session that needs an administrator's eye: ``slow``, its call (``text``) lasts; ``stuck``, it was killed and
    does not end; ``ended``, by a crash or by others (``text``); ``memory``, it was ended for what the driver said
    that it had. ``pid`` is the process's on this host,
    ``guest_pid`` and ``name`` are the guest's word.
    """

    kind: Literal["slow", "stuck", "ended", "memory"]
    lane: int
    pid: int | None
    since_s: int
    guest_pid: int | None = None
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class SessionReport:
    """Sessions since the worker started: ended by others or a crash, ``faults`` of them by a crash; ended by the
    watchdog; and what there is to see of them, the last ends among it. ``memory`` of those lost were ended for the
    device memory that they had without having counted it.
    """

    lost: int = 0
    faults: int = 0
    overdue: int = 0
    events: tuple[SessionEvent, ...] = ()
    memory: int = 0


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit as it is enforced now (None: none), and what is used of it (None: not counted). ``refused`` are charges
    that would have exceeded it, ``waited_s`` is how long calls were held up by a rate. Of device-memory
    ``driver_used`` is what the driver says that they have, and ``unchecked`` why that is not compared with the limit.
    """

    key: LimitKey
    limit: int | None
    used: int | None
    refused: int = 0
    waited_s: float = 0.0
    driver_used: int | None = None
    unchecked: str | None = None


@dataclass(frozen=True, slots=True)
class ShareUse:
    """A share of a GPU's time as the arbiter keeps it: percent, what that means, time on the GPU and time that work was
    held back, both since the keeper started, and how often it had its turn.
    """

    compute: float
    policy: str
    used_s: float = 0.0
    throttled_s: float = 0.0
    turns: int = 0
    #: for so long its work has been on the GPU after its turn, where others go on beside it; 0: it is not
    overdue_s: float = 0.0
    #: whether an arbiter keeps it now
    kept: bool = True
    priority: str = "normal"
    #: parts of the GPU's time in the last seconds that were compared: what the driver says that its programs had, and
    #: what it was charged for; ``unchecked`` says why they are not compared
    driver: float | None = None
    charged: float | None = None
    unchecked: str | None = None
    #: how much more they had than that, in all, and which process of the host had most when it was seen last
    uncharged_s: float = 0.0
    uncharged_pid: int | None = None
    uncharged_at_s: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """A channel as it is now. ``problem`` says why the worker is not ready, in its own words;
    ``worker_failed``: it ended so often that the keeper starts it no more. ``hidden``: this user may
    not look, and nothing of it is known but that it is there.
    """

    id: str
    keeper_pid: int
    worker_pid: int | None
    worker_ready: bool
    hello_ring: bool
    hello_serial: bool
    memory_bytes: int
    worker_restarts: int = 0
    worker_failed: bool = False
    problem: str | None = None
    lanes: tuple[Lane, ...] = ()
    #: of all lanes since the keeper started, those that are gone included
    calls: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    #: sessions that were ended because the guest broke the protocol
    protocol_errors: int = 0
    sessions: SessionReport = SessionReport()
    #: calls that the guest's libraries refused, by name
    refused: Mapping[str, int] = field(default_factory=dict)
    #: who has the ring's memory
    qemu_pid: int | None = None
    hidden: bool = False
    #: its keeper runs and does not answer: nothing else is known of it
    keeper_hangs: bool = False
    #: what its guest package is, where it is of another version than this host
    guest_differs: str | None = None
    limits: tuple[LimitUse, ...] = ()
    #: None: it is no share, or its keeper does not say
    share: ShareUse | None = None

    @property
    def hello(self) -> bool:
        """Whether the guest's agent has spoken, over whichever transport."""
        return self.hello_ring or self.hello_serial

    @property
    def memory_used(self) -> int | None:
        """Device memory that its programs use; None: it is not counted."""
        return next((use.used for use in self.limits if use.key.name == "device-memory"), None)


@dataclass(frozen=True, slots=True)
class HostLibrary:
    """A library of the host that sessions load for their guests' calls: its name without a major, the file behind the
    links, whose name has the version, and how many sessions have it loaded now.
    """

    name: str
    path: Path
    sessions: int = 0


class Channels(Protocol):
    """The channels of one machine. Methods may raise ChannelStartError and OSError's kin as
    VgpumgrErrors.
    """

    def paths(self, channel_id: str) -> ChannelPaths:
        """Where the channel's sockets are or will be; known before it starts."""

    def start(self, spec: ChannelSpec) -> None:
        """Starts the keeper and its worker; returns before the worker is ready. Running is no
        error.
        """

    def stop(self, channel_id: str, *, keeps_sockets: bool = False) -> None:
        """Ends worker and keeper and frees what they hold; absent is no error. ``keeps_sockets``: those that a
        running QEMU listens at stay, for another keeper.
        """

    def check_installed(self) -> None:
        """Raises LibraryNotFoundError where the programs of channels are missing, or of another version."""

    def find_obstacle(self) -> str | None:
        """Why this host can evidently build no sandbox, where a worker must have one."""

    def restart_worker(self, channel_id: str) -> None:
        """Ends the worker, if one runs, and starts another, however often the last ones failed."""

    def set_memory(self, channel_id: str, memory_bytes: int) -> None:
        """Size of the ring's memory from the next connection of a QEMU on."""

    def start_arbiter(self, spec: ChannelSpec) -> None:
        """Has the arbiter of a share run, which its channel joins by itself. Raises ChannelStartError."""

    def set_share(self, channel_id: str, memory_bytes: int, compute: float, priority: str) -> None:
        """Memory, percentage of time and priority of a channel with a share, at once and for every later worker of its
        keeper. Raises ShareInUseError where more memory is used than that, and then nothing has changed.
        """

    def read_status(self, channel_id: str) -> ChannelStatus | None:
        """The channel as it is now; None if no keeper runs."""

    def audit(self, channel_id: str) -> tuple[Fact, ...]:
        """What holds the worker's processes, as the kernel shows it now; nothing without a worker."""

    def list_libraries(self, channel_id: str) -> tuple[HostLibrary, ...]:
        """NVIDIA's libraries that its sessions have loaded or would load; nothing without a worker."""

    def list_ids(self) -> tuple[str, ...]:
        """Ids of all channels that left anything here, running or not."""


SHIMS = (
    "libcuda.so.1",
    "libcudart.so.12",
    "libcudart.so.13",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.11",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcupti.so.12",
    "libcupti.so.13",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvshmem_host.so.3",
    "libnvidia-ml.so.1",
    "vgpumgr-audit.so",
)
LIBRARY_DIRECTORY = "usr/lib/vgpumgr"
#: label of the guest package as an image
VOLUME = "VGPUMGR"


def guest_files(library_directory: Path) -> dict[str, Path]:
    """The guest package: path in the guest (relative to its root) to the file here.

    ``library_directory`` is the native part's, ``vgpumgr/_lib``. Raises ``FileNotFoundError`` if a
    part is not built.
    """
    built, templates = library_directory / "guest", library_directory / "templates" / "guest"
    files = {f"{LIBRARY_DIRECTORY}/{name}": built / name for name in SHIMS}
    files["usr/sbin/vgpumgr-guestd"] = built / "vgpumgr-guestd"
    files["usr/bin/vgpumgr-guest-check"] = built / "vgpumgr-guest-check"
    files["usr/bin/vgpumgr-guest"] = templates / "vgpumgr-guest"
    files["usr/lib/systemd/system/vgpumgr-guestd.service"] = templates / "vgpumgr-guestd.service"
    files["usr/share/vgpumgr/uv-overrides"] = templates / "uv-overrides"
    files["etc/ld.so.conf.d/vgpumgr.conf"] = templates / "vgpumgr.conf"
    files["install.sh"] = templates / "install.sh"
    for source in files.values():
        if not source.is_file():
            raise FileNotFoundError(source)
    return files


def write_archive(library_directory: Path, target: Path, *, image: bool = False) -> list[str]:
    """Writes the package as ``.tar.gz``, or as an image of a CD; returns the paths in it. Same input, same bytes.

    Raises ``OSError`` if the target cannot be written, ``FileNotFoundError`` as ``guest_files``
    does, ``ImageError``.
    """
    import gzip  # a package is rarely written, and these are no small modules
    import io
    import tarfile

    files = guest_files(library_directory)
    if image:
        target.write_bytes(_make_image(files))
        return sorted(files)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, source in sorted(files.items()):
            # root's, without times
            info = tarfile.TarInfo(f"vgpumgr-guest/{name}")
            info.size = source.stat().st_size
            info.mode = _choose_mode(name)
            info.uname = info.gname = "root"
            archive.addfile(info, io.BytesIO(source.read_bytes()))
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return sorted(files)


def _choose_mode(name: str) -> int:
    executable = name.startswith(("usr/bin/", "usr/sbin/", "install.sh", LIBRARY_DIRECTORY))
    return 0o755 if executable else 0o644


class ImageError(Exception):
    """xorriso is missing or has failed."""


def _make_image(files: Mapping[str, Path]) -> bytes:
    """ISO 9660 with Rock Ridge, by xorriso: names, modes and links as on any Linux."""
    import os
    import shutil
    import subprocess
    from tempfile import TemporaryDirectory

    program = shutil.which("xorriso")
    if program is None:
        raise ImageError("there is no xorriso here")
    with TemporaryDirectory() as directory:
        root, image = Path(directory, "root"), Path(directory, "image")
        for name, source in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / name)
            (root / name).chmod(_choose_mode(name))
        for path in (root, *root.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        owner = ["-uid", "0", "-gid", "0", "--set_all_file_dates", "1980010100000000"]
        done = subprocess.run(
            [program, "-as", "mkisofs", "-quiet", "-R", "-V", VOLUME, *owner, "-o", image, root],
            env=os.environ | {"SOURCE_DATE_EPOCH": "315532800"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise ImageError("\n".join(lines[-3:]) or f"xorriso: exit status {done.returncode}")
        return image.read_bytes()
