"""Every step gives itself back from the journal: there is none that recovery could not read."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpumgr import steps
from vgpumgr.engine.context import OperationContext
from vgpumgr.engine.journal import Event
from vgpumgr.engine.recovery import Unfinished
from vgpumgr.engine.step import Plan, Step, decode_step, find_step_class
from vgpumgr.errors import JournalError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.vgpu import Framework, VgpuSpec


def list_steps(of: type[Step] = Step) -> Iterator[type[Step]]:
    for module in pkgutil.iter_modules(steps.__path__):
        importlib.import_module(f"{steps.__name__}.{module.name}")
    for step in of.__subclasses__():
        if step.__module__.startswith(steps.__name__) and not inspect.isabstract(step):
            yield step
        yield from list_steps(step)


#: none of them is left out: what a name begins with is the noun, and each has steps
CLASSES = sorted(set(list_steps()), key=lambda step: step.kind)
UUIDS = st.builds(str, st.uuids())
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(GpuUuid, UUIDS.map(lambda text: GpuUuid(f"GPU-{text}")))
st.register_type_strategy(
    PciAddress,
    st.builds(
        PciAddress,
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFF),
        st.integers(0, 0x1F),
        st.integers(0, 7),
    ),
)
WORDS = st.text("abc:/.-0", max_size=8)
st.register_type_strategy(
    VgpuSpec,
    st.builds(
        VgpuSpec,
        UUIDS,
        st.just(Framework.MDEV),
        st.just("0000:01:00.0"),
        WORDS,
        WORDS,
        st.lists(st.tuples(WORDS, WORDS), max_size=2).map(tuple),
    ),
)


def build(step_class: type[Step]) -> st.SearchStrategy[Step]:
    """With every field, also where it has a default."""
    return st.builds(step_class, **{f.name: ... for f in fields(step_class)})


def test_there_are_steps_of_every_noun() -> None:
    nouns = {step.kind.partition(".")[0] for step in CLASSES}
    assert nouns == {
        "attachment", "channel", "claim", "domain", "gpu", "layout", "mdev", "mig", "passthrough", "vf",
    }  # fmt: skip
    assert len(CLASSES) == len({step.kind for step in CLASSES}) >= 35


@pytest.mark.parametrize("step_class", CLASSES, ids=lambda step: step.kind)
def test_a_step_comes_back_from_the_journal(step_class: type[Step]) -> None:
    assert find_step_class(step_class.kind) is step_class

    @given(build(step_class))
    @settings(max_examples=12, deadline=None)
    def check(step: Step) -> None:
        written = json.dumps(step.encode())
        assert decode_step(json.loads(written)) == step
        plan = Plan("x", "y", (step,))
        began = Event(1, "boot", "op", "begin", json.loads(json.dumps(plan.encode())))
        assert Unfinished("op", "x", "y", (began,)).steps == [step]

    check()


@pytest.mark.parametrize("step_class", CLASSES, ids=lambda step: step.kind)
def test_a_step_shows_and_says_what_it_does(step_class: type[Step]) -> None:
    @given(build(step_class))
    @settings(max_examples=5, deadline=None)
    def check(step: Step) -> None:
        shown = step.as_dict()
        assert json.loads(json.dumps(shown)) == shown
        assert shown["kind"] == step_class.kind
        assert shown["description"]
        assert shown["target"].get("of") == step.of
        assert not {"for_vm", "by_record", "must_release"} & shown["target"].keys()

    if "profile" not in inspect.signature(step_class).parameters:
        check()


def test_what_is_recovered_by_is_stated_at_the_classes() -> None:
    by_noun = {"mig", "passthrough", "vf"}
    own = {step.kind for step in CLASSES if step.by_helper}
    changing = {s.kind for s in CLASSES if s.kind.partition(".")[0] in by_noun} - {"vf.remember"}
    assert own == changing | {"mdev.create", "mdev.delete", "mdev.mixed-sizes"}
    ending = {step.kind for step in CLASSES if step.ends_with_boot}
    assert ending == {"mig.gi.create", "mig.gi.destroy", "mig.ci.create", "mig.ci.destroy"}
    for step in CLASSES:
        assert all(find_step_class(kind).kind == kind for kind in step.takes_back)


class Nothing(Step):
    """Does nothing."""

    def describe(self) -> str:
        return "nothing"

    def do(self, context: OperationContext) -> None:
        raise NotImplementedError

    def undo(self, context: OperationContext) -> None:
        raise NotImplementedError

    def observe(self, context: OperationContext) -> bool:
        raise NotImplementedError


def test_a_step_without_a_kind_of_its_own_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="no kind"):
        Nothing()
    taken = CLASSES[0]
    with pytest.raises(TypeError, match=f"{taken.kind} belongs to {taken.__name__} already"):

        @dataclass(frozen=True)
        class Other(Nothing):
            kind: ClassVar[str] = taken.kind


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"kind": "mig.gi.sell"},
        {"kind": "mig.gi.create"},
        {"kind": "channel.stop", "id": None},
        {"kind": "channel.stop", "id": "a", "colour": "red"},
        {"kind": "mig.mode.enable", "target": {"gpu": "GPU-1"}, "description": "of an old version"},
    ],
)
def test_what_another_version_wrote_is_said(row: dict[str, Any]) -> None:
    with pytest.raises(JournalError, match="cannot read a step"):
        decode_step(row)
