"""What a user is told about vGPUs: one command to paste, and no advice that cannot help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.boards import make_gpu
from tests.support.hostdev_rig import ask, make
from vgpumgr.app.operations.capacity import describe_why
from vgpumgr.app.operations.vgpus import VgpuService
from vgpumgr.app.refusal_hints import find_enabling
from vgpumgr.errors import AlreadyAttachedError, UsageError, VgpuNotSupportedError
from vgpumgr.model.pci import Function, PciAddress, VfSetting
from vgpumgr.model.vgpu import VgpuHost
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vgpu_selection import list_rooms

GPU = PciAddress.parse("0000:41:00.0")
FUNCTION = Function(GPU, 0x10DE, 0x20F1, 0x030200, vf_total=16, vf_offset=4, vf_stride=1)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("L40S-24C", "vgpumgr mdev types -o wide"),
        ("grid t4-2a", "vgpumgr mdev types -o wide"),
        ("nvidia-471", "vgpumgr mdev types -o wide"),
        ("nonsense", "vgpumgr mig profiles"),
    ],
)
def test_why_names_the_list_that_has_such_names(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        describe_why([make_gpu()], name, [], ())
    assert refused.value.hint == hint


def test_gpus_without_vgpus_are_not_told_to_make_functions(tmp_path: Path) -> None:
    bench = make(tmp_path)
    bench.vgpus.room = 0
    for vendor, words in ((0x1002, "passthrough list"), (0x10DE, "vGPU driver")):
        changed = {a: replace(f, vendor_id=vendor) for a, f in bench.pci.functions.items()}
        bench.pci.functions = changed
        note = str(VgpuService(bench.service.parts).list_types().note)
        assert (words in note, "vf enable" in note) == (True, False)


def test_a_gpu_without_functions_names_what_makes_them() -> None:
    for gpus in ((), (make_gpu(),)):
        with pytest.raises(VgpuNotSupportedError) as refused:
            list_rooms(Snapshot(vgpus=VgpuHost(), gpus=gpus), "0")
        assert refused.value.hint == "vgpumgr vf enable 0"


def test_a_lost_function_names_what_makes_it_again(tmp_path: Path) -> None:
    bench = make(tmp_path)
    parts = bench.service.parts
    bench.pci.functions = {GPU: FUNCTION}
    command = f"vgpumgr vf enable {GPU} --persist"
    assert find_enabling(parts, "0000:41:00.6") == command
    assert find_enabling(parts, "0000:42:00.6") is None
    assert find_enabling(parts, "mtty") is None
    bench.pci.functions = {GPU: replace(FUNCTION, vfs=(PciAddress.parse("41:00.4"),))}
    assert find_enabling(parts, "0000:41:00.6") is None, "they are there: it is something else"
    bench.pci.functions = {GPU: FUNCTION}
    bench.pci.settings[GPU] = VfSetting(GPU, 16, 0x10DE, 0x20F1, "old", persist=True)
    assert find_enabling(parts, "0000:41:00.6") is None, "restore makes them"


def test_a_second_attach_is_told_one_command(tmp_path: Path) -> None:
    bench = make(tmp_path)
    bench.service.attach(ask("mtty-2"))
    with pytest.raises(AlreadyAttachedError) as refused:
        bench.service.attach(ask("mtty-2"))
    assert refused.value.hint == "vgpumgr attach vm02 --profile mtty-2 --add"
