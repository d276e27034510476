"""What others write is read or refused: a slice of ``python -m tests.fuzz.parsers``."""

from __future__ import annotations

import pytest

from tests.fuzz.parsers import TARGETS, Target, fuzz, load


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_others_write(target: Target) -> None:
    found = fuzz(load(target), seed=1, rounds=600, seconds=3600, guided=False)
    assert found["wrong"] == {}
    assert found["rounds"] == 600


def test_the_fuzzer_notices_another_error() -> None:
    def parse(_directory: object, data: bytes) -> None:
        int(data.decode(errors="replace"))

    blind = Target("uevents", parse, seeds=[b"1"])
    assert fuzz(blind, seed=1, rounds=50, seconds=3600, guided=False)["wrong"]
