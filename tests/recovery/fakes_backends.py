"""All backends on fakes: a cycle takes milliseconds, and nothing but our own code can leak."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.recovery import world as worlds
from tests.recovery.world import World
from vgpumgr.app.application import Application
from vgpumgr.app.metrics import Collected, MetricsService
from vgpumgr.host.machine import Machine
from vgpumgr.host.statistics import open_statistics

#: attach's parameters, by the backend's name
ASKED: dict[str, dict[str, Any]] = {
    "forward": {"profile": "1g.10gb"},
    "mdev": {"profile": "GRID A100-8C"},
    "vendor": {"profile": "NVIDIA A100X-8C"},
    "mig-backed": {"profile": "GRID A100-1-10C"},
    "vf": {"profile": "vf:2"},
    "passthrough": {"profile": "passthrough", "gpu": "0000:3b:00.0"},
}


#: the vGPU lives in a GPU instance: MIG mode is on for it, and off for the next
NEEDS_MIG = {"mig-backed"}


class QuietWorld(World):
    """Nobody is killed: nothing is saved."""

    def save(self) -> None:
        """Nothing; and what the fakes keep for the tests that look is forgotten."""
        worlds._RENDERED.clear()
        self.channels.specs.clear()
        self.nvml.calls.clear()


def make_world(directory: Path) -> World:
    """Two GPUs, PCI functions, three VMs that are shut off."""
    world = QuietWorld(directory)
    world.make(mig=False, running=False)
    return world


def make_application(directory: Path, world: World, leak: str | None = None) -> Application:
    """The application on that world; on purpose it may keep an object for each attach by that backend."""
    run_dir = directory / "run"
    config = directory / "vgpumgr.toml"
    machine = Machine(
        "fakes", directory, directory / "state", run_dir, "test:///default", config_path=config
    )
    metrics = MetricsService(lambda _: Collected(), open_statistics(run_dir))
    if leak is not None:
        return LeakyApplication(ASKED[leak]["profile"], machine, world.parts, metrics)
    return Application(machine, world.parts, metrics)


class LeakyApplication(Application):
    """What the check must notice."""

    def __init__(self, profile: str, *parts: Any) -> None:
        super().__init__(*parts)
        self._profile = profile
        self._kept: list[object] = []

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        return partial(self._keep, value) if name == "attach" else value

    def _keep(self, attach: Callable[..., Any], **asked: Any) -> Any:
        if asked["profile"] == self._profile:
            self._kept.append(object())
        return attach(**asked)
