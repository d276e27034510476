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
LINK = NATIVE / "link"
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


def list_server() -> list[Path]:
    """The server's lane 0 and its lanes, and what stands in the place of its processes."""
    names = ("control", "entry", "frame", "interface", "log", "lane_state", "stream")
    files = list_transport(*(f"worker_{name}" for name in names), "layout", "util")
    return [*files, HERE / "server.c", HERE / "window.c"]


#: a tape has a time of its own; and every access to shared memory may find a change
WINDOW_FLAGS = ("-Wl,--wrap=vg_now_ms", "-include", str(HERE / "race.h"))


def build_lane0(directory: Path, sanitizer: str = "address") -> Path:
    source = HERE / "lane0_fuzz.c"
    return build_alone(
        source, *list_server(), directory=directory, sanitizer=sanitizer, flags=WINDOW_FLAGS
    )


def list_agent(*without: str) -> list[Path]:
    """Its files, but for those that the fuzzer includes or replaces."""
    return [path for path in sorted((NATIVE / "guestd").glob("*.c")) if path.name not in without]


def build_ring(directory: Path, sanitizer: str = "address") -> Path:
    files = [HERE / "relays.c", *list_agent("main.c", "device.c"), *list_server()]
    calls = ("posix_spawn", "posix_spawn_file_actions_adddup2", "kill", "waitpid", "getsockopt")
    flags = [*WINDOW_FLAGS, *(f"-Wl,--wrap={call}" for call in calls)]
    source = HERE / "ring_fuzz.c"
    return build_alone(source, *files, directory=directory, sanitizer=sanitizer, flags=flags)


def build_agent(directory: Path, sanitizer: str = "address") -> Path:
    files = [*list_agent("main.c"), *list_transport("layout", "util")]
    # a tape has a time of its own
    wrap = ["-Wl,--wrap=vg_now_ms"]
    source = HERE / "agent_fuzz.c"
    return build_alone(source, *files, directory=directory, sanitizer=sanitizer, flags=wrap)


def build_link(directory: Path, sanitizer: str = "address") -> Path:
    files = [LINK / f"{name}.c" for name in ("json", "message", "stream")]
    return build_alone(HERE / "link_fuzz.c", *files, directory=directory, sanitizer=sanitizer)


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """A program; the words between "kept" and the rest; changed inputs of a short run; and the files it is for."""

    build: Callable[..., Path]
    words: tuple[str, ...]
    rounds: int
    files: dict[Path, float]
    """The share of lines that a short run executes, at least. It is the same in every run, and some points above: the
    rest waits for seconds, is the other transport's, or follows errors of the system.
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
                ("control", 0.48),
                ("interface", 0.95),
                ("frame", 0.68),
            )
        },
    ),
    "lane0": Fuzzer(
        build_lane0,
        (),
        4000,
        {
            TRANSPORT / "ring.h": 0.95,
            TRANSPORT / "worker_control.c": 0.95,
            TRANSPORT / "worker_interface.c": 0.95,
            TRANSPORT / "worker_entry.c": 0.78,
        },
    ),
    "ring": Fuzzer(
        build_ring,
        ("{directory}",),
        200,
        {
            TRANSPORT / "layout.c": 0.95,
            **{
                NATIVE / "guestd" / f"{name}.c": share
                for name, share in (
                    ("ring", 0.88),
                    ("control", 0.92),
                    ("reply", 0.95),
                    ("client", 0.79),
                    ("lane", 0.92),
                    ("user", 0.58),
                )
            },
        },
    ),
    "link": Fuzzer(
        build_link,
        (),
        800,
        {LINK / "stream.c": 0.95, LINK / "message.c": 0.95, LINK / "json.c": 0.95},
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
                ("control", 0.52),
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
