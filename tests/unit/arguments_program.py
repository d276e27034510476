"""`python arguments_program.py LIBRARY`: prints what that libcuda answers to arguments, case by case."""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_ushort, c_void_p

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry taker(.param .u64 a, .param .u32 b) { ret; }
.visible .entry small() .maxntid 64, 1, 1 { ret; }
\0"""

cu = ctypes.CDLL(sys.argv[1])
out = c_void_p()
context = c_void_p()
device = c_uint64()
assert cu.cuInit(0) == 0
assert cu.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
assert cu.cuCtxSetCurrent(context) == 0
assert cu.cuMemAlloc_v2(byref(device), c_size_t(1 << 16)) == 0
host = ctypes.create_string_buffer(1 << 16)
HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4
END, POINTER, SIZE = None, 1, 2


def load() -> tuple[c_void_p, c_void_p]:
    """A function with 12 bytes of parameters, and one that takes blocks of 64 threads."""
    module, taker, small = c_void_p(), c_void_p(), c_void_p()
    assert cu.cuModuleLoadData(byref(module), PTX) == 0
    assert cu.cuModuleGetFunction(byref(taker), module, b"taker") == 0
    assert cu.cuModuleGetFunction(byref(small), module, b"small") == 0
    return taker, small


taker, small = load()


class Copy2D(ctypes.Structure):
    _fields_ = [
        (end + name, kind)
        for end in ("src", "dst")
        for name, kind in (
            ("X", c_size_t), ("Y", c_size_t), ("Type", c_uint), ("Host", c_void_p),
            ("Device", c_uint64), ("Array", c_void_p), ("Pitch", c_size_t),
        )
    ] + [("width", c_size_t), ("height", c_size_t)]  # fmt: skip


class Copy3D(ctypes.Structure):
    _fields_ = [
        (end + name, kind)
        for end in ("src", "dst")
        for name, kind in (
            ("X", c_size_t), ("Y", c_size_t), ("Z", c_size_t), ("LOD", c_size_t), ("Type", c_uint),
            ("Host", c_void_p), ("Device", c_uint64), ("Array", c_void_p), ("Reserved", c_void_p),
            ("Pitch", c_size_t), ("Height", c_size_t),
        )
    ] + [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]  # fmt: skip


class Attribute(ctypes.Structure):
    _fields_ = [("id", c_uint), ("pad", c_uint), ("value", c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p),
        ("attributes", ctypes.POINTER(Attribute)), ("count", c_uint),
    ]  # fmt: skip


def launch(
    grid: tuple[int, int, int] = (1, 1, 1), block: tuple[int, int, int] = (1, 1, 1), shared: int = 0
) -> int:
    return int(cu.cuLaunchKernel(small, *grid, *block, shared, None, None, None))


def launch_with(identifier: int, *value: int) -> int:
    attribute = Attribute(identifier, 0, (c_uint * 16)(*value))
    config = Config((1, 1, 1), (1, 1, 1), 0, None, ctypes.pointer(attribute), 1)
    return int(cu.cuLaunchKernelEx(byref(config), small, None, None))


def pass_parameters(params: bool, extra: list[object] | None) -> int:
    first, second = c_uint64(1), c_uint(2)
    values = (c_void_p * 2)(ctypes.addressof(first), ctypes.addressof(second))
    kept = [x if isinstance(x, int | None) else ctypes.addressof(x) for x in extra or ()]  # type: ignore[arg-type]
    more = (c_void_p * len(kept))(*kept) if extra is not None else None
    return int(
        cu.cuLaunchKernel(taker, 1, 1, 1, 1, 1, 1, 0, None, values if params else None, more)
    )


def copy(**fields: int) -> int:
    """A copy of 4 rows of 16 bytes from the host to the device, with other fields than usual."""
    usual = {"srcType": HOST, "srcHost": ctypes.addressof(host), "srcPitch": 16, "dstType": DEVICE}
    usual |= {"dstDevice": device.value, "dstPitch": 16, "width": 16, "height": 4}
    if fields.keys() & {"depth", "srcZ", "srcHeight", "dstHeight", "srcLOD", "srcReserved"}:
        return int(cu.cuMemcpy3D_v2(byref(Copy3D(**{"depth": 1} | usual | fields))))
    return int(cu.cuMemcpy2D_v2(byref(Copy2D(**usual | fields))))


def text_of(code: int, ask: str) -> list[object]:
    text = c_char_p(b"untouched")
    result = getattr(cu, ask)(code, byref(text))
    return [result, text.value.decode() if text.value else None]


def find(name: bytes | None, version: int, flags: int) -> list[object]:
    function, status = c_void_p(1), c_int(-1)
    result = cu.cuGetProcAddress_v2(name, byref(function), version, c_uint64(flags), byref(status))
    return [result, bool(function.value), status.value]


def find_unknown_pointer(attribute: int) -> list[int]:
    value = (ctypes.c_ubyte * 8)(*[255] * 8)
    data, attributes = (c_void_p * 1)(ctypes.addressof(value)), (c_int * 1)(attribute)
    result = cu.cuPointerGetAttributes(1, attributes, data, c_uint64(ctypes.addressof(value)))
    return [result, *value]


def create(name: str, *arguments: object) -> int:
    return int(getattr(cu, name)(byref(c_void_p()), *arguments))


def pitch(width: int, height: int, element: int) -> int:
    return int(
        cu.cuMemAllocPitch_v2(
            byref(c_uint64()), byref(c_size_t()), c_size_t(width), c_size_t(height), element
        )
    )


def register(address: int, size: int, flags: int) -> int:
    return int(cu.cuMemHostRegister_v2(c_void_p(address), c_size_t(size), flags))


def load_with(options: list[int] | None, values: bool = True) -> int:
    kinds = (c_int * 8)(*(options or ()))
    given = (c_void_p * 8)()
    count = len(options) if options is not None else 1
    return int(
        cu.cuModuleLoadDataEx(
            byref(c_void_p()),
            PTX,
            count,
            kinds if options is not None else None,
            given if values else None,
        )
    )


ELF = "<16sHHIQQQIHHHHHH"
DAMAGED = {
    "ELF of 32 bits": b"\x7fELF\1\1" + bytes(90),
    "ELF with sections beyond all bounds": struct.pack(
        ELF, b"\x7fELF\2\1", 0, 0, 0, 0, 0, 1 << 60, 0, 64, 0, 0, 64, 1, 0
    )
    + bytes(80),
    "container with a short head": bytes.fromhex("50ed55ba01000800") + bytes(90),
    "container of 2**63 bytes": bytes.fromhex("50ed55ba01001000") + bytes(7) + b"\x80" + bytes(80),
    "wrapper of nothing": bytes.fromhex("b1436246") + bytes(90),
}


def load_damaged() -> dict[str, list[int]]:
    none = (None, None, 0)
    return {
        name: [
            cu.cuModuleLoadData(byref(c_void_p()), image),
            cu.cuLibraryLoadData(byref(c_void_p()), image, *none, *none),
        ]
        for name, image in DAMAGED.items()
    }


def kernel_on(device: int) -> list[int]:
    library, kernel, none = c_void_p(), c_void_p(), (None, None, 0)
    assert cu.cuLibraryLoadData(byref(library), PTX, *none, *none) == 0
    assert cu.cuLibraryGetKernel(byref(kernel), library, b"taker") == 0
    return [
        cu.cuKernelGetAttribute(byref(c_int()), 0, kernel, device),
        cu.cuKernelSetAttribute(9, 64, kernel, device),
        cu.cuKernelSetCacheConfig(kernel, 1, device),
    ]


def by_address(text: bytes | None) -> int:
    return int(cu.cuDeviceGetByPCIBusId(byref(c_int()), text))


class Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class Access(ctypes.Structure):
    _fields_ = (("location", Location), ("flags", c_int))


class PoolProperties(ctypes.Structure):
    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("most", c_size_t),
        ("usage", c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


def make_pool(
    *values: int, type: int = 1, handles: int = 0, place: int = 1, device: int = 0
) -> int:
    properties = PoolProperties(type, handles, Location(place, device), None, *values)
    return int(cu.cuMemPoolCreate(byref(c_void_p()), byref(properties)))


def ask_pool(handle: c_void_p, attribute: int) -> list[int]:
    value = c_uint64(0)
    return [cu.cuMemPoolGetAttribute(handle, attribute, byref(value)), value.value]


def set_pool(handle: c_void_p, attribute: int, value: int) -> int:
    return int(cu.cuMemPoolSetAttribute(handle, attribute, byref(c_uint64(value))))


def allow(handle: c_void_p, place: int, device: int, flags: int) -> int:
    access = Access(Location(place, device), flags)
    return int(cu.cuMemPoolSetAccess(handle, byref(access), c_size_t(1)))


def is_allowed(handle: c_void_p, place: int, device: int) -> list[int]:
    flags = c_int(-1)
    location = Location(place, device)
    return [cu.cuMemPoolGetAccess(byref(flags), handle, byref(location)), flags.value]


def use_pool() -> list[object]:
    """A pool of one's own: what it holds is counted in it, until it is destroyed."""
    made, at, current = c_void_p(), c_uint64(), c_void_p()
    properties = PoolProperties(1, 0, Location(1, 0))
    answers: list[object] = [cu.cuMemPoolCreate(byref(made), byref(properties))]
    answers.append(cu.cuMemAllocFromPoolAsync(byref(at), c_size_t(4096), made, None))
    answers += [ask_pool(made, 7), cu.cuMemFreeAsync(at, None), cu.cuCtxSynchronize()]
    answers += [ask_pool(made, 7), cu.cuDeviceSetMemPool(0, made)]
    answers.append(cu.cuDeviceGetMemPool(byref(current), 0))
    answers += [current.value == made.value, cu.cuMemAllocAsync(byref(at), c_size_t(64), None)]
    answers += [ask_pool(made, 7)[0], cu.cuMemPoolDestroy(made), ask_pool(made, 7)[0]]
    answers += [
        cu.cuMemsetD8_v2(at, 1, c_size_t(64)),
        cu.cuMemFree_v2(at),
        cu.cuMemPoolDestroy(made),
    ]
    answers.append(cu.cuDeviceGetMemPool(byref(current), 0))
    return [*answers, current.value == pool.value]


