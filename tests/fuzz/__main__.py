"""``python -m tests.fuzz [SECONDS] [TARGET...]``: the fuzzers of C, each for so long (60 s), with ever new seeds.

Which seed comes next is kept below VGPUMGR_CACHE, so that each run tries what none before it has. A seed that fails is
noted in ``corpus/seeds.json``, and every run of the tests tries it again. ``parsers.py`` fuzzes what Python reads.
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

from tests.fuzz import test_fuzz_calls, test_fuzz_stateful
from tests.unit.transport_rig import FUZZ, LIB

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "vgpumgr" / "virtio" / "native"
SEEDS = HERE / "corpus" / "seeds.json"
NULL_DRIVER = LIB / "bin" / "null" / "libcuda.so.1"
FLAGS = (
    "-g",
    "-O1",
    "-fno-strict-aliasing",
    "-pthread",
    "-D_GNU_SOURCE",
    '-DVGPUMGR_VERSION="fuzz"',
    "-Wall",
    "-Wextra",
)
CHUNK_S = 300.0
"""Longest that one seed may take on a busy machine."""


def build_alone(source: str, *files: Path, directory: Path, sanitizer: str = "address") -> Path:
    """A fuzzer around some files of the transport or the agent."""
    program = directory / Path(source).stem
    command = ["cc", *FLAGS, *test_fuzz_stateful.SANITIZERS[sanitizer], f"-I{NATIVE}"]
    command += ["-o", str(program), str(HERE / source), *map(str, files)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def build_agent(directory: Path, sanitizer: str = "address") -> Path:
    files = [path for path in sorted((NATIVE / "guestd").glob("*.c")) if path.name != "main.c"]
    shared = [NATIVE / "transport" / name for name in ("layout.c", "util.c")]
    return build_alone("agent_fuzz.c", *files, *shared, directory=directory, sanitizer=sanitizer)


def build_serial(directory: Path, sanitizer: str = "address") -> Path:
    names = ("serial", "stream", "frame", "control", "log", "lane_state")
    files = [NATIVE / "transport" / f"worker_{name}.c" for name in names]
    shared = [NATIVE / "transport" / name for name in ("layout.c", "util.c")]
    return build_alone("serial_fuzz.c", *files, *shared, directory=directory, sanitizer=sanitizer)


def build_stateful(directory: Path, sanitizer: str) -> Path:
    sources = ("stateful.c", "guest.c", "lane.c")
    return test_fuzz_stateful.build(directory, sources, test_fuzz_stateful.SANITIZERS[sanitizer])


def build_forged(directory: Path) -> Path:
    flags = test_fuzz_stateful.SANITIZERS["address"]
    return test_fuzz_stateful.build(directory, ("forged.c", "lane.c"), flags)


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
    "agent": Target(build_agent, lambda seed: [str(seed), "100000", "{directory}"]),
    "calls": Target(
        lambda directory: test_fuzz_calls.build(HERE / "calls_fuzz.c", directory), call_words
    ),
    "stateful": Target(
        partial(build_stateful, sanitizer="address"), lambda seed: ["100", str(seed)]
    ),
    "races": Target(partial(build_stateful, sanitizer="thread"), lambda seed: ["30", str(seed)]),
    "forged": Target(build_forged, lambda seed: ["1000000", str(seed)]),
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


def main(words: list[str]) -> int:
    seconds = float(words.pop(0)) if words and words[0].isdigit() else 60.0
    cache = Path(os.environ.get("VGPUMGR_CACHE", HERE.parents[1] / ".cache")) / "fuzz"
    cache.mkdir(parents=True, exist_ok=True)
    unknown = set(words) - set(TARGETS)
    if unknown:
        raise SystemExit(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    good = [run(name, seconds, cache / f"{name}.seed") for name in words or TARGETS]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
