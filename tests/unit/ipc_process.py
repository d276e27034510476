"""A process that tests of sharing drive line by line: each line is Python, and its value is printed."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

LAZY = 1
INTERPROCESS = 4 | 2
WRITE_DEFAULT = 0
PTX_HOLD = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u64 p) {
	.reg .u64 %a; .reg .u32 %v; .reg .pred %q;
	ld.param.u64 %a, [p];
again:
	ld.volatile.global.u32 %v, [%a];
	setp.eq.u32 %q, %v, 0;
	@%q bra again;
	ret;
}
\0"""

cu = ctypes.CDLL(os.environ.get("IPC_LIBRARY", "libcuda.so.1"))


class Handle(ctypes.Structure):
    """CUipcMemHandle and CUipcEventHandle, which are passed by value."""

    _fields_ = (("data", ctypes.c_ubyte * 64),)

    @classmethod
    def of(cls, text: str) -> Handle:
        """From hexadecimal digits."""
        return cls.from_buffer_copy(bytes.fromhex(text))


def ok(result: int) -> None:
    """The call has succeeded."""
    assert result == 0, result


def start(device: int = 0) -> None:
    """A context, current."""
    made = c_void_p()
    ok(cu.cuInit(0))
    ok(cu.cuCtxCreate_v2(byref(made), 0, device))
    globals()["context"] = made


def alloc(size_bytes: int) -> int:
    """Device memory."""
    made = c_uint64()
    ok(cu.cuMemAlloc_v2(byref(made), c_size_t(size_bytes)))
    return made.value


def try_alloc(size_bytes: int) -> int:
    """The result of an allocation, which is freed again."""
    made = c_uint64()
    result = int(cu.cuMemAlloc_v2(byref(made), c_size_t(size_bytes)))
    if not result:
        ok(cu.cuMemFree_v2(made))
    return result


def managed(size_bytes: int) -> int:
    """Managed memory."""
    made = c_uint64()
    ok(cu.cuMemAllocManaged(byref(made), c_size_t(size_bytes), 1))
    return made.value


def pooled(size_bytes: int) -> int:
    """Memory in the order of a stream."""
    made = c_uint64()
    ok(cu.cuMemAllocAsync(byref(made), c_size_t(size_bytes), None))
    return made.value


def free(address: int) -> int:
    """The result of a free, and of what was posted before."""
    return int(cu.cuMemFree_v2(c_uint64(address)) or cu.cuCtxSynchronize())


def free_async(address: int) -> int:
    """The same in the order of a stream."""
    return int(cu.cuMemFreeAsync(c_uint64(address), None) or cu.cuCtxSynchronize())


def get(address: int) -> tuple[int, str]:
    """A handle of memory."""
    made = Handle()
    result = int(cu.cuIpcGetMemHandle(byref(made), c_uint64(address)))
    return result, bytes(made.data).hex()


def opened(text: str, flags: int = LAZY) -> tuple[int, int]:
    """Another process's memory."""
    made = c_uint64()
    result = int(cu.cuIpcOpenMemHandle_v2(byref(made), Handle.of(text), flags))
    return result, made.value


def close(address: int) -> int:
    """The result of a close."""
    return int(cu.cuIpcCloseMemHandle(c_uint64(address)))


def write(address: int, data: bytes) -> int:
    """The result of a copy that blocks."""
    return int(cu.cuMemcpyHtoD_v2(c_uint64(address), data, c_size_t(len(data))))


def write_rows(address: int, pitch: int, data: bytes, rows: int) -> int:
    """The same of rows of equal length."""
    width = len(data) // rows
    keep = ctypes.create_string_buffer(data, len(data))
    # CUDA_MEMCPY2D: from host memory (1) to device memory (2)
    at = ctypes.cast(keep, c_void_p).value or 0
    copy = (c_uint64 * 16)(0, 0, 1, at, 0, 0, width, 0, 0, 2, 0, address, 0, pitch, width, rows)
    return int(cu.cuMemcpy2D_v2(byref(copy)))


def read(address: int, size_bytes: int) -> bytes:
    """The bytes at an address."""
    room = ctypes.create_string_buffer(size_bytes)
    ok(cu.cuMemcpyDtoH_v2(room, c_uint64(address), c_size_t(size_bytes)))
    return room.raw


