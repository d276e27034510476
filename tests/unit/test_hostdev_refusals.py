"""What is refused of host devices: by whom it is held, and what helps, before anything is changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.support.fake_host import FLEX, GPU
from tests.support.hostdev_rig import ask, make
from vgpumgr.errors import GpuNotFoundError, NoDeviceError, PciBusyError, PciStalledError
from vgpumgr.model.pci import VFIO, Binding, User, UserKind


@pytest.mark.parametrize("profile", ["vf", "vf:2"])
def test_while_a_removal_waits_no_attach_that_makes_vfs_begins(
    tmp_path: Path, profile: str
) -> None:
    bench = make(tmp_path)
    bench.pci.stalls = ["process 7 (sh), which removes a device that is in use"]
    before = bench.snapshot()
    for dry_run in (True, False):
        with pytest.raises(PciStalledError) as refused:
            bench.service.attach(ask(profile, gpu=str(FLEX)), dry_run=dry_run)
        assert refused.value.held_by == tuple(bench.pci.stalls)
    assert bench.snapshot() == before
    assert not bench.service.parts.open_journal().look().events, "no attach has begun"
    bench.service.attach(ask(gpu=str(GPU)))  # a driver is bound without the bus


def test_a_display_is_taken_by_bind_and_a_process_must_be_stopped(tmp_path: Path) -> None:
    bench = make(tmp_path)
    kinds = {UserKind.DISPLAY: f"vgpumgr passthrough bind {GPU}, then repeat"}
    for kind, hint in (kinds | {UserKind.PROCESS: "stop them, then repeat"}).items():
        users = {GPU: (User(kind, "somebody"),)}
        with (
            mock.patch.object(bench.pci, "list_users", return_value=users),
            pytest.raises(PciBusyError) as refused,
        ):
            bench.service.attach(ask(gpu=str(GPU)))
        assert refused.value.hint == hint


def test_a_vf_of_nvidia_is_asked_for_by_its_type(tmp_path: Path) -> None:
    bench = make(tmp_path)
    nvidia = replace(bench.pci.functions[FLEX], vendor_id=0x10DE, driver="nvidia")
    bench.pci.functions[FLEX] = nvidia
    with pytest.raises(NoDeviceError) as refused:
        bench.service.attach(ask("vf"))
    assert "vgpumgr mdev types" in (refused.value.hint or "")


def test_a_gpu_that_was_given_away_is_told_where_it_is_and_who_has_it(tmp_path: Path) -> None:
    bench = make(tmp_path)
    uuid = str(bench.gpu.uuid)
    taken = Binding(
        GPU, VFIO, "nvidia", None, 0x10DE, 0x2330, "test", gpu_uuid=uuid, model="H100", gpu_index=1
    )
    bench.pci.save_binding(taken)
    bench.pci.functions[GPU] = replace(bench.pci.functions[GPU], driver=VFIO)
    bench.service.attach(ask(gpu=str(GPU)))
    for profile in ("passthrough", "1g.10gb"):
        with pytest.raises(GpuNotFoundError) as refused:
            bench.service.attach(ask(profile, vm="vm01", gpu="1"))
        assert refused.value.why == f"it was {GPU} (H100), which was given to vfio-pci"
        assert refused.value.held_by == ('vm "vm02" (passthrough)',)
        assert f"--gpu {GPU}" in (refused.value.hint or "")
    with pytest.raises(GpuNotFoundError) as unknown:
        bench.service.attach(ask("1g.10gb", vm="vm01", gpu="7"))
    assert "this machine has" in (unknown.value.why or "")
