"""The helper process that reads sensors of GPUs without NVML: ``python -m vgpumgr.host.sensor_helper ROOT FD``.

AMD: ``mem_info_vram_*`` and ``*_busy_percent`` of amdgpu (``Documentation/gpu/amdgpu``). Every vendor: the function's
``hwmon`` (``Documentation/hwmon/sysfs-interface``, ``Documentation/ABI/testing/sysfs-driver-intel-*-hwmon``). Files
count by their presence alone. A driver may ask the GPU's firmware for each, which may hang.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vgpumgr.host.files import list_names, read_text
from vgpumgr.host.helper_server import serve

_DEVICES = "sys/bus/pci/devices"
_MEMORY = ("mem_info_vram_total", "mem_info_vram_used")
_LOADS = {"gpu_ratio": "gpu_busy_percent", "memory_ratio": "mem_busy_percent"}
_FILES = frozenset(("hwmon", *_MEMORY, *_LOADS.values()))
#: a counter of energy becomes power between two readings, no nearer and no farther than this
_NEAREST_S, _FARTHEST_S = 0.1, 30.0
#: by their labels, the best first; empty: the channel has none. Others (memory, hot spots of VRAM) are not the GPU's
_TEMPERATURES = ("pkg", "edge", "junction", "")
_POWERS = ("card", "PPT", "", "pkg")
_CHANNEL = re.compile(r"(temp|power|energy)(\d+)_(input|average)")

Values = dict[str, float]


def has_sensors(root: Path, address: str) -> bool:
    """Whether the function's driver shows any; asks the kernel only for names."""
    return not _FILES.isdisjoint(list_names(root / _DEVICES / address))


class Sensors:
    """The calls; ``root`` stands for ``/`` before ``/sys``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        #: microjoules and when they were read, by file
        self._energies: dict[Path, tuple[float, int]] = {}

    def read(self, addresses: Sequence[str]) -> dict[str, Values]:
        """What each function shows, by the fields of ``model.gpu.Sensors``. A function that sleeps is left alone."""
        devices = {address: self._root / _DEVICES / address for address in addresses}
        awake = {a: d for a, d in devices.items() if not _is_asleep(d)}
        channels = {address: list(_list_channels(device)) for address, device in awake.items()}
        found = {a: _read_amdgpu(d) | _read_hwmon(channels[a]) for a, d in awake.items()}
        counters = {
            address: _choose(channels[address], "energy", _POWERS)
            for address in awake
            if "power_w" not in found[address]
        }
        powers = self._measure([path for path in counters.values() if path is not None])
        for address, path in counters.items():
            if path is not None and path in powers:
                found[address]["power_w"] = powers[path]
        return found

    def _measure(self, paths: Sequence[Path]) -> dict[Path, float]:
        """Watts between an earlier reading of each counter and now; waits where there is none."""
        now_s = time.monotonic()
        before = {
            path: known
            for path in paths
            if (known := self._energies.get(path)) is not None
            and _NEAREST_S <= now_s - known[0] <= _FARTHEST_S
        }
        if missing := [path for path in paths if path not in before]:
            before |= _read_counters(missing)
            time.sleep(_NEAREST_S)
        after = _read_counters([path for path in paths if path in before])
        self._energies.update(after)
        return {
            path: (value - before[path][1]) / (at_s - before[path][0]) / 1e6
            for path, (at_s, value) in after.items()
            if value >= before[path][1]
        }


def _is_asleep(device: Path) -> bool:
    """Reading a sensor would wake it (``Documentation/power/runtime_pm.rst``)."""
    return read_text(device / "power" / "runtime_status") in ("suspended", "suspending")


def _list_channels(device: Path) -> Iterator[Path]:
    """The files with values of the function's hwmon devices. i915 has one more for each GT, which is a part."""
    for name in list_names(device / "hwmon"):
        directory = device / "hwmon" / name
        if "_gt" not in (read_text(directory / "name") or ""):
            yield from (directory / file for file in list_names(directory) if _CHANNEL.match(file))


def _choose(channels: Sequence[Path], kind: str, labels: Sequence[str]) -> Path | None:
    """The first channel with the best label; of power the average before the moment's."""
    ranked = []
    for path in channels:
        what = _CHANNEL.match(path.name)
        if what is None or what[1] != kind:
            continue
        label = read_text(path.with_name(f"{kind}{what[2]}_label")) or _name_channel(path, what)
        if label in labels:
            ranked.append((labels.index(label), int(what[2]), what[3], path))
    return min(ranked)[3] if ranked else None


def _name_channel(path: Path, what: re.Match[str]) -> str:
    """What xe documents of a channel without a label: 1 is the card, 2 the package, 3 the memory."""
    if read_text(path.with_name("name")) != "xe":
        return ""
    return {"1": "card", "2": "pkg", "3": "vram"}.get(what[2], "other")


def _read_hwmon(channels: Sequence[Path]) -> Values:
    found: Values = {}
    path = _choose(channels, "temp", _TEMPERATURES)
    if path is not None and (value := _read_number(path)) is not None:
        found["temperature_c"] = value / 1000
    power = _choose(channels, "power", _POWERS)
    if power is not None and (value := _read_number(power)) is not None:
        found["power_w"] = value / 1e6
    source = power or _choose(channels, "energy", _POWERS)
    if source is not None and (limit := _read_limit(source)):
        found["power_limit_w"] = limit / 1e6
    return found


def _read_limit(source: Path) -> int | None:
    """Microwatts that the card may draw for long: Intel's ``power1_max``, else AMD's ``power1_cap``; 0 is none."""
    what = _CHANNEL.match(source.name)
    assert what is not None
    names = (f"power{what[2]}_max", f"power{what[2]}_cap")
    values = (_read_number(source.with_name(name)) for name in names)
    return next((value for value in values if value), None)


def _read_amdgpu(device: Path) -> Values:
    found: Values = {}
    total, used = (_read_number(device / name) for name in _MEMORY)
    if total:
        found["memory_total_bytes"] = total
        if used is not None:
            found["memory_used_bytes"] = used
    for field, name in _LOADS.items():
        percent = _read_number(device / name)
        if percent is not None and percent <= 100:
            found[field] = percent / 100
    return found


def _read_counters(paths: Sequence[Path]) -> dict[Path, tuple[float, int]]:
    """The values, each with the middle of the time that its reading took."""
    found = {}
    for path in paths:
        began_s = time.monotonic()
        if (value := _read_number(path)) is not None:
            found[path] = ((began_s + time.monotonic()) / 2, value)
    return found


def _read_number(path: Path) -> int | None:
    """None where the driver answers an error, as while the GPU sleeps, or no number."""
    text = read_text(path) or ""
    return int(text) if text.lstrip("-").isdecimal() else None


if __name__ == "__main__":
    serve(int(sys.argv[2]), Sensors(Path(sys.argv[1])))
