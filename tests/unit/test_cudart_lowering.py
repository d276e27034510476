# SPDX-License-Identifier: Apache-2.0
"""Which driver calls the runtime makes of a program's calls, on a driver that records them."""

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.unit.cudart.isolated import run_isolated
from tests.unit.cudart.libraries import MAJORS, Stub, library, load, read_version
from tests.unit.cudart.program import (
    ILLEGAL_ADDRESS,
    INSUFFICIENT_DRIVER,
    INVALID_DEVICE,
    INVALID_DIRECTION,
    INVALID_HANDLE,
    INVALID_PITCH,
    INVALID_VALUE,
    LAUNCH_FAILURE,
    NO_DEVICE,
    NOT_READY,
    OUT_OF_MEMORY,
    THREAD_STREAM,
    at,
    launch,
    register,
)

pytestmark = pytest.mark.native

Body = Callable[[ctypes.CDLL, Stub], None]


def copies_go_by_kind(cudart: ctypes.CDLL, stub: Stub) -> None:
    host, device = at(0x8000), at(0xA0000)
    cases = {
        1: (device, host, "cuMemcpyHtoD_v2 0xa0000 0x8000 5"),
        2: (host, device, "cuMemcpyDtoH_v2 0x8000 0xa0000 5"),
        3: (device, device, "cuMemcpyDtoD_v2 0xa0000 0xa0000 5"),
        4: (device, host, "cuMemcpy 0xa0000 0x8000 5"),
        0: (host, host, "cuMemcpy 0x8000 0x8000 5"),
    }
    five = ctypes.c_size_t(5)
    cudart.cudaFree(None)
    for kind, (to, source, expected) in cases.items():
        name, _, rest = expected.partition(" ")
        stub.calls()
        assert cudart.cudaMemcpy(to, source, five, kind) == 0
        assert stub.calls() == [expected]
        later = name.removesuffix("_v2") + "Async" + ("_v2" if name.endswith("_v2") else "")
        assert cudart.cudaMemcpyAsync(to, source, five, kind, at(0x99)) == 0
        assert stub.calls() == [f"{later} {rest} stream 0x99"]
        assert cudart.cudaMemcpy_ptds(to, source, five, kind) == 0
        assert stub.calls() == [
            f"{later} {rest} stream {THREAD_STREAM}",
            f"cuStreamSynchronize {THREAD_STREAM}",
        ]


def bad_copies_never_reach_the_driver(cudart: ctypes.CDLL, stub: Stub) -> None:
    five, none = ctypes.c_size_t(5), ctypes.c_size_t(0)
    assert cudart.cudaMemcpy(None, at(1), five, 1) == INVALID_VALUE
    assert cudart.cudaMemcpy(at(1), None, five, 1) == INVALID_VALUE
    assert cudart.cudaMemcpy(at(1), at(1), five, 5) == INVALID_DIRECTION
    assert cudart.cudaMemcpy(at(1), at(1), five, -1) == INVALID_DIRECTION
    assert cudart.cudaMemcpy(None, None, none, 1) == 0
    four = ctypes.c_size_t(4)
    version = ctypes.c_int()
    assert cudart.cudaRuntimeGetVersion(ctypes.byref(version)) == 0
    wrong_pitch = INVALID_VALUE if version.value >= 13000 else INVALID_PITCH
    assert cudart.cudaMemcpy2D(at(1), four, at(1), five, five, four, 1) == wrong_pitch
    assert stub.calls() == []


def rectangles_keep_pitches_and_ends(cudart: ctypes.CDLL, stub: Stub) -> None:
    sizes = [ctypes.c_size_t(size) for size in (64, 32, 16, 3)]
    to, source, width, height = sizes
    assert cudart.cudaMemcpy2D(at(0xA0000), to, at(0x8000), source, width, height, 1) == 0
    assert stub.calls()[-1] == (
        "cuMemcpy2DUnaligned_v2 1 0x8000 0 32 -> 2 (nil) 0xa0000 64, 16 x 3"
    )
    assert cudart.cudaMemset2D(at(0xA0000), to, 0x1FF, width, height) == 0
    assert stub.calls() == ["cuMemsetD2D8_v2 0xa0000 64 255 16 3"]


