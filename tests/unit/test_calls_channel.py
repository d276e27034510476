"""The guest's libcuda.so.1 over a real channel to a real worker, on the null driver: rules that need no kernels.

Each case is a guest process of its own. The null driver aborts the worker on a wrong handle or address, so a test that
ends with a living worker has also shown that nothing of the kind got through.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.calls_rig import PROGRAM_S, SHIM, null_channel, run_python, start_python
from tests.unit.transport_rig import Rig
from vgpumgr.virtio.keeper import KeeperError

pytestmark = pytest.mark.native


@pytest.fixture(scope="module", params=["ring", "private", "serial"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with null_channel(request.param) as found:
        yield found


@pytest.fixture(autouse=True)
def worker_is_well(rig: Rig) -> Iterator[None]:
    before = rig.status().worker.pid
    yield
    after = rig.status()
    assert (after.worker.pid, after.worker.state, after.violations.count) == (before, "ready", 0)


def test_calls_without_outputs_do_not_wait(rig: Rig) -> None:
    run_python(
        rig,
        """
context(); f = function(module()); p = memory(4096); stream = c_void_p(); event = c_void_p()
ok(cu.cuStreamCreate(byref(stream), 1)); ok(cu.cuEventCreate(byref(event), 2))
ok(cu.cuCtxSynchronize())
before = waits()
for _ in range(200):
    ok(cu.cuMemcpyHtoDAsync_v2(p, b"x" * 4096, c_size_t(4096), stream))
    ok(launch(f, stream=stream)); ok(cu.cuMemsetD32Async(p, 7, c_size_t(1024), stream))
    ok(cu.cuEventRecord(event, stream)); ok(cu.cuStreamWaitEvent(None, event, 0))
    ok(cu.cuMemcpyDtoDAsync_v2(c_uint64(p.value + 2048), p, c_size_t(2048), stream))
other = c_void_p(); ok(cu.cuStreamCreate(byref(other), 0)); ok(cu.cuStreamDestroy_v2(other))
value = c_int(); ok(cu.cuDeviceGetAttribute(byref(value), 1, 0)); assert value.value == 1024
ok(cu.cuFuncGetAttribute(byref(value), 0, f)); ok(cu.cuDriverGetVersion(byref(value)))
assert waits() == before, waits() - before
ok(cu.cuStreamSynchronize(stream)); assert waits() == before + 1
ok(cu.cuEventSynchronize(event)); before = waits()
for _ in range(50): ok(cu.cuEventQuery(event))
assert waits() == before
""",
    )


def test_copies_of_all_shapes_arrive(rig: Rig) -> None:
    run_python(
        rig,
        """
import os
context(); n = (9 << 20) + 13
p = memory(n); data = os.urandom(n); back = ctypes.create_string_buffer(n)
ok(cu.cuMemcpyHtoD_v2(p, data, c_size_t(n))); ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(n)))
assert back.raw == data
q = memory(n); ok(cu.cuMemcpy(q, p, c_size_t(n)))
back = ctypes.create_string_buffer(n); ok(cu.cuMemcpy(c_uint64(addressof(back)), q, c_size_t(n)))
assert back.raw == data

class Copy(ctypes.Structure):
    _fields_ = [(a + b, t) for a in ("src", "dst") for b, t in (
        ("X", c_size_t), ("Y", c_size_t), ("Type", c_uint), ("Host", c_void_p), ("Device", c_uint64),
        ("Array", c_void_p), ("Pitch", c_size_t))] + [("width", c_size_t), ("height", c_size_t)]
rows = 40
host = ctypes.create_string_buffer(b"." * 100 * rows, 100 * rows)
c = Copy(srcType=2, srcDevice=p.value, srcPitch=200, srcX=3, srcY=1, dstType=1, dstHost=addressof(host), dstPitch=100,
         width=60, height=rows)
ok(cu.cuMemcpy2D_v2(byref(c)))
for y in range(rows):
    at = 200 * (y + 1) + 3
    assert host.raw[100 * y : 100 * y + 100] == data[at : at + 60] + b"." * 40, y   # the gap is untouched
c = Copy(srcType=1, srcHost=addressof(host), srcPitch=100, dstType=2, dstDevice=q.value, dstPitch=64, width=60,
         height=rows)
ok(cu.cuMemsetD8_v2(q, 0x2a, c_size_t(64 * rows))); ok(cu.cuMemcpy2D_v2(byref(c)))
ok(cu.cuMemcpyDtoH_v2(back, q, c_size_t(64 * rows)))
for y in range(rows):
    assert back.raw[64 * y : 64 * y + 64] == host.raw[100 * y : 100 * y + 60] + b"*" * 4, y
