"""The channel when things go wrong: killed parts, other versions, hostile guests."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.transport_rig import ECHO, HOSTILE, PATIENCE_S, Rig, alive, read_line, wait_for
from vgpumgr.virtio.channel_status import describe
from vgpumgr.virtio.codegen.__main__ import load
from vgpumgr.virtio.keeper import Keeper, KeeperError, KeeperOptions
from vgpumgr.virtio.sessions import GuestHello

pytestmark = pytest.mark.native

#: keeper/log.c
LOG_BYTES = 1 << 20
LOG_RATE = 32 << 10


@pytest.fixture(params=["ring", "private", "serial"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig(request.param) as made:
        yield made


# ---- killed parts ----


def test_killed_process_frees_its_lane(rig: Rig) -> None:
    client = rig.client("open", "block")
    assert read_line(client) == "ok open"
    rig.wait_status(lambda s: bool(s.lanes) and s.lanes[0].calls == 1, "the call has arrived")
    client.kill()
    rig.wait_status(lambda s: not s.lanes, "lane free")
    rig.check("open", "echo", "close")
    assert rig.status().violations.count == 0


def test_killed_worker(rig: Rig) -> None:
    client = rig.client("open", "blocked")
    assert read_line(client) == "ok open"
    before = rig.wait_status(lambda s: bool(s.lanes) and s.lanes[0].calls == 1, "call arrived")
    os.kill(before.worker.pid, signal.SIGKILL)
    assert client.communicate(timeout=PATIENCE_S)[0] == "ok blocked\n"
    rig.check("open", "echo", "close")
    after = rig.status()
    assert after.worker.pid != before.worker.pid
    assert after.worker.starts == 2
    assert after.worker.last_exit == "killed by signal 9 (Killed)"
    assert after.epoch > before.epoch


def test_a_crash_ends_one_session(rig: Rig) -> None:
    other = rig.client("open", "order", "threads", "order", "close")
    for _ in range(3):
        rig.check("open", "crash")
    assert other.communicate(timeout=PATIENCE_S * 2)[0].endswith("ok close\n")
    status = rig.wait_status(lambda s: s.sessions.lost == 3, "crashes are counted")
    assert status.worker.starts == 1
    assert "vgpumgr-test-client): the session was killed by signal 6" in status.sessions.last
    assert status.violations.count == 0
    rig.wait_status(lambda s: not s.lanes, "lanes are free")


def test_a_session_that_forges_its_name_is_named_as_it_was_opened() -> None:
    with Rig("ring") as rig:
        rig.check("open", "forge")
        status = rig.wait_status(lambda s: s.sessions.lost == 1, "it is counted")
        lost = "lane 1 (ring, vgpumgr-test-client): the session was killed by signal 6 (Aborted)"
        assert status.sessions.last == lost
        assert [e.name for e in status.sessions.ended] == ["vgpumgr-test-client"]
        assert f"worker: {lost}\n" in rig.keeper.worker_log.read_text()


def test_restart_loses_sessions_only(rig: Rig) -> None:
    client = rig.client("open", "lost")
    assert read_line(client) == "ok open"
    rig.keeper.restart_worker()
    assert client.communicate(timeout=PATIENCE_S)[0] == "ok lost\n"
    rig.check("open", "echo", "close")


def test_killed_agent(rig: Rig) -> None:
    client = rig.client("open", "lost")
    assert read_line(client) == "ok open"
    rig.stop_agent(signal.SIGKILL)
    rig.start_agent()
    assert client.communicate(timeout=PATIENCE_S)[0] == "ok lost\n"
    rig.check("open", "echo", "close")


def test_killed_keeper_takes_the_worker_along(rig: Rig) -> None:
    client = rig.client("open", "lost")
    assert read_line(client) == "ok open"
    status = rig.status()
    os.kill(status.keeper_pid, signal.SIGKILL)
    wait_for(lambda: not alive(status.worker.pid), "the worker ends with its keeper")
    assert client.communicate(timeout=PATIENCE_S)[0] == "ok lost\n"
    rig.keeper.start(rig.options)
    rig.wait_status(lambda s: s.guest.hello != "none", "the agent finds the next keeper")
    rig.check("open", "echo", "close")


def test_stopped_keeper_leaves_nothing(rig: Rig) -> None:
    status = rig.status()
    client = rig.client("open", "lost")
    assert read_line(client) == "ok open"
    rig.keeper.stop()
    assert client.communicate(timeout=PATIENCE_S)[0] == "ok lost\n"
    wait_for(lambda: not alive(status.keeper_pid) and not alive(status.worker.pid), "both ended")
    left = {path.name for path in rig.keeper.directory.iterdir()}
    assert left <= {"keeper.log", "worker.log"}
    with pytest.raises(KeeperError):
        rig.status()
    rig.keeper.stop()  # once more is no error


def test_next_vm_gets_fresh_memory_and_worker() -> None:
    with Rig("ring") as rig:
        client = rig.client("open", "block")
        assert read_line(client) == "ok open"
        before = rig.wait_status(lambda s: bool(s.lanes), "lane")
        rig.stop_agent(signal.SIGKILL)  # the agent stands in for QEMU: this VM has ended
        after = rig.wait_status(
            lambda s: s.worker.state == "ready" and s.worker.pid != before.worker.pid, "new worker"
        )
        assert after.epoch > before.epoch
        assert not after.qemu.connected
        with take_hand_over(rig.keeper) as (memory, _):
            words = os.pread(memory, os.fstat(memory).st_size, 4096 + 20480)
            assert not any(words), "nothing of the last tenant is left"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail", "cuInit: no CUDA-capable device"], "cuInit: no CUDA-capable device"),
        (["--die", ""], "the worker exited with status 3"),
    ],
)
def test_failing_worker_is_said(arguments: list[str], message: str) -> None:
    rig = Rig("ring", worker_args=arguments)
    try:
        rig.keeper.start(rig.options)
        with pytest.raises(KeeperError) as caught:
            rig.keeper.wait_ready()
        assert caught.value.cause == message
    finally:
        rig.keeper.stop()


def test_failing_worker_is_given_up() -> None:
    rig = Rig("ring", worker_args=["--die", ""])
    try:
        rig.keeper.start(rig.options)
        status = rig.wait_status(lambda s: s.worker.state == "failed", "breaker")
        assert status.worker.starts == 8
    finally:
        rig.keeper.stop()


# ---- versions ----


def _with_interface(transport: str, version: int) -> Rig:
    """A worker of that interface, for which what 1 and 2 do not have alike is a violation."""
    return Rig(transport, worker_args=["--interface", str(version), "--strict", "1"])


@pytest.mark.parametrize(
    ("host", "step", "told"),
    [
        (
            2,
            "open",
            "libraries 1.0.0, older than the host's 2.0.0: 2 of its 17 operations are refu",
        ),
        (
            1,
            "open2",
            "libraries 2.0.0, newer than the host's 1.0.0: 2 of its 17 operations are refu",
        ),
    ],
)
@pytest.mark.parametrize("transport", ["ring", "private", "serial"])
def test_what_both_sides_have_alike_is_used(
    transport: str, host: int, step: str, told: str
) -> None:
    with _with_interface(transport, host) as other:
        for _ in range(2):  # the second process has the lane that was reserved after the first
            other.check(step, "refused", "echo", "words", "order", "hold", "refused")
            time.sleep(0.1)
        other.wait_status(lambda s: not s.lanes, "lanes free")
        status = other.status()
        assert status.violations.count == 0
        described = describe("x", status)
        assert described.guest_differs is not None
        assert described.guest_differs.startswith(f"vgpumgr-test-client has guest {told}")
        assert "vgpumgr virtio guest-package" in described.guest_differs
        assert described.problem == described.guest_differs


def test_without_a_common_operation_each_call_is_refused(rig: Rig) -> None:
    rig.stop_agent()
    rig.keeper.stop()
    with Rig(rig.transport, worker_args=["--interface", "3"]) as other:
        assert other.run("open", "echo").startswith("ok open\necho: EOPNOTSUPP")
        assert other.status().violations.count == 0
    rig.keeper.start(rig.options)
    rig.start_agent()


def test_the_agent_tells_of_its_package_before_any_program_runs(rig: Rig) -> None:
    """The echo worker has no operation of CUDA's."""
    status = rig.wait_status(lambda s: "the VM has" in s.guest.mismatch, "the agent's interface")
    count = len(load().operations)
    assert f"of its {count} operations are refused" in status.guest.mismatch
    assert status.violations.count == 0


