"""The fuzzers of the channel's readers that have inputs which are kept, in ``corpus/NAME``: how they are built and run.

``python -m tests.fuzz --grow 600 serial-kept`` adds to the inputs and makes them fewer again; see ``kept.h``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.test_fuzz_stateful import SANITIZERS

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
NATIVE = HERE.parents[1] / "vgpumgr" / "virtio" / "native"
TRANSPORT = NATIVE / "transport"
FRAMES = HERE.parents[0] / "native" / "transport" / "fuzz_frames.c"
#: what is built to run, to count lines, and to find inputs
BUILDS = {**SANITIZERS, "trace": ("-fsanitize-coverage=trace-pc",)}
FLAGS = (
    "-g1",
    "-O1",
    "-fno-strict-aliasing",
    "-pthread",
    "-D_GNU_SOURCE",
    '-DVGPUMGR_VERSION="fuzz"',
    "-Wall",
    "-Wextra",
)


def build_alone(
    source: Path, *files: Path, directory: Path, sanitizer: str, flags: Sequence[str] = ()
) -> Path:
    """A fuzzer around some files of the transport or the agent."""
    program = directory / source.stem
    includes = [f"-I{NATIVE}", f"-I{NATIVE / 'generated'}"]
    command = ["cc", *FLAGS, *BUILDS[sanitizer], *flags, *includes, "-o", str(program)]
    command += map(str, [source, HERE / "kept.c", *files])
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def list_transport(*names: str) -> list[Path]:
    return [TRANSPORT / f"{name}.c" for name in names]


def build_frames(directory: Path, sanitizer: str = "address") -> Path:
    files = list_transport("worker_frame", "layout")
    return build_alone(FRAMES, *files, directory=directory, sanitizer=sanitizer)


def build_serial(directory: Path, sanitizer: str = "address") -> Path:
    names = ("serial", "stream", "frame", "control", "interface", "log", "lane_state")
    files = list_transport(*(f"worker_{name}" for name in names), "layout", "util")
    return build_alone(HERE / "serial_fuzz.c", *files, directory=directory, sanitizer=sanitizer)


def build_lane0(directory: Path, sanitizer: str = "address") -> Path:
    names = ("entry", "frame", "control", "interface", "log", "lane_state")
    files = list_transport(*(f"worker_{name}" for name in names), "layout", "util")
    return build_alone(HERE / "lane0_fuzz.c", *files, directory=directory, sanitizer=sanitizer)


def build_agent(
    directory: Path, sanitizer: str = "address", source: Path = HERE / "agent_fuzz.c"
) -> Path:
    files = [path for path in sorted((NATIVE / "guestd").glob("*.c")) if path.name != "main.c"]
    files += list_transport("layout", "util")
    # a tape has a time of its own
    wrap = ["-Wl,--wrap=vg_now_ms"]
    return build_alone(source, *files, directory=directory, sanitizer=sanitizer, flags=wrap)


def build_ring_agent(directory: Path, sanitizer: str = "address") -> Path:
    return build_agent(directory, sanitizer, HERE / "ring_agent_fuzz.c")


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """A program; the words between "kept" and the rest; changed inputs of a short run; and the files it is for."""

    build: Callable[..., Path]
    words: tuple[str, ...]
    rounds: int
    files: dict[Path, float]
    """The share of lines that a short run executes, at least. It is the same in every run, and some points above: the
    rest waits for seconds, is of the other transport, or follows errors of the system.
    """


FUZZERS = {
    "frames": Fuzzer(
        build_frames, (), 2000, {TRANSPORT / "worker_frame.c": 0.72, TRANSPORT / "ring.h": 0.78}
    ),
    "serial": Fuzzer(
        build_serial,
        (),
        1000,
        {
            TRANSPORT / f"worker_{name}.c": share
            for name, share in (
                ("serial", 0.77),
                ("stream", 0.80),
                ("control", 0.51),
                ("interface", 0.95),
                ("frame", 0.68),
            )
        },
    ),
    "lane0": Fuzzer(
        build_lane0,
        (),
        2000,
        {
            TRANSPORT / f"worker_{name}.c": share
            for name, share in (("control", 0.96), ("entry", 0.74), ("frame", 0.68))
        },
    ),
    "ring-agent": Fuzzer(
        build_ring_agent,
        ("{directory}",),
        120,
        {
            NATIVE / "guestd" / f"{name}.c": share
            for name, share in (
                ("ring", 0.84),
                ("control", 0.88),
                ("reply", 0.95),
                ("client", 0.69),
            )
        },
    ),
    "agent": Fuzzer(
        build_agent,
        ("{directory}",),
        300,
        {
            NATIVE / "guestd" / f"{name}.c": share
            for name, share in (
                ("serial", 0.92),
                ("serial_send", 0.85),
                ("client", 0.77),
                ("control", 0.72),
                ("reply", 0.82),
                ("buffer", 0.95),
            )
        },
    ),
}


def list_kept(name: str) -> list[str]:
    return [str(path) for path in sorted((CORPUS / name).glob("*.bin"))]


def fuzz_words(name: str, seed: int, rounds: int | None = None) -> list[str]:
    """All that is kept, then changes of it."""
    fuzzer = FUZZERS[name]
    count = str(rounds or 10 * fuzzer.rounds)
    return ["kept", *fuzzer.words, "fuzz", str(seed), count, *list_kept(name)]


def fuzz(program: Path, name: str, seed: int, directory: Path) -> subprocess.CompletedProcess[str]:
    """A short run. What it ran last is then in the file ``last`` of the directory."""
    words = fuzz_words(name, seed, FUZZERS[name].rounds)
    words = [word.replace("{directory}", str(directory)) for word in words]
    env = os.environ | {"KEPT_LAST": str(directory / "last")}
    return subprocess.run(
        [program, *words], cwd=directory, env=env, capture_output=True, text=True, timeout=600
    )


def grow(name: str, seed: int, seconds: float) -> str:
    """Finds inputs for so long, and keeps the fewest that reach as much; says how many those are."""
    fuzzer, kept = FUZZERS[name], CORPUS / name
    with tempfile.TemporaryDirectory(prefix="vgf") as temporary:
        directory = Path(temporary)
        program = fuzzer.build(directory, "trace")
        found = directory / "found"
        shutil.copytree(kept, found)
        prefix = [word.replace("{directory}", temporary) for word in fuzzer.words]
        for words in (["grow", str(seed), str(int(seconds)), str(found)], ["minimise", str(found)]):
            done = subprocess.run(
                [program, "kept", *prefix, *words],
                env=os.environ | {"KEPT_LAST": str(kept.parent / f"{name}.last")},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
        (kept.parent / f"{name}.last").unlink(missing_ok=True)
        for path in kept.glob("*.bin"):
            path.unlink()
        for number, path in enumerate(sorted(found.iterdir(), key=lambda p: p.stat().st_size)):
            shutil.copy2(path, kept / f"{number:02}.bin")
    return done.stdout.strip()
