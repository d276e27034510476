"""SECURITY.md names tests: they are there, and nothing of the list of attacks is missing."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.test_worker_escapes import PROBES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
#: by their names, of which two folders may have the same one
TESTS: dict[str, str] = {}
for path in (ROOT / "tests").rglob("test_*.py"):
    TESTS[path.name] = TESTS.get(path.name, "") + path.read_text()
ATTACKS = range(1, 29)


def list_numbers(letter: str) -> set[int]:
    """D1 and the like, at the beginning of a row."""
    cells = re.findall(r"^\| ([^|]*) \|", PAGE, re.MULTILINE)
    return {int(n) for cell in cells for n in re.findall(rf"\b{letter}(\d+)\b", cell)}


def test_each_attack_is_there_and_has_a_test() -> None:
    assert list_numbers("D") == set(ATTACKS)
    tests = TESTS["test_attacks.py"]
    missing = [n for n in ATTACKS if not re.search(rf"^def test_d{n}_\w+\(", tests, re.MULTILINE)]
    assert not missing


def test_each_goal_names_its_tests() -> None:
    rows = re.findall(r"^\| S\d+ \|.*$", PAGE, re.MULTILINE)
    assert len(rows) == len(list_numbers("S")) >= 5
    assert all("`test_" in row for row in rows)


def test_each_named_test_exists() -> None:
    files = set(re.findall(r"\b(test_\w+\.py)\b", PAGE))
    names = set(re.findall(r"(?:`|::)(test_\w+)`", PAGE))
    assert len(files) >= 6
    assert len(names) >= 12
    assert files <= {*TESTS}
    every = "\n".join(TESTS.values())
    assert not [name for name in names if f"def {name}(" not in every]


def test_each_named_probe_exists() -> None:
    rows = re.findall(r"probes? (`[^|]*) \|", PAGE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 20
    assert named <= {*PROBES}


def test_each_named_command_exists() -> None:
    modules = re.findall(r"python -m (tests[\w.]*)", PAGE)
    assert len(modules) >= 5
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists(), module
