"""Programs compiled by nvcc, from the runtime's shim down to the simulated driver in the worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.build_programs import build_programs
from tests.unit.calls_rig import run_program, run_python, simulated_channel
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

PROGRAMS = (
    "vectoradd",
    "matmul",
    "reduction",
    "histogram",
    "overlap",
    "device_functions",
    "errors",
    "output",
    "pools",
    "together",
    "vectoradd12",
)


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return build_programs(PROGRAMS)


@pytest.fixture(scope="module", params=["ring", "private", "serial"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with simulated_channel(request.param, tmp_path_factory.mktemp("sim")) as found:
        yield found


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_right_results(name: str, rig: Rig, programs: dict[str, Path]) -> None:
    done = run_program(rig, str(programs[name]))
    assert done.returncode == 0, (done.stdout, done.stderr, rig.status())
    assert rig.status().violations.count == 0


def test_host_functions_run_in_stream_order_and_hold_up_no_other_thread(rig: Rig) -> None:
    """Work after a host function waits for it; another thread of the process goes on meanwhile."""
    run_python(
        rig,
        """
import threading
ctx = context(); p = memory(4); back = ctypes.create_string_buffer(4); seen = []; go = threading.Event()
FN = ctypes.CFUNCTYPE(None, c_void_p); stream = c_void_p(); event = c_void_p()
ok(cu.cuStreamCreate(byref(stream), 1)); ok(cu.cuEventCreate(byref(event), 0))
slow = FN(lambda data: (go.wait(60), seen.append(data)))
quick = FN(lambda data: seen.append(data))
ok(cu.cuLaunchHostFunc(stream, slow, c_void_p(1))); ok(cu.cuLaunchHostFunc(stream, quick, c_void_p(2)))
ok(cu.cuMemsetD8Async(p, 9, c_size_t(4), stream)); ok(cu.cuEventRecord(event, stream))
assert cu.cuEventQuery(event) == 600 and cu.cuStreamQuery(stream) == 600 and seen == []
waiter = threading.Thread(target=lambda: (cu.cuCtxSetCurrent(ctx), seen.append(-cu.cuStreamSynchronize(stream))))
waiter.start()
q = memory(4)                                      # another thread of the process is not held up
ok(cu.cuMemsetD8_v2(q, 5, c_size_t(4))); ok(cu.cuMemcpyDtoH_v2(back, q, c_size_t(4))); assert back.raw == bytes([5]) * 4
assert seen == [] and waiter.is_alive()
go.set(); waiter.join(60)
assert seen == [1, 2, 0], seen
ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(4))); assert back.raw == bytes([9]) * 4; ok(cu.cuEventQuery(event))
""",
    )


@pytest.mark.parametrize("bytes_in_all", [4096, 16352, 16360, 32764])
def test_parameters_of_every_size_arrive(rig: Rig, bytes_in_all: int) -> None:
    run_python(
        rig,
        """
import os, sys
n = int(sys.argv[1]) - 8
image = f'''.version 8.1
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .align 4 .b8 data[{n}])
{{ .reg .u64 %p; .reg .u32 %a, %b;
ld.param.u64 %p, [out]; ld.param.u32 %a, [data]; ld.param.u32 %b, [data+{n - 4}];
st.global.u32 [%p], %a; st.global.u32 [%p+4], %b; ret; }}'''.encode() + bytes(1)
ctx = context(); f = function(module(image), b"k"); p = memory(8); back = ctypes.create_string_buffer(8)
data = os.urandom(n); first = ctypes.create_string_buffer(data, n)
array = (c_void_p * 2)(addressof(p), addressof(first))
def check():
    ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(8))); assert back.raw == data[:4] + data[-4:]
    ok(cu.cuMemsetD8_v2(p, 0, c_size_t(8)))
ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, array, None)); check()
packed = bytes(p) + data; size = c_size_t(len(packed))       # the same in one buffer
extra = (c_void_p * 5)(1, ctypes.cast(packed, c_void_p), 2, addressof(size), 0)
ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, extra)); check()
""",
        str(bytes_in_all),
    )


@pytest.mark.parametrize("major", [12, 13])
def test_the_runtime_is_not_newer_than_its_driver(rig: Rig, major: int) -> None:
    run_python(
        rig,
        f"""
import os
runtime = ctypes.CDLL(os.environ["LD_LIBRARY_PATH"].split(":")[0] + "/libcudart.so.{major}")
below, own = c_int(), c_int()
assert runtime.cudaDriverGetVersion(byref(below)) == 0 and below.value == 13000
assert runtime.cudaRuntimeGetVersion(byref(own)) == 0
assert own.value <= below.value and own.value // 1000 == {major}, own.value
""",
    )
