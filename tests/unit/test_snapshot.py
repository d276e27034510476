"""One snapshot of the host: each part is observed once, when it is first asked for; and the registry of backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hostdev_rig import make
from vgpumgr.backends.device_selection import list_focus
from vgpumgr.backends.registry import BACKENDS, find_backend
from vgpumgr.model.choices import Backend, BackendChoice
from vgpumgr.planning.snapshot import Snapshot


def test_a_part_is_observed_once_also_for_snapshots_made_from_it(tmp_path: Path) -> None:
    bench = make(tmp_path)
    snapshot = Snapshot(bench.service.parts)
    assert (bench.nvml.calls, snapshot.observed_gpus) == ([], None)
    other = snapshot.replace(vm_uuid="a")
    assert other.gpus is snapshot.gpus is snapshot.observed_gpus
    assert snapshot.require_gpus() is other.gpus
    assert bench.nvml.calls.count("read_inventory") == 1


def test_what_is_given_is_not_observed(tmp_path: Path) -> None:
    bench = make(tmp_path)
    snapshot = Snapshot(bench.service.parts, gpus=())
    assert snapshot.require_gpus() == snapshot.gpus == ()
    assert bench.nvml.calls == []
    with pytest.raises(TypeError, match="has no gpu"):
        Snapshot(bench.service.parts, gpu=())


def test_details_are_observed_of_the_focused_functions_alone(tmp_path: Path) -> None:
    bench = make(tmp_path)
    snapshot = Snapshot(bench.service.parts)
    every = set(snapshot.bars)
    named = next(f for f in snapshot.functions if f.is_gpu)
    focused = snapshot.focus(list_focus(snapshot, str(named.address)))
    assert named.address in set(focused.bars) < every
    assert focused.functions is snapshot.functions


def test_what_is_given_away_is_taken_in_the_copy_alone(tmp_path: Path) -> None:
    snapshot = Snapshot(make(tmp_path).service.parts, vm_uuid="a")
    gpu = next(f for f in snapshot.functions if f.is_gpu)
    after = snapshot.give([gpu])
    assert (after.tenants[gpu.address], gpu.address in snapshot.tenants) == ("a", False)


def test_every_backend_has_a_row_and_a_word_on_the_command_line() -> None:
    assert sorted(backend.name for backend in BACKENDS) == sorted(Backend)
    # that one the lease of a claim decides
    chosen = {*map(str, Backend)} - {"link"}
    assert {str(choice) for choice in BackendChoice} == {"auto", *chosen}
    assert all(find_backend(name).name is name for name in Backend)