c.dstPitch = 59
assert cu.cuMemcpy2D_v2(byref(c)) == 1
c.dstPitch, c.height = 64, 1 << 62
assert cu.cuMemcpy2D_v2(byref(c)) == 1
""",
    )


def test_illegal_arguments_fail_at_the_call(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUMGR_QUIET", "1")
    run_python(
        rig,
        """
n = c_int()
assert cu.cuDeviceGetCount(byref(n)) == 3                      # not initialised
assert cu.cuInit(1) == 1
ok(cu.cuInit(0)); p = c_uint64()
assert cu.cuMemAlloc_v2(byref(p), c_size_t(64)) == 201         # no context
assert cu.cuDeviceGet(byref(n), 1) == 101
context(); f = function(module()); p = memory(4096); before = waits()
assert cu.cuMemAlloc_v2(byref(p), c_size_t(0)) == 1
assert cu.cuMemAlloc_v2(None, c_size_t(4)) == 1
assert launch(f, block=0) == 1 and launch(f, grid=0) == 1 and launch(f, block=1025) == 1
assert launch(c_void_p(1234)) == 400 and launch(c_void_p(0)) == 400
assert launch(f, stream=c_void_p(4096)) == 400
assert cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 1
assert cu.cuMemcpyHtoD_v2(p, b"", c_size_t(4097)) == 1
assert cu.cuMemcpyHtoD_v2(c_uint64(p.value + 1), b"x" * 4096, c_size_t(4096)) == 1
assert cu.cuMemsetD32_v2(p, 1, c_size_t(1 << 62)) == 1
assert cu.cuMemFree_v2(c_uint64(p.value + 8)) == 1 and cu.cuMemFree_v2(c_uint64(0)) == 0
ok(cu.cuMemFree_v2(p)); assert cu.cuMemFree_v2(p) == 1
assert cu.cuEventDestroy_v2(c_void_p(0)) == 400 and cu.cuStreamDestroy_v2(None) == 400
e = c_void_p(); ok(cu.cuEventCreate(byref(e), 0)); ok(cu.cuEventDestroy_v2(e))
assert cu.cuEventDestroy_v2(e) == 400 and cu.cuEventRecord(e, None) == 400
assert cu.cuStreamSynchronize(e) == 400                         # a handle of another kind
assert cu.cuMemHostGetDevicePointer_v2(byref(p), None, 0) == 1
assert cu.cuDestroyExternalMemory(None) == 801
assert waits() == before
g = c_void_p(); assert cu.cuModuleGetFunction(byref(g), module(), b"missing") == 500
""",
    )


def test_a_function_that_is_not_supported_names_itself_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "for _ in range(3): assert cu.cuDestroyExternalMemory(None) == 801"
    process = start_python(rig, code)
    errors = process.communicate(timeout=PROGRAM_S)[1]
    said = "vgpumgr: cuDestroyExternalMemory is not supported over a forwarded GPU\n"
    assert (process.returncode, errors) == (0, said)
    monkeypatch.setenv("VGPUMGR_QUIET", "1")
    run_python(rig, code)


def test_profilers_may_be_switched_and_handles_are_positive(rig: Rig) -> None:
    run_python(
        rig,
        """
assert cu.cuProfilerStart() == 201 == cu.cuProfilerStop()            # no context
ctx = context(); ok(cu.cuProfilerStart()); ok(cu.cuProfilerStop())
found = c_void_p()
ok(cu.cuGetProcAddress_v2(b"cuProfilerStart", byref(found), 12000, c_uint64(0), None)); assert found.value
library, kernel = c_void_p(), c_void_p()
ok(cu.cuLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0))
ok(cu.cuLibraryGetKernel(byref(kernel), library, b"kernel"))
assert library.value >> 63 == kernel.value >> 63 == 0
ok(cu.cuLibraryUnload(library))
""",
    )


def test_pointers_and_pinned_memory(rig: Rig) -> None:
    run_python(
        rig,
        """
ctx = context(); p = memory(4096); pinned = c_void_p(); flags = c_uint(); kind = c_uint(); before = waits()
ok(cu.cuMemHostAlloc(byref(pinned), c_size_t(8192), 1)); ok(cu.cuMemHostGetFlags(byref(flags), pinned))
assert flags.value == 1
ok(cu.cuPointerGetAttribute(byref(kind), 2, c_uint64(p.value + 9))); assert kind.value == 2
ok(cu.cuPointerGetAttribute(byref(kind), 2, c_uint64(pinned.value))); assert kind.value == 1
assert cu.cuPointerGetAttribute(byref(kind), 2, c_uint64(addressof(kind))) == 1
assert cu.cuMemHostGetDevicePointer_v2(byref(p), pinned, 0) == 801
ok(cu.cuMemFreeHost(pinned)); assert cu.cuMemFreeHost(pinned) == 1
buffer = ctypes.create_string_buffer(100)
ok(cu.cuMemHostRegister_v2(buffer, c_size_t(100), 0)); assert cu.cuMemHostRegister_v2(buffer, c_size_t(100), 0) == 712
ok(cu.cuMemHostUnregister(buffer)); assert cu.cuMemHostUnregister(buffer) == 713
assert waits() == before
""",
    )


def test_addresses_by_name_follow_version_and_flags(rig: Rig) -> None:
    run_python(
        rig,
        """
