"""What the compiler and linker were told to do for security, read from each program and library that is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from vgpumgr.host.machine import LIB_DIR

#: what is no part of the product is built as it needs to be: bench/ statically, test/ with sanitizers
PRODUCT = ("bin", "guest", "sim")
FILES = sorted(
    path
    for name in PRODUCT
    for path in (LIB_DIR / name).rglob("*")
    if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"
)
#: these copy to and from arrays of their own on behalf of others
GUARDED = ("vgpumgr-worker", "vgpumgr-keeper", "libcuda.so.1")
ENDBR64 = b"\xf3\x0f\x1e\xfa"
pytestmark = pytest.mark.native


def read(path: Path, *options: str) -> str:
    done = subprocess.run(
        ["readelf", "-W", *options, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_there_are_programs_and_libraries() -> None:
    assert {"vgpumgr-worker", "vgpumgr-keeper", "vgpumgr-guestd"} <= {path.name for path in FILES}
    assert len(FILES) >= 8


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LIB_DIR)))
def test_it_is_hardened(path: Path) -> None:
    header, dynamic = read(path, "-h"), read(path, "-d")
    segments = read(path, "-l")
    assert re.search(r"Type:\s+DYN", header), "position-independent"
    assert "NOW" in dynamic, "all symbols bound at start"
    assert "TEXTREL" not in dynamic
    assert not re.search(r"RPATH|RUNPATH", dynamic), "no directory of the build is searched"
    assert "GNU_RELRO" in segments
    stack = re.search(r"GNU_STACK\s+(?:0x\w+\s+){5}(\S*)", segments)
    assert stack is None or "E" not in stack[1], "no executable stack"
    if "X86-64" in header:
        # the note that turns it on needs a libc built with it; Debian's start-up files are not
        assert path.read_bytes().count(ENDBR64) > 2, "control-flow enforcement"


@pytest.mark.parametrize("name", ["vgpumgr-guestd", "vgpumgr-guest-check"])
def test_the_guests_programs_need_no_library(name: str) -> None:
    agent = LIB_DIR / "guest" / name
    assert "INTERP" not in read(agent, "-l")
    assert "NEEDED" not in read(agent, "-d")


@pytest.mark.parametrize("name", GUARDED)
def test_stack_and_copies_are_guarded(name: str) -> None:
    for path in (path for path in FILES if path.name == name):
        symbols = read(path, "--dyn-syms")
        if path.parent.name in {"null", "try"}:
            continue  # drivers that copy nothing of a guest's
        assert "__stack_chk_fail" in symbols, path
        assert re.search(r"__\w+_chk\b", symbols), path