def test_an_agent_of_another_version_is_named(rig: Rig) -> None:
    status = rig.status()
    hello = GuestHello(wire_version=1, matches=False, agent_version="0.0.1", kernel="6.1")
    guest = replace(status.guest, ring=None, serial=hello, mismatch="")
    told = describe("x", replace(status, guest=guest)).guest_differs
    assert told is not None
    assert "agent 0.0.1 has wire version 1" in told


# ---- permissions and memory ----


class _HandOver:
    def __init__(self, keeper: Keeper) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(keeper.ivshmem_socket))

    def __enter__(self) -> tuple[int, int]:
        numbers, self.fds = [], []
        for _ in range(5):
            data, fds, _, _ = socket.recv_fds(self.socket, 8, 1)
            numbers.append(int.from_bytes(data, "little", signed=True))
            self.fds += fds
        assert numbers == [0, 0, -1, 1, 0]
        assert len(self.fds) == 3
        return self.fds[0], self.fds[1]

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            os.close(fd)
        self.socket.close()


def take_hand_over(keeper: Keeper) -> _HandOver:
    """Connects as QEMU does: yields memory and doorbell."""
    return _HandOver(keeper)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    made = Keeper(tmp_path / "k")
    made.start(KeeperOptions(worker=ECHO, socket_mode=0o660, socket_owner=(os.getuid(), 65534)))
    try:
        made.wait_ready()
        yield made
    finally:
        made.stop()


