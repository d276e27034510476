"""Libraries that the guest has without their function: programs that are linked with them start."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.calls_rig import PROGRAM_S, null_channel, start_python
from tests.unit.transport_rig import LIB, Rig
from vgpumgr.virtio.channel import SHIMS
from vgpumgr.virtio.codegen.coverage import math_implemented, math_names
from vgpumgr.virtio.codegen.stubs import KINDS, Stub, read_stubs

pytestmark = [pytest.mark.native, pytest.mark.cuda]

STUBS = [(stub, file) for stub in read_stubs() for file in stub.files]
#: what the libraries of PyTorch 2.14.1 for CUDA 13 import, and from which of NVIDIA's
IMPORTS = Path(__file__).with_name("pytorch-imports.txt")
OURS = re.compile(
    r"lib(cuda|cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|nccl|nvidia-ml)\.so|vgpumgr-audit|libcudnn"
)


def list_exports(file: str) -> dict[str, str]:
    """Names of a guest library, and the version of each."""
    words = ["nm", "-D", "--defined-only", str(LIB / "guest" / file)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    names = [line.split()[2] for line in done.stdout.splitlines() if line.split()[1] in "TW"]
    return {
        name.partition("@")[0]: name.rpartition("@")[2] if "@" in name else "" for name in names
    }


def test_all_of_cusparse_that_pytorch_imports_is_forwarded() -> None:
    lines = [line.split() for line in IMPORTS.read_text().splitlines()]
    wanted = {name for file, name in lines if file == "libcusparse.so.12"}
    assert len(wanted) > 90
    assert wanted <= math_implemented()["cusparse"]


def test_all_of_nccl_that_pytorch_calls_between_processes_is_there() -> None:
    """Of what it imports the rest is one-sided: windows of memory, signals, and functions for kernels."""
    lines = [line.split() for line in IMPORTS.read_text().splitlines()]
    wanted = {name for file, name in lines if file == "libnccl.so.2"}
    assert len(wanted) > 50
    assert wanted - math_implemented()["nccl"] == {
        "ncclCommGetUniqueId", "ncclCommGrow", "ncclCommMemStats", "ncclCommResume", "ncclCommRevoke",
        "ncclCommSuspend", "ncclDevCommCreate", "ncclDevCommDestroy", "ncclGetLsaMultimemDevicePointer",
        "ncclGetPeerDevicePointer", "ncclGroupSimulateEnd", "ncclPutSignal", "ncclSignal",
        "ncclWaitSignal", "ncclWinGetUserPtr",
    }  # fmt: skip


def test_nccl_has_the_vendors_names_and_what_the_table_says() -> None:
    words = ["nm", "-D", "--defined-only", str(LIB / "guest" / "libnccl.so.2")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    kinds = {line.split()[2]: line.split()[1] for line in done.stdout.splitlines()}
    assert kinds.keys() == set(math_names("nccl"))
    assert {name for name, kind in kinds.items() if kind == "T"} == math_implemented()["nccl"]


def test_each_is_in_the_package() -> None:
    assert {name for name in SHIMS if not OURS.match(name)} == {file for _, file in STUBS}


@pytest.mark.parametrize(("stub", "file"), STUBS, ids=[file for _, file in STUBS])
def test_it_has_the_vendors_names_under_the_vendors_version(stub: Stub, file: str) -> None:
    node = {"": file, "none": ""}.get(stub.node, stub.node)
    assert list_exports(file) == dict.fromkeys(stub.names, node)
    header = subprocess.run(
        ["readelf", "-d", str(LIB / "guest" / file)], capture_output=True, text=True, check=True
    ).stdout
    assert f"soname: [{file}]" in header


def test_all_that_pytorch_imports_is_there() -> None:
    wanted: dict[str, set[str]] = {}
    for line in IMPORTS.read_text().splitlines():
        file, name = line.split()
        wanted.setdefault(file, set()).add(name)
    assert len(wanted) >= 12
    missing = {file: names - list_exports(file).keys() for file, names in wanted.items()}
    assert not {file: names for file, names in missing.items() if names}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with null_channel("ring") as found:
        yield found


@pytest.mark.parametrize("stub", read_stubs(), ids=[stub.name for stub in read_stubs()])
def test_a_call_is_refused_by_name(rig: Rig, stub: Stub) -> None:
    """One function of each kind, as a program that loads the library calls it: twice, and it is named once."""
    ofs = {kind: next((n for n, k in stub.names.items() if k == kind), "") for kind in KINDS}
    code = f"""
lib = ctypes.CDLL({stub.files[-1]!r})
for kind, name in {ofs!r}.items():
    if name:
        f = getattr(lib, name)
        types = dict(status=ctypes.c_int, text=ctypes.c_char_p, null=c_void_p, void=None)
        f.restype = types.get(kind, ctypes.c_longlong)
        f(c_int({stub.answer})), print(kind, f(c_int({stub.answer})), f(0))
"""
    program = start_python(rig, code)
    out, errors = program.communicate(timeout=PROGRAM_S)
    assert program.returncode == 0, errors
    answers = dict(line.split(" ", 1) for line in out.splitlines())
    expected = {
        "status": f"{stub.answer} {stub.answer}",
        "text": "b'not supported over a forwarded GPU' b'success'",
        "null": "None None",
        "zero": "0 0",
        "negative": f"{-stub.answer} {-stub.answer}",
        "void": "None None",
    }
    assert answers == {kind: expected[kind] for kind, name in ofs.items() if name}
    for kind, name in ofs.items():
        if name and kind != "text":
            line = f"vgpumgr: {name} is not supported over a forwarded GPU"
            assert errors.count(line) == 1, errors


def test_without_the_guests_driver_a_call_is_refused_all_the_same() -> None:
    library = ctypes.CDLL(str(LIB / "guest" / "libcusparseLt.so.0"))
    assert library.cusparseLtInit(None) == 10


def test_structures_of_two_numbers_are_filled() -> None:
    """cuFile's errors are such, returned by value: its own, and the driver's."""

    class Error(ctypes.Structure):
        _fields_ = (("error", ctypes.c_int), ("driver", ctypes.c_int))

    library = ctypes.CDLL(str(LIB / "guest" / "libcufile.so.0"))
    library.cuFileDriverOpen.restype = Error
    found = library.cuFileDriverOpen()
    assert (found.error, found.driver) == (5007, 0)
