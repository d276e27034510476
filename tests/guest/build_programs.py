# SPDX-License-Identifier: Apache-2.0
"""Compiles the CUDA test programs, each once for its content.

usage: build_programs.py [NAME...]    prints the paths of the compiled programs, one a line
"""

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "programs"
NAMES = tuple(sorted(path.stem for path in SOURCES.glob("*.c*")))
#: what a program needs of the compiler
FLAGS = {
    "tensor": ("-arch=sm_80",),
    "perthread": ("--default-stream=per-thread",),
    "clusters": tuple(f"-gencode=arch=compute_{cc},code=compute_{cc}" for cc in (80, 90)),
}


def cache() -> Path:
    """Where compiled programs are kept: $VGPUMGR_CACHE, as ./run sets it."""
    default = Path(__file__).parents[2] / ".cache"
    return Path(os.environ.get("VGPUMGR_CACHE", default)) / "programs"


def nvcc() -> Path:
    """The compiler: $VGPUMGR_NVCC, else the one that set-up put into the cache."""
    return Path(os.environ.get("VGPUMGR_NVCC", cache().parent / "cuda/nvcc-link/nvcc"))


def _digest(source: Path, flags: Iterable[str]) -> str:
    """Of everything that decides what comes out of the compiler."""
    digest = hashlib.sha256()
    headers = {*SOURCES.glob("*.h"), *source.parent.glob("*.h")}
    for path in (source, *sorted(headers), *sorted(SOURCES.glob("parts/*"))):
        digest.update(path.read_bytes())
    digest.update("\0".join((*flags, nvcc().read_text(errors="replace"))).encode())
    return digest.hexdigest()[:16]


def compile_program(source: Path, *flags: str, runtime: str = "shared") -> Path:
    """Compiles one .cu file unless that was done before. Safe when several processes do it at once.

    The runtime as a shared library is all that a program needs to run in a guest; nvcc's default is a static one.

    Raises subprocess.CalledProcessError, with the compiler's output, if it does not compile.
    """
    options = ("-cudart", runtime, *flags)
    output = cache() / f"{source.stem}-{_digest(source, options)}"
    if output.exists():
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    command = [str(nvcc()), *options, "-o", str(partial), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    partial.rename(output)
    return output


def _build_vectoradd12() -> Path:
    """A C program of the runtime of CUDA 12, with a fat binary that it registers by itself."""
    source = SOURCES / "vectoradd12.c"
    fatbin = compile_program(SOURCES / "vectoradd.cu", "-fatbin")
    cuda12 = cache().parent / "cuda/12/nvidia/cuda_runtime"
    # 12's headers come without crt/, whose attribute macros are the same in 13
    includes = (cuda12 / "include", cache().parent / "cuda/13/nvidia/cu13/include")
    flags = (f'-DFATBIN="{fatbin}"', *(f"-isystem{path}" for path in includes), f"-L{cuda12}/lib")
    output = cache() / f"vectoradd12-{_digest(source, flags)}"
    if not output.exists():
        partial = output.with_suffix(f".{os.getpid()}")
        command = ["cc", "-O1", *flags, "-o", str(partial), str(source), "-l:libcudart.so.12"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        partial.rename(output)
    return output


def _build(name: str) -> Path:
    if name == "vectoradd12":
        return _build_vectoradd12()
    part = SOURCES / "parts" / f"{name}.cu"
    more = ("-rdc=true", str(part)) if part.exists() else ()
    return compile_program(SOURCES / f"{name}.cu", *more, *FLAGS.get(name, ()))


def build_programs(names: Iterable[str] = NAMES) -> dict[str, Path]:
    """Compiled programs by name; all of them by default."""
    wanted = list(names)
    with ThreadPoolExecutor(max_workers=2) as pool:
        paths = pool.map(_build, wanted)
    return dict(zip(wanted, paths, strict=True))


if __name__ == "__main__":
    for path in build_programs(sys.argv[1:] or NAMES).values():
        print(path)