def find(name, version, flags=0):
    f = c_void_p(); status = c_int(-1)
    r = cu.cuGetProcAddress_v2(name, byref(f), version, c_uint64(flags), byref(status))
    return r, f.value, status.value
def at(name): return ctypes.cast(getattr(cu, name), c_void_p).value
assert find(b"cuMemAlloc", 13000) == (0, at("cuMemAlloc_v2"), 0)
assert find(b"cuMemAlloc", 3000) == (0, at("cuMemAlloc"), 0)
assert find(b"cuCtxCreate", 12000)[1] == at("cuCtxCreate_v3") and find(b"cuCtxCreate", 11000)[1] == at("cuCtxCreate_v2")
assert find(b"cuCtxCreate", 13000)[1] == at("cuCtxCreate_v4")
assert find(b"cuGetProcAddress", 11030)[1] == at("cuGetProcAddress")
assert find(b"cuGetProcAddress", 12000)[1] == at("cuGetProcAddress_v2")
assert find(b"cuLaunchKernel", 12000, 2)[1] == at("cuLaunchKernel_ptsz")
assert find(b"cuMemcpyHtoD", 12000, 2)[1] == at("cuMemcpyHtoD_v2_ptds")
assert find(b"cuMemAlloc", 12000, 2)[1] == at("cuMemAlloc_v2")
assert find(b"cuMemPoolCreate", 11000) == (500, None, 2) and find(b"cuNothing", 13000) == (500, None, 1)
assert find(b"cuMemAlloc", 13000, 3)[0] == 1
table = c_void_p(1)
assert cu.cuGetExportTable(byref(table), bytes.fromhex("f8cff951") + bytes(12)) == 500 and table.value is None
""",
    )


def test_private_tables_are_refused_with_one_diagnostic(rig: Rig) -> None:
    process = start_python(
        rig,
        """
table = c_void_p(1)
for _ in range(3): assert cu.cuGetExportTable(byref(table), bytes.fromhex("6bd5fb6c") + bytes(12)) == 801
""",
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors.count("holds a CUDA runtime that needs private driver tables") == 1, errors


#: as a vendor's library with a runtime built in
BUILT_IN = """
int cuGetExportTable(const void **table, const void *id);
static const unsigned char id[16] = { 0x6b, 0xd5, 0xfb, 0x6c };
int start(void) { const void *table; return cuGetExportTable(&table, id); }
"""


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("libcufft.so.12", "has its own libcufft.so.12. Start the program with 'vgpumgr-guest run'"),
        ("libcudart.so.13", "has its own libcudart.so.13."),
        ("libnppc.so.13", "has none of that name."),
    ],
)  # fmt: skip
def test_a_runtime_that_is_built_in_is_named_with_what_stands_in(
    rig: Rig, tmp_path: Path, name: str, advice: str
) -> None:
    library = tmp_path / name
    words = ["cc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", SHIM, "-o", library]
    subprocess.run(words, input=BUILT_IN, text=True, check=True)
    process = start_python(rig, f"assert ctypes.CDLL({str(library)!r}).start() == 801")
    _, errors = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 0, errors
    assert f"{library} holds a CUDA runtime" in errors
    assert advice in errors


def test_many_threads_and_processes_at_once(rig: Rig) -> None:
    code = """
import os, sys, threading
ctx = context(); failures = []
def work(seed):
    try:
        ok(cu.cuCtxSetCurrent(ctx)); f = function(module(), b"k%d" % seed); stream = c_void_p()
        ok(cu.cuStreamCreate(byref(stream), 1))
        for i in range(25):
            n = 1000 + 37 * i; p = memory(n); data = os.urandom(n); back = ctypes.create_string_buffer(n)
            e = c_void_p(); ok(cu.cuEventCreate(byref(e), 0)); ok(cu.cuMemcpyHtoDAsync_v2(p, data, c_size_t(n), stream))
            ok(launch(f, stream=stream)); ok(cu.cuEventRecord(e, stream)); ok(cu.cuEventSynchronize(e))
            ok(cu.cuMemcpyDtoHAsync_v2(back, p, c_size_t(n), stream)); assert back.raw == data
            ok(cu.cuMemsetD8_v2_ptds(p, 5, c_size_t(n))); ok(cu.cuMemcpyDtoH_v2_ptds(back, p, c_size_t(n)))
            assert back.raw == bytes([5]) * n
            ok(cu.cuEventDestroy_v2(e)); ok(cu.cuMemFree_v2(p))
        ok(cu.cuStreamDestroy_v2(stream))
    except AssertionError as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failures, failures
