"""What drivers show of GPUs without NVML: which files count, what they become, and a driver that does not answer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpumgr.host import sensor_helper
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_changes import GpuSensors
from vgpumgr.model.pci import PciAddress

FLEX, MI300X, H100 = "0000:4d:00.0", "0000:65:00.0", "0000:3b:00.0"


def add(root: Path, address: str, **files: str) -> Path:
    """A function with files of these names, ``__`` for a directory's end."""
    directory = root / "sys/bus/pci/devices" / address
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def hwmon(number: int = 0, **files: str) -> dict[str, str]:
    return {f"hwmon__hwmon{number}__{name}": text for name, text in files.items()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which sleeping lets pass."""
    now = [100.0]
    monkeypatch.setattr(sensor_helper.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        sensor_helper.time, "sleep", lambda passed_s: now.__setitem__(0, now[0] + passed_s)
    )
    return now


def test_amdgpu_shows_memory_load_temperature_and_power(tmp_path: Path) -> None:
    add(
        tmp_path, MI300X, mem_info_vram_total="206141652992", mem_info_vram_used="296747008",
        gpu_busy_percent="12", mem_busy_percent="3",
        **hwmon(7, name="amdgpu", temp2_input="41000", temp2_label="junction", temp3_input="95000",
                temp3_label="mem", power1_input="132000000", power1_label="PPT", power1_cap="750000000"),
    )  # fmt: skip
    assert sensor_helper.Sensors(tmp_path).read([MI300X]) == {
        MI300X: {
            "memory_total_bytes": 206141652992,
            "memory_used_bytes": 296747008,
            "gpu_ratio": 0.12,
            "memory_ratio": 0.03,
            "temperature_c": 41.0,
            "power_w": 132.0,
            "power_limit_w": 750.0,
        }
    }


@pytest.mark.parametrize(
    ("files", "degrees"),
    [
        ({"temp1_input": "46000"}, 46),
        ({"temp1_input": "30000", "temp1_label": "edge", "temp2_input": "39000", "temp2_label": "junction"}, 30),
        ({"temp2_input": "52000", "temp2_label": "pkg", "temp3_input": "47000", "temp3_label": "vram"}, 52),
        ({"name": "xe", "temp2_input": "52000", "temp3_input": "47000"}, 52),
        ({"name": "xe", "temp3_input": "47000"}, None),
        ({"temp1_input": "99000", "temp1_label": "mem"}, None),
        ({"temp1_input": "busy"}, None),
        ({"name": "i915_gt0", "temp1_input": "46000"}, None),
        ({"fan1_input": "3000"}, None),
    ],
)  # fmt: skip
def test_the_temperature_is_that_of_the_gpu_and_of_no_part(
    tmp_path: Path, files: dict[str, str], degrees: float | None
) -> None:
    add(tmp_path, FLEX, **hwmon(**files))
    assert sensor_helper.Sensors(tmp_path).read([FLEX])[FLEX].get("temperature_c") == degrees


def test_an_average_goes_before_the_moment(tmp_path: Path) -> None:
    add(
        tmp_path,
        MI300X,
        **hwmon(power1_average="38000000", power1_input="90000000", power1_max="0"),
    )
    assert sensor_helper.Sensors(tmp_path).read([MI300X]) == {MI300X: {"power_w": 38.0}}


def test_energy_becomes_power_between_two_readings(tmp_path: Path, clock: list[float]) -> None:
    """Of the card where it is labelled, else of the only one; a counter that begins anew says nothing."""
    device = add(
        tmp_path, FLEX,
        **hwmon(name="xe", energy1_input="1000000", energy1_label="card", energy2_input="7",
                energy2_label="pkg", power1_max="75000000"),
    )  # fmt: skip
    counter, sensors = device / "hwmon/hwmon0/energy1_input", sensor_helper.Sensors(tmp_path)
    first = sensors.read([FLEX])[FLEX]
    assert first == {"power_w": 0.0, "power_limit_w": 75.0}, "it waited for a second reading"
    assert clock[0] == pytest.approx(100.1)
    clock[0] += 2
    counter.write_text("77000000\n")
    assert sensors.read([FLEX])[FLEX]["power_w"] == pytest.approx(38.0)
    assert clock[0] == pytest.approx(102.1), "the earlier reading was enough"
    clock[0] += 2
    counter.write_text("5\n")
    assert "power_w" not in sensors.read([FLEX])[FLEX]
    clock[0] += 3600
    assert sensors.read([FLEX])[FLEX]["power_w"] == 0.0, "an old reading counts no more"
    counter.unlink()
    (device / "hwmon/hwmon0/energy1_label").unlink()
    (device / "hwmon/hwmon0/energy2_label").unlink()
    assert sensors.read([FLEX])[FLEX]["power_w"] == 0.0, "energy2 of xe is the package"


def test_a_gpu_that_sleeps_is_not_woken(tmp_path: Path) -> None:
    device = add(tmp_path, FLEX, power__runtime_status="suspended", **hwmon(temp1_input="46000"))
    sensors = sensor_helper.Sensors(tmp_path)
    assert sensors.read([FLEX]) == {}
    (device / "power/runtime_status").write_text("active\n")
    assert sensors.read([FLEX]) == {FLEX: {"temperature_c": 46.0}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(None, tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")


@pytest.fixture
def sensors(machine: Machine) -> Iterator[GpuSensors]:
    made = GpuSensors(machine, timeout_s=0.5)
    yield made
    made.close()


def test_without_sensors_no_helper_is_started(machine: Machine, sensors: GpuSensors) -> None:
    add(machine.root, H100, vendor="0x10de")
    assert sensors.read([PciAddress.parse(H100), PciAddress.parse(FLEX)]) == {}
    assert not (machine.run_dir / "late").exists()


def test_a_driver_that_hangs_is_asked_once(machine: Machine, sensors: GpuSensors) -> None:
    """A FIFO stands for an attribute whose firmware does not answer."""
    add(machine.root, MI300X, **hwmon(temp1_input="41000"))
    fifo = add(machine.root, FLEX, hwmon__hwmon1__name="i915") / "hwmon/hwmon1/temp1_input"
    os.mkfifo(fifo)
    both = [PciAddress.parse(FLEX), PciAddress.parse(MI300X)]
    assert sensors.read(both) == {}
    assert sensors.read(both) == {}
    records = list((machine.run_dir / "late").glob("*.json"))
    assert len(records) == 1, "the second read has not joined the first"
    fifo.rename(fifo.with_name("gone"))
    with fifo.with_name("gone").open("w") as other:
        other.write("1\n")
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s and not sensors.read(both):
        time.sleep(0.05)
    found = sensors.read(both)
    assert found[PciAddress.parse(MI300X)].temperature_c == 41.0
