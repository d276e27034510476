"""Links between hosts of a pool: calls of a guest that a GPU of another host runs (docs/adr/0028).

On the host of the VM a channel has ``vgpumgr-relay`` in the place of the worker, and ``vgpumgr-dial`` beside its
keeper, which has the network that the relay has not. On the host of the GPU ``vgpumgr-link`` listens, and is a client
of a channel there. This file starts them, and writes what they read; the daemon says who may connect
(``server/links.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from vgpumgr.errors import ChannelStartError
from vgpumgr.host.files import DIRECTORY, PRIVATE, make_directory, read_text, replace_file
from vgpumgr.host.lock import lock_file
from vgpumgr.host.machine import LIB_DIR, Machine
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.frozen import dataclass
from vgpumgr.virtio.channel import ChannelPaths, LinkTarget, list_agent_options
from vgpumgr.virtio.identity import get_directory, write_client
from vgpumgr.virtio.sandbox import ARBITER_USER

RELAY_PROGRAM = LIB_DIR / "bin" / "vgpumgr-relay"
DIAL_PROGRAM = LIB_DIR / "bin" / "vgpumgr-dial"
LINK_PROGRAM = LIB_DIR / "bin" / "vgpumgr-link"
#: the guest's, which serves a link as well
AGENT_PROGRAM = LIB_DIR / "guest" / "vgpumgr-guestd"
#: and its group: of ``vgpumgr-link``'s processes, and of the agents that they ask; beyond the arbiters'
LINK_USER = ARBITER_USER + 1
#: so long both sides wait for a link that was cut
GRACE_S = 30
#: of a channel: what its relay and its dialer read
LINK_DIRECTORY = "link"
_PEERS = "hosts.json"
_AGENT_PID = "agent.pid"
_START_S = 30.0
#: for the dialer, which waits for nothing
_STATUS_S = 2.0


@dataclass(frozen=True, slots=True)
class LinkPeer:
    """Another host as the pool's store knows it: its authority's certificate (PEM), and the addresses of its listener,
    HOST:PORT each.
    """

    name: str
    ca: str
    addresses: tuple[str, ...] = ()


def read_peers(state_dir: Path) -> Mapping[str, LinkPeer]:
    """The hosts that this one knew last, by name; a file that cannot be read says nothing."""
    try:
        text = (state_dir / "link" / _PEERS).read_text()
        return {peer.name: peer for peer in decode(tuple[LinkPeer, ...], json.loads(text))}
    except (OSError, ValueError):
        return {}


def save_peers(machine: Machine, peers: Sequence[LinkPeer]) -> None:
    """Keeps what the store says of other hosts, so that channels start without it. Raises OSError."""
    make_directory(get_directory(machine), 0o700)
    text = json.dumps(encode(sorted(peers, key=lambda peer: peer.name))) + "\n"
    _write_changed(get_directory(machine) / _PEERS, text, PRIVATE)


def split_address(text: str) -> tuple[str, int]:
    """HOST:PORT, or [ADDRESS]:PORT. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"no address: {text!r}")
    return host, int(port)


def get_broker(machine: Machine) -> Path:
    """The socket at which the daemon answers who may use what."""
    return machine.run_dir / "link" / "broker.sock"


# on the host of the VM


def write_link(
    machine: Machine, directory: Path, target: LinkTarget, attachment: str, uid: int
) -> None:
    """Writes what the relay (user ``uid``) and the dialer of a channel read. Raises ChannelStartError, OSError."""
    link = directory / LINK_DIRECTORY
    with contextlib.suppress(FileExistsError):
        link.mkdir(0o711)
    # the process that serves renews what an attach or a restore may write at the same time
    with lock_file(link / "lock", _START_S, what="the files of a link"):
        _write_link(machine, link, target, attachment, uid)


def _write_link(
    machine: Machine, link: Path, target: LinkTarget, attachment: str, uid: int
) -> None:
    write_client(machine, target.own, target.claim, attachment, link, uid)
    if target.is_late:
        _write_changed(link / "late", "")
        _write_changed(link / "address", f"broker {get_broker(machine)}\n")
        return
    peer = read_peers(machine.state_dir).get(target.host)
    if peer is None or not peer.addresses:
        raise ChannelStartError(
            f"the link to host {target.host} cannot be made",
            why=f"host {target.host} offers no GPUs over the network now",
            hint="vgpumgr pool status",
        )
    write_peer(link, peer)
    _write_changed(link / "address", format_addresses(peer))


def write_peer(link: Path, peer: LinkPeer) -> None:
    """Whom the relay of a channel is to find at the other end."""
    _write_changed(link / "peer.pem", peer.ca)
    _write_changed(link / "peer.name", f"{peer.name}\n")


def format_addresses(peer: LinkPeer) -> str:
    """As the dialer reads them."""
    return "".join("tcp {} {}\n".format(*split_address(text)) for text in peer.addresses)


def start_dialer(directory: Path, uid: int) -> None:
    """Starts the dialer of a channel whose keeper is started next; it ends with that. ``uid`` is the relay's. Raises
    ChannelStartError.
    """
    words = [str(DIAL_PROGRAM), "--dir", str(directory / LINK_DIRECTORY)]
    words += ["--keeper-lock", str(directory / "keeper.pid")]
    if os.geteuid() == 0:
        words += ["--owner", f"{uid}:{uid}"]
    _start([*words, "--detach"], "the dialer of the link")


