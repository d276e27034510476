"""What messages call things, and what they count: GPUs by index and address, room after what is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.boards import make_uuid
from tests.support.sim_machine import running
from tests.support.vgpu_machine import VgpuMachine, vgpu_machine
from vgpumgr.cli.main import main
from vgpumgr.errors import NvmlError
from vgpumgr.host.machine import find_machine
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.mig import Placement
from vgpumgr.nvml.client import NvmlClient

pytestmark = pytest.mark.native
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """One command line: exit code, output, errors."""

    def call(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def t4(tmp_path: Path) -> Iterator[VgpuMachine]:
    """Two GPUs with mediated devices."""
    with vgpu_machine("vgpu-t4", tmp_path) as machine:
        yield machine


def test_create_counts_itself(t4: VgpuMachine, run: Run) -> None:
    for before, after in (("0 vGPUs", 3), ("1 vGPU", 2), ("2 vGPUs", 1), ("3 vGPUs", 0)):
        code, out, _ = run("--machine", "vgpu-t4", "mdev", "create", "T4-4Q", "--gpu", "0")
        assert code == 0
        said = (
            f"GPU 0 (0000:3b:00.0): {before} before it, room for {after} more of this type after it"
        )
        assert said in out
        assert t4.free("GRID T4-4Q", "0") == after


def test_no_room_names_the_gpu_as_people_do(t4: VgpuMachine, run: Run) -> None:
    t4.call("create_vgpu", type="T4-16Q", gpu="0")
    code, _, err = run("--machine", "vgpu-t4", "mdev", "create", "T4-16Q", "--gpu", "0")
    assert code == 6
    assert "cannot create GRID T4-16Q on GPU 0 (0000:3b:00.0)" in err
    assert "why:     GPU 0 (0000:3b:00.0): no room beside 1 vGPU" in err


def test_delete_takes_yes(t4: VgpuMachine, run: Run) -> None:
    for option in ("--yes", "-y"):
        uuid = t4.call("create_vgpu", type="T4-16Q").vgpu.uuid
        assert run("--machine", "vgpu-t4", "mdev", "delete", uuid, option)[0] == 0
    assert t4.list_uuids() == []


def test_nvml_errors_name_the_gpu_as_people_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        running("dgx-a100", tmp_path, monkeypatch),
        NvmlClient(find_machine("dgx-a100")) as nvml,
    ):
        gpu = nvml.read_inventory().gpus[0]
        with pytest.raises(NvmlError, match=r"on GPU 0 \(0000:07:00\.0\)"):
            nvml.create_gpu_instance(gpu.uuid, 19, Placement(0, 1))
        with pytest.raises(NvmlError, match=r"in instance 3 of GPU 0 \(0000:07:00\.0\)"):
            nvml.destroy_compute_instance(gpu.uuid, 3, 0)
        # one that was never read
        other = make_uuid("GPU", 99)
        with pytest.raises(NvmlError, match=f"of {other}"):
            nvml.list_gpu_instances(GpuUuid(other))


def test_mig_enable_of_two_gpus_suggests_what_there_is(t4: VgpuMachine, run: Run) -> None:
    code, _, err = run("--machine", t4.name, "mig", "enable", "0", "1")
    assert code == 2
    assert "not expected here: 1" in err
    assert "--gpu" not in err
    assert f"vgpumgr --machine {t4.name} mig enable --help" in err


#: mig-parted's own file has an entry for each board that there is
DEFAULT = """version: v1
mig-configs:
  all-balanced:
    - device-filter: ["0x294110DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.23gb": 2}
    - device-filter: ["0x233010DE", "0x20B210DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 2}
    - device-filter: "0x20B710DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.6gb": 2}
"""


def test_entries_for_other_boards_are_worth_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    path = tmp_path / "config-default.yaml"
    path.write_text(DEFAULT)
    with running("dgx-a100", tmp_path / "sim", monkeypatch):
        words = ("--machine", "dgx-a100", "mig", "layout", "plan", path, "-c", "all-balanced")
        code, out, err = run(*words)
        assert (code, err) == (3, "")
        assert "note" not in out
        path.write_text(DEFAULT.replace("0x20B210DE", "0x20B110DE"))
        assert run(*words)[0] != 0, "where no entry is for a board here, that is said"
