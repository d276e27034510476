"""Overviews without MIG: what ``gpu``, ``top``, ``why`` and ``metrics`` say of vGPUs and virtual functions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked import run_vgpumgr
from tests.support.vgpu_machine import UUID
from vgpumgr.sim import lifecycle

pytestmark = pytest.mark.native
ROOT = Path(__file__).parents[2]
FLEX, XE, LONG_S = "0000:4d:00.0", "0000:9b:00.0", 120


@dataclass(frozen=True)
class Host:
    """A simulated machine as its administrator has it: a command line."""

    name: str
    root: Path

    def run(self, *words: str, code: int = 0) -> str:
        """Both streams of one command, which must end with that exit code."""
        env = os.environ | {"VGPUMGR_SIM_ROOT": str(self.root), "PYTHONPATH": str(ROOT)}
        done = run_vgpumgr("--machine", self.name, *words, env=env, merged=True, timeout_s=LONG_S)
        assert done.returncode == code, done.stdout
        return done.stdout


@contextmanager
def started(name: str, root: Path, libvirt_uri: str) -> Iterator[Host]:
    """A machine that runs, where $VGPUMGR_SIM_ROOT says."""
    _, without_fuse = lifecycle.start(name, libvirt_uri=libvirt_uri)
    try:
        if without_fuse is not None:
            pytest.skip(f"no FUSE: {without_fuse}")
        yield Host(name, root)
    finally:
        lifecycle.stop(name)


@pytest.fixture
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    with started(request.param, tmp_path, "test:///default") as running:
        yield running


def on(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("host", [name], indirect=True)


@on("vgpu-t4")
def test_vgpus_are_in_every_overview(host: Host) -> None:
    uuid = UUID.format(1)
    host.run("mdev", "create", "GRID T4-2Q", "--gpu", "0", "--uuid", uuid)
    rows = host.run("gpu", "list", "-o", "csv", "--no-header", "--columns", "index,slices")
    assert rows.splitlines() == ["0,T4-2Q", "1,"]
    shown = host.run("gpu", "show", "0")
    assert f"GRID T4-2Q {uuid} on 0000:3b:00.0, 2 GiB, free" in shown
    assert "GRID T4-2B   7 more" in shown, "room by type"
    assert "no: the GPU runs 1 x GRID T4-2Q" in shown
    (device,) = json.loads(host.run("gpu", "list", "-o", "json"))["gpus"][0]["devices"]
    assert (device["name"], device["kind"], device["memory_bytes"]) == (uuid, "vgpu", 2 << 30)
    picture = host.run("top", "--once", "--ascii")
    assert "2 GPUs, 1 slice" in picture
    assert "T4-2Q 3b:00.0" in picture


@on("vgpu-t4")
def test_metrics_have_vgpus_and_what_still_fits(host: Host) -> None:
    host.run("mdev", "create", "GRID T4-2Q", "--gpu", "0", "--uuid", UUID.format(1))
    text = host.run("metrics")
    (one,) = [line for line in text.splitlines() if line.startswith("vgpumgr_vgpu_info{")]
    assert f'vgpu="{UUID.format(1)}"' in one
    assert 'vgpu_type="GRID T4-2Q"' in one
    counts = {
        (line.partition('gpu="')[2][0], line.partition('vgpu_type="')[2].partition('"')[0]): value
        for line in text.splitlines()
        if line.startswith("vgpumgr_vgpu_creatable{")
        for value in [line.rpartition(" ")[2]]
    }
    assert counts["0", "GRID T4-2Q"] == "7.0"
    assert counts["1", "GRID T4-2Q"] == "8.0"


@on("vgpu-t4")
def test_why_explains_vgpu_types(host: Host) -> None:
    host.run("mdev", "create", "GRID T4-2Q", "--gpu", "0")
    document = json.loads(host.run("why", "T4-4C", "-o", "json"))
    assert (document["profile"], document["fits"]) == ("GRID T4-4C", True)
    first, second = document["gpus"]
    assert (first["fits"], second["fits"]) == (False, True)
    assert "all its vGPUs have one size" in first["sentence"]
    assert "fits" in host.run("why", "T4-4C", "--gpu", "1")
    assert "did you mean" in host.run("why", "T4-4X", code=5)


@on("vgpu-l40s")
def test_a_vgpu_on_a_virtual_function_is_in_no_gpu_instance(host: Host) -> None:
    host.run("vf", "enable", "0")
    host.run("mdev", "create", "L40S-12Q", "--gpu", "0")
    gpu = json.loads(host.run("gpu", "list", "-o", "json"))["gpus"][0]
    assert (gpu["vfs_enabled"], gpu["vfs_total"]) == (32, 32)
    (device,) = gpu["devices"]
    assert (device["profile"], device["gpu_instance"]) == ("NVIDIA L40S-12Q", None)


@on("vgpu-a100")
def test_what_a_vgpu_host_needs_first_is_said(host: Host) -> None:
    advice = "vgpumgr --machine vgpu-a100 vf enable 0 --persist"
    assert "no vGPU types before it has virtual functions" in host.run("gpu", "show", "0")
    assert advice in host.run("why", "A100-4C", code=7)


@on("vgpu-a100")
def test_a_type_is_found_by_the_word_that_drivers_called_it_before(host: Host) -> None:
    host.run("vf", "enable", "0")
    assert run_json(host, "why", "GRID A100-10C")["profile"] == "NVIDIA A100-10C"
    assert "did you mean" in host.run("why", "TESLA A100-10C", code=5)


@on("intel-flex")
def test_gpus_without_nvml_are_in_every_overview(host: Host) -> None:
    host.run("vf", "enable", FLEX, "--count", "2")
    assert "2 of 31 VFs, 2 free" in host.run("gpu", "list", "-o", "csv")
    assert "0000:4d:00.1, free" in host.run("gpu", "show", FLEX)
    picture = host.run("top", "--once", "--ascii")
    assert "4 GPUs, 2 slices" in picture
    assert "2 of 31 VFs" in picture
    assert "VF 4d:00.2" in picture
    text = host.run("metrics")
    assert f'vf="{FLEX[:-1]}1"' in text
    labels = 'pci_bus_id="00000000:4D:00.0",state="enabled"} 2.0'
    assert labels in text


@on("intel-flex")
def test_functions_that_are_possible_are_in_every_overview(host: Host) -> None:
    """None is enabled; with what the kernel documents of i915 and xe: no memory."""
    rows = host.run("gpu", "list", "-o", "csv", "--no-header", "--columns", "pci,slices,memory")
    assert rows.splitlines() == [
        "0000:03:00.0,,", f"{FLEX},0 of 31 VFs,", "0000:51:00.0,0 of 31 VFs,", f"{XE},0 of 24 VFs,",
    ]  # fmt: skip
    wide = host.run("gpu", "list", "-o", "wide").splitlines()
    assert re.search(r" 46 °C +\d+ W of 75 W +0 of 31 VFs ", wide[2])
    shown = host.run("gpu", "show", XE)
    assert "VFs           0 of 24 virtual functions\n" in shown
    assert "  room\n    vf  24 more; 0 of 24 enabled, 0 used\n" in shown
    assert "temperature   52 °C\n" in shown
    assert re.search(r"power +\d+ W of 200 W\n", shown)
    assert "  memory   " not in shown
    (xe,) = [g for g in run_json(host, "gpu", "list")["others"] if g["pci"] == XE]
    assert (xe["sensors"]["temperature_c"], xe["sensors"]["memory_total_bytes"]) == (52, None)
    assert xe["sensors"]["power_w"] == pytest.approx(64, rel=0.5)
    picture = host.run("top", "--once", "--ascii")
    assert re.search(r"4d:00.0 Intel .* 0 of 31 VFs .* 46C", picture)
    samples = read_samples(host)
    assert [samples["gpu_vfs", FLEX, s] for s in ("possible", "enabled", "used")] == [31, 0, 0]
    assert samples["gpu_temperature_celsius", XE, ""] == 52
    assert samples["gpu_power_watts", XE, ""] == pytest.approx(64, rel=0.5)
    assert ("gpu_framebuffer_bytes", XE, "") not in samples
    assert ("gpu_vfs", "0000:03:00.0", "possible") not in samples, "it has no SR-IOV"


@on("intel-flex")
def test_what_is_left_follows_the_driver_and_the_drain(host: Host) -> None:
    host.run("vf", "enable", FLEX, "--count", "4")
    shown = host.run("gpu", "show", FLEX)
    assert "VFs           4 of 31 virtual functions\n" in shown
    assert "    vf  4 more; 4 of 31 enabled, 0 used\n" in shown
    samples = read_samples(host)
    assert [samples["gpu_vfs", FLEX, s] for s in ("possible", "enabled", "used")] == [31, 4, 0]
    host.run("gpu", "drain", FLEX, "--reason", "new fan")
    capacity = run_json(host, "gpu", "show", FLEX)["vf_capacity"]
    assert (capacity["free"], capacity["why_not"].rpartition(": ")[2]) == (0, "new fan")
    host.run("passthrough", "bind", XE, "--yes")
    bound = host.run("gpu", "show", XE)
    assert "vf  no: that is its host driver's work, and it has vfio-pci" in bound
    assert "temperature" not in bound, "the driver that shows it has left"
    # what no function can be made of, and shows nothing now, is no offer
    assert f"{XE},,\n" in host.run("gpu", "list", "-o", "csv", "--columns", "pci,slices,memory")


@on("intel-flex")
def test_mig_of_a_host_without_nvidia_asks_for_no_driver_of_nvidias(
    host: Host, tmp_path: Path
) -> None:
    layout = tmp_path / "layout.yaml"
    layout.write_text("version: v1\nmig-configs:\n  a:\n  - devices: all\n    mig-enabled: false\n")
    for line in (
        "enable 0", "disable 0", "create 0 1g.10gb", "destroy --all 0", "defrag --plan 1g.10gb",
        "checkpoint --out -", "layout export", f"layout plan {layout}", f"profiles --gpu {FLEX}",
    ):  # fmt: skip
        refused = host.run("mig", *line.split(), code=7)
        assert "(VG105, exit 7)" in refused, line
        assert "Intel Data Center GPU Flex 140" in refused, line
        assert "modprobe" not in refused
    for verb in ("show", "drain"):
        refused = host.run("gpu", verb, "0", code=5)
        assert "this machine has 0000:03:00.0, 0000:4d:00.0, 0000:51:00.0, 0000:9b:00.0" in refused
    assert f"did you mean {FLEX}" in host.run("gpu", "show", "0000:4e:00.0", code=5)
    assert "\n0000:51:00.0\tyes\tfits: a whole GPU goes to a VM by VFIO\n" in host.run(
        "why", "passthrough"
    )


@on("intel-flex")
def test_why_speaks_of_the_gpus_that_there_are(host: Host) -> None:
    rows = {row["gpu"]: row for row in json.loads(host.run("why", "vf:4", "-o", "json"))["gpus"]}
    assert rows[FLEX]["fits"]
    assert rows[FLEX]["gpu_index"] is None
    assert "4 of up to 31" in rows[FLEX]["sentence"]
    refused = host.run("why", "1g.10gb", code=7)
    assert "Intel Data Center GPU Flex 140" in refused
    assert "there is no GPU" not in refused
    assert "the drivers of these GPUs have no vGPU types" in host.run(
        "attach", "test", "--profile", "T4-4C", "--dry-run", code=7
    )


@on("amd-mi300")
def test_functions_of_amd_are_slices(host: Host) -> None:
    assert host.run("gpu", "list", "-o", "csv").count("1 of 8 VFs, 1 free") == 3
    picture = host.run("top", "--once")
    assert "VF 05:00.1" in picture
    assert re.search(r"65:00.0 AMD .* 0 of 8 VFs +0.3/192 GiB +12% +41C", picture)
    shown = host.run("gpu", "show", "0000:65:00.0")
    for line in (
        "memory        0.3/192 GiB", "utilisation   12% GPU, 3% memory", "temperature   41 °C",
        "power         132 W of 750 W", "  vf  no: its driver amdgpu makes none",
    ):  # fmt: skip
        assert f"{line}" in shown
    gim = host.run("gpu", "show", "0000:46:00.0")
    assert "vf  1 more; 1 of 1 enabled, 0 used" in gim, "AMD's library allows no more"
    assert "temperature" not in gim, "gim documents none"
    samples = read_samples(host)
    assert samples["gpu_framebuffer_used_bytes", "0000:65:00.0", ""] == 283 << 20
    assert samples["gpu_power_watts", "0000:65:00.0", ""] == 132
    assert ("gpu_power_watts", "0000:46:00.0", "") not in samples
    assert "has 1 virtual function: they would go away" in host.run("why", "passthrough")


@on("dgx-a100")
def test_half_a_mig_profile_is_no_wish_for_a_vgpu_driver(host: Host) -> None:
    refused = host.run("attach", "test", "--profile", "4g", "--dry-run", code=7)
    assert "vGPU" not in refused
    assert "did you mean 4g.40gb?" in refused
    assert "did you mean 4g.40gb?" in host.run("why", "4g", code=2)


@on("vgpu-t4")
def test_a_host_without_mig_says_so(host: Host) -> None:
    assert host.run("mig", "list") == "note: no GPU here has MIG: Tesla T4\n"
    assert "no GPU here has MIG" in host.run("mig", "profiles")


@on("dgx-a100")
def test_mig_mode_that_is_off_is_the_reason_for_no_instance(host: Host) -> None:
    advice = "vgpumgr --machine dgx-a100 mig enable 0"
    assert host.run("mig", "list") == f"note: MIG mode is off: {advice}\n"


@on("dgx-a100")
def test_created_instances_are_restored_after_a_boot_and_destroyed_ones_are_not(host: Host) -> None:
    """As docs/layouts.md has it, with nvidia-smi's number of the profile and a beginning of its name."""
    host.run("mig", "enable", "0", "--yes")
    host.run("mig", "create", "0", "14")
    host.run("mig", "create", "0", "1g.10gb", "--count", "3", "--dry-run")
    host.run("mig", "create", "0", "3g", "--place", "0")
    host.run("mig", "create", "0", "1g.10gb")

    def see() -> list[str]:
        shown = host.run(
            "mig", "list", "-o", "csv", "--no-header", "--columns", "profile,placement"
        )
        return sorted(shown.split())

    made = see()
    assert made == ["1g.10gb,6:1", "2g.20gb,4:2", "3g.40gb,0:4"]
    host.run("mig", "destroy", "0/99", code=5)
    gone = host.run(
        "mig", "list", "--filter", "profile=2g.20gb", "-o", "csv", "--columns", "instance"
    )
    host.run("mig", "destroy", f"0/{gone.split()[-1]}", "--yes")
    made.remove("2g.20gb,4:2")
    host.run("sim", "reboot", host.name)
    assert see() == []
    host.run("restore")
    assert see() == made


