# SPDX-License-Identifier: Apache-2.0
"""Our runtimes, the headers they were built for, and the recording driver."""

import ctypes
import functools
import os
import re
import subprocess
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[3]
CACHE = Path(os.environ.get("VGPUMGR_CACHE", _ROOT / ".cache"))
INCLUDE = {
    12: CACHE / "cuda/12/nvidia/cuda_runtime/include",
    13: CACHE / "cuda/13/nvidia/cu13/include",
}
MAJORS = (12, 13)


def library(major: int) -> Path:
    """Our libcudart of a major version, as installed by set-up."""
    return _ROOT / f"vgpumgr/_lib/guest/libcudart.so.{major}"


def read_version(major: int) -> int:
    """What a runtime of that major version is made for."""
    text = (INCLUDE[major] / "cuda_runtime_api.h").read_text(errors="replace")
    found = re.search(r"^#define CUDART_VERSION +(\d+)$", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def export_list(major: int) -> set[str]:
    """The functions that NVIDIA's library of that version exports."""
    data = _ROOT / f"vgpumgr/virtio/native/cudart/data/exports-{major}.txt"
    return set(data.read_text().split())


@functools.cache
def enumerators(header: Path, enum: str) -> dict[str, int]:
    """Names and values of an enum in a header."""
    text = re.sub(
        r"/\*.*?\*/|//[^\n]*|#[^\n]*", "", header.read_text(errors="replace"), flags=re.DOTALL
    )
    body = re.search(rf"enum[^{{}};]*\b{enum}\b[^{{}};]*\{{(.*?)\}}", text, re.DOTALL)
    assert body is not None, f"no enum {enum} in {header}"
    found: dict[str, int] = {}
    value = -1
    for item in filter(None, (item.strip() for item in body.group(1).split(","))):
        name, _, stated = (part.strip() for part in item.partition("="))
        value = found[stated] if stated in found else int(stated or str(value + 1), 0)
        found[name] = value
    return found


def compile_c(source: Path, output: Path, *flags: str, major: int = 13) -> Path:
    """Compiles a C file against a version's headers; crt/, which 12's lack, comes from 13's."""
    includes = [f"-isystem{INCLUDE[major]}", f"-isystem{INCLUDE[13]}"]
    command = ["cc", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-deprecated-declarations"]
    subprocess.run([*command, *includes, "-o", output, source, *flags], check=True)
    return output


@functools.cache
def stub_driver() -> Path:
    """The recording libcuda.so.1, compiled once for each test process."""
    output = Path(tempfile.mkdtemp(prefix="vgpumgr-stub-")) / "libcuda.so.1"
    source = Path(__file__).parent / "libcuda_stub.c"
    return compile_c(source, output, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")


class Stub:
    """The recording driver in this process. Load it before the runtime, which then finds it by its SONAME."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(stub_driver()), mode=ctypes.RTLD_GLOBAL)
        self._library.stub_log.restype = ctypes.c_char_p

    def calls(self) -> list[str]:
        """What was called since the last time, each as "name arguments"."""
        text: bytes = self._library.stub_log()
        lines = [line.strip() for line in text.decode().splitlines()]
        self._library.stub_clear()
        return lines

    def fail(self, name: str, result: int) -> None:
        """Lets a call fail until the log is read."""
        self._library.stub_fail(name.encode(), result)

    def machine(self, devices: int, version: int) -> None:
        """Number of devices and CUDA version of the driver."""
        self._library.stub_machine(devices, version)

    def set_current(self, context: int) -> None:
        """What a program does that uses the driver itself beside the runtime."""
        self._library.cuCtxSetCurrent(ctypes.c_void_p(context))


def load(major: int) -> tuple[ctypes.CDLL, Stub]:
    """The runtime of a major version on the recording driver; for a process of its own."""
    stub = Stub()
    return ctypes.CDLL(str(library(major))), stub
