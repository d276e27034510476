"""The attacks D1 to D28 of SECURITY.md: each is bounded, and the neighbour's results stay right.

``vgpumgr-test-attacks`` (tests/native/hostile) attacks; every test checks besides that the worker has not been
restarted, that nothing is left on the host, that logs stay small and that the attacker's VM works afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile.scene import GROWTH_KIB, LOOP, Scene, scene
from tests.lives.__main__ import read_memory_kib
from tests.unit.calls_rig import PROGRAM_S, start_python
from tests.unit.test_transport_faults import SYNC, _HostilePort
from tests.unit.transport_rig import open_fds, read_line, wait_for

pytestmark = pytest.mark.native

OUT_OF_MEMORY, INVALID_IMAGE, LAUNCH_FAILED, ASSERT = 2, 200, 719, 710
#: a session that serves an attack; what lasts is bounded by everybody_stays_well
SESSION_KIB = 256 << 10
#: bytes that kernels print which are kept until the guest fetches them
OUTPUT_BYTES = 4 << 20
STREAMS, GATES = 16384, 4096
PUNCH_HOLE, KEEP_SIZE = 2, 1
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["ring", "serial"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """For attacks on the channel."""
    with scene(request.param, tmp_path_factory.mktemp("both")) as made:
        yield made


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """For attacks behind it, and on the shared memory."""
    with scene("ring", tmp_path_factory.mktemp("ring")) as made:
        yield made


def refuse_all(at: Scene, name: str, count: int = 2) -> None:
    """Each attempt costs the attacker its session, and is counted."""
    with at.everybody_stays_well():
        before = at.rig.status().violations.count
        found = at.attack(name, count)
        assert found["ended"] == found["tried"] > 0
        wait_for(
            lambda: at.rig.status().violations.count == before + found["tried"], "each is counted"
        )


@contextmanager
def running(at: Scene, name: str, *count: int) -> Iterator[None]:
    """It has begun, and is killed at the end."""
    process = at.start(name, *count)
    try:
        assert read_line(process)
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=PROGRAM_S)


# ---- framing ----


def test_d1_giant_length(both: Scene) -> None:
    refuse_all(both, "D1")


def test_d2_zero_length(both: Scene) -> None:
    refuse_all(both, "D2")


def test_d3_a_million_tiny_frames(both: Scene) -> None:
    count = 1_000_000 if both.is_ring else 100_000
    with both.everybody_stays_well():
        assert both.attack("D3", count) | {"ms": 0} == {"posted": count, "status": 0, "ms": 0}


def test_d4_half_a_frame_then_silence(both: Scene) -> None:
    with both.everybody_stays_well():
        if both.is_ring:  # what is published has to be whole
            assert both.attack("D4", 60)["ended"] == 1
            return
        with running(both, "D4", 60):
            for _ in range(3):
                both.check()


def test_d4_silent_connections_hold_up_nobody(both: Scene) -> None:
    with both.everybody_stays_well(), running(both, "D4-clients", 80):
        both.check()


def test_d5_index_jump(both: Scene) -> None:
    refuse_all(both, "D5")


def test_d6_doorbell_storm(both: Scene) -> None:
    with both.everybody_stays_well():
        found = both.attack("D6", 1500)
        assert found["rang"] > 1000
        assert found["status"] == 0


# ---- connections ----


def test_d7_connection_churn(both: Scene) -> None:
    with both.everybody_stays_well():
        agent = both.rig.agent
        assert agent is not None
        held = [open_fds(pid) for pid in (agent.pid, both.rig.status().keeper_pid)]
        assert both.attack("D7", 1000) == {"connected": 1000}
        both.settle()
        wait_for(
            lambda: [open_fds(p) for p in (agent.pid, both.rig.status().keeper_pid)] <= held,
            "descriptors are given back",
        )


def test_d8_programs_of_another_version(both: Scene) -> None:
    with both.everybody_stays_well():
        assert both.attack("D8", 200) == {"tried": 200, "refused": 200}


def test_d28_interfaces_that_cannot_be(both: Scene) -> None:
    refuse_all(both, "D28", 1)


def hello(version: int) -> bytes:
    frame = struct.pack("<6IQ", 32 + 104, 1, 1, 1, 0, 0, 0)
    body = frame + struct.pack("<II32s64s", version, 0, b"agent\n\x1b[2J", b"kernel")
    return struct.pack("<4I", 0x31534756, 0, 1, len(body)) + body


def test_d8_hello_of_another_version(ring: Scene) -> None:
    with ring.everybody_stays_well():
        port = _HostilePort(ring.rig.serial)
        with port.accept() as sock:
            for _ in range(300):
                sock.sendall(SYNC)
                assert sock.recv(len(SYNC), socket.MSG_WAITALL) == SYNC
                sock.sendall(hello(99))
                _, lane, kind, length = struct.unpack("<4I", sock.recv(16, socket.MSG_WAITALL))
                body = sock.recv(length, socket.MSG_WAITALL)
                assert (lane, kind, struct.unpack("<i", body[4:8])[0]) == (0, 2, -errno.EPROTO)
        port.listener.close()
        assert ring.rig.status().transports == ("ring",)


def test_d9_sessions_that_end_in_a_loop(both: Scene) -> None:
    refuse_all(both, "D9", 100)


def test_d10_a_second_connection_for_the_vm(ring: Scene) -> None:
    with ring.everybody_stays_well():
        for _ in range(200):
            with socket.socket(socket.AF_UNIX) as second:
                second.connect(str(ring.rig.keeper.ivshmem_socket))
                assert second.recv(8) == b""


def test_d11_nothing_listens_on_vsock() -> None:
    """There is no such transport to connect to; a session cannot make one either: probe ``vsock``."""
    sources = [*ROOT.glob("vgpumgr/**/*.py"), *ROOT.glob("vgpumgr/**/*.[ch]")]
    assert len(sources) > 200
    assert not [path for path in sources if "vsock" in path.read_text().lower()]


def list_memories(at: Scene) -> list[Path]:
    """The channel's memory, as the VM's QEMU has it."""
    agent = at.rig.agent
    assert agent is not None
    fds = Path(f"/proc/{agent.pid}/fd").iterdir()
    return [fd for fd in fds if fd.stat().st_size == at.rig.status().memory_size]


def test_d12_memory_is_truncated_under_the_worker(ring: Scene) -> None:
    paths = list_memories(ring)
    assert paths
    with ring.everybody_stays_well():
        for path in paths:
            memory = os.open(path, os.O_RDWR)
            size = os.fstat(memory).st_size
            for other in (0, 4096, size * 2):
                with pytest.raises(OSError, match=r"Operation not permitted|Invalid argument"):
                    os.ftruncate(memory, other)
            os.close(memory)


def test_d12_memory_is_emptied_under_the_worker(ring: Scene) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with ring.everybody_stays_well():
        for path in list_memories(ring):
            memory = os.open(path, os.O_RDWR)
            size = ctypes.c_long(os.fstat(memory).st_size)
            for _ in range(20):
                assert not libc.fallocate(memory, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(0), size)
                time.sleep(0.01)
            os.close(memory)
        wait_for(lambda: ring.start("S5", 1).wait(PROGRAM_S) == 0, "the channel heals")


def test_d13_guest_reboot_loop(both: Scene) -> None:
    both.settle()
    before = both.rig.status()
    both.neighbour.ask()
    held, logs = open_fds(before.keeper_pid), both.logs()
    for _ in range(4):
        process = start_python(both.rig, LOOP)
        assert read_line(process) == "up"
        both.rig.stop_agent(signal.SIGKILL)  # it stands in for QEMU
        both.rig.start_agent()
        process.kill()
        process.communicate()
    after = both.settle()
    assert after.epoch >= before.epoch + (4 if both.is_ring else 0)
    assert after.keeper_pid == before.keeper_pid
    wait_for(lambda: open_fds(before.keeper_pid) <= held, "descriptors are given back")
    assert both.logs() < logs + 50_000
    assert both.neighbour.ask().rounds > 0
    both.check()


def test_d14_guest_suspended_in_mid_call(both: Scene) -> None:
    agent = both.rig.agent
    assert agent is not None
    with both.everybody_stays_well():
        process = start_python(both.rig, LOOP)
        assert read_line(process) == "up"
        assert process.stdin is not None
        for _ in range(5):
            for pid in (process.pid, agent.pid):
                os.kill(pid, signal.SIGSTOP)
            time.sleep(0.3)
            for pid in (agent.pid, process.pid):
                os.kill(pid, signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            assert read_line(process)
        _, errors = process.communicate(timeout=PROGRAM_S)
        assert (process.returncode, errors) == (0, "")


# ---- memory ----


def test_d15_allocate_all_free_and_again(ring: Scene) -> None:
    with ring.everybody_stays_well():
        found = ring.attack("D15", 5)
        assert (found["end"], found["freed"]) == (OUT_OF_MEMORY, 1)
        assert found["blocks"] > 10


def test_d16_fragmenting_sizes(ring: Scene) -> None:
    with ring.everybody_stays_well():
        found = ring.attack("D16", 5000)
        assert (found["made"] + found["refused"], found["freed"]) == (5000, 1)


def test_d17_pinned_memory_is_the_guests(ring: Scene) -> None:
    with ring.everybody_stays_well():
        process = ring.start("D17", 64)
        assert read_line(process) == "made 64"
        (lane,) = ring.rig.status().lanes
        assert read_memory_kib(lane.session_pid) < GROWTH_KIB
        assert lane.memory_bytes == 0
        assert read_memory_kib(process.pid) > 200 << 10, "it has been made there"
        process.communicate("\n", timeout=PROGRAM_S)


def test_d18_pitches_whose_products_go_round(ring: Scene) -> None:
    with ring.everybody_stays_well():
        found = ring.attack("D18")
        assert found["tried"] > 2000
        assert found["accepted"] == 0


# ---- objects ----


def test_d19_streams_and_events(ring: Scene) -> None:
    with ring.everybody_stays_well():
        process = ring.start("D19", 100_000)
        line = read_line(process).split()
        assert line == [
            "streams",
            str(STREAMS),
            "end",
            str(OUT_OF_MEMORY),
            "events",
            "100000",
            "sync",
            "0",
        ]
        (lane,) = ring.rig.status().lanes
        assert read_memory_kib(lane.session_pid) < SESSION_KIB
        process.communicate("\n", timeout=PROGRAM_S)


def test_d20_compressed_module_bomb(ring: Scene) -> None:
    with ring.everybody_stays_well():
        found = ring.attack("D20")
        assert (found["lying"], found["huge"]) == (INVALID_IMAGE, INVALID_IMAGE)
        assert found["whole"] in (0, OUT_OF_MEMORY, INVALID_IMAGE), "it is only long"


def test_d21_a_program_that_compiles_for_long(ring: Scene) -> None:
    with ring.everybody_stays_well():
        with running(ring, "D21", 200_000):
            ring.check()
            worker = ring.rig.status().worker.pid
        killed = time.monotonic()
        ring.settle()
        assert time.monotonic() - killed < 15
        assert ring.rig.status().worker.pid == worker


def test_d22_a_very_deep_graph(ring: Scene) -> None:
    with ring.everybody_stays_well():
        assert ring.attack("D22", 20_000) == {"linked": 20_000, "end": 0, "sync": 0}


def test_d22_nesting_that_a_parser_follows(ring: Scene) -> None:
    with ring.everybody_stays_well():
        found = ring.attack("D22-nesting", 1_000_000)
        assert 0 not in found.values()


# ---- execution ----


def test_d23_endless_kernel(both: Scene) -> None:
    with both.everybody_stays_well():
        with running(both, "D23"):
            for _ in range(3):
                both.check()
            (lane,) = both.rig.wait_status(lambda s: len(s.lanes) == 1, "its own only").lanes
        killed = time.monotonic()
        both.settle()
        assert time.monotonic() - killed < 15
        assert not Path(f"/proc/{lane.session_pid}").exists()


def test_d24_printf_flood(both: Scene) -> None:
    with both.everybody_stays_well():
        logs = both.logs()
        process = both.start("D24-print", 50_000)
        out, errors = process.communicate(timeout=PROGRAM_S)
        assert process.returncode == 0, errors
        assert errors.startswith("launch 0 sync 0")
        assert 1000 < len(out) < OUTPUT_BYTES + 4096
        assert both.logs() < logs + 4096


@pytest.mark.parametrize(("name", "error"), [("D24-trap", LAUNCH_FAILED), ("D24-assert", ASSERT)])
def test_d24_kernels_that_trap_and_assert(ring: Scene, name: str, error: int) -> None:
    with ring.everybody_stays_well():
        assert ring.attack(name) == {"launch": 0, "sync": error, "then": error}
        ring.check()


def test_d25_host_callback_flood(both: Scene) -> None:
    with both.everybody_stays_well():
        found = both.attack("D25", 20_000)
        assert (found["sync"], found["then"]) == (OUT_OF_MEMORY, 0)
        assert 0 < found["called"] < GATES


def test_d26_storm_of_asynchronous_errors(ring: Scene) -> None:
    with ring.everybody_stays_well():
        assert ring.attack("D26", 20) == {"tried": 20, "broken": 20}


def test_d27_log_flood(both: Scene) -> None:
    with both.everybody_stays_well():
        before = both.logs()
        found = both.attack("D27", 300)
        assert found["ended"] > 100
        assert both.logs() < before + 32_768
        text = both.rig.keeper.worker_log.read_text()
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "worker: all is well" not in text.splitlines()


# ---- what was not given ----


def test_s5_forged_handles(both: Scene) -> None:
    with both.everybody_stays_well():
        count = int(os.environ.get("VGPUMGR_FORGED", "50000"))
        assert both.attack("S5", count) == {"forged": count, "accepted": 0}


def test_s5_forged_addresses(ring: Scene) -> None:
    with ring.everybody_stays_well():
        assert ring.attack("S5-addresses", 100_000) == {"forged": 100_000, "accepted": 0}


def test_s5_forged_mappings(both: Scene) -> None:
    with both.everybody_stays_well():
        assert both.attack("S5-mappings", 5_000) == {"forged": 5_000, "accepted": 0}


def test_s5_forged_arrays(both: Scene) -> None:
    with both.everybody_stays_well():
        assert both.attack("S5-arrays", 5_000) == {"forged": 5_000, "accepted": 0}


# ---- the harness notices ----


def test_a_neighbour_that_suffers_is_noticed(ring: Scene) -> None:
    with pytest.raises(AssertionError), ring.everybody_stays_well():
        kill_worker(ring)
    ring.check()


def kill_worker(at: Scene) -> None:
    worker = at.rig.status().worker.pid
    os.kill(worker, signal.SIGKILL)
    at.rig.wait_status(
        lambda s: s.worker.pid not in (0, worker) and s.guest.hello != "none", "another"
    )
