"""All backends on fakes: a cycle takes milliseconds, and nothing but our own code can leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.recovery import world as worlds
from tests.recovery.world import World
from vgpumgr.daemon.managing import ManagingApplication
from vgpumgr.daemon.metric_samples import Collected
from vgpumgr.daemon.metrics import MetricsService, open_statistics
from vgpumgr.daemon.services import GivenServices
from vgpumgr.host.machine import Machine

#: what is asked for, by the backend's name
ASKED: dict[str, dict[str, Any]] = {
    "forward": {"profile": "1g.10gb"},
    "mdev": {"profile": "GRID A100-8C"},
    "vendor": {"profile": "NVIDIA A100X-8C"},
    "mig-backed": {"profile": "GRID A100-1-10C"},
    "vf": {"profile": "vf:2"},
    "passthrough": {"profile": "passthrough", "gpu": "0000:3b:00.0"},
}


class Forgetful(list[str]):
    """What the fakes note for the tests that look."""

    def append(self, _word: str) -> None:
        """Is not kept."""


class QuietWorld(World):
    """Nobody is killed: nothing is saved."""

    def save(self) -> None:
        """Nothing; what is rendered for the machine's file is not kept either."""
        worlds._RENDERED.clear()


def make_world(directory: Path, backend: str) -> World:
    """Two GPUs, PCI functions, three VMs that are shut off."""
    world = QuietWorld(directory)
    world.make(mig=backend in ("forward", "mig-backed"), running=False)
    world.nvml.calls = Forgetful()
    return world


def make_application(directory: Path, backend: str) -> ManagingApplication:
    """The application on that world."""
    world = make_world(directory, backend)
    run_dir = directory / "run"
    config = directory / "vgpumgr.toml"
    machine = Machine(
        "fakes", directory, directory / "state", run_dir, "test:///default", config_path=config
    )
    metrics = MetricsService(lambda _: Collected(), open_statistics(run_dir))
    return ManagingApplication(machine, world.nvml, GivenServices(world.service, metrics))
