"""Which lines of C a test has executed."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path


def read_coverage(directory: Path) -> dict[Path, float]:
    """The share of executed lines of each file; a header's are those of all that include it."""
    subprocess.run(
        ["gcov", "--json-format", *map(str, directory.glob("*.gcda"))],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    lines: dict[Path, dict[int, bool]] = {}
    for report in directory.glob("*.gcov.json.gz"):
        for file in json.loads(gzip.decompress(report.read_bytes()))["files"]:
            reached = lines.setdefault(Path(file["file"]).resolve(), {})
            for line in file["lines"]:
                number = line["line_number"]
                reached[number] = reached.get(number, False) or line["count"] > 0
    return {path: sum(found.values()) / len(found) for path, found in lines.items() if found}
