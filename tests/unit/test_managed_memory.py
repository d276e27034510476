"""Managed memory of a guest process: what threads, system calls, forks, kills and a stricter kernel do to it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.calls_rig import (
    PROGRAM_S,
    null_channel,
    run_python,
    simulated_channel,
    start_python,
)
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

TRANSPORTS = ("ring", "serial")
#: ``kernel``: adds one to each of n 32-bit cells
COMMON = '''
import mmap, os, threading
PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 cells, .param .u32 n)
{
	.reg .pred %p; .reg .b32 %i, %t, %b, %d, %n, %v; .reg .b64 %a;
	mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %d, %ntid.x; mad.lo.s32 %i, %b, %d, %t;
	ld.param.u32 %n, [n]; setp.ge.u32 %p, %i, %n; @%p ret;
	ld.param.u64 %a, [cells]; mad.wide.u32 %a, %i, 4, %a;
	ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v; ret;
}
\\0"""
def managed(size):
    made = c_uint64(); ok(cu.cuMemAllocManaged(byref(made), c_size_t(size), 1)); return made.value
def cells(at, n): return (c_uint * n).from_address(at)
def bump(kernel, at, n, stream=None):
    values = (c_uint64(at), c_uint(n)); array = (c_void_p * 2)(*(addressof(v) for v in values))
    ok(cu.cuLaunchKernel(kernel, (n + 127) // 128, 1, 1, 128, 1, 1, 0, stream, array, None))
'''
KERNEL = COMMON + "ctx = context(); kernel = function(module(PTX))\n"


@pytest.fixture(scope="module", params=TRANSPORTS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with simulated_channel(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


def test_system_calls_read_and_write_what_a_kernel_has_written(rig: Rig) -> None:
    """They fault in the kernel, where no signal handler could help."""
    if os.geteuid() != 0:
        pytest.skip("only root is told of such faults without a setting of the kernel's")
    run_python(
        rig,
        KERNEL
        + """
n = 1 << 16; at = managed(4 * n); view = cells(at, n)
bump(kernel, at, n); ok(cu.cuCtxSynchronize())
libc = ctypes.CDLL(None); libc.write.restype = libc.read.restype = ctypes.c_ssize_t
fd = os.memfd_create("file"); os.ftruncate(fd, 4 * n)
assert libc.write(fd, c_void_p(at), c_size_t(4 * n)) == 4 * n
os.lseek(fd, 0, 0); data = os.read(fd, 4 * n)
assert data == (b"\\1\\0\\0\\0") * n
bump(kernel, at, n); os.lseek(fd, 0, 0); os.write(fd, b"\\5\\0\\0\\0" * n); os.lseek(fd, 0, 0)
ok(cu.cuCtxSynchronize())
assert libc.read(fd, c_void_p(at), c_size_t(4 * n)) == 4 * n
bump(kernel, at, n); ok(cu.cuCtxSynchronize())
assert list(view) == [6] * n
""",
    )


def test_copies_go_on_while_other_threads_launch(rig: Rig) -> None:
    """A copy touches managed memory that a launch has just taken away, and must not hold the lane meanwhile."""
    run_python(
        rig,
        KERNEL
        + """
n = 1 << 15; at = managed(4 * n); other = managed(4 * n); plain = memory(4 * n)
stop = threading.Event(); rounds = [0]; count = threading.Lock()
def launches():
    ok(cu.cuCtxSetCurrent(ctx))
    while not stop.is_set():
        with count: rounds[0] += 1
        bump(kernel, other, 64); ok(cu.cuCtxSynchronize())
threads = [threading.Thread(target=launches) for _ in range(2)]
for t in threads: t.start()
view = cells(at, n)
for i in range(60):
    view[i] = i; view[n - 1] = i
    ok(cu.cuMemcpyHtoD_v2(plain, c_void_p(at), c_size_t(4 * n)))
    ok(cu.cuMemsetD8_v2(c_uint64(at), 255, c_size_t(4 * n)))
    ok(cu.cuMemcpyDtoH_v2(c_void_p(at), plain, c_size_t(4 * n)))
    assert (view[i], view[n - 1]) == (i, i), i
stop.set()
for t in threads: t.join(60); assert not t.is_alive()
ok(cu.cuCtxSynchronize())
assert rounds[0] > 10 and cells(other, 64)[63] == rounds[0], (rounds, cells(other, 64)[63])
""",
    )


def test_a_touch_waits_for_the_kernels_that_run(rig: Rig) -> None:
    run_python(
        rig,
        KERNEL
        + """
n = 1 << 17; at = managed(4 * n)
for i in range(1, 4):
    bump(kernel, at, n)                               # nobody synchronizes
    assert cells(at, n)[n - 1] == i and cells(at, n)[0] == i
stream = c_void_p(); ok(cu.cuStreamCreate(byref(stream), 1)); bump(kernel, at, n, stream)
assert cells(at, n)[n - 1] == 4
""",
    )


def test_a_host_function_may_touch_it_while_others_wait(rig: Rig) -> None:
    run_python(
        rig,
        KERNEL
        + """
n = 4096; at = managed(4 * n); seen = []
FN = ctypes.CFUNCTYPE(None, c_void_p); stream = c_void_p(); ok(cu.cuStreamCreate(byref(stream), 1))
def touch(_):
    view = cells(at, n); seen.append(view[n - 1]); view[0] = 7
keep = FN(touch)
for i in range(5):
    bump(kernel, at, n, stream); ok(cu.cuLaunchHostFunc(stream, keep, None)); ok(cu.cuStreamSynchronize(stream))
assert seen == [1, 2, 3, 4, 5] and cells(at, n)[0] == 7, seen
""",
    )


def test_what_is_freed_is_not_there_and_a_child_has_none(rig: Rig) -> None:
    run_python(
        rig,
        KERNEL
        + """
import signal
def dies(at):
    pid = os.fork()
    if not pid:
        cells(at, 1)[0]; os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])
mine = managed(4096); cells(mine, 1)[0] = 1
assert dies(mine) == signal.SIGSEGV                      # a child has no CUDA either
def mapped(at):
    bounds = [line.split()[0].split("-") for line in open("/proc/self/maps")]
    return any(int(start, 16) <= at < int(end, 16) for start, end in bounds)
assert mapped(mine)
ok(cu.cuMemFree_v2(c_uint64(mine))); assert not mapped(mine) and cu.cuMemFree_v2(c_uint64(mine)) == 1
free, total, after = c_size_t(), c_size_t(), c_size_t(); ok(cu.cuMemGetInfo_v2(byref(free), byref(total)))
for i in range(200):
    at = managed(1 + i * 500); cells(at, 1)[0] = i
    assert cu.cuMemFree_v2(c_uint64(at + 4096)) == 1 and cu.cuMemFreeAsync(c_uint64(at), None) == 1
    ok(cu.cuMemFree_v2(c_uint64(at)))
ok(cu.cuMemGetInfo_v2(byref(after), byref(total))); assert after.value == free.value
second = c_void_p(); ok(cu.cuCtxCreate_v2(byref(second), 0, 0)); at = managed(4096); cells(at, 1)[0] = 1
ok(cu.cuCtxDestroy_v2(second)); assert not mapped(at)
""",
    )


def test_bad_arguments(rig: Rig) -> None:
    run_python(
        rig,
        KERNEL
        + """
p = c_uint64(5)
for size, flags in ((0, 1), (8, 0), (8, 3), (8, 4)):
    assert cu.cuMemAllocManaged(byref(p), c_size_t(size), flags) == 1, (size, flags)
assert cu.cuMemAllocManaged(None, c_size_t(8), 1) == 1
for size in (1 << 50, (1 << 64) - 1, (1 << 64) - 4096):
    assert cu.cuMemAllocManaged(byref(p), c_size_t(size), 1) == 2 and p.value == 0
at = managed(4096); plain = memory(4096)
assert cu.cuMemPrefetchAsync(plain, c_size_t(64), 0, None) == 1
ok(cu.cuMemPrefetchAsync(c_uint64(at), c_size_t(4096), 0, None))
assert cu.cuMemPrefetchAsync(c_uint64(at), c_size_t(4097), 0, None) == 1
assert cu.cuMemAdvise(c_uint64(at), c_size_t(64), 0, 0) == 1 and cu.cuMemAdvise(c_uint64(at), c_size_t(64), 7, 0) == 1
ok(cu.cuMemAdvise(c_uint64(at), c_size_t(64), 1, 0))
assert cu.cuStreamAttachMemAsync(None, c_uint64(at + 8), c_size_t(0), 1) == 1
assert cu.cuStreamAttachMemAsync(None, c_uint64(at), c_size_t(0), 5) == 1
ok(cu.cuStreamAttachMemAsync(None, c_uint64(at), c_size_t(0), 4))
value = c_int(); ok(cu.cuDeviceGetAttribute(byref(value), 83, 0)); assert value.value == 1
ok(cu.cuDeviceGetAttribute(byref(value), 89, 0)); assert value.value == 0
""",
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bytes_of_a_lost_session_are_not_made_up(transport: str, tmp_path: Path) -> None:
    code = """
at = managed(1 << 20); unused = managed(4096); bump(kernel, at, 1 << 18); ok(cu.cuCtxSynchronize())
cells(unused, 1)[0] = 3
print("ready", flush=True); input(); print(cells(unused, 1)[0], flush=True); print(cells(at, 1)[0], flush=True)
"""
    with simulated_channel(transport, tmp_path) as rig:
        process = start_python(rig, KERNEL + code)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (session,) = (lane.session_pid for lane in rig.status().lanes if lane.pid == process.pid)
        os.kill(session, signal.SIGKILL)
        time.sleep(0.2)
        out, errors = process.communicate("\n", timeout=PROGRAM_S)
        assert process.returncode == -signal.SIGSEGV, (out, errors)
        assert out == "3\n", "what is here stays; what was on the device is not there"
        assert "vgpumgr: managed memory at 0x" in errors
        assert "is lost with the session that had it\n" in errors


#: a seccomp filter: userfaultfd(2) and USERFAULTFD_IOC_NEW of /dev/userfaultfd answer EPERM, as in a container
NO_FAULTS = """
import struct
def filter_calls():
    libc = ctypes.CDLL(None, use_errno=True)
    op = lambda code, k, jt=0, jf=0: struct.pack("HBBI", code, jt, jf, k)
    program = b"".join([op(0x20, 0), op(0x15, 323, 3, 0), op(0x15, 16, 0, 3), op(0x20, 24), op(0x15, 0xAA00, 0, 1),
                        op(0x06, 0x50001), op(0x06, 0x7FFF0000)])
    text = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxQ", len(program) // 8, addressof(text))
    assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, ctypes.create_string_buffer(fprog), 0, 0)
filter_calls()
"""


def test_without_userfaultfd_it_is_refused_with_the_reason(rig: Rig) -> None:
    code = """
ctx = context(); p = c_uint64(5); value = c_int(5)
for _ in range(2): assert cu.cuMemAllocManaged(byref(p), c_size_t(8), 1) == 801 and p.value == 0
ok(cu.cuDeviceGetAttribute(byref(value), 83, 0)); assert value.value == 0
memory(64)
"""
    process = start_python(rig, NO_FAULTS + code)
    _, errors = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 0, errors
    assert errors == "vgpumgr: no managed memory: the kernel refuses userfaultfd to this process\n"


def test_addresses_that_are_taken_here_are_not_used() -> None:
    """The null driver's memory is where the kernel puts it, as a GPU's driver's."""
    code = (
        COMMON
        + """
context(); made = []
for i in range(200):
    at = managed(4096 * (1 + i % 7)); made.append(at); cells(at, 1)[0] = i
    if i % 3 == 0: made.append(mmap.mmap(-1, 1 << 20))
assert [cells(at, 1)[0] for at in made if isinstance(at, int)] == list(range(200))
for at in made:
    if isinstance(at, int): ok(cu.cuMemFree_v2(c_uint64(at)))
"""
    )
    with null_channel("ring") as rig:
        run_python(rig, code)


def test_a_user_has_it_too_but_for_system_calls_on_what_a_kernel_has_had(rig: Rig) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    if Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() != "0":
        pytest.skip("this kernel lets all users be told of every fault")
    run_python(
        rig,
        KERNEL
        + """
os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
n = 4096; at = managed(4 * n); bump(kernel, at, n); ok(cu.cuCtxSynchronize())
libc = ctypes.CDLL(None, use_errno=True); libc.write.restype = ctypes.c_ssize_t; fd = os.memfd_create("file")
assert libc.write(fd, c_void_p(at), c_size_t(4 * n)) == -1 and ctypes.get_errno() == 14
assert cells(at, n)[0] == 1 and libc.write(fd, c_void_p(at), c_size_t(4 * n)) == 4 * n
assert os.pread(fd, 4 * n, 0) == (b"\\1\\0\\0\\0") * n
""",
    )