class Pitched(ctypes.Structure):
    """cudaPitchedPtr."""

    _fields_ = (
        ("ptr", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("xsize", ctypes.c_size_t),
        ("ysize", ctypes.c_size_t),
    )


class Three(ctypes.Structure):
    """cudaPos and cudaExtent."""

    _fields_ = (("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t))


class Copy3D(ctypes.Structure):
    """cudaMemcpy3DParms."""

    _fields_ = (
        ("src_array", ctypes.c_void_p),
        ("src_pos", Three),
        ("src", Pitched),
        ("dst_array", ctypes.c_void_p),
        ("dst_pos", Three),
        ("dst", Pitched),
        ("extent", Three),
        ("kind", ctypes.c_int),
    )


def boxes_keep_positions(cudart: ctypes.CDLL, stub: Stub) -> None:
    copy = Copy3D(None, Three(1, 2, 3), Pitched(0x8000, 64, 60, 8))
    copy.dst_pos, copy.dst = Three(4, 5, 6), Pitched(0xA0000, 128, 100, 9)
    copy.extent, copy.kind = Three(16, 2, 3), 1
    assert cudart.cudaMemcpy3D(ctypes.byref(copy)) == 0
    assert stub.calls()[-1] == "cuMemcpy3D_v2 1 1,2,3 64*8 -> 2 4,5,6 128*9, 16 x 2 x 3"
    copy.dst_array = 1  # an array and memory: which one?
    assert cudart.cudaMemcpy3D(ctypes.byref(copy)) == INVALID_VALUE
    box = Pitched(0xA0000, 128, 100, 4)
    assert cudart.cudaMemset3D(box, 1, Three(100, 4, 3)) == 0
    assert stub.calls() == ["cuMemsetD2D8_v2 0xa0000 128 1 100 12"]
    assert cudart.cudaMemset3D(box, 1, Three(100, 3, 2)) == 0
    assert stub.calls() == [
        "cuMemsetD2D8_v2 0xa0000 128 1 100 3",
        f"cuMemsetD2D8_v2 {0xA0000 + 128 * 4:#x} 128 1 100 3",
    ]


def memory_errors_pass_and_are_remembered_once(cudart: ctypes.CDLL, stub: Stub) -> None:
    pointer = ctypes.c_void_p(1)
    stub.fail("cuMemAlloc_v2", OUT_OF_MEMORY)
    assert cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(8)) == OUT_OF_MEMORY
    assert cudart.cudaPeekAtLastError() == OUT_OF_MEMORY
    assert cudart.cudaGetLastError() == OUT_OF_MEMORY
    assert cudart.cudaGetLastError() == 0
    stub.calls()
    assert cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(8)) == 0
    assert pointer.value == 0xA0000
    assert cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(0)) == 0
    assert pointer.value is None
    assert stub.calls() == ["cuMemAlloc_v2 8"]


def sticky_errors_stay(cudart: ctypes.CDLL, stub: Stub) -> None:
    stub.fail("cuCtxSynchronize", ILLEGAL_ADDRESS)
    assert cudart.cudaDeviceSynchronize() == ILLEGAL_ADDRESS
    assert cudart.cudaGetLastError() == ILLEGAL_ADDRESS
    assert cudart.cudaGetLastError() == ILLEGAL_ADDRESS
    assert cudart.cudaDeviceReset() == 0
    assert cudart.cudaGetLastError() == 0


def unknown_driver_codes_are_unknown_errors(cudart: ctypes.CDLL, stub: Stub) -> None:
    stub.fail("cuCtxSynchronize", 31337)
    assert cudart.cudaDeviceSynchronize() == 999