def memory_range(address: int) -> tuple[int, int]:
    """Base and size of the allocation."""
    base, size = c_uint64(), c_size_t()
    ok(cu.cuMemGetAddressRange_v2(byref(base), byref(size), c_uint64(address)))
    return base.value, size.value


def is_capable(address: int) -> int:
    """CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE."""
    value = c_uint()
    ok(cu.cuPointerGetAttribute(byref(value), 10, c_uint64(address)))
    return value.value


def attribute(number: int) -> int:
    """Of the device."""
    value = c_int()
    ok(cu.cuDeviceGetAttribute(byref(value), number, 0))
    return value.value


def event(flags: int = INTERPROCESS) -> tuple[int, int]:
    """An event."""
    made = c_void_p()
    result = int(cu.cuEventCreate(byref(made), flags))
    return result, made.value or 0


def event_get(handle: int) -> tuple[int, str]:
    """A handle of an event."""
    made = Handle()
    result = int(cu.cuIpcGetEventHandle(byref(made), c_void_p(handle)))
    return result, bytes(made.data).hex()


def event_opened(text: str) -> tuple[int, int]:
    """Another process's event."""
    made = c_void_p()
    result = int(cu.cuIpcOpenEventHandle(byref(made), Handle.of(text)))
    return result, made.value or 0


def stream() -> int:
    """A stream that does not wait for the default one."""
    made = c_void_p()
    ok(cu.cuStreamCreate(byref(made), 1))
    return made.value or 0


def record(handle: int, of: int = 0) -> int:
    """The result of recording it."""
    return int(cu.cuEventRecord(c_void_p(handle), c_void_p(of)))


def query(handle: int) -> int:
    """0, or 600 while it is not reached."""
    return int(cu.cuEventQuery(c_void_p(handle)))


def synchronize(handle: int) -> int:
    """Waits for it."""
    return int(cu.cuEventSynchronize(c_void_p(handle)))


def stream_wait(of: int, handle: int) -> int:
    """The stream waits for the event."""
    return int(cu.cuStreamWaitEvent(c_void_p(of), c_void_p(handle), 0))


def stream_query(of: int) -> int:
    """0, or 600 while it has work."""
    return int(cu.cuStreamQuery(c_void_p(of)))


def destroy_event(handle: int) -> int:
    """The result, and of what was posted before."""
    return int(cu.cuEventDestroy_v2(c_void_p(handle)) or cu.cuCtxSynchronize())


def hold(address: int, of: int) -> None:
    """A kernel in the stream that ends when the word there is not 0."""
    module, function = c_void_p(), c_void_p()
    ok(cu.cuModuleLoadData(byref(module), PTX_HOLD))
    ok(cu.cuModuleGetFunction(byref(function), module, b"hold"))
    ok(cu.cuMemsetD32_v2(c_uint64(address), 0, c_size_t(1)))
    value = c_uint64(address)
    parameters = (c_void_p * 1)(ctypes.cast(byref(value), c_void_p))
    ok(cu.cuLaunchKernel(function, *[1] * 6, 0, c_void_p(of), parameters, None))


def release(address: int, of: int) -> None:
    """Ends that kernel, by another stream."""
    ok(cu.cuMemsetD32Async(c_uint64(address), 1, c_size_t(1), c_void_p(of)))


def close_beside(address: int, text: str) -> tuple[int, int]:
    """The result of a close while a kernel waits for what this thread does: it opens another first. And of that."""
    word, of, by, results = alloc(4), stream(), stream(), []

    def end() -> None:
        ok(cu.cuCtxSetCurrent(globals()["context"]))
        results.append(close(address))

    hold(word, of)
    closing = threading.Thread(target=end)
    closing.start()
    time.sleep(0.2)
    code, _ = opened(text)
    release(word, by)
    closing.join(60)
    return results[0], code


def serve() -> None:
    """Until the end of the input."""
    for line in sys.stdin:
        try:
            value = eval(line, globals())
        except SyntaxError:
            exec(line, globals())
            value = None
        except Exception as error:  # the test sees it
            value = error
        print(repr(value), flush=True)


if __name__ == "__main__":
    serve()