def test_memory_is_sealed(keeper: Keeper) -> None:
    with take_hand_over(keeper) as (memory, _):
        seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
        assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        for size in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(memory, size)


def test_one_vm_at_a_time(keeper: Keeper) -> None:
    with take_hand_over(keeper):
        assert keeper.status().qemu.pid == os.getpid()
        with socket.socket(socket.AF_UNIX) as second:
            second.connect(str(keeper.ivshmem_socket))
            assert second.recv(8) == b""
        assert keeper.status().qemu.connects == 1


def test_socket_permissions(keeper: Keeper) -> None:
    shown = keeper.ivshmem_socket.stat()
    assert stat.S_IMODE(shown.st_mode) == 0o660
    assert (shown.st_uid, shown.st_gid) == (os.getuid(), 65534)
    assert stat.S_IMODE(keeper.control_socket.stat().st_mode) == 0o600


def test_size_changes_between_vms(keeper: Keeper) -> None:
    assert keeper.set_size(1 << 20).memory_size == 1 << 20
    keeper.wait_ready()
    with take_hand_over(keeper) as (memory, _):
        assert os.fstat(memory).st_size == 1 << 20
        assert keeper.set_size(64 << 20).memory_size == 1 << 20
    wait_for(lambda: keeper.status().memory_size == 64 << 20, "the next VM's size")
    with pytest.raises(KeeperError, match="refused set-size") as caught:
        keeper.set_size(3 << 20)
    assert caught.value.cause == "size must be a power of two from 1 MiB to 1 GiB"


def test_second_keeper_is_refused(keeper: Keeper) -> None:
    with pytest.raises(KeeperError) as caught:
        keeper.start(KeeperOptions(worker=ECHO))
    assert "another keeper runs here" in (caught.value.cause or "")
    assert keeper.is_running()


def test_garbage_on_the_control_socket(keeper: Keeper) -> None:
    dice = random.Random(7)
    for length in (1, 100, 511, 5000, 100000):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(keeper.control_socket))
            try:
                sock.sendall(dice.randbytes(length).replace(b"\n", b"?") + b"\n")
                sock.settimeout(PATIENCE_S)
                answer = sock.recv(4096)
            except (BrokenPipeError, ConnectionResetError):
                continue
            assert answer == b"" or b'"ok": false' in answer
    assert keeper.status().worker.state == "ready"