def last_errors_are_each_threads_own(cudart: ctypes.CDLL, stub: Stub) -> None:
    del stub
    seen: list[int] = []
    assert cudart.cudaSetDevice(99) == INVALID_DEVICE
    thread = threading.Thread(target=lambda: seen.append(cudart.cudaPeekAtLastError()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert cudart.cudaPeekAtLastError() == INVALID_DEVICE


def threads_share_the_primary_context(cudart: ctypes.CDLL, stub: Stub) -> None:
    assert cudart.cudaFree(None) == 0
    stub.calls()
    thread = threading.Thread(target=lambda: cudart.cudaFree(None))
    thread.start()
    thread.join()
    assert stub.calls() == ["cuCtxSetCurrent 0x564"], "retained once, bound in each thread"


def the_callers_context_is_used(cudart: ctypes.CDLL, stub: Stub) -> None:
    device = ctypes.c_int(-1)
    stub.set_current(0x565)
    stub.calls()
    assert cudart.cudaFree(at(0xA0000)) == 0
    assert stub.calls() == ["cuInit 0", "cuMemFree_v2 0xa0000"]
    assert cudart.cudaGetDevice(ctypes.byref(device)) == 0
    assert device.value == 1


def devices_are_counted_without_a_context(cudart: ctypes.CDLL, stub: Stub) -> None:
    count = ctypes.c_int()
    assert cudart.cudaGetDeviceCount(ctypes.byref(count)) == 0
    assert count.value == 2
    assert stub.calls() == ["cuInit 0"]
    assert cudart.cudaSetDevice(2) == INVALID_DEVICE
    assert cudart.cudaSetDevice(1) == 0
    assert stub.calls() == ["cuDevicePrimaryCtxRetain 101", "cuCtxSetCurrent 0x565"]
    assert cudart.cudaDeviceGetByPCIBusId(ctypes.byref(count), b"0000:65:00.0") == 0
    assert count.value == 1


def no_device_is_said(cudart: ctypes.CDLL, stub: Stub) -> None:
    count = ctypes.c_int(7)
    stub.fail("cuInit", NO_DEVICE)
    assert cudart.cudaGetDeviceCount(ctypes.byref(count)) == NO_DEVICE
    assert count.value == 0
    stub.calls()
    assert cudart.cudaGetDeviceCount(ctypes.byref(count)) == 0, "a later try may succeed"


def old_drivers_are_insufficient(cudart: ctypes.CDLL, stub: Stub) -> None:
    version = ctypes.c_int()
    stub.machine(2, 11080)
    assert cudart.cudaFree(None) == INSUFFICIENT_DRIVER
    assert cudart.cudaDriverGetVersion(ctypes.byref(version)) == 0
    assert version.value == 11080


def pointers_are_classified(cudart: ctypes.CDLL, stub: Stub) -> None:
    del stub

    class Attributes(ctypes.Structure):
        _fields_ = (
            ("type", ctypes.c_int),
            ("device", ctypes.c_int),
            ("device_pointer", ctypes.c_void_p),
            ("host_pointer", ctypes.c_void_p),
            ("more", ctypes.c_long * 8),
        )

    found = Attributes()
    assert cudart.cudaPointerGetAttributes(ctypes.byref(found), at(0xA0000)) == 0
    assert (found.type, found.device, found.device_pointer) == (2, 1, 0xA0000)
    assert cudart.cudaPointerGetAttributes(ctypes.byref(found), at(0x1234)) == 0
    assert (found.type, found.device, found.host_pointer) == (0, -2, 0x1234)


def callbacks_get_the_runtimes_code(cudart: ctypes.CDLL, stub: Stub) -> None:
    seen: list[tuple[int, int]] = []
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    callback = prototype(lambda _stream, status, data: seen.append((status, data)))
    assert cudart.cudaStreamAddCallback(at(0x99), callback, at(0x55), 0) == 0
    assert seen == [(LAUNCH_FAILURE, 0x55)]
    stub.fail("cuStreamAddCallback", INVALID_HANDLE)
    assert cudart.cudaStreamAddCallback(at(0x99), callback, at(0x55), 0) == INVALID_HANDLE
    assert len(seen) == 1


def streams_and_events_keep_their_rules(cudart: ctypes.CDLL, stub: Stub) -> None:
    for stream in (0, 1, 2):
        assert cudart.cudaStreamDestroy(at(stream)) == INVALID_HANDLE
    assert cudart.cudaEventDestroy(None) == INVALID_HANDLE
    assert cudart.cudaStreamCreateWithFlags(None, 0) == INVALID_VALUE
    event = ctypes.c_void_p()
    assert cudart.cudaEventCreateWithFlags(ctypes.byref(event), 2) == 0
    stub.calls()
    assert cudart.cudaEventRecord(event, None) == 0
    assert cudart.cudaEventRecord_ptsz(event, None) == 0
    assert stub.calls() == ["cuEventRecord stream (nil)", f"cuEventRecord stream {THREAD_STREAM}"]
    ms = ctypes.c_float()
    assert cudart.cudaEventElapsedTime(ctypes.byref(ms), event, event) == 0
    assert ms.value == 1.5
    stub.fail("cuStreamQuery", NOT_READY)
    assert cudart.cudaStreamQuery(at(0x99)) == NOT_READY
    assert cudart.cudaGetLastError() == NOT_READY
    assert cudart.cudaGetLastError() == 0
    status = ctypes.c_int(5)
    assert cudart.cudaStreamIsCapturing(None, ctypes.byref(status)) == 0
    assert status.value == 0, "the stub cannot capture"
    version = ctypes.c_int()
    assert cudart.cudaRuntimeGetVersion(ctypes.byref(version)) == 0
    info = (
        cudart.cudaStreamGetCaptureInfo_v3
        if version.value < 13000
        else cudart.cudaStreamGetCaptureInfo
    )
    number, graph, count = ctypes.c_ulonglong(9), ctypes.c_void_p(9), ctypes.c_size_t(9)
    places = [ctypes.byref(place) for place in (status, number, graph)]
    assert info(None, *places, None, None, ctypes.byref(count)) == 0
    assert (status.value, number.value, graph.value, count.value) == (0, 0, None, 0)


def entry_points_say_why_not(cudart: ctypes.CDLL, stub: Stub) -> None:
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    places = (ctypes.byref(found), ctypes.c_ulonglong(0), ctypes.byref(status))
    assert cudart.cudaGetDriverEntryPoint(b"cuMemAlloc", *places) == 0
    assert (found.value, status.value) == (0x77, 0)
    asked, own = stub.calls()[-1], ctypes.c_int()
    assert cudart.cudaRuntimeGetVersion(ctypes.byref(own)) == 0
    assert asked == f"cuGetProcAddress_v2 cuMemAlloc {read_version(own.value // 1000)} 0"
    stub.fail("cuGetProcAddress_v2", 500)
    assert cudart.cudaGetDriverEntryPoint(b"cuNothing", *places) == 0
    assert (found.value, status.value) == (None, 1)
    assert cudart.cudaGetDriverEntryPoint(b"cuNothing", places[0], places[1], None) == 500


def device_flags_are_the_drivers(cudart: ctypes.CDLL, stub: Stub) -> None:
    flags = ctypes.c_uint()
    assert cudart.cudaSetDeviceFlags(4 | 8) == 0
    assert stub.calls() == ["cuInit 0", "cuDevicePrimaryCtxSetFlags_v2 100 4"]
    assert cudart.cudaSetDeviceFlags(0x4000) == INVALID_VALUE
    assert cudart.cudaGetDeviceFlags(ctypes.byref(flags)) == 0
    assert flags.value == 2 | 8


_BODIES: list[Body] = [
    copies_go_by_kind,
    bad_copies_never_reach_the_driver,
    rectangles_keep_pitches_and_ends,
    boxes_keep_positions,
    memory_errors_pass_and_are_remembered_once,
    sticky_errors_stay,
    unknown_driver_codes_are_unknown_errors,
    last_errors_are_each_threads_own,
    threads_share_the_primary_context,
    the_callers_context_is_used,
    devices_are_counted_without_a_context,
    no_device_is_said,
    old_drivers_are_insufficient,
    pointers_are_classified,
    callbacks_get_the_runtimes_code,
    streams_and_events_keep_their_rules,
    entry_points_say_why_not,
    device_flags_are_the_drivers,
]


def _run(body: Body, major: int) -> None:
    body(*load(major))


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("body", _BODIES, ids=lambda body: body.__name__)
def test_lowering(body: Body, major: int) -> None:
    run_isolated(_run, body, major)


def _without_driver(major: int) -> None:
    cudart = ctypes.CDLL(str(library(major)))
    version, count = ctypes.c_int(5), ctypes.c_int(5)
    cudart.cudaGetErrorString.restype = ctypes.c_char_p
    assert cudart.cudaDriverGetVersion(ctypes.byref(version)) == 0
    assert version.value == 0
    assert cudart.cudaGetDeviceCount(ctypes.byref(count)) == INSUFFICIENT_DRIVER
    assert count.value == 0
    assert cudart.cudaGetErrorString(OUT_OF_MEMORY) == b"memory allocation"
    register(cudart)
    assert launch(cudart) == INSUFFICIENT_DRIVER


@pytest.mark.parametrize("major", MAJORS)
def test_without_a_driver(major: int) -> None:
    if _has_driver():
        pytest.skip("this machine has a libcuda.so.1")
    run_isolated(_without_driver, major)


def _has_driver() -> bool:
    """Of the machine: asked elsewhere, for what is loaded here would stay."""
    code = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    return not subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode
