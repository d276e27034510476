# SPDX-License-Identifier: Apache-2.0
"""What nvcc registers: modules are loaded when first used, once for each context."""

import ctypes
import os
from collections.abc import Callable

import pytest

from tests.unit.cudart.isolated import run_isolated
from tests.unit.cudart.libraries import MAJORS, Stub, load
from tests.unit.cudart.program import (
    INVALID_CONFIGURATION,
    INVALID_DIRECTION,
    INVALID_FUNCTION,
    INVALID_SYMBOL,
    INVALID_VALUE,
    KEPT,
    KERNEL,
    MANAGED,
    NO_BINARY,
    NOT_SUPPORTED,
    PRIMARY,
    THREAD_STREAM,
    VARIABLE,
    Dim3,
    at,
    launch,
    register,
)

pytestmark = pytest.mark.native

Body = Callable[[ctypes.CDLL, Stub], None]


def registration_touches_no_driver(cudart: ctypes.CDLL, stub: Stub) -> None:
    handle = register(cudart)
    cudart.__cudaUnregisterFatBinary(ctypes.c_void_p(handle))
    assert stub.calls() == []


def first_launch_loads_the_module_and_later_ones_do_not(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    assert launch(cudart) == 0
    launched = "cuLaunchKernel 2,1,1 32,1,1 16 stream (nil) arg 42"
    assert stub.calls() == [
        "cuInit 0",
        *PRIMARY,
        "cuModuleLoadData 0xfa7 in 0x564",
        "cuModuleGetFunction kernel",
        launched,
    ]
    assert launch(cudart) == 0
    assert stub.calls() == [launched]
    assert launch(cudart, name="cudaLaunchKernel_ptsz") == 0
    assert stub.calls() == [launched.replace("(nil)", THREAD_STREAM)]


def each_device_gets_the_module_once(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    for device in (0, 1, 0, 1):
        assert cudart.cudaSetDevice(device) == 0
        assert launch(cudart) == 0
    loads = [call for call in stub.calls() if call.startswith("cuModuleLoad")]
    assert loads == ["cuModuleLoadData 0xfa7 in 0x564", "cuModuleLoadData 0xfa7 in 0x565"]


def reset_forgets_what_was_loaded(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    assert launch(cudart) == 0
    stub.calls()
    assert cudart.cudaDeviceReset() == 0
    calls = stub.calls()
    assert calls == [
        "cuCtxSetCurrent (nil)",
        "cuDevicePrimaryCtxRelease_v2 100",
        "cuDevicePrimaryCtxReset_v2 100",
    ]
    assert launch(cudart) == 0
    assert [call.split()[0] for call in stub.calls()] == [
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLaunchKernel",
    ]


def unregistering_unloads(cudart: ctypes.CDLL, stub: Stub) -> None:
    handle = register(cudart)
    assert launch(cudart) == 0
    stub.calls()
    cudart.__cudaUnregisterFatBinary(ctypes.c_void_p(handle))
    assert [call.split()[0] for call in stub.calls()] == ["cuModuleUnload"]
    assert launch(cudart) == INVALID_FUNCTION


def stubs_of_newer_compilers_launch_by_handle(cudart: ctypes.CDLL, stub: Stub) -> None:
    kernel = ctypes.c_void_p()
    assert cudart.__cudaGetKernel(ctypes.byref(kernel), KERNEL) == INVALID_FUNCTION
    register(cudart)
    assert cudart.__cudaGetKernel(ctypes.byref(kernel), KERNEL) == 0
    assert stub.calls() == []
    grid, block = Dim3(1, 1, 1), Dim3(1, 1, 1)
    argument = ctypes.c_int(7)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    launch = cudart.__cudaLaunchKernel
    assert launch(kernel, grid, block, arguments, ctypes.c_size_t(0), None) == 0
    assert stub.calls()[-1].endswith("arg 7")
    assert launch(None, grid, block, arguments, ctypes.c_size_t(0), None) == INVALID_FUNCTION


def configurations_nest(cudart: ctypes.CDLL, stub: Stub) -> None:
    del stub
    pop = cudart.__cudaPopCallConfiguration
    grid, block, shared, stream = Dim3(), Dim3(), ctypes.c_size_t(), ctypes.c_void_p()
    places = [ctypes.byref(place) for place in (grid, block, shared, stream)]
    assert pop(*places) == 52
    for depth in range(3):
        size = ctypes.c_size_t(depth)
        where = at(0x10 + depth)
        assert (
            cudart.__cudaPushCallConfiguration(Dim3(depth, 2, 3), Dim3(4, 5, 6), size, where) == 0
        )
    for depth in (2, 1, 0):
        assert pop(*places) == 0
        assert (grid.x, grid.y, block.z) == (depth, 2, 6)
        assert (shared.value, stream.value) == (depth, 0x10 + depth)
    assert pop(*places) == 52
    for _ in range(32):
        assert cudart.__cudaPushCallConfiguration(grid, block, shared, stream) == 0
    assert cudart.__cudaPushCallConfiguration(grid, block, shared, stream) != 0


def linked_code_without_machine_code_is_linked_again(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart, version=2)
    stub.fail("cuModuleLoadData", NO_BINARY)
    assert launch(cudart) == 0
    part = ctypes.addressof(KEPT[0])
    assert stub.calls()[3:-2] == [
        "cuModuleLoadData 0xfa7 in 0x564",
        "cuLinkCreate_v2",
        f"cuLinkAddData_v2 2 {part:#x} {16 + 48}",
        "cuLinkComplete",
        "cuModuleLoadData 0xc0b1 in 0x564",
        "cuLinkDestroy",
    ]


def module_errors_are_the_launchs(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    stub.fail("cuModuleLoadData", NO_BINARY)
    assert launch(cudart) == NO_BINARY
    assert cudart.cudaGetLastError() == NO_BINARY
    stub.calls()
    assert launch(cudart) == 0, "a failed load is tried again"


def names_missing_in_the_image_are_runtime_errors(cudart: ctypes.CDLL, stub: Stub) -> None:
    del stub
    register(cudart, prefix=b"missing_")
    size = ctypes.c_size_t()
    assert launch(cudart) == INVALID_FUNCTION
    assert cudart.cudaGetSymbolSize(ctypes.byref(size), VARIABLE) == INVALID_SYMBOL
    assert cudart.cudaGetSymbolSize(ctypes.byref(size), KERNEL) == INVALID_SYMBOL


def launch_errors_tell_configuration_from_value(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    stub.fail("cuLaunchKernel", INVALID_VALUE)
    assert launch(cudart, block=32) == INVALID_VALUE
    assert launch(cudart, block=1002) == INVALID_CONFIGURATION  # the stub's limit is 1001
    assert launch(cudart, block=0) == INVALID_CONFIGURATION
    stub.fail("cuLaunchKernel", 701)
    assert launch(cudart, block=32) == 701


def managed_variables_are_refused_by_name(cudart: ctypes.CDLL, stub: Stub) -> None:
    handle = register(cudart)
    size = ctypes.c_size_t(4)
    cudart.__cudaRegisterManagedVar(
        ctypes.c_void_p(handle), MANAGED, MANAGED, b"managed", 0, size, 0, 0
    )
    assert cudart.cudaGetSymbolSize(ctypes.byref(size), MANAGED) == NOT_SUPPORTED
    assert launch(cudart) == NOT_SUPPORTED
    assert not [call for call in stub.calls() if call.startswith("cuModule")]


def symbols_are_bounded(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    data = ctypes.create_string_buffer(64)

    def copy(count: int, offset: int, kind: int) -> int:
        sizes = (ctypes.c_size_t(count), ctypes.c_size_t(offset))
        result: int = cudart.cudaMemcpyToSymbol(VARIABLE, data, *sizes, kind)
        return result

    assert copy(60, 4, 1) == 0
    assert stub.calls()[-1] == f"cuMemcpyHtoD_v2 0xd0004 {ctypes.addressof(data):#x} 60"
    assert copy(61, 4, 1) == INVALID_VALUE
    assert copy(1, 2**64 - 1, 1) == INVALID_VALUE
    assert copy(4, 0, 2) == INVALID_DIRECTION
    assert stub.calls() == []


def functions_are_described(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    name = ctypes.c_char_p()
    attributes = (ctypes.c_int * 64)()
    assert cudart.cudaFuncGetName(ctypes.byref(name), KERNEL) == 0
    assert name.value == b"kernel"
    assert cudart.cudaFuncGetAttributes(attributes, KERNEL) == 0
    # sharedSizeBytes (a size_t), then after three of them maxThreadsPerBlock and numRegs
    assert (attributes[0], attributes[1], attributes[6], attributes[7]) == (501, 0, 500, 504)
    assert cudart.cudaFuncSetAttribute(KERNEL, 8, 65536) == 0
    assert stub.calls()[-1] == "cuFuncSetAttribute 8 65536"
    assert cudart.cudaFuncSetAttribute(VARIABLE, 8, 65536) == INVALID_FUNCTION


def a_fork_before_use_may_use_it(cudart: ctypes.CDLL, stub: Stub) -> None:
    register(cudart)
    child = os.fork()
    if child == 0:
        os._exit(launch(cudart))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert stub.calls() == [], "only the child has touched the driver"
    assert launch(cudart) == 0


_BODIES: list[Body] = [
    registration_touches_no_driver,
    first_launch_loads_the_module_and_later_ones_do_not,
    each_device_gets_the_module_once,
    reset_forgets_what_was_loaded,
    unregistering_unloads,
    stubs_of_newer_compilers_launch_by_handle,
    configurations_nest,
    linked_code_without_machine_code_is_linked_again,
    module_errors_are_the_launchs,
    names_missing_in_the_image_are_runtime_errors,
    launch_errors_tell_configuration_from_value,
    managed_variables_are_refused_by_name,
    symbols_are_bounded,
    functions_are_described,
    a_fork_before_use_may_use_it,
]


def _run(body: Body, major: int) -> None:
    body(*load(major))


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("body", _BODIES, ids=lambda body: body.__name__)
def test_registration(body: Body, major: int) -> None:
    run_isolated(_run, body, major)
