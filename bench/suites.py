"""Other projects' tests on the simulated GPU, directly and through the channel: ``./run bench suites``.

numba-cuda's own tests come in its wheel. They are run as its authors wrote them, from PyPI at pinned versions, in an
environment of its own below the cache; what is skipped there (a GPU of another generation, a library that is not
installed) is skipped here. ``./run python -m bench.suites --table FILE [PART...]`` writes what failed and why, of all
modules or of those whose names contain a part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import NAME
from bench.registry import ROOT, Figure, at_least
from tests.guest.lab import GuestLab, lab

REQUIREMENTS = ROOT / "tools" / "requirements-suites.txt"
RUNNER = Path(__file__).with_name("suite_runner.py")
#: for one module; the slowest take minutes of one core
LONGEST_S = 1800
PROFILE = "7g.80gb"
WAYS = ("directly", "through the channel")
#: a quick look: arrays, the language, events, streams, graphs of cuda-core
SMALL = ("cudadrv.test_events", "cudadrv.test_streams", "cudapy.test_lang")


@dataclass(frozen=True)
class Outcome:
    """What became of one test: passed, failed, skipped, or ended (its process did not survive it)."""

    name: str
    outcome: str
    why: str


def run(small: bool = False) -> Iterable[Figure]:
    """The share of its tests that pass, each way; ``small``: of a few modules."""
    for way, outcomes in measure(SMALL if small else ()):
        count = Counter(one.outcome for one in outcomes)
        tried = count.total() - count["skipped"]
        goal, met = at_least(0.95, count["passed"], tried)
        title = f"numba-cuda's own tests, {way}"
        yield Figure(
            title, count["passed"], tried, "tests", "all that ran", goal, met, "simulated driver"
        )


def measure(parts: Sequence[str] = ()) -> Iterator[tuple[str, list[Outcome]]]:
    """Each way with its outcomes; of all modules, or of those whose names contain a part."""
    python = install()
    modules = list_modules(python, parts)
    words = [str(python), str(RUNNER), str(LONGEST_S), *modules]
    with lab(NAME) as scene:
        for way in WAYS:
            yield way, read_outcomes(start(scene, way, words))


def install() -> Path:
    """The Python of an environment with the pinned packages, made below the cache where it is not there."""
    cache = Path(os.environ.get("VGPUMGR_CACHE", ROOT / ".cache"))
    place = cache / "suites"
    stamp, wanted = place / "stamp", REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip = [place / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "-r", REQUIREMENTS], check=True)
        stamp.write_text(wanted)
    return place / "bin/python"


def list_modules(python: Path, parts: Sequence[str]) -> list[str]:
    """Its modules of tests that use a GPU, or could."""
    (place,) = python.parents[1].glob("lib/python*/site-packages/numba_cuda/numba/cuda/tests")
    found = (
        "numba.cuda.tests." + ".".join(path.relative_to(place).with_suffix("").parts)
        for path in sorted(place.rglob("test_*.py"))
        if path.relative_to(place).parts[0] not in ("benchmarks", "cudasim")
    )
    return [name for name in found if not parts or any(part in name for part in parts)]


def start(scene: GuestLab, way: str, words: list[str]) -> str:
    """What it prints."""
    vgpumgr = [sys.executable, "-m", "vgpumgr", "--machine", NAME]
    environment = dict(scene.environment)
    if way == WAYS[0]:
        told = subprocess.run(
            [*vgpumgr[:3], "sim", "env", NAME],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = (line.removeprefix("export ") for line in told.stdout.splitlines())
        environment |= dict(line.split("=", 1) for line in lines if "=" in line)
    else:
        words = [*vgpumgr, "run", "--profile", PROFILE, "--", *words]
    environment["PYTHONPATH"] = str(ROOT) if way != WAYS[0] else ""
    done = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, text=True, check=False, cwd=scene.directory
    )
    if not done.stdout:
        raise RuntimeError(f"nothing was run {way}: {words} ended with {done.returncode}")
    return done.stdout


def read_outcomes(text: str) -> list[Outcome]:
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [Outcome(line["id"], line["outcome"], line["why"]) for line in lines]


def write_table(results: dict[str, list[Outcome]]) -> str:
    """Counts, and each test that did not pass with the last line of its reason."""
    pins = [line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("numba")]
    text = f"# {', '.join(pins)}: its own tests on the simulated GPU\n\n"
    text += "Made by `./run python -m bench.suites --table`.\n\n"
    text += "| way | passed | failed | skipped | process ended |\n|---|---|---|---|---|\n"
    for way, outcomes in results.items():
        count = Counter(one.outcome for one in outcomes)
        text += f"| {way} | {count['passed']} | {count['failed']} | {count['skipped']} | {count['ended']} |\n"
    for way, outcomes in results.items():
        text += f"\n## Not passed {way}\n\n"
        for one in outcomes:
            if one.outcome in ("failed", "ended"):
                why = (one.why.strip().splitlines() or ["?"])[-1]
                text += f"- `{one.name.removeprefix('numba.cuda.tests.')}`: {why[:200]}\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.suites", description=__doc__)
    parser.add_argument("--table", type=Path, metavar="FILE", required=True)
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    options.table.write_text(write_table(dict(measure(options.parts))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
