# SPDX-License-Identifier: Apache-2.0
"""Generates the table of the driver API's errors: code, name and text of each.

usage: generate_errors.py CUDA_H OUTPUT
"""

import re
import sys
from pathlib import Path

# What NVIDIA's driver says, for those whose name in words says something else.
TEXTS = {
    "CUDA_SUCCESS": "no error",
    "CUDA_ERROR_INVALID_VALUE": "invalid argument",
    "CUDA_ERROR_NOT_INITIALIZED": "initialization error",
    "CUDA_ERROR_DEINITIALIZED": "driver shutting down",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "CUDA-capable device(s) is/are busy or unavailable",
    "CUDA_ERROR_NO_DEVICE": "no CUDA-capable device is detected",
    "CUDA_ERROR_INVALID_DEVICE": "invalid device ordinal",
    "CUDA_ERROR_INVALID_IMAGE": "device kernel image is invalid",
    "CUDA_ERROR_INVALID_CONTEXT": "invalid device context",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "no kernel image is available for execution on the device",
    "CUDA_ERROR_INVALID_PTX": "a PTX JIT compilation failed",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the provided PTX was compiled with an unsupported toolchain.",
    "CUDA_ERROR_INVALID_SOURCE": "device kernel image is invalid",
    "CUDA_ERROR_INVALID_HANDLE": "invalid resource handle",
    "CUDA_ERROR_NOT_FOUND": "named symbol not found",
    "CUDA_ERROR_NOT_READY": "device not ready",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "an illegal memory access was encountered",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "too many resources requested for launch",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "the launch timed out and was terminated",
    "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED": "peer access has not been enabled",
    "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE": "cannot set while device is active in this process",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "context is destroyed",
    "CUDA_ERROR_ASSERT": "device-side assert triggered",
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": "part or all of the requested memory range is already mapped",
    "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED": "pointer does not correspond to a registered memory region",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "an illegal instruction was encountered",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "operation not supported on global/shared address space",
    "CUDA_ERROR_INVALID_PC": "invalid program counter",
    "CUDA_ERROR_LAUNCH_FAILED": "unspecified launch failure",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "too many blocks in cooperative launch",
    "CUDA_ERROR_NOT_PERMITTED": "operation not permitted",
    "CUDA_ERROR_NOT_SUPPORTED": "operation not supported",
    "CUDA_ERROR_SYSTEM_NOT_READY": "system not yet initialized",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "system has unsupported display driver / cuda driver combination",
    "CUDA_ERROR_UNKNOWN": "unknown error",
}


def read_errors(header: str) -> dict[str, int]:
    """Name and code of each enumerator of CUresult in the text of cuda.h."""
    bare = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    body = re.search(r"typedef enum cudaError_enum\s*\{(.*?)\}", bare, re.DOTALL)
    if body is None:
        raise SystemExit("no enum cudaError_enum in the header")
    pairs = re.findall(r"\b(CUDA_\w+)\s*=\s*(\w+)", body[1])
    return {name: int(value, 0) for name, value in pairs}


def error_text(name: str) -> str:
    """The text of an error: its name in words unless another one is known."""
    return TEXTS.get(name, name.removeprefix("CUDA_ERROR_").replace("_", " ").lower())


def main(header: str, output: str) -> None:
    """Writes the rows of the table."""
    errors = read_errors(Path(header).read_text(errors="replace"))
    if missing := sorted(set(TEXTS) - set(errors)):
        raise SystemExit(f"not in the header: {', '.join(missing)}")
    rows = (
        f'{{ (CUresult){code}, "{name}", "{error_text(name)}" }},\n'
        for name, code in errors.items()
    )
    Path(output).write_text("".join(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