# ---- hostile guests ----


@pytest.mark.parametrize("mode", ["lane", "frames", "all"])
def test_hostile_guest_on_the_ring(mode: str) -> None:
    with Rig("ring") as neighbour, Rig("ring") as rig:
        busy = neighbour.client("open", "threads", "order", "bulk", "echo", "close")
        worker = rig.status().worker.pid
        attackers = [rig.client(mode, str(seed), "2", program=HOSTILE) for seed in range(2)]
        for attacker in attackers:
            out = attacker.communicate(timeout=PATIENCE_S * 2)[0]
            assert int(out.split()[0]) > 0, "the attack took place"
        assert busy.communicate(timeout=PATIENCE_S)[0].endswith("ok close\n")
        assert neighbour.status().violations.count == 0
        status = rig.wait_status(lambda s: s.violations.count > 0, "the attack is noticed")
        assert (status.worker.pid, status.worker.state) == (worker, "ready"), "the worker lives"
        assert status.violations.last.startswith("lane ")
        rig.wait_status(lambda s: not s.lanes, "the attackers' lanes are free")
        heals(rig)
        assert rig.keeper.worker_log.stat().st_size <= LOG_BYTES


@pytest.mark.parametrize(
    "line", ["x" * 50, "a line with \x1b[31mcolours", "y" * 3000], ids=["short", "colours", "long"]
)
def test_a_worker_that_never_stops_talking_fills_no_disk(tmp_path: Path, line: str) -> None:
    talker = tmp_path / "talker"
    talker.write_text(f"#!/bin/sh\nwhile :; do yes '{line}' >&2; done\n")
    talker.chmod(0o755)
    rig = Rig("ring", worker=talker)
    rig.options = replace(rig.options, confined=False)
    log = rig.keeper.worker_log
    log.parent.mkdir(mode=0o711)
    log.write_text("earlier\n" * (LOG_BYTES // 8))  # as after half a minute of it
    rig.keeper.start(rig.options)
    try:
        wait_for(lambda: "lines left out" in log.read_text(), "it is cut")
        begin, kept = time.monotonic(), len(log.read_text().replace("earlier\n", ""))
        while (passed := time.monotonic() - begin) < 4:
            text = log.read_bytes()
            assert len(text) <= LOG_BYTES
            grown = len(text.replace(b"earlier\n", b"")) - kept
            assert grown < LOG_RATE * (passed + 2), f"{grown} bytes in {passed:.1f} s"
            time.sleep(0.01)
        assert b"\x1b" not in text
        assert text.count(b"lines left out") >= 3
        assert rig.status().worker.state == "starting", "the keeper still answers"
    finally:
        rig.keeper.stop()


def test_a_guest_that_causes_lines_for_ever_fills_no_disk(rig: Rig) -> None:
    log, end = rig.keeper.worker_log, time.monotonic() + 4
    before = log.stat().st_size
    begin = time.monotonic()
    while time.monotonic() < end:
        for client in [rig.client("open", "shout") for _ in range(4)]:
            client.communicate(timeout=PATIENCE_S)
    passed = time.monotonic() - begin
    lost = rig.wait_status(lambda s: not s.lanes, "all have ended").sessions.lost
    text = log.read_text()
    assert lost > 8
    assert text.count("y" * 100) > 16, "the first ones are there"
    assert len(text) - before < LOG_RATE * (passed + 2)
    assert len(text) <= LOG_BYTES
    rig.check("open", "echo", "close")


def heals(rig: Rig) -> None:
    """The agent may find its own lane spoilt and say hello again; then all is well."""
    wait_for(lambda: rig.run("open", "echo").startswith("ok open\nok echo"), "the channel heals")
    rig.check("open", "echo", "order", "bulk", "close")


def test_violation_ends_one_session(rig: Rig) -> None:
    other = rig.client("open", "order", "threads", "order", "close")
    rig.check("open", "violate")
    assert other.communicate(timeout=PATIENCE_S * 2)[0].endswith("ok close\n")
    status = rig.status()
    assert status.violations.count == 1
    assert status.violations.last.endswith("refused by the decoder")
    assert status.worker.starts == 1


class _HostilePort:
    """Stands where QEMU's chardev is, and says what it likes to the worker."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(4)
        self.listener.settimeout(PATIENCE_S)

    def accept(self) -> socket.socket:
        made, _ = self.listener.accept()
        made.settimeout(PATIENCE_S)
        return made


SYNC = b"\x9dVGPUMGR-SYNC\r\n\x01" + b"12345678"


def hung_up(sock: socket.socket) -> bool:
    """Reads until the other side ends the connection."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_garbage_on_the_serial_stream() -> None:
    dice = random.Random(11)
    with Rig("ring") as rig:  # its serial socket is ours
        status = rig.status()
        busy = rig.client("open", "threads", "order", "bulk", "close")
        port = _HostilePort(rig.serial)
        attacks = [
            dice.randbytes(5000),
            bytes(16),
            b"VGS1" + (0).to_bytes(4, "little") + b"\1\0\0\0" + (1 << 31).to_bytes(4, "little"),
            b"VGS1"
            + (99).to_bytes(4, "little")
            + b"\1\0\0\0"
            + (4).to_bytes(4, "little")
            + b"abcd",
            b"VGS1" + bytes(4) + b"\1\0\0\0" + (40).to_bytes(4, "little") + bytes(40),
        ]
        for attack in attacks:
            with port.accept() as sock:
                sock.sendall(dice.randbytes(3000) + SYNC)  # leftovers before a sync are no offence
                assert sock.recv(len(SYNC), socket.MSG_WAITALL) == SYNC
                sock.sendall(attack + bytes(64))
                assert hung_up(sock)
        port.listener.close()
        assert busy.communicate(timeout=PATIENCE_S * 2)[0].endswith("ok close\n")
        after = rig.status()
        assert after.violations.count == len(attacks)
        assert after.worker.pid == status.worker.pid


def test_silence_on_the_serial_stream_blocks_nobody() -> None:
    with Rig("ring") as rig:
        port = _HostilePort(rig.serial)
        with port.accept() as sock:
            sock.sendall(SYNC[:10])
            rig.check("open", "echo", "order", "close")
            sock.sendall(SYNC[10:])
            assert sock.recv(len(SYNC), socket.MSG_WAITALL) == SYNC
            sock.sendall(b"VGS1" + bytes(4))  # half a header, then nothing
            rig.check("open", "echo", "order", "close")
        port.listener.close()


def test_serial_comes_back_after_garbage() -> None:
    with Rig("serial") as rig:
        lost = rig.client("open", "lost")
        assert read_line(lost) == "ok open"
        rig.stop_agent()
        port = _HostilePort(rig.serial)
        with port.accept() as sock:
            sock.sendall(SYNC + b"garbage that is no message")
            assert hung_up(sock)
        port.listener.close()
        assert lost.communicate(timeout=PATIENCE_S)[0] == "ok lost\n"
        rig.start_agent()
        rig.check("open", "echo", "close")


def test_doorbell_storm_leaves_the_worker_useful(keeper: Keeper) -> None:
    with take_hand_over(keeper) as (_, doorbell):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            os.write(doorbell, (1).to_bytes(8, "little"))
        assert keeper.status().totals.doorbells > 1000
        assert keeper.status().worker.state == "ready"


def test_guest_objects_need_no_new_libc() -> None:
    """The shims land in other people's VMs: nothing newer than glibc 2.28 (RHEL 8, Debian 10)."""
    from tests.unit.transport_rig import CLIENT, FUZZ

    assert FUZZ.exists()
    listing = subprocess.run(
        ["objdump", "-T", str(CLIENT.parent / "libvgpumgr-test-guest.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    needed = {
        tuple(map(int, word.strip("()").removeprefix("GLIBC_").split(".")))
        for line in listing.splitlines()
        if "*UND*" in line
        for word in line.split()
        if word.strip("()").startswith("GLIBC_")
    }
    assert needed
    assert max(needed) <= (2, 28), sorted(needed)
