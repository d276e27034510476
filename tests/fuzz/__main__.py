"""``python -m tests.fuzz [--grow] [SECONDS] [TARGET...]``: the fuzzers of C, each so long (60 s), with new seeds.

Which seed comes next is kept below VGPUMGR_CACHE, so that each run tries what none before it has. A seed that fails is
noted in ``corpus/seeds.json``, and every run of the tests tries it again. ``parsers.py`` fuzzes what Python reads.

``corpus/TARGET`` has the inputs that are kept for TARGET: together they reach what the fuzzer could reach. Seeds of the
target ``TARGET-kept`` change them. With ``--grow`` it instead adds what reaches something new, then keeps the fewest
and shortest inputs that reach as much. The targets of that kind are those of ``kept.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.fuzz import kept, test_fuzz_calls, test_fuzz_stateful
from tests.fuzz.kept import build_agent, build_lane0, build_ring, build_serial
from tests.unit.transport_rig import FUZZ, LIB

HERE = Path(__file__).parent
SEEDS = HERE / "corpus" / "seeds.json"
NULL_DRIVER = LIB / "bin" / "null" / "libcuda.so.1"
CHUNK_S = 300.0
"""Longest that one seed may take on a busy machine."""


def build_stateful(directory: Path, sanitizer: str) -> Path:
    sources = ("stateful.c", "guest.c", "lane.c")
    return test_fuzz_stateful.build(directory, sources, sanitizer)


def build_forged(directory: Path) -> Path:
    return test_fuzz_stateful.build(directory, ("forged.c", "lane.c"), "address")


def call_words(seed: int) -> list[str]:
    corpus = sorted((HERE / "corpus" / "calls").glob("*.bin"))
    return [str(NULL_DRIVER), "20000", str(seed), *map(str, corpus)]


@dataclass(frozen=True, slots=True)
class Target:
    """A program, and its words for a seed; ``{directory}`` is an empty one."""

    build: Callable[[Path], Path]
    words: Callable[[int], list[str]]


TARGETS = {
    "frames": Target(lambda _: FUZZ, lambda seed: [str(seed), "2000"]),
    "serial": Target(build_serial, lambda seed: [str(seed), "2000"]),
    "lane0": Target(build_lane0, lambda seed: [str(seed), "2000"]),
    "ring": Target(build_ring, lambda seed: [str(seed), "150", "{directory}"]),
    "agent": Target(build_agent, lambda seed: [str(seed), "100000", "{directory}"]),
    "calls": Target(
        lambda directory: test_fuzz_calls.build(HERE / "calls_fuzz.c", directory), call_words
    ),
    "stateful": Target(
        partial(build_stateful, sanitizer="address"), lambda seed: ["100", str(seed)]
    ),
    "races": Target(partial(build_stateful, sanitizer="thread"), lambda seed: ["30", str(seed)]),
    "forged": Target(build_forged, lambda seed: ["1000000", str(seed)]),
    **{
        f"{name}-kept": Target(fuzzer.build, partial(kept.fuzz_words, name))
        for name, fuzzer in kept.FUZZERS.items()
    },
}


def try_seed(program: Path, target: Target, seed: int) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="vgf") as directory:
        words = [word.replace("{directory}", directory) for word in target.words(seed)]
        return subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=CHUNK_S, check=False
        )


def read_seeds() -> dict[str, list[int]]:
    """Seeds that once failed, by target."""
    found: dict[str, list[int]] = json.loads(SEEDS.read_text())
    return found


def note_failure(name: str, seed: int) -> None:
    seeds = read_seeds()
    seeds[name] = sorted({*seeds.get(name, []), seed})
    SEEDS.write_text(json.dumps(seeds, indent=1) + "\n")


def run(name: str, seconds: float, state: Path) -> bool:
    """Fuzzes one target; whether nothing failed."""
    target = TARGETS[name]
    first = int(state.read_text()) if state.exists() else 1000
    seed = first
    with tempfile.TemporaryDirectory(prefix="vgf") as directory:
        program = target.build(Path(directory))
        end = time.monotonic() + seconds
        while seed == first or time.monotonic() < end:
            done = try_seed(program, target, seed)
            if done.returncode:
                note_failure(name, seed)
                print(f"{name}: seed {seed} fails\n{done.stdout}{done.stderr[-4000:]}", flush=True)
                return False
            seed += 1
            state.write_text(str(seed))
    print(f"{name}: seeds {first} to {seed - 1}; the last: {done.stdout.strip()}", flush=True)
    return True


def grow(name: str, seconds: float, state: Path) -> bool:
    """Adds to what is kept for one target."""
    target = name.removesuffix("-kept")
    if target not in kept.FUZZERS:
        return True
    seed = int(state.read_text()) if state.exists() else 1000
    state.write_text(str(seed + 1))
    print(f"{target}: {kept.grow(target, seed, seconds)}", flush=True)
    return True


def main(words: list[str]) -> int:
    work = grow if words and words[0] == "--grow" else run
    words = words[work is grow :]
    seconds = float(words.pop(0)) if words and words[0].isdigit() else 60.0
    cache = Path(os.environ.get("VGPUMGR_CACHE", HERE.parents[1] / ".cache")) / "fuzz"
    cache.mkdir(parents=True, exist_ok=True)
    unknown = set(words) - set(TARGETS)
    if unknown:
        raise SystemExit(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    chosen = [f"{name}-kept" for name in kept.FUZZERS] if work is grow else [*TARGETS]
    good = [work(name, seconds, cache / f"{name}.seed") for name in words or chosen]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
