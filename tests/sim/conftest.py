"""What several tests of simulated machines share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["wide", "lanes"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine of the PTX interpreter in turn."""
    name: str = request.param
    monkeypatch.setenv("VGPUMGR_SIM_ENGINE", name)
    return name
