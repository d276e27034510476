"""What the drivers of Intel and AMD show of their GPUs in ``/sys``.

Intel: shares of the virtual functions.

xe (kernel 6.19 and later, ``Documentation/ABI/testing/sysfs-driver-intel-xe-sriov``): ``sriov_admin`` below the
function, with a directory for each VF and one for all at once; the scheduling priority is read-only for a single VF.
i915 of Intel's backports: ``drm/cardN/prelim_iov``, with memory and other quotas for each GT. Values that are
not a number or beyond what there is answer EINVAL and ENOSPC; memory of a VF that a VM holds answers EBUSY. Memory
is given in steps: a quota is rounded up.

New VFs get equal shares of all that there is ("auto-provisioning"), unless some was set before they are made: of xe's
memory any, with i915 any quota at all, until ``pf/auto_provisioning`` is set again.

AMD: compute partitions of a GPU that amdgpu has, which its attributes show and switch. Its VFs are another driver's
matter: AMD's host driver (gim) makes them when it is loaded, by its parameter ``vf_num``, and refuses writes to
``sriov_numvfs``.

Both: sensors, only by files that are documented. amdgpu (``Documentation/gpu/amdgpu``): ``mem_info_vram_*``,
``*_busy_percent``, and ``hwmon`` as a data-centre GPU has it, without the sensor at the edge. i915 and xe
(``Documentation/ABI/testing/sysfs-driver-intel-*-hwmon``): energy that rises, the sustained limit, temperatures;
nothing of memory. Other drivers (gim, vfio-pci) show none.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence

from vgpumgr.sim.machine_model import MachinePci, PciSensors
from vgpumgr.sim.pcibus import Address, PciBus, State, refuse
from vgpumgr.sim.tree import (
    Directory,
    File,
    Link,
    Node,
    Part,
    Write,
    constant,
    parse_address,
    parse_int,
    text,
)

_MIB = 1 << 20
_STEP = 2 * _MIB
_MOST = {"exec_quantum_ms": 100_000, "preempt_timeout_us": 100_000_000}
_PRIORITIES = ("low", "normal", "high")
_I915_QUOTAS = ("contexts_quota", "doorbells_quota", "ggtt_quota", "lmem_quota")
_BYTES = ("vram_quota", "lmem_quota", "ggtt_quota")
_TIMES = ("exec_quantum_ms", "preempt_timeout_us")


class IntelTree(Part):
    """The shares of one function's VFs. VF 0 is the function itself."""

    def __init__(self, bus: PciBus, pci: MachinePci) -> None:
        assert pci.quotas is not None
        self._bus = bus
        self._pci = pci
        self._quotas = pci.quotas
        self._address = Address.parse(pci.address)
        self._values: dict[tuple[int, str], int] = {}
        self._auto = True
        self._priority = 0
        vram = pci.quotas.vram_mib * _MIB
        self._total = {
            "vram_quota": vram,
            "lmem_quota": vram,
            "ggtt_quota": pci.quotas.ggtt_mib * _MIB,
            "contexts_quota": 65536,
            "doorbells_quota": 256,
        }
        bus.before_vfs.append(self._vfs_change)

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """The driver's directory."""
        if state.function.address != self._address or state.driver != self._pci.driver:
            return
        if self._quotas.layout == "xe":
            self._add_xe(root, path)
        else:
            self._add_i915(root, path)

    def _numbers(self) -> range:
        assert self._pci.sriov is not None
        return range(1, self._pci.sriov.total + 1)

    def _add_xe(self, root: Directory, path: str) -> None:
        names = _TIMES + (("vram_quota",) if self._quotas.vram_mib else ())
        base = f"{path}/sriov_admin"
        for number in (0, *self._numbers()):
            here = f"{base}/{f'vf{number}' if number else 'pf'}"
            mine = _TIMES if not number else names
            files = {name: self._file(number, name) for name in mine}
            writable = (lambda data: self._set_priority(data)) if not number else None
            files["sched_priority"] = File(lambda: self._read_priority(), writable)
            root.make(f"{here}/profile").own.update(files)
            if number:
                root.add(f"{here}/stop", File(None, lambda data: _only_one(data)))
            self._add_device(root, here, number)
        bulk: dict[str, Node] = {name: File(None, self._bulk(name)) for name in names}
        bulk["sched_priority"] = File(None, lambda data: self._set_priority(data))
        root.make(f"{base}/.bulk_profile").own.update(bulk)

    def _add_i915(self, root: Directory, path: str) -> None:
        card = self._pci.uses.drm if self._pci.uses and self._pci.uses.drm else "card0"
        base = f"{path}/drm/{card}/prelim_iov"
        gts, names = self._list_gts(), self._list_i915_quotas()
        for number in (0, *self._numbers()):
            here = f"{base}/{f'vf{number}' if number else 'pf'}"
            for gt in gts:
                mine = [*_TIMES, *(names if number else ())]
                files = {name: self._file(number, name, gt) for name in mine}
                root.make(f"{here}/{gt}").own.update(files)
            self._add_device(root, here, number)
        auto = text(lambda: int(self._auto))
        root.add(f"{base}/pf/auto_provisioning", File(auto, lambda data: self._set_auto(data)))

    def _list_gts(self) -> list[str]:
        tiles = self._quotas.tiles
        return ["gt"] if tiles == 1 else [f"gt{n}" for n in range(tiles)]

    def _list_i915_quotas(self) -> list[str]:
        return [n for n in _I915_QUOTAS if n != "lmem_quota" or self._quotas.vram_mib]

    def _add_device(self, root: Directory, here: str, number: int) -> None:
        """``device``, a link to the function, which a VF has while it is there."""
        state = self._bus.state(self._address)
        if number > state.numvfs:
            return
        place = self._address
        if number:
            place = self._bus.vf_address(state.function, number - 1)
        up = "../" * (here.count("/") - 2)
        root.add(f"{here}/device", Link(f"{up}{place}"))

    def _file(self, number: int, name: str, gt: str = "") -> File:
        key = f"{gt}/{name}"
        return File(
            text(lambda: self._values.get((number, key), 0)),
            lambda data: self._set(number, key, parse_int(data)),
        )

    def _bulk(self, name: str) -> Write:
        def write(data: bytes) -> None:
            value = parse_int(data)
            for number in self._numbers():
                self._set(number, f"/{name}", value)

        return write

    def _set(self, number: int, key: str, value: int) -> None:
        name = key.rpartition("/")[2]
        if value < 0 or value > _MOST.get(name, value):
            raise refuse(errno.EINVAL)
        if name in self._total:
            value = _round_up(name, value)
            self._check_capacity(number, key, value)
            self._auto = False
        self._values[number, key] = value

    def _check_capacity(self, number: int, key: str, value: int) -> None:
        state = self._bus.state(self._address)
        if number <= state.numvfs:
            vf = self._bus.vf_address(state.function, number - 1)
            if self._bus.state(vf).holder is not None:
                raise refuse(errno.EBUSY)
        others = sum(v for (n, k), v in self._values.items() if k == key and n != number)
        if others + value > self._total[key.rpartition("/")[2]]:
            raise refuse(errno.ENOSPC)

    def _vfs_change(self, address: Address, count: int) -> None:
        """Without VFs nothing is provisioned; new ones get their shares."""
        if address != self._address:
            return
        if not count:
            self._values.clear()
            self._priority = 0
        elif self._quotas.layout == "xe":
            if not any(v for (_, key), v in self._values.items() if key == "/vram_quota"):
                self._share(count, "/vram_quota")
        elif self._auto:
            for gt in self._list_gts():
                for name in self._list_i915_quotas():
                    self._share(count, f"{gt}/{name}")

    def _share(self, count: int, key: str) -> None:
        name = key.rpartition("/")[2]
        step = _STEP if name in _BYTES else 1
        share = self._total[name] // count // step * step
        for number in range(1, count + 1):
            self._values[number, key] = share

    def _set_auto(self, data: bytes) -> None:
        """Only while no VF has anything of its own."""
        if not parse_int(data):
            self._auto = False
        elif any(
            v for (_, key), v in self._values.items() if key.rpartition("/")[2] in self._total
        ):
            raise refuse(errno.EPERM)
        else:
            self._auto = True

    def _read_priority(self) -> bytes:
        marked = (f"[{p}]" if i == self._priority else p for i, p in enumerate(_PRIORITIES))
        return f"{' '.join(marked)}\n".encode()

    def _set_priority(self, data: bytes) -> None:
        word = data.decode(errors="replace").strip()
        if word not in _PRIORITIES:
            raise refuse(errno.EINVAL)
        self._priority = _PRIORITIES.index(word)


