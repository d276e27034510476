"""The parts of each room of the C tree need each other in one direction only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.native_circles import ROOT, find_circles, find_needs, list_objects, list_rooms

pytestmark = pytest.mark.native

ANY_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
# Room and its parts, with the reason why the circle stays.
KNOWN: dict[tuple[str, ...], str] = {}


def test_every_room_is_read() -> None:
    """A source without an object file would hide what it needs."""
    missing = [
        str(source.relative_to(ROOT))
        for room in list_rooms()
        for source in room.glob("*.c")
        if f"{source.name}.o" not in {path.name for path in list_objects(room)}
    ]
    assert len(list_rooms()) >= 13
    assert not missing


def test_circles_are_those_that_are_meant() -> None:
    found = {
        (str(room.relative_to(ROOT)), *circle)
        for room in list_rooms()
        for circle in find_circles(find_needs(room))
    }
    assert found == set(KNOWN), (
        "`./run python -m tools.native_circles` names what holds them together"
    )


def list_headers(tree: Path) -> set[str]:
    return {path.name for path in tree.rglob("*.h")}


def test_the_simulator_and_the_channel_share_only_the_rules() -> None:
    """Each may include headers of `vgpumgr/native`, which includes none of theirs."""
    rules, channel, simulator = (
        ROOT / "vgpumgr" / name for name in ("native", "virtio/native", "sim/native")
    )
    for tree, others in {
        rules: (channel, simulator),
        channel: (simulator,),
        simulator: (channel,),
    }.items():
        foreign = set().union(*map(list_headers, others)) - list_headers(tree)
        found = {
            str(path.relative_to(ROOT)): names
            for path in tree.rglob("*.[ch]")
            if (names := foreign & {Path(n).name for n in ANY_INCLUDE.findall(path.read_text())})
        }
        assert not found
        assert list_headers(tree)


def test_a_circle_is_found() -> None:
    needs = {
        "a": {"b": {"use_b"}},
        "b": {"c": {"c.h"}},
        "c": {"a": {"use_a"}, "d": {"use_d"}},
        "d": {},
    }
    assert find_circles(needs) == [("a", "b", "c")]
    assert find_circles({"a": {"b": {"use_b"}}, "b": {}}) == []
