"""Several slices in one process: the same program on two devices directly and over two channels."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.build_programs import build_programs
from tests.sim import cuda_harness
from tests.unit.several_rig import Guest, run_simulated
from tests.unit.transport_rig import PATIENCE_S, wait_for

pytestmark = [pytest.mark.native, pytest.mark.cuda]

CASES = re.findall(r'\{ "(\w+)", \w+ \}', (cuda_harness.PROGRAMS / "devices.c").read_text())


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    out = tmp_path_factory.mktemp("devices")
    kernels = cuda_harness.compile_kernels(out / "kernels.ptx", "-ptx", "-arch=sm_80")
    return cuda_harness.compile_program("devices", out), kernels


@pytest.fixture(scope="module", params=["ring", "private", "serial"])
def guest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guest]:
    with run_simulated(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.mark.parametrize("case", CASES)
def test_two_devices_are_as_on_the_driver_itself(
    guest: Guest, program: tuple[Path, Path], case: str
) -> None:
    done = guest.run(str(program[0]), case, KERNELS=str(program[1]))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert all(keeper.status().violations.count == 0 for keeper in guest.keepers)


def test_a_program_of_the_runtime_uses_both(guest: Guest) -> None:
    program = str(build_programs(("devices",))["devices"])
    for env, devices in (({}, 2), ({"CUDA_VISIBLE_DEVICES": "1"}, 1)):
        done = guest.run(program, **env)
        assert (done.stdout, done.stderr) == (f"PASS devices {devices}\n", ""), done


def test_devices_of_a_guest_are_no_peers_and_copies_do_it(guest: Guest) -> None:
    """A program that follows the documentation finds its way; who does not ask is refused."""
    done = guest.run(str(build_programs(("peers",))["peers"]))
    assert (done.stdout, done.stderr) == (
        "PASS peers 2 devices: 0 pairs by access, 2 by copies\n",
        "",
    ), done


def test_sessions_that_give_out_the_same_addresses(
    program: tuple[Path, Path], tmp_path: Path
) -> None:
    """Two attachments of one GPU: without care each would begin at the same address."""
    with run_simulated("ring", tmp_path, ("0", "0")) as guest:
        for case in CASES:
            if case != "what_they_are":  # it expects two GPUs
                done = guest.run(str(program[0]), case, KERNELS=str(program[1]))
                assert (done.returncode, done.stderr) == (0, ""), (case, done.stderr)


COUNT = """
ok(cu.cuInit(0)); n = ctypes.c_int(); ok(cu.cuDeviceGetCount(byref(n)))
def name(i):
    uuid = (ctypes.c_char * 16)(); ok(cu.cuDeviceGetUuid(uuid, i)); return uuid.raw
import sys
print(n.value, *(name(i).hex()[:8] for i in range(n.value)))
"""


def see(guest: Guest, visible: str | None) -> list[str]:
    process = guest.start_python(COUNT, visible)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, ""), errors
    count, *devices = out.split()
    assert int(count) == len(devices)
    return devices


def test_which_devices_a_process_sees(guest: Guest) -> None:
    """As on a host: the list's order is the devices', and it ends at what there is not."""
    first, second = see(guest, None)
    assert first != second
    for visible, expected in (
        ("0", [first]),
        ("1", [second]),
        ("1,0", [second, first]),
        (" 0 , 1 ", [first, second]),
        ("GPU-1,GPU-0", [second, first]),
        ("GPU-1,0", [second, first]),
        ("0,7,1", [first]),
        ("1,-1,0", [second]),
        ("0,0,1", [first]),
        ("1,nothing,0", [second]),
    ):
        assert see(guest, visible) == expected, visible


LOSE = """
import time
ok(cu.cuInit(0)); ctxs = [c_void_p(), c_void_p()]; ps = []
for i in range(2):
    ok(cu.cuDevicePrimaryCtxRetain(byref(ctxs[i]), i)); ok(cu.cuCtxSetCurrent(ctxs[i])); ps.append(memory(8))
print('ready', flush=True); input()
back = ctypes.create_string_buffer(8)
ok(cu.cuCtxSetCurrent(ctxs[LOST]))
while (r := cu.cuMemcpyDtoH_v2(back, ps[LOST], c_size_t(8))) == 0:
    time.sleep(0.01)
assert r == 46, r                                   # CUDA_ERROR_DEVICE_UNAVAILABLE
assert cu.cuCtxSynchronize() == 46
ok(cu.cuCtxSetCurrent(ctxs[1 - LOST]))
for i in range(50):                                 # the other one's goes on, whatever is asked of the lost one
    ok(cu.cuMemsetD8_v2(ps[1 - LOST], i, c_size_t(8)))
    assert cu.cuMemcpyPeer(ps[1 - LOST], ctxs[1 - LOST], ps[LOST], ctxs[LOST], c_size_t(8)) == 46
    assert cu.cuMemFree_v2(c_void_p(ps[LOST].value + 1)) == 1
    ok(cu.cuMemcpyDtoH_v2(back, ps[1 - LOST], c_size_t(8))); assert back.raw == bytes([i]) * 8