def export_table(start: str) -> list[object]:
    table = c_void_p(1)
    return [cu.cuGetExportTable(byref(table), bytes.fromhex(start) + bytes(12)), table.value]


event = c_void_p()
assert cu.cuEventCreate(byref(event), 0) == 0
pci = ctypes.create_string_buffer(32)
assert cu.cuDeviceGetPCIBusId(pci, 32, 0) == 0
real = pci.value
padded = bytearray(64)
block = (ctypes.c_char * 64).from_buffer(padded)
pool = c_void_p()
assert cu.cuDeviceGetDefaultMemPool(byref(pool), 0) == 0
answers: dict[str, object] = {
    "names": [text_of(code, "cuGetErrorName") for code in range(1001)],
    "texts": [text_of(code, "cuGetErrorString") for code in range(1001)],
    "name of NULL": cu.cuGetErrorName(1, None),
    "proc": find(b"cuMemAlloc", 13000, 0),
    "proc, too new": find(b"cuMemPoolCreate", 11000, 0),
    "proc, unknown": find(b"cuNothing", 13000, 0),
    "proc, per thread": find(b"cuLaunchKernel", 12000, 2),
    "proc, both streams": find(b"cuMemAlloc", 13000, 3)[0],
    "proc, no name": find(None, 13000, 0)[0],
    "export table": export_table("00112233"),
    "runtime's table": export_table("6bd5fb6c"),
    "context flags": [cu.cuCtxSetFlags(flags) for flags in (0, 1, 4, 3, 6, 8, 1 << 20)],
    "primary flags": [cu.cuDevicePrimaryCtxSetFlags_v2(0, flags) for flags in (4, 3, 1 << 20)],
    "affinity": [
        create("cuCtxCreate_v3", *a, 0, 0) for a in ((None, -1), (None, 1), (c_size_t(8), 1))
    ],
    "affinity type": [cu.cuDeviceGetExecAffinitySupport(byref(c_int()), n, 0) for n in (-1, 0, 9)],
    "peer attribute": [
        cu.cuDeviceGetP2PAttribute(byref(c_int()), n, 0, peer)
        for n, peer in ((0, 1), (1, 0), (99, 1))
    ],
    "peer access": [cu.cuCtxEnablePeerAccess(*a) for a in ((None, 0), (context, 1), (context, 0))],
    "managed": [
        cu.cuMemAllocManaged(byref(c_uint64()), c_size_t(n), f) for n, f in ((0, 1), (8, 3), (8, 1))
    ],
    "stream flags": [create("cuStreamCreate", flags) for flags in (0, 1, 2)],
    "event flags": [create("cuEventCreate", flags) for flags in (0, 1, 2, 4, 6, 8)],
    "event record flags": cu.cuEventRecordWithFlags(event, None, 2),
    "pinned flags": [create("cuMemHostAlloc", c_size_t(64), flags) for flags in (0, 7, 8)],
    "pinned, empty": create("cuMemHostAlloc", c_size_t(0), 0),
    "registered flags": [register(ctypes.addressof(host), 64, flags) for flags in (4, 16)],
    "registered, none": register(0, 64, 0),
    "registered, empty": register(ctypes.addressof(host), 0, 0),
    "registered, around": register(1 << 63, 1 << 63, 0),
    "pitch": [pitch(100, 2, element) for element in (4, 8, 16, 1, 12)],
    "pitch, empty": [pitch(0, 2, 4), pitch(100, 0, 4)],
    "damaged images": load_damaged(),
    "jit options": [load_with([]), load_with([4]), load_with([999]), load_with([-1])],
    "jit options, none": [load_with(None), load_with([4], values=False)],
    "pointer attributes": {
        n: find_unknown_pointer(n) for n in (1, 2, 3, 4, 7, 8, 9, 11, 12, 13, 14)
    },
    "pointer attributes, none": cu.cuPointerGetAttributes(0, None, None, c_uint64(8)),
    "pointer attributes, no room": cu.cuPointerGetAttributes(
        1, (c_int * 1)(2), (c_void_p * 1)(), device
    ),
    "PCI": [by_address(real), by_address(real.split(b".")[0]), by_address(real.split(b":", 1)[1])],
    "PCI, none": [by_address(b"0000:7f:1f.7"), by_address(real.split(b".")[0] + b".1")],
    "PCI, no address": [
        by_address(b"x"),
        by_address(real + b"?"),
        by_address(b""),
        by_address(None),
    ],
    "grid": [
        launch(grid=g)
        for g in ((0, 1, 1), (1, 0, 1), (1, 65536, 1), (1, 1, 65536), (1 << 31, 1, 1))
    ],
    "block": [
        launch(block=b) for b in ((0, 1, 1), (1, 1, 0), (1025, 1, 1), (1, 1025, 1), (1, 1, 65))
    ],
    "block of the function": [
        launch(block=(64, 1, 1)),
        launch(block=(8, 8, 2)),
        launch(block=(65, 1, 1)),
    ],
    "block, product over 32 bits": launch(block=(65536, 65536, 1)),
    "shared": [launch(shared=49152), launch(shared=49153)],
    "attribute, ignored": [launch_with(identifier) for identifier in (0, 1, 3, 5, 6, 8, 9, 10)],
    "attribute, cluster": [launch_with(4, 1, 1, 1), launch_with(4, 2, 1, 1)],
    "attribute, unknown": launch_with(99),
    "configuration, none": cu.cuLaunchKernelEx(None, small, None, None),
    "attributes, none": cu.cuLaunchKernelEx(
        byref(Config((1, 1, 1), (1, 1, 1), 0, None, None, 1)), small, None, None
    ),
    "parameters": [pass_parameters(True, None), pass_parameters(False, None)],
    "parameters, both": pass_parameters(True, [END]),
    "buffer": pass_parameters(False, [POINTER, block, SIZE, c_size_t(12), END]),
    "buffer, reversed": pass_parameters(False, [SIZE, c_size_t(64), POINTER, block, END]),
    "buffer, short": pass_parameters(False, [POINTER, block, SIZE, c_size_t(11), END]),
    "buffer, no length": pass_parameters(False, [POINTER, block, END]),
    "buffer, no pointer": pass_parameters(False, [SIZE, c_size_t(12), END]),
    "buffer, unknown key": pass_parameters(False, [7, block, END]),
    "copy": copy(),
    "copy, none": [cu.cuMemcpy2D_v2(None), cu.cuMemcpy3D_v2(None)],
    "copy, no gaps": [copy(srcPitch=0), copy(dstPitch=0)],
    "copy, short pitch": [copy(srcPitch=15), copy(srcX=1), copy(dstPitch=15), copy(dstX=1)],
    "copy, one row needs no pitch": copy(srcPitch=15, height=1),
    "copy, array": [copy(srcType=ARRAY), copy(dstType=ARRAY)],
    "copy, no type": copy(srcType=9),
    "copy, null": [copy(srcHost=0), copy(dstDevice=0)],
    "copy, too far": [copy(height=1 << 62), copy(dstY=(1 << 12) - 3), copy(srcY=1 << 62)],
    "copy, empty": [copy(width=0), copy(height=0), copy(height=0, srcHost=0)],
    "copy, unified": copy(dstType=UNIFIED),
    "box": [copy(depth=3), copy(depth=3, srcHeight=5, dstHeight=4), copy(srcZ=2, depth=2)],
    "box, low": [
        copy(depth=2, srcHeight=3),
        copy(depth=2, srcHeight=4, srcY=1),
        copy(depth=1, srcHeight=3),
    ],
    "box, level of detail": [copy(srcLOD=1), copy(srcReserved=8)],
    "fill": cu.cuMemsetD2D32_v2(device, c_size_t(16), 7, c_size_t(4), c_size_t(3)),
    "fill, short pitch": cu.cuMemsetD2D32_v2(device, c_size_t(12), 7, c_size_t(4), c_size_t(3)),
    "fill, too many": cu.cuMemsetD32_v2(device, 7, c_size_t(1 << 62)),
    "fill, beyond": cu.cuMemsetD16_v2(device, c_ushort(7), c_size_t((1 << 15) + 1)),
    "fill, empty": cu.cuMemsetD8_v2(device, 7, c_size_t(0)),
    "fill, not aligned": [
        cu.cuMemsetD32_v2(c_uint64(device.value + 1), 7, c_size_t(count)) for count in (0, 1)
    ],
    "fill, rows not aligned": [
        cu.cuMemsetD2D16_v2(device, c_size_t(pitch), c_ushort(7), c_size_t(2), c_size_t(rows))
        for pitch, rows in ((5, 2), (5, 1), (4, 2))
    ],
    "device attribute": [cu.cuDeviceGetAttribute(byref(c_int()), n, 0) for n in (-1, 0, 9999, 1)],
    "function attribute": [
        cu.cuFuncSetAttribute(f, n, 64) for f, n in ((None, 9), (small, -1), (small, 9))
    ],
    "pool": use_pool(),
    "pool, made": [make_pool(), make_pool(type=0), make_pool(handles=1), make_pool(place=2)],
    "pool, of no device": [make_pool(device=7), make_pool(device=-1)],
    "pool, none": [cu.cuMemPoolCreate(None, None), cu.cuMemPoolCreate(byref(c_void_p()), None)],
    "pool of a device": [
        cu.cuDeviceGetDefaultMemPool(byref(c_void_p()), 7),
        cu.cuDeviceGetMemPool(None, 0),
        cu.cuDeviceSetMemPool(0, c_void_p(5)),
        cu.cuMemPoolDestroy(pool),
        cu.cuMemPoolTrimTo(pool, c_size_t(0)),
        cu.cuMemPoolTrimTo(c_void_p(5), c_size_t(0)),
    ],
    "pool of a place": [
        cu.cuMemGetDefaultMemPool(byref(c_void_p()), byref(Location(*place)), kind)
        for place, kind in (((1, 0), 1), ((1, 7), 1), ((2, 0), 1), ((1, 0), 2), ((1, 0), 0))
    ],
    "pool's attributes": [ask_pool(pool, n) for n in (0, 1, 2, 3, 4, 6, 8, 99)],
    "pool's attributes, set": [
        set_pool(pool, n, value)
        for n, value in ((1, 0), (4, 1 << 40), (5, 0), (6, 0), (6, 1), (7, 0), (8, 0), (99, 0))
    ],
    "pool's attributes, then": [ask_pool(pool, n) for n in (1, 4)],
    "pool's access": [
        allow(pool, *access) for access in ((1, 0, 3), (1, 0, 0), (1, 7, 3), (2, 0, 3))
    ],
    "pool's access, asked": [is_allowed(pool, *place) for place in ((1, 0), (1, 7), (2, 0))],
    "pool's access, none": cu.cuMemPoolSetAccess(pool, None, c_size_t(1)),
    "from a pool": [
        cu.cuMemAllocFromPoolAsync(None, c_size_t(8), pool, None),
        cu.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(0), pool, None),
        cu.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(8), c_void_p(5), None),
        cu.cuMemAllocFromPoolAsync(byref(c_uint64()), c_size_t(8), pool, c_void_p(5)),
    ],
    "load of no function": cu.cuFuncLoad(None),
    "kernel on a device": kernel_on(0) + kernel_on(-1),
    "cache of the context": [cu.cuCtxSetCacheConfig(n) for n in (3, 4, -1)],
    "banks of the context": [cu.cuCtxSetSharedMemConfig(n) for n in (2, 3, -1)],
    "cache of a function": [cu.cuFuncSetCacheConfig(small, n) for n in (3, 4, -1)],
    "banks of a function": [cu.cuFuncSetSharedMemConfig(small, n) for n in (2, 3, -1)],
    "wait flags": [cu.cuStreamWaitEvent(None, event, n) for n in (0, 2)],
    "time, not recorded": cu.cuEventElapsedTime_v2(byref(c_float()), event, event),
}
assert cu.cuCtxSynchronize() == 0
print(json.dumps(answers))
