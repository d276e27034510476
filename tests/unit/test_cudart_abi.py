# SPDX-License-Identifier: Apache-2.0
"""Our libcudart against the vendor's export lists and each version's header."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.cudart.isolated import run_isolated
from tests.unit.cudart.libraries import (
    INCLUDE,
    MAJORS,
    compile_c,
    enumerators,
    export_list,
    library,
    load,
)

pytestmark = pytest.mark.native

NOT_SUPPORTED = 801


def _symbols(major: int) -> dict[str, tuple[str, str]]:
    """Defined dynamic symbols: name to (binding, version)."""
    command = ["readelf", "-W", "--dyn-syms", str(library(major))]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for fields in (line.split() for line in lines):
        if len(fields) == 8 and fields[3] == "FUNC" and fields[6] != "UND":
            name, _, version = fields[7].partition("@@")
            found[name] = (fields[4], version)
    return found


@pytest.mark.parametrize("major", MAJORS)
def test_exports_are_the_vendors(major: int) -> None:
    assert set(_symbols(major)) == export_list(major)


@pytest.mark.parametrize("major", MAJORS)
def test_every_symbol_is_in_the_version_node_of_the_soname(major: int) -> None:
    node = f"libcudart.so.{major}"
    assert {version for _, version in _symbols(major).values()} == {node}
    command = ["readelf", "-Wd", str(library(major))]
    dynamic = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"soname: [{node}]" in dynamic


@pytest.mark.parametrize("major", MAJORS)
def test_needs_only_libc_and_an_old_one(major: int) -> None:
    dynamic = subprocess.run(
        ["readelf", "-WdV", str(library(major))], check=True, capture_output=True, text=True
    ).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic))
    assert needed <= {"libc.so.6", "libdl.so.2", "ld-linux-x86-64.so.2"}
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", dynamic)]
    assert max(versions) <= (2, 28)


def _unsupported_answers(major: int) -> None:
    cudart, stub = load(major)
    weak = {name for name, (binding, _) in _symbols(major).items() if binding == "WEAK"}
    assert weak
    for name in sorted(weak):
        assert getattr(cudart, name)() == NOT_SUPPORTED, name
        assert cudart.cudaGetLastError() == NOT_SUPPORTED, name
        assert cudart.cudaGetLastError() == 0, name
    assert stub.calls() == []


@pytest.mark.parametrize("major", MAJORS)
def test_what_is_not_implemented_says_so(major: int) -> None:
    run_isolated(_unsupported_answers, major)


# The unsupported names are graphs, capture, textures, surfaces, arrays, external and foreign objects, sharing between
# processes, managed memory's hints, libraries and green contexts. Anything else must be implemented.
_UNSUPPORTED = re.compile(
    r"Graph|Capture|Texture|Surface|Array|ChannelDesc|External|GL|EGL|VDPAU|NvSci|Ipc|Shareable"
    r"|MemPool(Export|Import)Pointer|Mem(Prefetch|Discard|Advise|RangeGet|GetLocation)|MemcpyBatch|3DBatch"
    r"|WithAttributes|Library|^cudaGetKernel$|KernelSetAttribute|Dev(Sm)?Resource|GreenCtx|ExecutionCtx|Logs"
    r"|Subgrid|AsyncNotification|GPUDirect|ExportTable|__cudaGetProcAddress|HostVar|UnifiedTable|3DPeer"
    r"|AtomicCapabilities|AttachMem|MultiDevice|Mem(Get|Set)(Default)?MemPool|LaunchHostFunc_v2"
)


@pytest.mark.parametrize("major", MAJORS)
def test_only_the_named_families_are_unsupported(major: int) -> None:
    weak = {name for name, (binding, _) in _symbols(major).items() if binding == "WEAK"}
    left_out = {name for name in weak if not _UNSUPPORTED.search(name)}
    # in 12 this plain name has the structure of CUDA 11, which no header of 12 describes
    assert left_out == ({"cudaGetDeviceProperties"} if major == 12 else set())


def _error_names(major: int, codes: dict[str, int]) -> None:
    cudart, _ = load(major)
    for name in ("cudaGetErrorName", "cudaGetErrorString"):
        getattr(cudart, name).restype = ctypes.c_char_p
    for name, code in codes.items():
        assert cudart.cudaGetErrorName(code) == name.encode()
        text = cudart.cudaGetErrorString(code)
        assert text
        assert text != b"unrecognized error code", name
    assert cudart.cudaGetErrorString(2) == b"the driver's own words"
    assert cudart.cudaGetErrorString(9) == b"invalid configuration argument"
    assert cudart.cudaGetErrorName(12345) == b"unrecognized error code"
    assert cudart.cudaGetErrorString(12345) == b"unrecognized error code"


@pytest.mark.parametrize("major", MAJORS)
def test_every_error_of_the_header_has_its_name(major: int) -> None:
    codes = enumerators(INCLUDE[major] / "driver_types.h", "cudaError")
    assert len(codes) > 120
    run_isolated(_error_names, major, codes)


def _shared_values(major: int, runtime: str, driver: str) -> tuple[set[int], set[int]]:
    here = enumerators(INCLUDE[major] / "driver_types.h", runtime)
    below = enumerators(INCLUDE[major] / "cuda.h", driver)
    return set(here.values()), set(below.values())


# Code passes these to the driver by number.
@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize(
    ("runtime", "driver"),
    [
        ("cudaDeviceAttr", "CUdevice_attribute_enum"),
        ("cudaLimit", "CUlimit_enum"),
        ("cudaFuncCache", "CUfunc_cache_enum"),
        ("cudaSharedMemConfig", "CUsharedconfig_enum"),
        ("cudaDeviceP2PAttr", "CUdevice_P2PAttribute_enum"),
        ("cudaMemPoolAttr", "CUmemPool_attribute_enum"),
    ],
)
def test_runtime_enumerators_are_the_drivers(major: int, runtime: str, driver: str) -> None:
    here, below = _shared_values(major, runtime, driver)
    assert here
    assert here <= below


@pytest.mark.parametrize("major", MAJORS)
def test_errors_of_both_headers_mean_the_same(major: int) -> None:
    here = enumerators(INCLUDE[major] / "driver_types.h", "cudaError")
    below = enumerators(INCLUDE[major] / "cuda.h", "cudaError_enum")
    same = {
        "cudaErrorMemoryAllocation": "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorInitializationError": "CUDA_ERROR_NOT_INITIALIZED",
        "cudaErrorInvalidResourceHandle": "CUDA_ERROR_INVALID_HANDLE",
        "cudaErrorNoKernelImageForDevice": "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "cudaErrorLaunchFailure": "CUDA_ERROR_LAUNCH_FAILED",
        "cudaErrorSymbolNotFound": "CUDA_ERROR_NOT_FOUND",
        "cudaErrorNotReady": "CUDA_ERROR_NOT_READY",
        "cudaErrorUnknown": "CUDA_ERROR_UNKNOWN",
    }
    spelled = {name.removeprefix("cudaError").lower(): value for name, value in here.items()}
    for name, value in below.items():
        twin = name.removeprefix("CUDA_ERROR_").replace("_", "").lower()
        assert spelled.get(twin, value) == value, name
    assert {here[a] == below[b] for a, b in same.items()} == {True}


# Of the members that are in one version only, or lie behind such a one, and some of the common ones.
_MEMBERS = {
    "sharedMemPerBlock": "cudaDevAttrMaxSharedMemoryPerBlock",
    "maxThreadsPerBlock": "cudaDevAttrMaxThreadsPerBlock",
    "totalConstMem": "cudaDevAttrTotalConstantMemory",
    "major": "cudaDevAttrComputeCapabilityMajor",
    "multiProcessorCount": "cudaDevAttrMultiProcessorCount",
    "maxTexture3D": "cudaDevAttrMaxTexture3DWidth",
    "maxSurfaceCubemapLayered": "cudaDevAttrMaxSurfaceCubemapLayeredWidth",
    "pciBusID": "cudaDevAttrPciBusId",
    "memoryBusWidth": "cudaDevAttrGlobalMemoryBusWidth",
    "l2CacheSize": "cudaDevAttrL2CacheSize",
    "regsPerMultiprocessor": "cudaDevAttrMaxRegistersPerMultiprocessor",
    "cooperativeLaunch": "cudaDevAttrCooperativeLaunch",
    "sharedMemPerBlockOptin": "cudaDevAttrMaxSharedMemoryPerBlockOptin",
    "maxBlocksPerMultiProcessor": "cudaDevAttrMaxBlocksPerMultiprocessor",
    "reservedSharedMemPerBlock": "cudaDevAttrReservedSharedMemoryPerBlock",
    "memoryPoolsSupported": "cudaDevAttrMemoryPoolsSupported",
    "clusterLaunch": "cudaDevAttrClusterLaunch",
}
_ONLY = {
    12: {
        "clockRate": "cudaDevAttrClockRate",
        "computeMode": "cudaDevAttrComputeMode",
        "memoryClockRate": "cudaDevAttrMemoryClockRate",
        "singleToDoublePrecisionPerfRatio": "cudaDevAttrSingleToDoublePrecisionPerfRatio",
    },
    13: {
        "deviceNumaConfig": "cudaDevAttrNumaConfig",
        "gpuPciDeviceID": "cudaDevAttrGpuPciDeviceId",
    },
}


def _layout(major: int, directory: Path, members: list[str]) -> dict[str, tuple[int, int]]:
    """Offset and size of members of cudaDeviceProp, and the whole as "", as the compiler sees the header."""
    lines = "".join(
        f'printf("{m} %zu %zu\\n", offsetof(struct cudaDeviceProp, {m}),'
        f" sizeof(((struct cudaDeviceProp *)0)->{m}));"
        for m in members
    )
    source = directory / "layout.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <cuda_runtime_api.h>\nint main(void) {"
        f'{lines} printf("- 0 %zu\\n", sizeof(struct cudaDeviceProp)); }}'
    )
    program = compile_c(source, directory / "layout", major=major)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {
        name.strip("-"): (int(offset), int(size))
        for name, offset, size in (line.split() for line in output.splitlines())
    }


def _properties(major: int, layout: dict[str, tuple[int, int]], expected: dict[str, int]) -> None:
    cudart, _ = load(major)
    size = layout[""][1]
    buffer = ctypes.create_string_buffer(b"\xaa" * (size + 64), size + 64)
    name = "cudaGetDeviceProperties_v2" if major == 12 else "cudaGetDeviceProperties"
    assert getattr(cudart, name)(buffer, 1) == 0
    raw = buffer.raw
    assert raw[size:] == b"\xaa" * 64, "written beyond the structure"
    assert b"\xaa" not in raw[layout["reserved"][0] : size], "reserved members are not zero"
    assert raw.startswith(b"stub 1\0")
    for member, attribute in expected.items():
        offset, _ = layout[member]
        value = int.from_bytes(raw[offset : offset + 4], "little")
        assert value == 1000 + attribute, member


@pytest.mark.parametrize(("major", "size"), [(12, 1032), (13, 1008)])
def test_device_properties_have_the_headers_layout(major: int, size: int, tmp_path: Path) -> None:
    members = _MEMBERS | _ONLY[major]
    layout = _layout(major, tmp_path, [*members, "reserved"])
    assert layout[""] == (0, size)
    attributes = enumerators(INCLUDE[major] / "driver_types.h", "cudaDeviceAttr")
    expected = {member: attributes[name] for member, name in members.items()}
    run_isolated(_properties, major, layout, expected)
