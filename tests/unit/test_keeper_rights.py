"""A keeper that root starts gives its rights away; its launcher, which keeps them, does little and trusts no
request.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.calls_rig import null_channel, run_python
from tests.unit.transport_rig import Rig, alive, open_fds, wait_for
from vgpumgr.host.confinement import audit_keeper

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root's keeper has rights to give away"),
    pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="sanitizers have no sandbox"),
]
LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438
START, SIGNAL, CONNECT = 1, 2, 3
#: what, value, epoch, descriptors: native/keeper/launcher.h
REQUEST = struct.Struct("=IiII")


def check(rig: Rig) -> None:
    """A guest process computes."""
    assert run_python(rig, "context()\nprint('ok')").strip() == "ok"


def find_launcher(keeper: int) -> int:
    """Its only child."""
    (child,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return int(child)


def find_worker_parent(rig: Rig) -> int:
    status = Path(f"/proc/{rig.status().worker.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])


@contextmanager
def stolen_socket(keeper: int) -> Iterator[socket.socket]:
    """The keeper's end towards its launcher, as somebody has it who has taken the keeper over."""
    pidfd = os.pidfd_open(keeper)
    found = []
    try:
        for link in Path(f"/proc/{keeper}/fd").iterdir():
            if not str(link.readlink()).startswith("socket:"):
                continue
            number = LIBC.syscall(PIDFD_GETFD, pidfd, int(link.name), 0)
            assert number >= 0, os.strerror(ctypes.get_errno())
            one = socket.socket(fileno=number)
            # the only such socket that was made while the keeper was root
            creator = struct.unpack(
                "iII", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
            if one.type == socket.SOCK_SEQPACKET and creator[1] == 0:
                found.append(one)
            else:
                one.close()
        (stolen,) = found
        yield stolen
    finally:
        os.close(pidfd)
        for one in found:
            one.close()


def test_a_keeper_of_root_has_given_its_rights_away() -> None:
    with null_channel("ring") as rig:
        status = rig.status()
        facts = audit_keeper(status.keeper_pid)
        users = {
            Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[0]
            for pid in (status.keeper_pid, status.worker.pid, find_launcher(status.keeper_pid))
        }
        assert find_worker_parent(rig) == find_launcher(status.keeper_pid)
    assert [fact for fact in facts if not fact.holds] == []
    assert len(users) == 3
    assert "0" in users


def test_the_audit_notices_a_keeper_with_rights() -> None:
    with null_channel("ring", VGPUMGR_ALLOW_UNCONFINED="1") as rig:
        facts = audit_keeper(rig.status().keeper_pid)
    assert {fact.name for fact in facts if not fact.holds} >= {"keeper user", "keeper capabilities"}


def test_a_keeper_can_neither_write_nor_signal_what_is_roots() -> None:
    with null_channel("ring") as rig:
        keeper = rig.status().keeper_pid
        uid = int(Path(f"/proc/{keeper}/status").read_text().split("Uid:")[1].split()[0])
        directory = rig.keeper.directory
        child = os.fork()
        if not child:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            done = 0
            for attempt in (
                lambda: os.kill(find_launcher(keeper), signal.SIGTERM),
                lambda: (directory / "control.sock").unlink(),
                lambda: (directory / "new").touch(),
                lambda: socket.socket(socket.AF_UNIX).connect(str(directory / "control.sock")),
            ):
                try:
                    attempt()
                    done += 1
                except OSError:
                    pass
            os._exit(done)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_launcher_does_only_what_is_harmless() -> None:
    with null_channel("ring") as rig:
        status = rig.status()
        launcher = find_launcher(status.keeper_pid)
        check(rig)
        with stolen_socket(status.keeper_pid) as attacker:
            requests = [
                REQUEST.pack(99, 1, 2, 3),
                REQUEST.pack(0, -1, 0, 0xFFFFFFFF),
                # only TERM and KILL, and only for the worker
                *(REQUEST.pack(SIGNAL, number, 0, 0) for number in (-1, 0, 19, 2**31 - 1)),
                # a worker runs: no second one, whatever descriptors it is said to have
                REQUEST.pack(START, 0, 7, 0xFFFFFFFF),
                REQUEST.pack(CONNECT, 0, 0, 0xF) + b"x" * 100,
            ]
            for request in requests:
                attacker.send(request)
            spare = os.open("/dev/null", os.O_RDONLY)
            for _ in range(100):  # more than it takes; none may stay open there
                socket.send_fds(attacker, [REQUEST.pack(99, 0, 0, 0)], [spare] * 4)
            os.close(spare)
        check(rig)
        after = rig.status()
        assert (after.worker.pid, after.worker.starts) == (status.worker.pid, status.worker.starts)
        assert find_launcher(status.keeper_pid) == launcher
        assert open_fds(launcher) < 20


def test_a_killed_launcher_takes_worker_and_keeper_along_and_another_pair_can_start() -> None:
    with null_channel("ring") as rig:
        status = rig.status()
        os.kill(find_launcher(status.keeper_pid), signal.SIGKILL)
        wait_for(lambda: not alive(status.worker.pid), "the worker ends")
        wait_for(lambda: not alive(status.keeper_pid), "the keeper ends")
        rig.keeper.start(rig.options)
        rig.wait_status(lambda s: s.guest.hello != "none", "the agent finds the next keeper")
        check(rig)


def test_a_killed_keeper_leaves_no_launcher() -> None:
    with null_channel("ring") as rig:
        keeper = rig.status().keeper_pid
        launcher = find_launcher(keeper)
        os.kill(keeper, signal.SIGKILL)
        wait_for(lambda: not alive(launcher), "the launcher ends")
        rig.keeper.start(rig.options)
