"""The PTX interpreter over a flat memory (ptxrun.so), for tests and benchmarks."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent / "ptx"

OK = 0
SYNTAX, UNSUPPORTED, UNRESOLVED, NO_MEMORY, ILLEGAL_ADDRESS, MISALIGNED = range(1, 7)
CHECK_MEMORY, CHECK_RACE, CHECK_SYNC = 1, 2, 4
TRAP, ASSERT, BAD_LAUNCH, STACK_OVERFLOW, CANCELLED, DEADLOCK = range(7, 13)


class PtxError(Exception):
    """What the interpreter refused, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KernelInfo(ctypes.Structure):
    """struct ptx_kernel_info."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("n_params", ctypes.c_uint32),
        ("params", ctypes.POINTER(ctypes.c_uint32 * 3)),
        ("param_bytes", ctypes.c_uint32),
        ("static_shared_bytes", ctypes.c_uint32),
        ("local_bytes", ctypes.c_uint32),
        ("const_bytes", ctypes.c_uint32),
        ("registers", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("ptx_version", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32 * 3),
        ("max_cluster", ctypes.c_uint32),
        ("refusal", ctypes.c_char_p),
        ("explicit_cluster", ctypes.c_bool),
    )


@functools.cache
def library() -> ctypes.CDLL:
    """ptxrun.so, of a sanitizer build where VGPUMGR_PTXRUN names one."""
    path = os.environ.get("VGPUMGR_PTXRUN", str(ROOT / "vgpumgr" / "_lib" / "test" / "ptxrun.so"))
    lib = ctypes.CDLL(path)
    u64 = ctypes.c_uint64
    lib.runner_open.restype = ctypes.c_void_p
    lib.runner_open.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    lib.runner_close.argtypes = lib.runner_status.argtypes = [ctypes.c_void_p]
    lib.runner_cancel.argtypes = [ctypes.c_void_p]
    lib.runner_schedule.argtypes = [ctypes.c_void_p, u64]
    lib.runner_lane_instructions.argtypes = [ctypes.c_void_p]
    lib.runner_cluster.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.runner_checks.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    lib.runner_engine.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    lib.runner_message.restype = lib.runner_printed.restype = ctypes.c_char_p
    lib.runner_message.argtypes = lib.runner_printed.argtypes = [ctypes.c_void_p]
    lib.runner_alloc.restype = u64
    lib.runner_alloc.argtypes = [ctypes.c_void_p, u64, u64]
    lib.runner_copy.restype = ctypes.c_bool
    lib.runner_copy.argtypes = [ctypes.c_void_p, u64, ctypes.c_void_p, u64, ctypes.c_bool]
    lib.runner_variable.restype = ctypes.c_bool
    lib.runner_variable.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    lib.runner_info.restype = ctypes.c_bool
    lib.runner_info.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    lib.runner_run.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_char_p,
    ]
    lib.runner_image_length.restype = ctypes.c_size_t
    lib.runner_image_length.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    lib.runner_find_ptx.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    lib.runner_free.argtypes = [ctypes.c_void_p]
    return lib


class Module:
    """A loaded module and its memory. Arguments of a launch are packed by `struct` codes."""

    def __init__(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self._lib = library()
        self._runner = self._lib.runner_open(data, len(data))
        status = self._lib.runner_status(self._runner)
        if status != OK:
            message = self._lib.runner_message(self._runner).decode(errors="replace")
            self.close()
            raise PtxError(status, message)
        self.by_lane(os.environ.get("VGPUMGR_SIM_ENGINE") == "lanes")

    def close(self) -> None:
        """Give everything back."""
        if self._runner:
            self._lib.runner_close(self._runner)
        self._runner = None

    def __del__(self) -> None:
        self.close()

    def alloc(self, size: int) -> int:
        """Device memory of this many bytes, zeroed."""
        address: int = self._lib.runner_alloc(self._runner, size, 256)
        assert address
        return address

    def upload(self, code: str, values: list[int] | list[float]) -> int:
        """Device memory that holds these values of one `struct` code."""
        data = struct.pack(f"<{len(values)}{code}", *values)
        address = self.alloc(len(data))
        self.write(address, data)
        return address

    def write(self, address: int, data: bytes) -> None:
        """Copy to the device."""
        assert self._lib.runner_copy(self._runner, address, data, len(data), True)

    def read(self, address: int, code: str, count: int) -> list[int] | list[float]:
        """Copy `count` values from the device."""
        size = struct.calcsize(f"<{count}{code}")
        buffer = ctypes.create_string_buffer(size)
        assert self._lib.runner_copy(self._runner, address, buffer, size, False)
        return list(struct.unpack(f"<{count}{code}", buffer.raw))

    def variable(self, name: str) -> tuple[int, int]:
        """Address and size of a .global or .const variable."""
        address, size = ctypes.c_uint64(), ctypes.c_uint64()
        assert self._lib.runner_variable(
            self._runner, name.encode(), ctypes.byref(address), ctypes.byref(size)
        )
        return address.value, size.value

    def info(self, name: str) -> KernelInfo:
        """Its description, as the interpreter has it."""
        info = KernelInfo()
        assert self._lib.runner_info(self._runner, name.encode(), ctypes.byref(info))
        return info

    def cancel(self) -> None:
        """Stop the running kernel, from another thread."""
        self._lib.runner_cancel(self._runner)

    def schedule(self, seed: int) -> None:
        """Run threads in an order made from the seed; 0: lanes in step."""
        self._lib.runner_schedule(self._runner, seed)

    def by_lane(self, yes: bool) -> None:
        """Run each instruction for one lane after the other, or for all lanes of a warp at once."""
        self._lib.runner_engine(self._runner, yes)

    def check(self, checks: int) -> None:
        """Look for these mistakes (CHECK_*) in every launch from now on; findings go to stderr."""
        self._lib.runner_checks(self._runner, checks)

    def cluster(self, *blocks: int) -> None:
        """So many blocks are a cluster, in every launch from now on; none: as the kernel requires."""
        dims = _three(blocks) if blocks else (0, 0, 0)
        self._lib.runner_cluster(self._runner, (ctypes.c_uint32 * 3)(*dims))

    def lane_instructions(self) -> int:
        """How many instructions the warp-wide engine runs lane by lane."""
        count: int = self._lib.runner_lane_instructions(self._runner)
        return count

    def run(
        self,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        codes: str = "",
        *arguments: float | bytes,
        shared: int = 0,
    ) -> None:
        """Launch and wait. `codes` has one struct code for each argument."""
        dims = [*_three(grid), *_three(block)]
        params = pack_params(codes, *arguments)
        status = self._lib.runner_run(
            self._runner, name.encode(), (ctypes.c_uint32 * 6)(*dims), shared, params
        )
        assert status != -1, f"no kernel {name}"
        if status != OK:
            raise PtxError(status, self._lib.runner_message(self._runner).decode())

    @property
    def printed(self) -> str:
        """What kernels printed so far."""
        text: bytes = self._lib.runner_printed(self._runner)
        return text.decode()


def _three(value: int | tuple[int, ...]) -> tuple[int, ...]:
    dims = (value,) if isinstance(value, int) else value
    return (*dims, 1, 1)[:3]


def pack_params(codes: str, *arguments: float | bytes) -> bytes:
    """A parameter block; a bytes argument (code `s`) is a structure aligned to 8."""
    block = b""
    for code, argument in zip(codes, arguments, strict=True):
        data = argument if isinstance(argument, bytes) else struct.pack("<" + code, argument)
        align = 8 if code == "s" else len(data)
        block += bytes(-len(block) % align) + data
    return block


Interpreter = Module
if "VGPUMGR_PTX_GPU" in os.environ:
    # what is expected of the interpreter is asked of a GPU
    from tests.sim.ptx_gpu import GpuModule

    Module = GpuModule  # type: ignore[assignment, misc]


def nvcc() -> Path:
    """The CUDA compiler that set-up made."""
    cache = Path(os.environ.get("VGPUMGR_CACHE", ROOT / ".cache"))
    return Path(os.environ.get("VGPUMGR_NVCC", cache / "cuda" / "nvcc-link" / "nvcc"))


@functools.cache
def compile_ptx(source: str, arch: str = "compute_80", *options: str) -> str:
    """PTX of a .cu file beside the tests; compiled once for each set of options."""
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "out.ptx"
        subprocess.run(
            [nvcc(), "--ptx", f"-arch={arch}", *options, "-o", out, SOURCES / source],
            check=True,
            capture_output=True,
            timeout=300,
            env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
        )
        return out.read_text()
