"""Other projects' tests on the simulated GPU, directly and through the channel: ``./run bench suites``.

numba-cuda's own tests come in its wheel. They are run as its authors wrote them, from PyPI at pinned versions, in an
environment of its own below the cache; what is skipped there (a GPU of another generation, a library that is not
installed) is skipped here. ``./run python -m bench.suites --table docs/reference/suites.md --keep FILE`` writes what
did not pass and why (``suites.toml``); it takes an hour, and FILE has what is done, so that it can be interrupted and
goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from bench.machine import NAME
from bench.registry import ROOT, Figure, at_least
from tests.guest.lab import GuestLab, lab

REQUIREMENTS = ROOT / "tools" / "requirements-suites.txt"
RUNNER = Path(__file__).with_name("suite_runner.py")
REASONS = Path(__file__).with_name("suites.toml")
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


def measure(
    parts: Sequence[str] = (), keep: Path | None = None
) -> Iterator[tuple[str, list[Outcome]]]:
    """Each way with its outcomes; of all modules, or of those whose names contain a part."""
    python = install()
    modules = list_modules(python, parts)
    kept = read_kept(keep)
    with lab(NAME) as scene:
        for way in WAYS:
            found: list[Outcome] = []
            for module in modules:
                if (way, module) not in kept:
                    words = [str(python), str(RUNNER), str(LONGEST_S), module]
                    kept[way, module] = read_outcomes(start(scene, way, words))
                    write_kept(keep, way, module, kept[way, module])
                found += kept[way, module]
            yield way, found


def read_kept(keep: Path | None) -> dict[tuple[str, str], list[Outcome]]:
    """What is done already, by way and module."""
    if keep is None or not keep.exists():
        return {}
    lines = [json.loads(line) for line in keep.read_text().splitlines()]
    return {
        (line["way"], line["module"]): [Outcome(**one) for one in line["outcomes"]]
        for line in lines
    }


def write_kept(keep: Path | None, way: str, module: str, outcomes: list[Outcome]) -> None:
    if keep is not None:
        line = {"way": way, "module": module, "outcomes": [asdict(one) for one in outcomes]}
        with keep.open("a") as file:
            file.write(json.dumps(line) + "\n")


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
    environment["SUITES_LEFT_OUT"] = "\n".join(
        f"numba.cuda.tests.{name}={one['why']}"
        for one in read_reasons()["left_out"]
        for name in one["tests"]
    )
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


def read_reasons() -> dict[str, Any]:
    """Why tests do not pass, in words; and which suites cannot be had."""
    return tomllib.loads(REASONS.read_text())


def short_name(name: str) -> str:
    return name.removeprefix("numba.cuda.tests.")


def explain(one: Outcome, reasons: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """refused or failed, and why: the reason that is known, or the last line of what the test says."""
    for reason in reasons:
        if any(fnmatch(short_name(one.name), pattern) for pattern in reason["tests"]):
            return reason["kind"], reason["why"]
    return "failed", (one.why.strip().splitlines() or ["?"])[-1][:200]


def write_table(results: dict[str, list[Outcome]]) -> str:
    """Counts, each test that did not pass with its reason, and the reasons for which tests were skipped."""
    known = read_reasons()
    bad = {
        way: {one.name: explain(one, known["reason"]) for one in outcomes if is_bad(one)}
        for way, outcomes in results.items()
    }
    text = "# Other projects' tests on the simulated GPU\n\n"
    text += "Made by `./run python -m bench.suites`; reasons are in `bench/suites.toml`. The machine is `dgx-a100`: a\n"
    text += f"whole GPU directly, `{PROFILE}` through the channel. What did not pass in its module ran once\n"
    text += "more by itself.\n\n"
    text += "| suite | way | passed | refused | failed | skipped | passed of those not skipped |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for way, outcomes in results.items():
        count = Counter(bad[way][one.name][0] if is_bad(one) else one.outcome for one in outcomes)
        tried = count.total() - count["skipped"]
        share = f"{100 * count['passed'] / tried:.1f} %" if tried else "none"
        text += f"| {find_pin('numba-cuda')} | {way} | {count['passed']} | {count['refused']} | {count['failed']} "
        text += f"| {count['skipped']} | {share} |\n"
    text += "\nWith " + ", ".join(map(find_pin, known["with"])) + ".\n"
    return text + write_bad(bad) + write_skipped(results) + write_missing(known["missing"])


def is_bad(one: Outcome) -> bool:
    return one.outcome in ("failed", "ended")


def find_pin(name: str) -> str:
    (pin,) = (
        line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(name + "==")
    )
    return pin.replace("==", " ")


def write_bad(bad: dict[str, dict[str, tuple[str, str]]]) -> str:
    text = "\n## What did not pass\n\n| test | way | | why |\n|---|---|---|---|\n"
    for name in sorted({name for found in bad.values() for name in found}):
        ways = [way for way, found in bad.items() if name in found]
        for kind, why in sorted({bad[way][name] for way in ways}):
            where = [way for way in ways if bad[way][name] == (kind, why)]
            said = "both" if len(where) == len(WAYS) else where[0]
            text += f"| `{short_name(name)}` | {said} | {kind} | {why.replace('|', '/')} |\n"
    return text


def write_skipped(results: dict[str, list[Outcome]]) -> str:
    text = "\n## What the suite skips\n\n| its reason | " + " | ".join(results) + " |\n"
    text += "|---|" + "---|" * len(results) + "\n"
    counts = {
        way: Counter(
            (one.why.strip().splitlines() or ["?"])[-1][:120]
            for one in outcomes
            if one.outcome == "skipped"
        )
        for way, outcomes in results.items()
    }
    for why in sorted({why for count in counts.values() for why in count}):
        numbers = " | ".join(str(count[why]) for count in counts.values())
        text += f"| {why.replace('|', '/')} | {numbers} |\n"
    return text


def write_missing(missing: Sequence[dict[str, str]]) -> str:
    text = "\n## What did not run\n\n| suite | why |\n|---|---|\n"
    return text + "".join(f"| {one['suite']} | {one['why']} |\n" for one in missing)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.suites", description=__doc__)
    parser.add_argument("--table", type=Path, metavar="FILE", required=True)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="what is done, to go on later")
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    options.table.write_text(write_table(dict(measure(options.parts, options.keep))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
