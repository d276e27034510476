"""What the endurance runs call growth: what is still there in their second half."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.recovery.growth import BOUNDS, SLACK_BYTES, Sample, judge, watch

COUNT = 1000
OBJECTS, BYTES = 350_000, 90 << 20


def find_wrong(objects: Callable[[int], int], bytes_: Callable[[int], int]) -> list[str]:
    """The verdict on what has these sizes after so many cycles."""
    done = 0

    def cycle(count: int) -> None:
        nonlocal done
        done += count

    def look() -> Sample:
        return {"objects": objects(done), "rss_bytes": bytes_(done)}

    return judge(watch(cycle, look, COUNT, 20).describe(), {}, COUNT)


def test_a_plateau_is_flat() -> None:
    """Histories fill in the first half; a table that doubles once and numbers that go up and down are none."""
    noise = itertools.cycle((0, 40, -20, 3))
    wrong = find_wrong(
        lambda done: OBJECTS + 300 * min(done, 200) + next(noise),
        lambda done: BYTES + (done > 700) * (1 << 20) + next(noise) * 100,
    )
    assert wrong == []


@pytest.mark.parametrize("kept", [1, 2])
def test_one_object_a_cycle_is_a_leak(kept: int) -> None:
    (wrong,) = find_wrong(lambda done: OBJECTS + kept * done, lambda _: BYTES)
    assert wrong.startswith(f"objects grow by {kept}.0 in each cycle")


@pytest.mark.parametrize("cycle", range(4))
def test_one_step_in_few_cycles_is_no_leak_and_one_in_each_is(cycle: int) -> None:
    """The endurance runs in CI have four cycles, and measure after each."""

    def judge_sizes(sizes: list[int]) -> list[str]:
        left = iter(sizes)
        series = watch(lambda _: None, lambda: {"malloc_bytes": next(left)}, len(sizes) - 1, 20)
        return judge(series.describe(), {}, len(sizes) - 1)

    once = [BYTES + (1 << 20) * (done > cycle) for done in range(5)]
    assert judge_sizes(once) == []
    assert judge_sizes([BYTES + (1 << 20) * done for done in range(5)])


def test_bytes_are_a_leak_from_a_share_of_the_size_on() -> None:
    """What grows by twice its bound is wrong, by half of it not."""
    bound = BOUNDS["rss_bytes"] * BYTES / 1000
    assert find_wrong(lambda _: OBJECTS, lambda done: BYTES + int(2 * bound * done))
    assert not find_wrong(lambda _: OBJECTS, lambda done: BYTES + int(bound / 2 * done))
    assert bound * COUNT / 2 > SLACK_BYTES


def test_what_has_a_limit_keeps_to_it() -> None:
    assert judge({}, {"reports": 200, "journal_bytes": 300_000}, COUNT) == []
    (wrong,) = judge({}, {"reports": 200, "journal_bytes": 600_000}, COUNT)
    assert wrong.startswith("journal_bytes: 600000")
