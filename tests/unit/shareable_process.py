"""More for ipc_process: physical memory and pools that processes share by descriptors."""

from __future__ import annotations

import fcntl
import os
import struct
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

from tests.unit import ipc_process
from tests.unit.ipc_process import Handle, cu, ok

POSIX = 1
UNIT = 2 << 20
descriptors: list[int] = []


def of_device(device: int = 0) -> tuple[int, int]:
    """CUmemLocation."""
    return 1, device


def physical(size_bytes: int = UNIT, types: int = POSIX) -> tuple[int, int]:
    """Memory of cuMemCreate."""
    # CUmemAllocationProp: pinned, handle types, location, metadata, flags
    wanted = struct.pack("@IIIiQ8x", 1, types, *of_device(), 0)
    made = c_uint64()
    return int(cu.cuMemCreate(byref(made), c_size_t(size_bytes), wanted, c_uint64(0))), made.value


def release(handle: int) -> int:
    """The result of giving a handle back."""
    return int(cu.cuMemRelease(c_uint64(handle)) or cu.cuCtxSynchronize())


def try_physical(size_bytes: int) -> int:
    """The result of making memory, which is given back."""
    code, handle = physical(size_bytes)
    return code or release(handle)


def mapped(handle: int, size_bytes: int = UNIT) -> int:
    """Its address, where kernels get at it."""
    at = c_uint64()
    ok(
        cu.cuMemAddressReserve(
            byref(at), c_size_t(size_bytes), c_size_t(0), c_uint64(0), c_uint64(0)
        )
    )
    ok(cu.cuMemMap(at, c_size_t(size_bytes), c_size_t(0), c_uint64(handle), c_uint64(0)))
    access = struct.pack("@IiI", *of_device(), 3)
    ok(cu.cuMemSetAccess(at, c_size_t(size_bytes), access, c_size_t(1)))
    return at.value


def unmap(address: int, size_bytes: int = UNIT) -> int:
    """The result."""
    return int(cu.cuMemUnmap(c_uint64(address), c_size_t(size_bytes)) or cu.cuCtxSynchronize())


def exported(handle: int, kind: int = POSIX, flags: int = 0) -> tuple[int, str]:
    """A descriptor of it, as a path by which the other process opens it."""
    file = c_int(-1)
    code = int(
        cu.cuMemExportToShareableHandle(byref(file), c_uint64(handle), kind, c_uint64(flags))
    )
    return code, path_of(file.value)


def path_of(file: int) -> str:
    """Of this process's descriptor."""
    return f"/proc/{os.getpid()}/fd/{file}"


def received(path: str) -> int:
    """The descriptor, as if the other process had passed it."""
    descriptors.append(os.open(path, os.O_RDONLY))
    return descriptors[-1]


def imported(path: str, kind: int = POSIX) -> tuple[int, int]:
    """Another process's memory."""
    made = c_uint64()
    file = received(path)
    code = int(cu.cuMemImportFromShareableHandle(byref(made), c_void_p(file), kind))
    os.close(descriptors.pop())  # the importer keeps none
    return code, made.value


def imported_bytes(data: bytes, seals: int = 0xF) -> int:
    """The result for a file with this content, sealed like that."""
    file = os.memfd_create("mine", os.MFD_ALLOW_SEALING)
    os.write(file, data)
    fcntl_seal(file, seals)
    codes = imported(path_of(file))[0], imported_pool(path_of(file))[0]
    return min(codes)  # 0 where it is taken as either


def fcntl_seal(file: int, seals: int) -> None:
    """Adds them."""
    if seals:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


def content(path: str) -> bytes:
    """What a descriptor holds."""
    return Path(path).read_bytes()


def imported_number(file: int) -> int:
    """The result for a number, whatever it is."""
    made = c_uint64()
    return int(cu.cuMemImportFromShareableHandle(byref(made), c_void_p(file), POSIX))


# ---- pools


def pool(types: int = POSIX, place: int = 1) -> tuple[int, int]:
    """A pool of device 0."""
    # CUmemPoolProps: pinned, handle types, location, attributes, size, usage
    wanted = struct.pack("@IIIiQQH54x", 1, types, place, 0, 0, 0, 0)
    made = c_void_p()
    return int(cu.cuMemPoolCreate(byref(made), wanted)), made.value or 0


def destroy_pool(handle: int) -> int:
    """The result."""
    return int(cu.cuMemPoolDestroy(c_void_p(handle)) or cu.cuCtxSynchronize())


def pool_alloc(handle: int, size_bytes: int) -> tuple[int, int]:
    """Memory of it."""
    made = c_uint64()
    code = int(
        cu.cuMemAllocFromPoolAsync(byref(made), c_size_t(size_bytes), c_void_p(handle), None)
    )
    return code or int(cu.cuCtxSynchronize()), made.value


def set_pool(handle: int) -> int:
    """The result of making it the device's."""
    return int(cu.cuDeviceSetMemPool(0, c_void_p(handle)))


def exported_pool(handle: int, kind: int = POSIX) -> tuple[int, str]:
    """A descriptor of it."""
    file = c_int(-1)
    code = int(
        cu.cuMemPoolExportToShareableHandle(byref(file), c_void_p(handle), kind, c_uint64(0))
    )
    return code, path_of(file.value)


def imported_pool(path: str) -> tuple[int, int]:
    """Another process's pool."""
    made = c_void_p()
    file = received(path)
    code = int(
        cu.cuMemPoolImportFromShareableHandle(byref(made), c_void_p(file), POSIX, c_uint64(0))
    )
    os.close(descriptors.pop())
    return code, made.value or 0


def exported_memory(address: int) -> tuple[int, str]:
    """What stands for memory of a pool."""
    made = Handle()
    code = int(cu.cuMemPoolExportPointer(byref(made), c_uint64(address)))
    return code, bytes(made.data).hex()


def imported_memory(handle: int, text: str) -> tuple[int, int]:
    """Memory of another process's pool."""
    made = c_uint64()
    data = Handle.of(text)
    code = int(cu.cuMemPoolImportPointer(byref(made), c_void_p(handle), byref(data)))
    return code, made.value


vars(ipc_process).update({name: value for name, value in vars().items() if callable(value)})