def _round_up(name: str, value: int) -> int:
    return -(-value // _STEP) * _STEP if name in _BYTES else value


def _only_one(data: bytes) -> None:
    """``stop``: 1 stops the VF; nothing runs on it here."""
    if parse_int(data) != 1:
        raise refuse(errno.EINVAL)


class AmdTree(Part):
    """The partition files of one GPU."""

    def __init__(self, pci: MachinePci) -> None:
        self._pci = pci
        self._current = pci.partitions[0]

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """The GPU's attributes while amdgpu has it."""
        if state.function.address != Address.parse(self._pci.address) or state.driver != "amdgpu":
            return
        entries = root.make(path).own
        entries["current_compute_partition"] = File(text(lambda: self._current), self._switch)
        entries["available_compute_partition"] = constant(", ".join(self._pci.partitions))
        entries["current_memory_partition"] = constant("NPS1")
        entries["available_memory_partition"] = constant("NPS1")

    def _switch(self, data: bytes) -> None:
        word = data.decode(errors="replace").strip()
        if word not in self._pci.partitions:
            raise refuse(errno.EINVAL)
        self._current = word


_DRIVER = "gim"
_STEP_MIB = 16
"""What a share of the frame buffer is a multiple of."""


class GimTree(Part):
    """The GPUs of a machine that gim may have."""

    def __init__(self, bus: PciBus, functions: Sequence[MachinePci]) -> None:
        self._bus = bus
        self._gpus = {Address.parse(pci.address): pci for pci in functions if pci.gim}

    def add(self, root: Directory) -> None:
        """The driver's device, while the driver is there."""
        if self._gpus and _DRIVER in self._bus.drivers:
            root.add(".sim/gim", File(self._read, self._change))

    def _read(self) -> bytes:
        lines = [line for address in self._gpus for line in self._describe(address)]
        return "".join(f"{line}\n" for line in lines).encode()

    def _describe(self, address: Address) -> list[str]:
        state = self._bus.states.get(address)
        gim = self._gpus[address].gim
        if state is None or state.driver != _DRIVER or gim is None:
            return []
        free = (gim.framebuffer_mib - gim.reserved_mib) // max(state.numvfs, 1)
        size = free // _STEP_MIB * _STEP_MIB
        places = [self._bus.vf_address(state.function, index) for index in range(state.numvfs)]
        return [
            f"gpu {address} {gim.supported}",
            *(f"vf {p} {gim.reserved_mib + size * i} {size}" for i, p in enumerate(places)),
        ]

    def _change(self, data: bytes) -> None:
        words = data.decode(errors="replace").split()
        if len(words) != 2 or not words[1].isdecimal():
            raise refuse(errno.EINVAL)
        address, count = parse_address(words[0].encode()), int(words[1])
        state = self._bus.state(address)
        gim = self._gpus[address].gim if address in self._gpus else None
        if state.driver != _DRIVER or gim is None:
            raise refuse(errno.ENODEV)
        if gim.fixed:
            raise refuse(errno.EOPNOTSUPP)
        if not 1 <= count <= gim.supported:
            raise refuse(errno.EINVAL)
        self._bus.change_vfs(address, count)


_WITH_SENSORS = ("amdgpu", "i915", "xe")


class SensorTree(Part):
    """The sensors of one function, while its driver has it. ``number`` is that of its hwmon device."""

    def __init__(self, pci: MachinePci, number: int) -> None:
        assert pci.sensors is not None
        self._address = Address.parse(pci.address)
        self._sensors = pci.sensors
        self._name = f"hwmon{number}"

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """The driver's files."""
        driver = state.driver
        if state.function.address != self._address or driver not in _WITH_SENSORS:
            return
        if driver == "amdgpu":
            root.make(path).own.update(_list_amdgpu(self._sensors))
        files = dict(_list_hwmon(self._sensors, driver))
        root.make(f"{path}/hwmon/{self._name}").own.update(files)


def _list_amdgpu(sensors: PciSensors) -> Iterator[tuple[str, Node]]:
    yield "mem_info_vram_total", constant(sensors.memory_mib * _MIB)
    yield "mem_info_vram_used", constant(sensors.memory_used_mib * _MIB)
    yield "gpu_busy_percent", constant(sensors.busy_percent)
    yield "mem_busy_percent", constant(sensors.memory_busy_percent)


def _list_hwmon(sensors: PciSensors, driver: str) -> Iterator[tuple[str, Node]]:
    yield "name", constant(driver)
    degrees, limit = constant(sensors.temperature_c * 1000), constant(sensors.limit_w * 1_000_000)
    if driver == "i915":
        yield "temp1_input", degrees
    else:
        of_gpu, of_memory = ("junction", "mem") if driver == "amdgpu" else ("pkg", "vram")
        yield "temp2_input", degrees
        yield "temp2_label", constant(of_gpu)
        yield "temp3_input", constant((sensors.temperature_c - 6) * 1000)
        yield "temp3_label", constant(of_memory)
    if driver == "amdgpu":
        yield "power1_input", constant(sensors.power_w * 1_000_000)
        yield "power1_label", constant("PPT")
        yield "power1_cap", limit
        return
    yield "energy1_input", _count_energy(sensors.power_w)
    yield "power1_max", limit
    if driver == "xe":
        yield "energy1_label", constant("card")
        yield "energy2_input", _count_energy(sensors.power_w * 3 // 4)
        yield "energy2_label", constant("pkg")


def _count_energy(power_w: int) -> File:
    """Microjoules since the host's boot."""
    return File(text(lambda: int(time.monotonic() * power_w * 1_000_000)))
