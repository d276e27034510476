"""Which lines of C a test has executed."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _read_reports(directory: Path) -> Iterator[dict[str, Any]]:
    """What gcov says of each file that a program was compiled from, headers more than once."""
    subprocess.run(
        ["gcov", "--json-format", *map(str, directory.glob("*.gcda"))],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    for report in directory.glob("*.gcov.json.gz"):
        yield from json.loads(gzip.decompress(report.read_bytes()))["files"]


def read_coverage(directory: Path) -> dict[Path, float]:
    """The share of executed lines of each file; a header's are those of all that include it."""
    lines: dict[Path, dict[int, bool]] = {}
    for file in _read_reports(directory):
        reached = lines.setdefault(Path(file["file"]).resolve(), {})
        for line in file["lines"]:
            number = line["line_number"]
            reached[number] = reached.get(number, False) or line["count"] > 0
    return {path: sum(found.values()) / len(found) for path, found in lines.items() if found}


def read_functions(directory: Path, path: Path) -> dict[str, float]:
    """The share of executed blocks of each function of a file."""
    return {
        function["name"]: function["blocks_executed"] / function["blocks"]
        for file in _read_reports(directory)
        if Path(file["file"]).resolve() == path
        for function in file["functions"]
    }
