"""What several tests of simulated machines share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.forwarded import TRANSPORTS, channel
from tests.support.run_host import Host, end_all, started_machine
from tests.unit.transport_rig import Rig


@pytest.fixture(params=["wide", "lanes"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine of the PTX interpreter in turn."""
    name: str = request.param
    monkeypatch.setenv("VGPUMGR_SIM_ENGINE", name)
    return name


@pytest.fixture(scope="module", params=TRANSPORTS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A channel whose host has the mathematics libraries, over each transport in turn."""
    with channel(request.param, tmp_path_factory.mktemp("machine")) as made:
        yield made


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The same over shared memory alone."""
    with channel("ring", tmp_path_factory.mktemp("machine")) as made:
        yield made


@pytest.fixture(scope="module")
def run_machine() -> Iterator[Host]:
    """A simulated machine on which commands of the host run."""
    with started_machine() as host:
        yield host


@pytest.fixture
def host(run_machine: Host) -> Iterator[Host]:
    """The same, as it was at first: a test finds nothing on it and leaves nothing."""
    yield run_machine
    end_all(run_machine)
