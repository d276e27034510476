"""The filter of system calls, each number of a call put to it: what is not in the table kills.

The probes of test_worker_escapes.py show that the kernel enforces it. They would not notice a call that is let
through and that something else refuses; this does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "vgpumgr" / "virtio" / "native" / "worker"
HEADERS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
LANDLOCK_CREATE_RULESET = 444
#: of the filter
STAGES = ("start", "serve", "relay", "link")
#: calls whose arguments decide
BY_ARGUMENT = {"ioctl", "socket", "prctl", "clone", "tgkill"}

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="sanitizers have no sandbox"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the table is of x86-64"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("table") / "table"
    sources = [ROOT / "tests/native/sandbox/table.c", WORKER / "filter.c"]
    words = ["cc", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", f"-I{WORKER}"]
    words += ["-Wno-missing-field-initializers", "-o", str(target), *map(str, sources), "-ldl"]
    subprocess.run(words, check=True)
    return target


@pytest.fixture(scope="module")
def answers(program: Path) -> list[list[str]]:
    """Stage, what was asked, its number, the answer."""
    text = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    found = [line.split(maxsplit=3) for line in text.splitlines()]
    assert len(found) > 250_000
    return found


def list_answers(answers: list[list[str]], stage: str, kind: str) -> dict[str, str]:
    return {key: said for at, what, key, said in answers if (at, what) == (stage, kind)}


def describe(said: str) -> str:
    word, _, number = said.partition(" ")
    return f"{word} {errno.errorcode[int(number)]}" if number else word


def name_calls() -> dict[str, str]:
    text = HEADERS.read_text()
    return {number: name for name, number in re.findall(r"#define __NR_(\w+) (\d+)", text)}


def test_the_table_of_system_calls(
    answers: list[list[str]], golden: Callable[[str, str], None]
) -> None:
    names, lines = name_calls(), []
    for stage in STAGES:
        for number, said in list_answers(answers, stage, "call").items():
            name = names.get(number, f"#{number}")
            if said != "kill" and name not in BY_ARGUMENT:
                lines.append(f"{stage}: {name}: {describe(said)}")
    golden("filter-calls.txt", "\n".join(sorted(lines)) + "\n")


def test_no_call_of_another_entry_passes(answers: list[list[str]]) -> None:
    for stage in STAGES:
        for kind in ("i386", "x32"):
            found = list_answers(answers, stage, kind)
            assert len(found) == 1024
            assert set(found.values()) == {"kill"}, (stage, kind)


def test_the_table_of_ioctls(answers: list[list[str]], golden: Callable[[str, str], None]) -> None:
    found = list_answers(answers, "serve", "ioctl")
    assert len(found) == 2 * 65536 + 256
    assert set(found.values()) == {"allow", f"errno {errno.EPERM}"}
    passing = [int(key, 16) for key, said in found.items() if said == "allow"]
    # a size and a direction, which the driver does not look at, change nothing for its own, and refuse nvidia-uvm's
    assert {n & 0xFFFF for n in passing if n >> 16 == 0xC020} == {
        n for n in passing if n >> 8 == 0x46
    }
    numbers = [f"{n:#x}" for n in passing if n >> 16 != 0xC020]
    golden("filter-ioctls.txt", "\n".join(numbers) + "\n")


def test_arguments_that_matter(answers: list[list[str]]) -> None:
    def passing(stage: str, kind: str) -> list[str]:
        found = list_answers(answers, stage, kind)
        return [key for key, said in found.items() if said == "allow"]

    for kind in ("socket", "prctl", "tgkill"):  # libraries try them, and can do without
        answers_of = list_answers(answers, "serve", kind).values()
        assert set(answers_of) - {"allow"} == {f"errno {errno.EPERM}"}, kind
    threads = "0x10900"  # CLONE_THREAD, CLONE_VM, CLONE_SIGHAND
    assert passing("start", "clone") == ["0x11", threads]
    assert passing("serve", "clone") == [threads]
    assert passing("start", "socket") == ["0x1"]  # AF_UNIX
    assert passing("serve", "socket") == []
    assert passing("serve", "tgkill") == ["own"]
    # both ends of a link have no device; the relay alone connects, to its dialer
    for stage in ("relay", "link"):
        assert passing(stage, "clone") == [threads]
        assert passing(stage, "tgkill") == ["own"]
        assert passing(stage, "ioctl") == []
        assert passing(stage, "prctl") == passing("serve", "prctl")
    assert (passing("relay", "socket"), passing("link", "socket")) == (["0x1"], [])
    # names of threads and of mappings only
    assert passing("serve", "prctl") == ["0xf", "0x10", "0x53564d41"]
    assert passing("start", "prctl") == ["0x1", "0x4", "0xf", "0x10", "0x17", "0x26", "0x53564d41"]


def test_landlock_alone_refuses(program: Path, tmp_path: Path) -> None:
    """The filter lets openat() through, and the directory is writable here."""
    has_landlock = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1) >= 1
    words = ["setpriv", "--no-new-privs", program, "landlock", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    # a kernel without it: the audit of the worker says so
    assert done.stdout == f"0 {errno.EACCES if has_landlock else 0}\n"
    assert (tmp_path / "made").exists() == (not has_landlock)
