"""Rules of the house, as tests: layers, length of files, licences, words, and that the checkers are content."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 600
BIN = Path(sys.executable).parent
CODE = (".py", ".c", ".h", ".S", ".sh", ".cu", ".cuh", ".map", ".sym")
GENERATED = re.compile(r"generated|do not edit", re.IGNORECASE)
# Only host/ may touch these; the simulator and the guest package are other machines.
KERNEL_PATH = re.compile(r"""["'](/sys|/proc|/dev)(/|["'])""")
OUTSIDE_HOST = (
    "model",
    "nvml",
    "mig",
    "mdev",
    "passthrough",
    "engine",
    "steps",
    "planning",
    "backends",
    "state",
    "app",
    "pool",
    "server",
    "tui",
    "cli",
)


def list_files() -> list[Path]:
    """What belongs to the project: tracked files, and new ones that git would track."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    found = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def is_generated(text: str) -> bool:
    """A generated file says so in its first lines."""
    return GENERATED.search("\n".join(text.splitlines()[:5])) is not None


def list_code() -> Iterator[tuple[str, str]]:
    for path in list_files():
        if path.suffix in CODE:
            text = read(path)
            if not is_generated(text):
                yield str(path.relative_to(ROOT)), text


def test_no_file_is_too_long() -> None:
    long = {name: n for name, text in list_code() if (n := text.count("\n")) > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines"


def test_every_c_file_states_its_licence() -> None:
    missing = [
        name
        for name, text in list_code()
        if name.endswith((".c", ".h"))
        and "SPDX-License-Identifier: Apache-2.0" not in text.partition("\n")[0]
    ]
    assert not missing


def test_only_host_knows_kernel_paths() -> None:
    offenders = [
        f"{name}:{number}"
        for name, text in list_code()
        if name.startswith("vgpumgr/") and name.split("/")[1] in OUTSIDE_HOST
        for number, line in enumerate(text.splitlines(), 1)
        if KERNEL_PATH.search(line)
    ]
    assert not offenders, "paths of the kernel belong to host/"


def test_only_host_starts_processes_and_reads_clocks() -> None:
    forbidden = re.compile(r"^\s*(import|from) (subprocess|time|fcntl)\b", re.MULTILINE)
    offenders = [
        name
        for name, text in list_code()
        if name.startswith("vgpumgr/") and name.split("/")[1] in OUTSIDE_HOST
        if name.endswith(".py") and forbidden.search(text)
    ]
    assert not offenders


def test_comments_leave_no_work_behind() -> None:
    """What is not done is said where people look for it, not in the code."""
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    offenders = []
    for name, text in list_code():
        if not name.endswith(".py"):
            offenders += [name for line in text.splitlines() if words.search(_c_comment(line))]
            continue
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and words.search(token.string):
                offenders.append(f"{name}:{token.start[0]}")
    assert not offenders


def _c_comment(line: str) -> str:
    return line if line.lstrip().startswith(("*", "/*", "//", "#")) else ""


def test_text_files_are_clean() -> None:
    """Golden files are exempt: a table pads its last column."""
    offenders = []
    for path in list_files():
        name = str(path.relative_to(ROOT))
        if path.suffix not in (*CODE, ".md", ".toml", ".txt", ".yml", ".yaml"):
            continue
        if name.startswith("tests/golden/"):
            continue
        text = read(path)
        if text and not text.endswith("\n"):
            offenders.append(f"{name}: no newline at the end")
        offenders += [
            f"{name}:{number}: space at the end"
            for number, line in enumerate(text.splitlines(), 1)
            if line != line.rstrip(" \t") and path.suffix != ".md"
        ]
    assert not offenders


def run_checker(*arguments: str | Path) -> None:
    result = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_is_content() -> None:
    run_checker(BIN / "ruff", "check", "--no-cache", ".")


def test_the_code_is_formatted() -> None:
    run_checker(BIN / "ruff", "format", "--no-cache", "--check", ".")


def test_mypy_is_content() -> None:
    run_checker(BIN / "mypy")


def test_layers_point_one_way() -> None:
    run_checker(BIN / "lint-imports", "--no-cache")


def test_the_architecture_page_knows_every_package() -> None:
    page = read(ROOT / "docs/architecture.md")
    packages = {path.parent.name for path in (ROOT / "vgpumgr").glob("*/__init__.py")}
    assert not {name for name in packages if f"{name}/" not in page}
