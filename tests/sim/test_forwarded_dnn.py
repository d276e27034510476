"""cuDNN of the guest over a channel, with the library that computes on the CPU on the host's side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.test_forwarded_blas import TRANSPORTS, channel
from tests.unit.calls_rig import run_python
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: what the programs below begin with
BEGIN = """
import numpy as np
from tests.sim.dnn_client import *
from tests.sim.dnn_backend import SHAPES, convolve, draw
from tests.sim.dnn_guest import Guest
dnn = Guest()
"""


@pytest.fixture(scope="module", params=TRANSPORTS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with channel(request.param, tmp_path_factory.mktemp("machine")) as made:
        yield made


def test_convolutions_in_three_directions(rig: Rig) -> None:
    code = """
for name in ("padded", "strides", "groups", "three"):
    for kind in (FORWARD, BACKWARD_DATA, BACKWARD_FILTER):
        for type_, last in ((FLOAT, False), (HALF, True)):
            convolve(dnn, SHAPES[name], kind, type_, last, 0, 0.5)
"""
    assert run_python(rig, BEGIN + code) == ""
