"""docs/architecture.md and CONTRIBUTING.md name files that exist: a reader finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/architecture.md", "CONTRIBUTING.md", "docs/adr/0012-the-house.md")
QUOTED = re.compile(r"`([\w./*-]+(?:\.py|\.yaml|/))`")
WAY = re.compile(r"\b(\w+/(?:\w+/)*\w+\.py)\b")
#: of the installed package, or to be filled in: ``cli/NOUN.py``
ELSEWHERE = re.compile(r"^(?:sim|guest|bin|vgpumgr/_lib)/$|(?:^|/)[A-Z]+(?:_\w+)?\.py$")


def list_paths(text: str) -> Iterator[str]:
    """Paths that a page names. A bare name belongs to the folder that the same line has named before it."""
    for line in text.splitlines():
        folder = ""
        for path in QUOTED.findall(line) or WAY.findall(line):
            full = path if "/" in path or not folder else f"{folder}/{path}"
            if "/" in full.rstrip("/"):
                folder = full.rstrip("/") if full.endswith("/") else full.rpartition("/")[0]
            if not ELSEWHERE.search(full):
                yield full


def exists(path: str) -> bool:
    """Paths are below the root, the package or the tests."""
    return any(any((ROOT / folder).glob(path.rstrip("/"))) for folder in (".", "vgpumgr", "tests"))


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_name_files_that_exist(page: str) -> None:
    paths = set(list_paths((ROOT / page).read_text()))
    assert len(paths) >= 7
    assert sorted(path for path in paths if not exists(path)) == []


def test_a_bare_name_is_in_the_folder_before_it() -> None:
    line = (
        "| drift | `planning/drift.py`, `restore.py` | `app/operations/*recovery.py`, `gone.py` |"
    )
    assert list(list_paths(line)) == [
        "planning/drift.py",
        "planning/restore.py",
        "app/operations/*recovery.py",
        "app/operations/gone.py",
    ]
    assert not exists("app/operations/gone.py")


def test_each_row_of_the_last_table_names_a_place() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rows = text.partition("## Where would this go?")[2].strip().splitlines()[2:]
    assert len(rows) >= 10
    assert [row for row in rows if not list(list_paths(row))] == []