@dataclass(frozen=True, slots=True)
class LinkSession:
    """A guest process's link, as the dialer knows it; ``pid`` and ``name`` are the guest's word."""

    pid: int
    name: str
    state: Literal["dialing", "waiting", "up", "down"]
    since_s: int
    #: how often it was connected: more than once after cuts
    connections: int
    where: str
    text: str


def read_sessions(directory: Path) -> tuple[LinkSession, ...]:
    """The links of a channel's processes; none where its dialer does not answer."""
    with contextlib.suppress(OSError, ValueError, TypeError), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_STATUS_S)
        sock.connect(str(directory / LINK_DIRECTORY / "dial.sock"))
        sock.sendall(b"status\n")
        with sock.makefile("rb") as answers:
            line = answers.readline(1 << 20)
        return decode(tuple[LinkSession, ...], json.loads(line)["sessions"])
    return ()


# on the host of the GPU


def write_peer_files(machine: Machine, peers: Sequence[LinkPeer]) -> Path:
    """A file for each host that may connect, with its authority's certificate; others go. Raises OSError."""
    directory = machine.run_dir / "link" / "peers"
    make_directory(directory, DIRECTORY)
    wanted = {f"{peer.name}.pem": peer.ca for peer in peers if peer.ca}
    for path in directory.glob("*.pem"):
        if path.name not in wanted:
            path.unlink(missing_ok=True)
    for name, text in wanted.items():
        _write_changed(directory / name, text)
    return directory


def find_listener(run_dir: Path) -> int | None:
    """The process of this host's listener; None: none runs."""
    text = (read_text(_get_pid_file(run_dir)) or "").strip()
    with contextlib.suppress(OSError):
        # another process may have that number meanwhile
        if text.isdecimal() and Path(f"/proc/{text}/exe").readlink().name == LINK_PROGRAM.name:
            return int(text)
    return None


def read_listen(run_dir: Path) -> tuple[str, ...]:
    """The addresses that the listener which runs was started with."""
    pid = find_listener(run_dir)
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return tuple(b for a, b in pairwise(words) if a == "--listen")
    return ()


def start_listener(machine: Machine, listen: Sequence[str]) -> None:
    """Starts ``vgpumgr-link``, which outlives this process. Raises ChannelStartError, OSError."""
    directory = machine.run_dir / "link"
    make_directory(directory, DIRECTORY)
    user = f"{LINK_USER}:{LINK_USER}" if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}"
    words = [str(LINK_PROGRAM)]
    for address in listen:
        words += ["--listen", address]
    words += ["--identity", str(get_directory(machine)), "--peers", str(directory / "peers")]
    words += ["--broker", str(get_broker(machine)), "--user", user, "--grace", str(GRACE_S)]
    words += ["--pid-file", str(_get_pid_file(machine.run_dir)), "--detach"]
    _start(words, "the listener for links")


def stop_listener(machine: Machine) -> None:
    """Ends it, and with it what other hosts have by it; none is no error."""
    if (pid := find_listener(machine.run_dir)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _get_pid_file(run_dir: Path) -> Path:
    return run_dir / "link" / "link.pid"


def get_link_owner() -> tuple[int, int]:
    """uid and gid of what connects to channels for other hosts."""
    if os.geteuid() == 0:
        return LINK_USER, LINK_USER
    return os.geteuid(), os.getegid()


def start_agent(paths: ChannelPaths, owner: tuple[int, int]) -> int:
    """Starts the guest's agent of a channel that is served to another host; its process. Raises ChannelStartError."""
    directory = Path(paths.control).parent.parent
    stop_agent(directory)
    words = [str(AGENT_PROGRAM), *list_agent_options(paths, str(_get_agent(paths)), serial=False)]
    user, group = owner if os.geteuid() == 0 else (None, None)
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True, user=user, group=group,
            extra_groups=None if user is None else [],
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise ChannelStartError(
            "the guest's agent of a link does not start", cause=str(error)
        ) from error
    # it outlives this process, and is no zombie while this one lives
    threading.Thread(target=process.wait, name="link-agent", daemon=True).start()
    replace_file(directory / _AGENT_PID, f"{process.pid}\n", PRIVATE)
    return process.pid


def connect_agent(paths: ChannelPaths) -> socket.socket:
    """A connection to the agent. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(str(_get_agent(paths)))
    except BaseException:
        sock.close()
        raise
    return sock


def stop_agent(directory: Path) -> None:
    """Ends the agent of a channel's directory; none is no error."""
    text = (read_text(directory / _AGENT_PID) or "").strip()
    with contextlib.suppress(OSError):
        if text.isdecimal() and Path(f"/proc/{text}/exe").readlink().name == AGENT_PROGRAM.name:
            os.kill(int(text), signal.SIGKILL)


def _get_agent(paths: ChannelPaths) -> Path:
    return Path(paths.control).with_name("agent.sock")


def _start(words: Sequence[str], what: str) -> None:
    """Runs a program that detaches itself, and keeps its standard error. Raises ChannelStartError."""
    with tempfile.TemporaryFile() as log:
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_START_S, check=False,
                cwd="/",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ChannelStartError(f"{what} does not start", cause=str(error)) from error
        if done.returncode:
            log.seek(0)
            text = log.read().decode(errors="replace").strip()
            cause = text or f"exit status {done.returncode}"
            raise ChannelStartError(f"{what} does not start", cause=cause)


def _write_changed(path: Path, text: str, mode: int = 0o644) -> None:
    """Nothing where it says that already: who watches the file sees what is new."""
    with contextlib.suppress(OSError):
        if path.read_text() == text:
            return
    replace_file(path, text, mode)
