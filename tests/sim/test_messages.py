"""What messages call things, and what they count: GPUs by index and address, room after what is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sim.test_overviews import Host, started
from tests.support.boards import make_uuid
from tests.support.commands import list_verbs
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


LAYOUT = "schema: vgpumgr/mig-layout/v1\nlayouts: {one: [{gpus: [0], instances: [3g.40gb]}]}\n"
UUID = "11111111-aaaa-4000-8000-000000000001"
#: each changes something on its machine, in this order; {} is a directory
CHANGES = {
    "dgx-a100": (
        "gpu drain 0 --reason fan", "gpu resume 0",
        "mig layout apply {}/l.yaml --yes", "gpu layout apply {}/l.yaml --yes",
        "mig create 0 1g.10gb", "mig checkpoint --out {}/c.json",
        "mig destroy --all 0 --yes", "mig restore {}/c.json --yes", "mig disable 0 --yes", "mig enable 0 --yes",
        "passthrough bind 7 --yes", "passthrough unbind 0000:bd:00.0 --yes",
        "sim reboot", "restore",
    ),
    "vgpu-t4": (
        f"mdev create T4-2Q --gpu 0 --uuid {UUID}", f"mdev adopt {UUID}", f"mdev define {UUID} --auto",
        f"mdev stop {UUID}", f"mdev start {UUID}", f"mdev delete {UUID} --yes", "recover",
    ),
    "vgpu-a100": ("vf enable 0 --yes", "vf disable 0 --yes"),
}  # fmt: skip
#: in ``tests/unit``: they need a domain whose devices change, or a pool, or change more than a machine; run prints its
#: command's
OTHERS = {
    "attach", "detach", "virtio restart", "virtio set", "doctor", "run", "tenant split", "claim create",
}  # fmt: skip


def test_the_verbs_that_are_asked_to_be_quiet_are_all_that_change_something() -> None:
    verbs = {words for words, verb in list_verbs() if any(p.name == "dry_run" for p in verb.params)}
    asked = [line for lines in CHANGES.values() for line in lines]
    assert {v for v in verbs if any(line.startswith(v) for line in asked)} == verbs - OTHERS


@pytest.mark.parametrize("name", CHANGES)
def test_quiet_prints_no_plan(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it came to, in a line, and what is left to do; of each verb that changes something. A dry run of the same
    line ends with 0.
    """
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    (tmp_path / "l.yaml").write_text(LAYOUT)
    with started(name, tmp_path, "test:///default") as host:
        for line in CHANGES[name]:
            words = line.replace("{}", str(tmp_path)).split()
            check_quiet(host, words)


def check_quiet(host: Host, words: list[str]) -> None:
    if words == ["sim", "reboot"]:
        host.run(*words, host.name)
        return
    if words[:2] != ["mig", "checkpoint"]:
        host.run(*words, "--dry-run")
    said = host.run("-q", *words).splitlines()
    more = [line for line in said[1:] if not line.startswith("  note: ")]
    assert more == [], words
    assert not any(line.endswith(":") for line in said), words