"""
    processes = [start_python(rig, code) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert (process.returncode, errors) == (0, "")
    rig.wait_status(lambda s: not s.lanes, "sessions ended")


def test_a_child_made_by_fork_is_told_and_harms_nobody(rig: Rig) -> None:
    run_python(
        rig,
        """
import os
context(); p = memory(64)
child = os.fork()
if not child:
    n = c_int()
    os._exit([cu.cuInit(0), cu.cuDeviceGetCount(byref(n)), cu.cuMemFree_v2(p)] != [3, 3, 3])
assert os.waitpid(child, 0)[1] == 0
ok(cu.cuMemFree_v2(p)); ok(cu.cuCtxSynchronize())
""",
    )


def test_sessions_give_back_what_they_held(rig: Rig) -> None:
    process = start_python(rig, "context(); memory(1 << 20); print('up', flush=True); input()")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    rig.wait_status(lambda s: [x.memory_bytes for x in s.lanes] == [1 << 20], "memory accounted")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    rig.wait_status(lambda s: not s.lanes and not s.totals.memory_bytes, "all given back")


@pytest.mark.parametrize("transport", ["ring", "private", "serial"])
def test_worker_killed_gives_an_error_and_the_next_process_works(transport: str) -> None:
    with null_channel(transport) as rig:
        process = start_python(
            rig,
            """
context(); f = function(module()); print('up', flush=True); input()
import time
end = time.monotonic() + 60
while (r := cu.cuCtxSynchronize()) == 0 and time.monotonic() < end: time.sleep(0.01)
assert r == 46, r
assert launch(f) == 46 and cu.cuCtxSynchronize() == 46
""",
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        killed = rig.status().worker.pid
        os.kill(killed, signal.SIGKILL)
        _, errors = process.communicate("\n", timeout=120)
        assert (process.returncode, errors) == (0, "")
        rig.wait_status(
            lambda s: s.worker.state == "ready" and s.worker.pid != killed, "new worker"
        )
        run_python(rig, "context(); ok(cu.cuCtxSynchronize())")


def test_quiet_errors_surface_in_order_at_the_next_synchronise() -> None:
    with null_channel("ring", VGPUMGR_NULL_FAIL_NAME="cuLaunchKernel:701") as rig:
        run_python(
            rig,
            """
context(); f = function(module()); p = memory(64); back = ctypes.create_string_buffer(4)
ok(cu.cuMemsetD8_v2(p, 1, c_size_t(64))); ok(launch(f)); ok(cu.cuMemsetD8_v2(p, 2, c_size_t(64)))
assert cu.cuCtxSynchronize() == 701
ok(cu.cuCtxSynchronize())                                      # told once: the driver does not keep it
ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(4))); assert back.raw == bytes([1]) * 4  # what came after was dropped
e = c_void_p(); ok(launch(f)); ok(cu.cuEventCreate(byref(e), 0)); assert cu.cuCtxSynchronize() == 701
ok(cu.cuEventRecord(e, None)); ok(cu.cuEventSynchronize(e)); ok(cu.cuMemFree_v2(p))
""",
        )


def test_sticky_errors_stay_with_their_context_and_process() -> None:
    with null_channel("ring", VGPUMGR_NULL_FAIL_NAME="cuLaunchKernel:700") as rig:
        run_python(
            rig,
            """
context(); f = function(module()); ok(launch(f)); assert cu.cuCtxSynchronize() == 700
before = waits(); p = c_uint64()
assert launch(f) == 700 and cu.cuCtxSynchronize() == 700 and cu.cuMemAlloc_v2(byref(p), c_size_t(4)) == 700
assert waits() == before
other = c_void_p(); ok(cu.cuCtxCreate_v2(byref(other), 0, 0)); ok(cu.cuCtxSynchronize())
""",
        )
        run_python(rig, "context(); ok(cu.cuCtxSynchronize())")


def test_no_channel_is_no_device_and_a_person_is_told_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "assert cu.cuInit(0) == 100; n = c_int(); ok(cu.cuDriverGetVersion(byref(n)))"
    with null_channel("ring") as rig:
        rig.socket = tmp_path / "nobody.sock"
        process = start_python(rig, code)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert errors.count("vgpumgr: no GPU for this process: no guest agent at") == 1, errors
        monkeypatch.setenv("VGPUMGR_QUIET", "1")
        run_python(rig, code)


def test_a_driver_that_does_not_start_is_named() -> None:
    with (
        pytest.raises(KeeperError) as caught,
        null_channel("ring", VGPUMGR_NULL_FAIL_NAME="cuInit:100"),
    ):
        pass
    assert "cuInit" in f"{caught.value} {vars(caught.value)}"
