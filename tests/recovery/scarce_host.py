"""Operations on the host's devices while it runs out of something: see ``scarce``.

The hardware is in memory, and needs neither disk nor descriptors; journal, state file and its copy are real.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from tests.recovery.killing import list_differences
from tests.recovery.scenarios import SCENARIOS, Scenario
from tests.recovery.world import World
from vgpumgr.app.operations.recovery import Policy
from vgpumgr.errors import VgpumgrError

_NAMES = (
    "mdev create",
    "mdev create makes an instance",
    "mdev define of a new one",
    "mdev delete takes the instance along",
    "attach a vendor's MIG-backed vGPU",
    "detach a MIG-backed vGPU",
    "attach a VF that is to be made",
    "passthrough bind",
    "passthrough unbind",
    "vf enable",
    "vf disable",
    "a layout makes vGPUs",
    "a layout makes instances with vGPUs",
    "a layout takes vGPUs away",
)
HOST_CALLS = {s.name: s for s in SCENARIOS if s.name in _NAMES}
assert set(HOST_CALLS) == set(_NAMES)
Scarcity = Callable[[Path, int], AbstractContextManager[None]]


class StillWorld(World):
    """The machine in one process: nothing of it is on the disk, what is remembered is."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for name in (
            "list_bindings", "save_binding", "forget_binding", "list_vf_settings", "save_vf_setting",
            "forget_vf_setting",
        ):  # fmt: skip
            setattr(self.pci, name, getattr(self.store, name))

    def save(self) -> None:
        self.changes += 1

    def host(self) -> tuple[dict[Any, Any], ...]:
        bindings = {b.address: b for b in self.store.list_bindings()}
        settings = {s.physical: s for s in self.store.list_vf_settings()}
        return (*super().host(), bindings, settings)


def try_host(directory: Path, name: str, scarcity: Scarcity, left: int) -> tuple[bool, list[str]]:
    """Whether it was refused for want of something, and what is wrong with that."""
    scenario = HOST_CALLS[name]
    old, new = _build(directory / "old", scenario), _build(directory / "new", scenario)
    scenario.run_whole(new)
    world = _build(directory / "world", scenario)
    # what is made when it is first written is there: as on a machine that has been in use
    world.parts.open_journal()
    wrong, refused = [], False
    with scarcity(directory, left):
        try:
            scenario.run_whole(world)
        except VgpumgrError:
            refused = True
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
    with suppress(VgpumgrError):
        world.recovery.recover(Policy())
    now, then = world.summary(), (old.summary(), new.summary())
    if now not in then or (not refused and not wrong and now != then[1]):
        wrong += [text[:300] for text in list_differences(now, then[0])]
    if left_over := world.parts.open_journal().unfinished():
        wrong.append(f"operations have no end: {left_over}")
    wrong += [f"put aside: {path.name}" for path in directory.rglob("*.corrupt-*")]
    return refused, [f"{name} with {left} left: {text}" for text in wrong]


def _build(root: Path, scenario: Scenario) -> StillWorld:
    world = StillWorld(root)
    scenario.build(world)
    return world
