"""Each guest process has a session of its own on the host: what happens to one is felt by no other."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.calls_rig import (
    NULL_DRIVER,
    PROGRAM_S,
    WORKER,
    null_channel,
    run_python,
    simulated_channel,
    start_python,
)
from tests.unit.transport_rig import PATIENCE_S, Rig, alive, children, open_fds, read_line, wait_for
from vgpumgr.virtio.channel_status import describe
from vgpumgr.virtio.sandbox import read_watchdog

pytestmark = pytest.mark.native

TRANSPORTS = ("ring", "serial")
PTRACE_SEIZE = 0x4206
PTRACE_DETACH = 17

KERNELS = r"""
image = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry endless() { again: bra again; }
.visible .entry fault() { .reg .b64 %p; mov.u64 %p, 16; st.global.u32 [%p], 1; ret; }
\0'''
def run(name):
    ok(cu.cuLaunchKernel(function(module(image), name), 1, 1, 1, 1, 1, 1, 0, None, None, None))
"""
NEIGHBOUR = """
import os
context(); p = memory(1 << 20); data = os.urandom(1 << 20); ok(cu.cuMemcpyHtoD_v2(p, data, c_size_t(1 << 20)))
print('up', flush=True); input()
back = ctypes.create_string_buffer(1 << 20); ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(1 << 20)))
assert back.raw == data; ok(cu.cuMemFree_v2(p)); memory(64); ok(cu.cuCtxSynchronize())
"""
VICTIM = """
import time
context(); memory(1 << 20); ok(cu.cuCtxSynchronize()); print('up', flush=True); input()
end = time.monotonic() + 60
while (r := cu.cuCtxSynchronize()) == 0 and time.monotonic() < end: time.sleep(0.01)
assert r == 46, r
"""
FREE = "context(); f, n = c_size_t(), c_size_t(); ok(cu.cuMemGetInfo_v2(byref(f), byref(n))); print(f.value)"


@pytest.fixture(scope="module", params=TRANSPORTS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The simulated driver, which executes kernels and counts memory by process."""
    with simulated_channel(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.fixture(autouse=True)
def worker_is_well(request: pytest.FixtureRequest) -> Iterator[None]:
    if "rig" not in request.fixturenames:
        yield
        return
    rig: Rig = request.getfixturevalue("rig")
    before = rig.status().worker.pid
    yield
    after = rig.wait_status(lambda s: not s.lanes, "lanes freed")
    assert (after.worker.pid, after.violations.count) == (before, 0)
    wait_for(lambda: len(children(before)) == 1, "only the spare is left")


def start(rig: Rig, code: str) -> subprocess.Popen[str]:
    """A guest process that has come to its first line of output."""
    process = start_python(rig, code)
    assert read_line(process) == "up", process.communicate(timeout=PROGRAM_S)
    return process


def finish(process: subprocess.Popen[str]) -> None:
    """It goes on, and everything that it expects is so."""
    _, errors = process.communicate("\n", timeout=PROGRAM_S)
    assert (process.returncode, errors) == (0, "")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def session_of(rig: Rig, process: subprocess.Popen[str]) -> int:
    """The session's pid on the host."""
    (pid,) = (lane.session_pid for lane in rig.status().lanes if lane.pid == process.pid)
    assert pid in children(rig.status().worker.pid)
    return pid


def test_a_crashed_session_takes_nobody_along(rig: Rig) -> None:
    free = run_python(rig, FREE)
    neighbour, victim = start(rig, NEIGHBOUR), start(rig, VICTIM)
    lost = rig.status().sessions.lost
    os.kill(session_of(rig, victim), signal.SIGSEGV)
    finish(victim)
    finish(neighbour)
    status = rig.wait_status(lambda s: s.sessions.lost == lost + 1 and not s.lanes, "counted")
    assert "signal 11" in status.sessions.last
    seen = max(status.sessions.ended, key=lambda e: e.at_s)
    assert (seen.pid, os.WTERMSIG(seen.status)) == (victim.pid, signal.SIGSEGV)
    assert abs(seen.at_s - time.time()) < PATIENCE_S
    assert status.sessions.faults >= 1
    assert status.sessions.last in rig.keeper.worker_log.read_text()
    assert run_python(rig, FREE) == free


def test_a_sticky_error_stays_in_its_session(rig: Rig) -> None:
    neighbour = start(rig, NEIGHBOUR)
    run_python(
        rig, f"{KERNELS}\ncontext(); run(b'fault'); assert cu.cuCtxSynchronize() in (700, 719)"
    )
    finish(neighbour)
    run_python(rig, "context(); memory(64); ok(cu.cuCtxSynchronize())")


def test_an_endless_kernel_ends_with_its_process(rig: Rig) -> None:
    free = run_python(rig, FREE)
    neighbour = start(rig, NEIGHBOUR)
    endless = start(
        rig,
        f"{KERNELS}\ncontext(); memory(1 << 20); run(b'endless'); print('up', flush=True); input()",
    )
    session = session_of(rig, endless)
    kill(endless)
    rig.wait_status(lambda s: len(s.lanes) == 1, "the lane is free")
    assert not alive(session)
    finish(neighbour)
    assert run_python(rig, FREE) == free


def test_a_waiting_call_of_a_killed_process_ends_with_it(rig: Rig) -> None:
    code = f"{KERNELS}\ncontext(); run(b'endless'); print('up', flush=True); cu.cuCtxSynchronize()"
    processes = [start(rig, code) for _ in range(3)]
    for process in processes:
        kill(process)
    rig.wait_status(lambda s: not s.lanes and not s.totals.memory_bytes, "all given back")


def test_a_stopped_session_holds_up_nobody(rig: Rig) -> None:
    code = """
context(); p = memory(1 << 20); print('up', flush=True); input()
for _ in range(40): cu.cuMemcpyHtoDAsync_v2(p, b'x' * (1 << 20), c_size_t(1 << 20), None)
"""
    stopped = start(rig, code)
    session = session_of(rig, stopped)
    os.kill(session, signal.SIGSTOP)
    assert stopped.stdin is not None
    stopped.stdin.write("\n")
    stopped.stdin.flush()
    for _ in range(3):
        finish(start(rig, NEIGHBOUR))
    assert stopped.poll() is None
    kill(stopped)
    rig.wait_status(lambda s: not s.lanes, "the lane is free")
    assert not alive(session)


def test_many_lives_leave_nothing(rig: Rig) -> None:
    free = run_python(rig, FREE)
    worker = rig.status().worker.pid
    rig.wait_status(lambda s: not s.lanes, "lanes freed")
    wait_for(lambda: len(children(worker)) == 1, "only the spare is left")
    before = open_fds(worker)
    code = """
import os
for life in range(50):
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        assert status == (9 if life % 3 == 0 else 0), status
        continue
    context(); p = memory(1 << 16); ok(cu.cuMemsetD8_v2(p, 1, c_size_t(1 << 16)))
    if life % 3 == 0: os.kill(os.getpid(), 9)
    ok(cu.cuCtxSynchronize()); os._exit(0)
"""
    first = rig.status()
    processes = [start_python(rig, code) for _ in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=PROGRAM_S)
        assert (process.returncode, errors) == (0, "")
    status = rig.wait_status(lambda s: not s.lanes, "lanes freed")
    assert status.totals.lanes_opened == first.totals.lanes_opened + 200
    assert status.totals.memory_bytes == 0
    assert status.sessions == first.sessions
    wait_for(lambda: len(children(worker)) == 1, "only the spare is left")
    wait_for(lambda: open_fds(worker) <= before, "descriptors are given back")
    assert run_python(rig, FREE) == free


def test_another_spare_takes_the_place_of_a_killed_one(rig: Rig) -> None:
    worker = rig.status().worker.pid
    wait_for(lambda: len(children(worker)) == 1, "only the spare is left")
    (spare,) = children(worker)
    os.kill(spare, signal.SIGKILL)
    run_python(rig, "context(); ok(cu.cuCtxSynchronize())")
    wait_for(lambda: spare not in children(worker) and len(children(worker)) == 1, "another spare")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_killed_worker_takes_its_sessions_along(transport: str) -> None:
    with null_channel(transport) as rig:
        victims = [start(rig, VICTIM) for _ in range(3)]
        worker = rig.status().worker.pid
        sessions = [session_of(rig, victim) for victim in victims]
        spares = set(children(worker)) - set(sessions)
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not any(map(alive, [*sessions, *spares])), "all sessions end")
        for victim in victims:
            finish(victim)
        rig.wait_status(lambda s: s.worker.state == "ready" and s.worker.pid != worker, "another")
        run_python(rig, "context(); ok(cu.cuCtxSynchronize())")


@contextmanager
def held(pid: int) -> Iterator[None]:
    """The process does not end for its parent until this is over, as one that is stuck in a driver."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    assert libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        os.waitpid(pid, 0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_session_that_does_not_end_is_named(transport: str) -> None:
    with null_channel(transport) as rig:
        process = start(rig, VICTIM)
        session = session_of(rig, process)
        (lane,) = rig.status().lanes
        begin = int(time.time())
        with held(session):
            kill(process)
            status = rig.wait_status(lambda s: bool(s.sessions.stuck), "it is named")
            assert [(x.lane, x.pid) for x in status.sessions.stuck] == [(lane.lane, session)]
            assert begin <= status.sessions.stuck[0].since_s <= time.time()
            assert (status.sessions.lost, status.sessions.faults) == (0, 0)
            assert f"pid {session}) was killed and does not end" in str(
                describe("x", status).problem
            )
            # the ring's memory may still be written to; a serial lane has none
            assert len(status.lanes) == (transport == "ring")
            run_python(rig, "context(); ok(cu.cuCtxSynchronize())")
        rig.wait_status(lambda s: not s.sessions.stuck and not s.lanes, "it has ended")


def test_who_kills_a_session_is_no_fault_of_it(rig: Rig) -> None:
    before, victim = rig.status().sessions, start(rig, VICTIM)
    os.kill(session_of(rig, victim), signal.SIGKILL)
    finish(victim)
    after = rig.wait_status(lambda s: s.sessions.lost == before.lost + 1, "counted").sessions
    assert after.faults == before.faults
    assert any(os.WTERMSIG(e.status) == signal.SIGKILL for e in after.ended)


def test_ends_are_remembered_in_bounds(rig: Rig) -> None:
    for _ in range(10):
        victim = start(rig, "context(); print('up', flush=True); input(); cu.cuCtxSynchronize()")
        os.kill(session_of(rig, victim), signal.SIGABRT)
        victim.communicate("\n", timeout=PROGRAM_S)
    status = rig.wait_status(lambda s: not s.lanes and s.sessions.faults >= 10, "counted")
    assert len(status.sessions.ended) == 8


# ---- the watchdog ----

ENDLESS = f"{KERNELS}\ncontext(); run(b'endless'); print('up', flush=True); cu.cuCtxSynchronize()"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_that_lasts_is_named_and_goes_on(transport: str, tmp_path: Path) -> None:
    with simulated_channel(transport, tmp_path, "--watchdog=1:0") as rig:
        neighbour, endless = start(rig, NEIGHBOUR), start(rig, ENDLESS)
        begin = time.time()
        status = rig.wait_status(lambda s: bool(s.sessions.slow), "it is named")
        (slow,) = status.sessions.slow
        assert (slow.pid, slow.call) == (session_of(rig, endless), "cuCtxSynchronize")
        assert begin - 2 <= slow.since_s <= time.time() - 1
        wait_for(
            lambda: "cuCtxSynchronize lasts for 1 s" in rig.keeper.worker_log.read_text(), "said"
        )
        time.sleep(2)
        assert endless.poll() is None
        assert [s.pid for s in rig.status().sessions.slow] == [slow.pid], (
            "its neighbour is not slow"
        )
        finish(neighbour)
        kill(endless)
        status = rig.wait_status(lambda s: not s.lanes, "it ends with its process")
        assert (status.sessions.slow, status.sessions.overdue, status.sessions.lost) == ((), 0, 0)


def test_a_free_that_lasts_is_named(tmp_path: Path) -> None:
    code = "context(); p = memory(64); run(b'endless'); ok(cu.cuMemFree_v2(p)); print('up', flush=True); input()"
    with simulated_channel("ring", tmp_path, "--watchdog=1:0") as rig:
        waits = start(rig, f"{KERNELS}\n{code}")
        status = rig.wait_status(lambda s: bool(s.sessions.slow), "it is named")
        assert [s.call for s in status.sessions.slow] == ["memory_free"]
        kill(waits)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_that_lasts_too_long_ends_its_session_only(transport: str, tmp_path: Path) -> None:
    with simulated_channel(transport, tmp_path, "--watchdog=1:3") as rig:
        neighbour = start(rig, NEIGHBOUR)
        endless = start(rig, f"{ENDLESS.replace('cu.cuCtx', 'r = cu.cuCtx')}; assert r == 46, r")
        session = session_of(rig, endless)
        status = rig.wait_status(lambda s: s.sessions.overdue == 1, "it is ended")
        finish(endless)
        wait_for(lambda: not alive(session), "killed")
        finish(neighbour)
        run_python(rig, "context(); ok(cu.cuCtxSynchronize())")
        assert status.sessions.lost == 0
        assert "its session ends" in rig.keeper.worker_log.read_text()


def test_a_process_that_waits_for_nothing_is_not_slow(tmp_path: Path) -> None:
    with simulated_channel("ring", tmp_path, "--watchdog=1:2") as rig:
        idle = start(rig, NEIGHBOUR)
        busy = start_python(
            rig,
            """
import time
context(); p = memory(64); end = time.monotonic() + 4
while time.monotonic() < end: ok(cu.cuMemsetD8_v2(p, 1, c_size_t(64))); ok(cu.cuCtxSynchronize())
""",
        )
        while busy.poll() is None:
            assert not rig.status().sessions.slow
            time.sleep(0.1)
        finish(busy)
        finish(idle)
        assert rig.status().sessions.overdue == 0


# ---- refused calls ----


def test_refused_calls_are_counted_by_name(rig: Rig) -> None:
    before = describe("x", rig.status()).refused
    code = """
import sys
context()
for _ in range(3): assert cu.cuGraphicsUnregisterResource(None) == 801
pinned = c_void_p(); at = c_uint64(); ok(cu.cuMemAllocHost_v2(byref(pinned), c_size_t(64)))
assert cu.cuMemHostGetDevicePointer_v2(byref(at), pinned, 0) == 801
ok(cu.cuCtxSynchronize())
"""
    process = start_python(rig, code)
    _, errors = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 0, errors
    assert errors == "vgpumgr: cuGraphicsUnregisterResource is not supported over a forwarded GPU\n"
    after = describe("x", rig.status()).refused
    found = {name: count - before.get(name, 0) for name, count in after.items()}
    assert {k: v for k, v in found.items() if v} == {
        "cuGraphicsUnregisterResource": 3,
        "cuMemHostGetDevicePointer": 1,
    }


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_guest_cannot_grow_the_names_of_refused_calls(transport: str) -> None:
    code = """
import sys
flag = ctypes.create_string_buffer(b'\\1')
context()
worker = sys.argv[1]
for i in range(2000): assert cu.vgpumgr_call_unsupported(f'cuForged_{worker}_{i}'.encode(), flag) == 801
for bad in (b'', b'a"b', b'a b', b'\\x1b[0m', b'x' * 39, b'x' * 40, b'x' * 4000):
    assert cu.vgpumgr_call_unsupported(bad, flag) == 801
ok(cu.cuCtxSynchronize())
"""
    with null_channel(transport) as rig:
        processes = [start_python(rig, code, str(i)) for i in range(3)]
        for process in processes:
            finish(process)
        refused = rig.status().refused
        assert len(refused.calls) == 24
        assert all(re.fullmatch(r"\w{1,39}", call.name) for call in refused.calls)
        # what is no name, or too long for one, is a refused call all the same, or not sent at all
        assert sum(call.count for call in refused.calls) + refused.more == 3 * (2000 + 5)
        assert rig.status().violations.count == 0
        run_python(rig, "context(); ok(cu.cuCtxSynchronize())")


def test_a_driver_that_is_gone_is_named_to_the_process(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # the worker is another user
    driver = tmp_path / "libcuda.so.1"
    shutil.copy(NULL_DRIVER, driver)
    with Rig("ring", worker=WORKER, worker_args=("--cuda", str(driver))) as rig:
        worker = rig.status().worker.pid
        process = start(rig, NEIGHBOUR)
        wait_for(lambda: len(children(worker)) == 2, "another spare")
        driver.unlink()
        session = session_of(rig, process)

        def said() -> bool:
            for spare in set(children(worker)) - {session}:
                with contextlib.suppress(ProcessLookupError):  # one that has just ended by itself
                    os.kill(spare, signal.SIGKILL)
            return "cannot load the CUDA driver" in rig.keeper.worker_log.read_text()

        wait_for(said, "said")
        refused = start_python(rig, "assert cu.cuInit(0) == 100")
        _, errors = refused.communicate(timeout=PROGRAM_S)
        assert refused.returncode == 0
        assert "cannot load the CUDA driver" in errors
        finish(process)
        shutil.copy(NULL_DRIVER, driver)
        wait_for(lambda: start_python(rig, "ok(cu.cuInit(0))").wait(PATIENCE_S) == 0, "it is back")
        assert rig.status().worker.pid == worker


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("30", "30:0"), ("60:3600", "60:3600"), ("", "60:0"), ("soon", "60:0"), ("1:2:3", "60:0"),
        ("-1", "60:0"), ("9" * 5000, "60:0"),
    ],
    ids=lambda text: text[:10],
)  # fmt: skip
def test_a_watchdog_that_cannot_be_is_the_usual_one(text: str, option: str) -> None:
    assert read_watchdog({"VGPUMGR_WATCHDOG": text}) == option
