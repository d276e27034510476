"""Which session is ended where the driver's figures exceed the limit device-memory, and when none is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vgpumgr.virtio.overuse import (
    NO_FIGURES,
    SLACK_BYTES,
    UNCOMPARED,
    Verdict,
    enforce,
    judge,
    list_figures,
    read_report,
    report_failure,
)

GIB = 1 << 30
LIMIT = 4 * GIB


def used(gib: float) -> int:
    """A process with so much beyond what its driver takes."""
    return int(gib * GIB) + SLACK_BYTES


@pytest.mark.parametrize(
    ("uses", "claims", "pid"),
    [
        ({}, {}, None),
        ({1: used(4)}, {1: 4 * GIB}, None),
        ({1: used(3), 2: used(1)}, {1: 3 * GIB, 2: GIB}, None),
        # what a driver takes of its own is nobody's
        (dict.fromkeys(range(64), SLACK_BYTES), {}, None),
        ({1: used(4) + 1}, {1: 0}, 1),
        # not the one that has most, but the one that does not say so
        ({1: used(3), 2: used(2)}, {1: 3 * GIB, 2: 0}, 2),
        # what cannot be true is not believed
        ({1: used(1), 2: used(9)}, {1: GIB, 2: 9 * GIB}, 2),
        # what is not known is no reason
        ({1: None, 2: used(99)}, {}, None),
    ],
)
def test_the_session_that_does_not_account_for_most_is_ended(
    uses: dict[int, int | None], claims: dict[int, int], pid: int | None
) -> None:
    assert judge(LIMIT, uses, claims).pid == pid


def test_memory_that_several_have_open_is_no_reason() -> None:
    uses: dict[int, int | None] = {1: used(3), 2: used(3)}
    assert judge(LIMIT, uses, {1: 3 * GIB}, 3 * GIB) == Verdict(6 * GIB, is_shared=True)
    assert judge(LIMIT, uses, {1: 3 * GIB}, GIB).pid == 2


def test_contexts_on_several_instances_are_one_processs() -> None:
    assert list_figures([(1, 2), (1, 3), (2, None), (2, 4)]) == {1: 5, 2: None}


@contextmanager
def worker() -> Iterator[tuple[int, int]]:
    """A process and its child, which stands for a session."""
    words = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '600'])"]
    process = subprocess.Popen(words, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        while not children.read_text():
            time.sleep(0.01)
        yield process.pid, int(children.read_text())
    finally:
        end_all(process)


def end_all(process: subprocess.Popen[bytes]) -> None:
    """It and its child."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_session_is_ended_and_remembered_until_nobody_compares(tmp_path: Path) -> None:
    with worker() as (pid, session):
        over = enforce(tmp_path, pid, LIMIT, {session: used(5)}, {session: (3, GIB)})
        assert over is not None
        assert (over.lane, over.pid, over.bytes, over.limit) == (3, session, used(5), LIMIT)
        for _ in range(500):
            if not is_running(session):
                break
            time.sleep(0.01)
        assert not is_running(session)
    report = read_report(tmp_path)
    assert (report.count, report.ended, report.problem) == (1, (over,), "")
    later = read_report(tmp_path, report.checked_s + 60)
    assert (later.count, later.driver_bytes, later.problem) == (1, None, UNCOMPARED)


@pytest.mark.parametrize(
    ("figures", "problem"),
    [
        ([None], NO_FIGURES),
        # it has memory by its own word, and NVML lists none of its processes: as in another pid namespace
        ([], NO_FIGURES),
        ([used(4)], ""),
    ],
)
def test_without_figures_or_within_the_limit_nothing_is_ended(
    tmp_path: Path, figures: list[int | None], problem: str
) -> None:
    with worker() as (pid, session):
        lanes, uses = {session: (1, 4 * GIB)}, dict.fromkeys([session][: len(figures)], *figures)
        assert enforce(tmp_path, pid, LIMIT, uses, lanes, expected=True) is None
        assert read_report(tmp_path).problem == problem
        assert is_running(session)


def test_processes_of_others_are_neither_counted_nor_ended(tmp_path: Path) -> None:
    with worker() as (pid, session), worker() as (other, others):
        figures: dict[int, int | None] = {others: used(99), other: used(99), pid: used(99)}
        assert enforce(tmp_path, pid, LIMIT, {**figures, session: used(1)}, {}) is None
        assert read_report(tmp_path).driver_bytes == GIB
        assert all(map(is_running, (pid, session, other, others)))


def test_the_holder_of_the_slice_is_no_session(tmp_path: Path) -> None:
    program = tmp_path / "vgpumgr-hold"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    words = [sys.executable, "-c", f"import subprocess; subprocess.run(['{program}', '600'])"]
    process = subprocess.Popen(words, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        while not children.read_text():
            time.sleep(0.01)
        holder = int(children.read_text())
        while Path(f"/proc/{holder}/exe").readlink() != program:
            time.sleep(0.01)
        assert enforce(tmp_path, process.pid, LIMIT, {holder: used(99)}, {}) is None
        assert is_running(holder)
    finally:
        end_all(process)


def test_a_driver_that_does_not_answer_is_said(tmp_path: Path) -> None:
    report_failure(tmp_path, "NVML does not answer")
    assert read_report(tmp_path).problem == "NVML does not answer"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"count": "many"}'])
def test_a_file_that_is_damaged_says_that_nobody_compares(tmp_path: Path, text: str) -> None:
    (tmp_path / "device-memory.json").write_text(text)
    assert read_report(tmp_path).problem == UNCOMPARED
