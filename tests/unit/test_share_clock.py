"""Windows in which a share's processes had more of a GPU than it was charged for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpumgr.virtio.share_time import (
    NO_FIGURES,
    SLACK,
    UNCOMPARED,
    WINDOW_S,
    Figures,
    ShareClock,
    TimeReport,
    Window,
    note_failure,
    read_time,
)

STEP_S = 2.0
STEPS = int(WINDOW_S / STEP_S)


def add(
    clock: ShareClock,
    now_s: float,
    used_ns: int,
    parts: dict[int, float],
    since_s: float | None = None,
) -> Window | None:
    """Figures since the last ones, unless since another time."""
    return clock.add(Figures(clock.seen_s if since_s is None else since_s, now_s, parts), used_ns)


def run(
    clock: ShareClock, charged: float, parts: dict[int, float], begin: int = 0
) -> Window | None:
    """A window of steps, with that part of the GPU charged in each; the first step is a beginning."""
    window = None
    for step in range(begin, begin + STEPS + 1):
        window = add(clock, step * STEP_S, int(step * STEP_S * charged * 1e9), parts)
    return window


@pytest.mark.parametrize(
    ("charged", "parts", "over", "pid"),
    [
        (0.5, {7: 0.5}, False, 7),
        (0.3, {7: 0.2, 8: 0.19}, False, 7),
        (0.3, {7: 0.2, 8: 0.25}, True, 8),
        (0.0, {}, False, None),
        (1.0, {7: 0.0}, False, 7),
    ],
)
def test_more_than_was_charged(
    charged: float, parts: dict[int, float], over: bool, pid: int | None
) -> None:
    window = run(ShareClock(), charged, parts)
    assert window is not None
    assert (window.is_over, window.pid) == (over, pid)
    assert window.charged == pytest.approx(charged)
    assert window.driver == pytest.approx(sum(parts.values()))


def test_a_keeper_that_began_anew_is_not_held_to_what_it_was_charged_before() -> None:
    clock = ShareClock()
    assert add(clock, 0, 50_000_000_000, {}) is None
    assert add(clock, 2, 52_000_000_000, {1: 1.0}) is None
    # from 0 again: the window begins here
    assert add(clock, 4, 0, {1: 1.0}) is None
    for step in range(1, STEPS):
        assert add(clock, 4 + 2 * step, 2 * step * 10**9, {1: 1.0}) is None
    window = add(clock, 4 + WINDOW_S, int(WINDOW_S) * 10**9, {1: 1.0})
    assert window is not None
    assert not window.is_over


def test_the_time_before_a_reset_does_not_count() -> None:
    clock = ShareClock()
    add(clock, 0, 0, {})
    for now_s in (2, 4, 6, 8):
        assert add(clock, now_s, 0, {1: 1.0}) is None
    clock.reset()
    assert add(clock, 9, 0, {1: 1.0}) is None
    for step in range(1, STEPS):
        assert add(clock, 9 + 2 * step, 2 * step * 10**9, {1: 1.0}) is None
    window = add(clock, 9 + WINDOW_S, int(WINDOW_S) * 10**9, {1: 1.0})
    assert window is not None
    assert window.driver == pytest.approx(1.0)
    assert not window.is_over


@pytest.mark.parametrize(("now_s", "since_s"), [(13.0, 8.0), (10.0, 7.0)], ids=["late", "other"])
def test_figures_that_leave_time_out_begin_a_window(now_s: float, since_s: float) -> None:
    """A daemon that was held up does not take the last two seconds for the whole time."""
    clock = ShareClock()
    add(clock, 0, 0, {})
    for step in (2, 4, 6, 8):
        assert add(clock, step, 0, {1: 0.0}) is None
    assert add(clock, now_s, 0, {1: 1.0}, since_s) is None
    assert clock.begin_s == now_s
    assert not clock.had_s


@given(
    st.lists(
        st.tuples(st.floats(0.1, 4), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=60
    )
)
def test_who_has_no_more_than_is_charged_is_never_named(
    steps: list[tuple[float, float, float]],
) -> None:
    clock, now_s, used = ShareClock(), 0.0, 0.0
    add(clock, now_s, 0, {})
    for elapsed_s, charged, part in steps:
        now_s += elapsed_s
        used += elapsed_s * charged
        had = charged * part
        window = add(clock, now_s, int(used * 1e9), {1: had / 2, 2: had / 2})
        assert window is None or not window.is_over


@given(st.floats(0, 0.8), st.floats(SLACK + 0.01, 1))
def test_who_has_more_is_named_in_each_window(charged: float, more: float) -> None:
    clock = ShareClock()
    for n in range(3):
        window = run(clock, charged, {9: charged + more}, n * STEPS)
        assert window is not None
        assert window.is_over


def test_what_is_known_of_it(tmp_path: Path) -> None:
    assert read_time(tmp_path) == TimeReport()
    note_failure(tmp_path)
    known = read_time(tmp_path)
    assert known.problem == NO_FIGURES
    # a daemon that has ended compares no more
    assert read_time(tmp_path, known.checked_s + 60).problem == UNCOMPARED
    (tmp_path / "compute.json").write_text("{")
    assert read_time(tmp_path).problem == UNCOMPARED
    (tmp_path / "compute.json").write_text(json.dumps({"checked_s": "soon"}))
    assert read_time(tmp_path).problem == UNCOMPARED