cu.cuMemFree_v2(ps[LOST])
ok(cu.cuMemcpyDtoH_v2(back, ps[1 - LOST], c_size_t(8)))
print('done')
"""


@pytest.mark.parametrize("lost", [0, 1])
def test_a_session_that_is_killed_takes_its_device_alone(guest: Guest, lost: int) -> None:
    process = guest.start_python(LOSE.replace("LOST", str(lost)))
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    (lane,) = guest.keepers[lost].status().lanes
    os.kill(lane.session_pid, signal.SIGKILL)
    out, errors = process.communicate("\n", timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "done\n"), errors
    wait_for(lambda: guest.lanes() == [0, 0], "lanes given back")


ALONE = """
from tests.unit.guest_cuda import *
ok(cu.cuInit(0)); n = ctypes.c_int(); ok(cu.cuDeviceGetCount(byref(n))); assert n.value == 1
"""
LATER = """
ok(cu.cuInit(0)); n = ctypes.c_int(); ok(cu.cuDeviceGetCount(byref(n)))
print(n.value, flush=True); input()
ctx = c_void_p()
print([cu.cuDevicePrimaryCtxRetain(byref(ctx), i) for i in range(2)])
ok(cu.cuCtxSetCurrent(ctx) if ctx.value else 0); memory(8)
"""


def test_a_device_that_has_gone_is_unavailable_alone(tmp_path: Path) -> None:
    """Connections are made when a device is used first; its slice may have been detached by then."""
    with run_simulated("ring", tmp_path) as guest:
        process = guest.start_python(LATER)
        assert process.stdout is not None
        assert process.stdout.readline() == "2\n"
        assert guest.lanes() == [1, 0]
        guest.keepers[1].stop()
        wait_for(lambda: guest.run(sys.executable, "-c", ALONE).returncode == 0, "unplugged")
        out, errors = process.communicate("\n", timeout=PATIENCE_S)
        assert (process.returncode, out) == (0, "[0, 46]\n"), errors
        assert errors.startswith("vgpumgr: device 1 cannot be used: this VM has no device 1"), (
            errors
        )


FORK = """
import os
ok(cu.cuInit(0)); ctxs = [c_void_p(), c_void_p()]
for i in range(2):
    ok(cu.cuDevicePrimaryCtxRetain(byref(ctxs[i]), i)); ok(cu.cuCtxSetCurrent(ctxs[i]))
pid = os.fork()
if not pid:
    os._exit(0 if cu.cuCtxSetCurrent(ctxs[0]) == cu.cuCtxSetCurrent(ctxs[1]) == 3 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
for c in ctxs:
    ok(cu.cuCtxSetCurrent(c)); memory(8)
print('done')
"""


def test_a_fork_closes_both_in_the_child_alone(guest: Guest) -> None:
    process = guest.start_python(FORK)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, errors) == (0, "done\n", "")


PLACES = """
import mmap
libc = ctypes.CDLL(None, use_errno=True); libc.mmap.restype = c_void_p
libc.mmap.argtypes = [c_void_p, c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def place(start, size, access=3):
    return libc.mmap(start, size, access, 0x100022, -1, 0)   # private, anonymous, only there
ctx = context(); first = memory(1 << 20).value; MB = 1 << 20
# what a device has, nobody gets by chance
assert place(first, 4096) != first and ctypes.get_errno() == 17
# the other way round: what the program has, no device gets
ahead = first + 64 * MB
assert place(ahead, 32 * MB) == ahead
ctypes.memset(ahead, 5, 32 * MB)
taken = [memory(5 * MB) for _ in range(40)]
assert not any(p.value < ahead + 32 * MB and ahead < p.value + 5 * MB for p in taken)
kind = ctypes.c_uint()
assert cu.cuPointerGetAttribute(byref(kind), 2, c_void_p(ahead)) == 1     # unknown to CUDA: the program's own
ok(cu.cuMemsetD8_v2(taken[0], 9, c_size_t(5 * MB)))
ok(cu.cuMemcpy(c_void_p(ahead), taken[0], c_size_t(5 * MB)))
assert ctypes.string_at(ahead, 5 * MB) == bytes([9]) * (5 * MB)
assert ctypes.string_at(ahead + 5 * MB, 4) == bytes([5]) * 4
for p in taken: ok(cu.cuMemFree_v2(p))
# freed and taken again, plain and managed in turn
for _ in range(20):
    p = memory(3 * MB); managed = c_void_p(); ok(cu.cuMemAllocManaged(byref(managed), c_size_t(4096), 1))
    ctypes.memset(managed.value, 1, 4096); ok(cu.cuMemFree_v2(p)); ok(cu.cuMemFree_v2(managed))
# all around is the program's: then such addresses are better than none
far = first + 1024 * MB
assert place(far, 1 << 36, 0) == far
many = [memory(256 * MB) for _ in range(7)]
assert any(p.value + 256 * MB > far for p in many)
print('done')
"""


def test_addresses_are_either_a_devices_or_the_programs(tmp_path: Path) -> None:
    with run_simulated("ring", tmp_path, ("0",)) as guest:
        process = guest.start_python(PLACES)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, errors) == (0, "done\n", "")