@on("dgx-a100")
def test_a_bound_gpu_is_shown_by_its_index_until_nvml_gives_that_to_another(host: Host) -> None:
    host.run("passthrough", "bind", "7", "--yes")
    shown = run_json(host, "passthrough", "show", "7")["function"]
    assert (shown["address"], shown["driver"]) == ("0000:bd:00.0", "vfio-pci")
    assert "gpu         -" in host.run("passthrough", "show", "7")
    host.run("passthrough", "bind", "3", "--yes")
    # NVML counts anew: 3 is another now, and 6 was nobody's who is bound
    assert run_json(host, "passthrough", "show", "3")["function"]["address"] == "0000:87:00.0"
    assert 'no GPU or VF is "6"' in host.run("passthrough", "show", "6", code=5)
    assert run_json(host, "passthrough", "show", "7")["function"]["address"] == "0000:bd:00.0"


def read_samples(host: Host) -> dict[tuple[str, str, str], float]:
    """Values by the metric's name, the GPU's address and the state, of those without an engine."""
    lines = [line for line in host.run("metrics").splitlines() if 'pci_bus_id="0000' in line]
    found = {}
    for line in lines:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        key = (line.partition("{")[0].removeprefix("vgpumgr_"), labels["pci_bus_id"][4:].lower())
        if "engine" not in labels:
            found[*key, labels.get("state", "")] = float(line.rpartition(" ")[2])
    return found


def run_json(host: Host, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.run(*words, "-o", "json"))
    return found


@pytest.mark.parametrize(
    ("name", "profile", "known"),
    [
        ("intel-flex", "passthrough", "fits: "),
        ("intel-flex", "vf:4", "fits: "),
        ("dgx-a100", "passthrough", "fits: "),
        ("dgx-a100", "vf", "NVIDIA's driver gives it a size"),
    ],
)
def test_why_answers_without_libvirt(
    name: str, profile: str, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the host alone, with a note where VMs would have been asked."""
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    with started(name, tmp_path, f"qemu+unix:///system?socket={tmp_path}/none") as host:
        said = host.run("why", profile)
        assert known in said
        document = json.loads(host.run("why", profile, "-o", "json"))
        notes, told = document["notes"], "VMs are not known, so what they have may look free: "
        assert all(note.startswith(told) for note in notes)
        assert len(notes) == (known == "fits: ")
        assert said.count("note: ") == len(notes)
        # a drained GPU is known without libvirt
        place = document["gpus"][-1]["gpu"]
        host.run("gpu", "drain", place)
        (row,) = json.loads(host.run("why", profile, "--gpu", place, "-o", "json"))["gpus"]
        assert not row["fits"]
