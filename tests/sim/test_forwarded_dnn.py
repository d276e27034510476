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


@pytest.mark.parametrize(
    "case",
    [
        "dnn_norm.modes", "dnn_norm.types", "dnn_norm.plain", "dnn_norm.refused",
    ],
)  # fmt: skip
def test_what_the_library_computes_in_a_guest(rig: Rig, case: str) -> None:
    """The host's own tests of its library, run where the guest's stands in its place."""
    module, _, name = case.partition(".")
    code = f"from tests.sim import {module}\n{module}.{name}(dnn)\n"
    assert run_python(rig, BEGIN + code) == ""
