"""Little memory and few open files: commands say so, before they change anything, and never call it a bug."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.attached_machine import attached_machine
from tests.support.forked import run_vgpumgr

pytestmark = pytest.mark.native

Run = Callable[..., "subprocess.CompletedProcess[str]"]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes a machine")


@pytest.fixture
def root() -> Iterator[Path]:
    """Of the simulated machine. Short: the paths of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="vgl") as directory:
        yield Path(directory)


@pytest.fixture
def run(root: Path) -> Iterator[Run]:
    """Commands on a simulated machine, behind words of prlimit(1)."""
    env = os.environ | {"VGPUMGR_SIM_ROOT": str(root), "VGPUMGR_MACHINE": "a30-pair"}

    def call(limits: Sequence[str], *words: str) -> subprocess.CompletedProcess[str]:
        if not limits:
            return run_vgpumgr(*words, env=env)
        return subprocess.run(
            ["prlimit", *limits, sys.executable, "-m", "vgpumgr", *words],
            capture_output=True, text=True, check=False, env=env,
        )  # fmt: skip

    assert call([], "sim", "start", "a30-pair").returncode == 0
    yield call
    assert call([], "sim", "stop", "a30-pair").returncode == 0


@root_only
@pytest.mark.parametrize("count", [8, 20, 40])
def test_too_few_open_files_are_refused_before_anything_is_changed(
    run: Run, root: Path, count: int
) -> None:
    done = run([f"--nofile={count}:{count}"], "recover")
    assert done.returncode == 1
    assert "error:   not enough open files for a change" in done.stderr
    assert f"this process may have {count} files open" in done.stderr
    assert "vgpumgr needs 48 more" in done.stderr
    assert "ulimit -n" in done.stderr
    assert "LimitNOFILE=" in done.stderr
    assert not (root / "a30-pair/host/state").exists()


@root_only
def test_a_daemon_refuses_as_well(run: Run) -> None:
    done = run(["--nofile=40:40"], "daemon")
    assert done.returncode == 1
    assert "LimitNOFILE=" in done.stderr


@root_only
def test_the_soft_limit_is_raised(run: Run) -> None:
    assert run(["--nofile=20:1024"], "recover").returncode == 0


def test_what_only_reads_needs_little(run: Run) -> None:
    done = run(["--nofile=20:20"], "gpu", "list")
    assert (done.returncode, done.stderr) == (0, "")


ATTACH = """\
import resource
from tests.support.attached_machine import attached_machine
with attached_machine() as machine:
    machine.application.detach(vm="vm01")
    resource.setrlimit(resource.RLIMIT_NOFILE, ({count}, {count}))
    document = machine.call("attach", vm="vm01", profile="1g.10gb")
    assert document["usable"], document
    print("attached")
"""


@pytest.mark.parametrize("count", [40, 64])
def test_a_worker_starts_with_few_open_files(count: int) -> None:
    """Its keeper passes it descriptors by way of numbers that must be below the limit."""
    done = subprocess.run(
        [sys.executable, "-c", ATTACH.format(count=count)], capture_output=True, text=True,
        check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "attached" in done.stdout, done.stderr


@pytest.mark.parametrize("words", [("gpu", "list"), ("status",), ("recover",)])
def test_little_memory_is_no_bug(run: Run, words: tuple[str, ...]) -> None:
    """From where the interpreter itself has what it needs."""
    said = 0
    for megabytes in (16, 18, 21, 24, 30, 40, 50, 80, 110):
        done = run([f"--as={megabytes * 1_000_000}"], *words)
        if done.returncode < 0 or done.returncode > 128:
            continue  # a library has ended the process by itself: it has said why, or nobody can
        assert "has a bug" not in done.stderr, f"{megabytes} MB"
        assert "Traceback" not in done.stderr, f"{megabytes} MB"
        if "memory" in done.stderr:
            said += 1
            assert done.returncode == 1
    assert said >= 1


def test_limits_of_this_test_are_as_before() -> None:
    """Raising the limit is for commands: an application in a process of another program leaves it alone."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with attached_machine():
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
