"""The simulated machine's PCI bus: functions, drivers, IOMMU groups and SR-IOV, behaving as Linux does.

Pure: no file system, no processes. The rules and error numbers are the kernel's (``Documentation/PCI/pci-iov-howto``,
``drivers/pci/pci-driver.c``, ``drivers/pci/iov.c``): ``driver_override`` decides who may bind, a second bind answers
EBUSY, changing a non-zero VF count too, a driver without SR-IOV support answers ENOENT. ``tests/lab`` asks a real
kernel the same questions.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import field, replace

from vgpumgr.model.frozen import dataclass

_MAX_COUNT = 0xFFFF
"""``sriov_numvfs`` is read as a 16-bit number."""


def refuse(number: int) -> OSError:
    """The error a kernel attribute would answer with."""
    return OSError(number, os.strerror(number))


VFIO_WAIT = "vfio_unregister_group_dev"
"""Where the kernel waits for the user of a VFIO device."""


class Asleep(Exception):  # noqa: N818  (not an error: the caller waits, as a process in the kernel does)
    """The caller sleeps until ``ready`` is true; then ``then`` runs, or the call is made again where that is None."""

    def __init__(
        self,
        ready: Callable[[], bool],
        then: Callable[[], None] | None = None,
        where: str = "msleep",
    ) -> None:
        super().__init__("asleep")
        self.where = where
        """The kernel function that it sleeps in, as ``/proc/PID/wchan`` would say."""
        self.ready = ready
        self.then = then


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A PCI address, ``domain:bus:device.function``."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse the full form, ``0000:3b:00.0``."""
        head, function = text.rsplit(".", 1)
        domain, bus, device = head.split(":")
        return cls(int(domain, 16), int(bus, 16), int(device, 16), int(function, 16))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"

    def plus(self, offset: int) -> Address:
        """The address whose routing id is ``offset`` further, as SR-IOV counts."""
        rid = (self.bus << 8 | self.device << 3 | self.function) + offset
        return Address(self.domain, rid >> 8, rid >> 3 & 31, rid & 7)


@dataclass(frozen=True, slots=True)
class Sriov:
    """A physical function's SR-IOV capability."""

    total: int
    vf_device: int
    offset: int = 1
    stride: int = 1
    configurable: bool = True
    """False where the driver has no ``sriov_configure`` (NVIDIA's): writes to ``sriov_numvfs`` are refused."""
    at_boot: int = 0
    """VFs that the driver makes by itself when it is loaded."""
    vf_driver: str | None = None
    """The driver of the host that takes new VFs; None: no driver knows them."""
    vendor_vfio: bool = False
    """The VFs' own driver is the VFIO provider: vfio-pci refuses them with EINVAL."""


@dataclass(frozen=True, slots=True)
class Function:
    """What does not change about a PCI function."""

    address: Address
    vendor: int
    device: int
    subsystem_vendor: int
    subsystem_device: int
    class_code: int
    numa_node: int
    iommu_group: int | None
    driver: str | None
    """The driver that claims it by itself."""
    revision: int = 0xA1
    sriov: Sriov | None = None
    link_speed: str = "16.0 GT/s PCIe"
    link_width: int = 16
    bars: tuple[int, ...] = ()
    """Sizes in bytes of the memory BARs."""
    physfn: Address | None = None
    vendor_vfio: bool = False
    reset_methods: str = "flr bus"
    """How the kernel can reset it."""
    boot_vga: bool | None = None
    """Of a VGA-compatible function: whether the firmware uses it as the primary display."""

    @property
    def modalias(self) -> str:
        """The kernel's module alias of the function."""
        return (
            f"pci:v{self.vendor:08X}d{self.device:08X}sv{self.subsystem_vendor:08X}"
            f"sd{self.subsystem_device:08X}bc{self.class_code >> 16:02X}"
            f"sc{self.class_code >> 8 & 255:02X}i{self.class_code & 255:02X}"
        )


@dataclass(slots=True)
class State:
    """What changes about a PCI function."""

    function: Function
    driver: str | None
    driver_override: str | None = None
    numvfs: int = 0
    autoprobe: bool = True
    holder: str | None = None
    """The VM that has it open through vfio-pci."""
    leaving: bool = False
    """An unbind waits for the holder: the driver link is gone, the device's lock is taken."""


@dataclass(slots=True)
class PciBus:
    """All functions of a machine and the drivers that know them."""

    states: dict[Address, State]
    drivers: set[str] = field(default_factory=lambda: {"vfio-pci", "pci-stub"})
    generation: int = 0
    """Rises with every change."""
    before_vfs: list[Callable[[Address, int], None]] = field(default_factory=list)
    """Asked before the VFs of a function come (their number) or go (0); may refuse with OSError."""
    removed: dict[Address, Function] = field(default_factory=dict)
    """Hot-unplugged functions, which a rescan brings back."""
    stalled: bool = False
    """A hot-unplug waits for a holder: global operations of the PCI core wait for it."""
    users: list[Callable[[State], Callable[[], bool]]] = field(default_factory=list)
    """Asked when a driver is to leave a function; each answers with a function for whether it still is in use."""
    after_driver: list[Callable[[State], None]] = field(default_factory=list)
    """Told when a function has another driver, or none."""

    @classmethod
    def of(cls, functions: list[Function]) -> PciBus:
        """A bus as it stands after boot: every function with the driver that claims it."""
        bus = cls(
            {f.address: State(f, f.driver) for f in sorted(functions, key=lambda f: f.address)}
        )
        bus.drivers |= {f.driver for f in functions if f.driver}
        bus.drivers |= {f.sriov.vf_driver for f in functions if f.sriov and f.sriov.vf_driver}
        for state in list(bus.states.values()):
            sriov = state.function.sriov
            if sriov is not None and sriov.at_boot:
                bus._add_vfs(state, sriov, sriov.at_boot)
        return bus

    def state(self, address: Address) -> State:
        """The function's state; ENODEV if there is none."""
        try:
            return self.states[address]
        except KeyError:
            raise refuse(errno.ENODEV) from None

    def accepts(self, driver: str, state: State) -> bool:
        """Whether the kernel would match the driver with the function."""
        if state.driver_override is not None:
            return state.driver_override == driver
        return state.function.driver == driver

    def wait_for(self, state: State) -> None:
        """Sleep while an unbind of the function waits for its holder, as everything that takes its lock does."""
        if state.leaving:
            raise Asleep(lambda: not state.leaving)

    def wait_for_core(self) -> None:
        """Sleep while a hot-unplug waits for a holder."""
        if self.stalled:
            raise Asleep(lambda: not self.stalled)

    def hold(self, address: Address, vm: str) -> None:
        """A VM opens the function through vfio-pci. ENODEV: it is not bound to it. EBUSY: another has it."""
        state = self.state(address)
        if state.driver != "vfio-pci":
            raise refuse(errno.ENODEV)
        if state.holder is not None:
            raise refuse(errno.EBUSY)
        state.holder = vm
        self.generation += 1

    def release(self, address: Address) -> None:
        """The VM closes it."""
        self.state(address).holder = None
        self.generation += 1

    def bind(self, driver: str, address: Address) -> None:
        """``/sys/bus/pci/drivers/DRIVER/bind``."""
        state = self.state(address)
        self.wait_for(state)
        if state.function.vendor_vfio and driver == "vfio-pci":
            raise refuse(errno.EINVAL)  # its own driver is the VFIO provider
        if not self.accepts(driver, state):
            raise refuse(errno.ENODEV)
        if state.driver is not None:
            raise refuse(errno.EBUSY)
        self._take(state, driver)

    def _take(self, state: State, driver: str) -> None:
        state.driver = driver
        self.generation += 1
        self._report_driver(state)

    def _report_driver(self, state: State) -> None:
        for report in self.after_driver:
            report(state)

    def unbind(self, driver: str, address: Address) -> None:
        """``/sys/bus/pci/drivers/DRIVER/unbind``; takes the function's VFs away with the driver."""
        state = self.state(address)
        if state.driver != driver:
            raise refuse(errno.ENODEV)
        if state.numvfs:
            self._ask_before_vfs(address, 0)
        self._remove_vfs(state)
        self._detach(state, lambda: self._report_driver(state))

    def _detach(self, state: State, then: Callable[[], None]) -> None:
        """The driver leaves the function, once its last user has closed it; the driver link is gone at once."""
        free = self._waits(state)
        state.driver = None
        state.leaving = True
        self.generation += 1

        def left() -> None:
            state.leaving = False
            self.generation += 1
            then()

        if not free():
            raise Asleep(free, left, where=VFIO_WAIT)
        left()

    def _waits(self, state: State) -> Callable[[], bool]:
        users = [ask(state) for ask in self.users]
        return lambda: state.holder is None and not any(used() for used in users)

    def remove(self, address: Address) -> None:
        """``/sys/bus/pci/devices/ADDRESS/remove``: hot-unplug. While a VM holds it the whole PCI core waits."""
        state = self.state(address)
        self.wait_for(state)
        self.wait_for_core()
        if state.numvfs:
            self._ask_before_vfs(address, 0)
        self._remove_vfs(state)
        self.stalled = True
        self._detach(state, lambda: self._unplug(state))

    def _unplug(self, state: State) -> None:
        self.stalled = False
        address = state.function.address
        self._report_driver(state)
        del self.states[address]
        self.removed[address] = state.function
        self.generation += 1

    def lose(self, address: Address) -> None:
        """The function falls off the bus: no rescan finds it, who held it holds nothing."""
        state = self.state(address)
        state.holder = None
        self._remove_vfs(state)
        del self.states[address]
        self.generation += 1

    def rescan(self) -> None:
        """``/sys/bus/pci/rescan``: what was unplugged is found again and gets its driver."""
        self.wait_for_core()
        for function in self.removed.values():
            if function.physfn is None:
                state = self.states[function.address] = State(function, function.driver)
                self._report_driver(state)
        self.removed.clear()
        self.generation += 1

    def probe(self, address: Address) -> None:
        """``/sys/bus/pci/drivers_probe``: the driver that matches takes a function without one."""
        state = self.state(address)
        self.wait_for(state)
        if state.driver is not None:
            return
        if state.function.vendor_vfio and state.driver_override == "vfio-pci":
            return
        for driver in sorted(self.drivers):
            if self.accepts(driver, state):
                self._take(state, driver)
                return

    def override(self, address: Address, driver: str) -> None:
        """``driver_override``; an empty name clears it."""
        self.wait_for(self.state(address))
        self.state(address).driver_override = driver or None
        self.generation += 1

    def set_autoprobe(self, address: Address, value: bool) -> None:
        """``sriov_drivers_autoprobe``."""
        self.state(address).autoprobe = value
        self.generation += 1

    def set_numvfs(self, address: Address, count: int) -> None:
        """``sriov_numvfs``: from 0 to a number or back, never from one number to another."""
        state = self.state(address)
        self.wait_for(state)
        self.wait_for_core()
        sriov = state.function.sriov
        if not 0 <= count <= _MAX_COUNT:
            raise refuse(errno.EINVAL)
        if sriov is None or count > sriov.total:
            raise refuse(errno.ERANGE)
        if count == state.numvfs:
            return
        if state.driver is None or not sriov.configurable or state.driver == "vfio-pci":
            raise refuse(errno.ENOENT)
        self._change_vfs(state, sriov, count)

    def sriov_manage(self, address: Address, count: int | None) -> None:
        """NVIDIA's own tool makes all VFs (None) or removes them (0). ENODEV without its driver or SR-IOV."""
        state = self.state(address)
        sriov = state.function.sriov
        if sriov is None or state.driver != state.function.driver:
            raise refuse(errno.ENODEV)
        count = sriov.total if count is None else count
        if count != state.numvfs:
            self._change_vfs(state, sriov, count)

    def change_vfs(self, address: Address, count: int) -> None:
        """A vendor's driver goes from one number to another. EBUSY: a VM has one of them."""
        state = self.state(address)
        sriov = state.function.sriov
        if sriov is None or any(vf.holder is not None for vf in self._vfs(state)):
            raise refuse(errno.EBUSY)
        self._remove_vfs(state)
        self._add_vfs(state, sriov, count)
        self.generation += 1

    def _change_vfs(self, state: State, sriov: Sriov, count: int) -> None:
        if count and state.numvfs:
            raise refuse(errno.EBUSY)
        held = [vf for vf in self._vfs(state) if vf.holder is not None]
        if held:
            raise Asleep(
                lambda: all(vf.holder is None for vf in held),
                lambda: self._change_vfs(state, sriov, count),
                where=VFIO_WAIT,
            )
        self._ask_before_vfs(state.function.address, count)
        if count:
            self._add_vfs(state, sriov, count)
        else:
            self._remove_vfs(state)
        self.generation += 1

    def _ask_before_vfs(self, address: Address, count: int) -> None:
        for ask in self.before_vfs:
            ask(address, count)

    def _vfs(self, state: State) -> list[State]:
        places = (self.vf_address(state.function, index) for index in range(state.numvfs))
        return [self.states[place] for place in places if place in self.states]

    def vf_address(self, pf: Function, index: int) -> Address:
        """Where VF ``index`` of a physical function appears."""
        assert pf.sriov is not None
        return pf.address.plus(pf.sriov.offset + pf.sriov.stride * index)

    def _add_vfs(self, state: State, sriov: Sriov, count: int) -> None:
        pf = state.function
        group = max((s.function.iommu_group or 0 for s in self.states.values()), default=0) + 1
        for index in range(count):
            vf = replace(
                pf,
                address=self.vf_address(pf, index),
                device=sriov.vf_device,
                sriov=None,
                iommu_group=None if pf.iommu_group is None else group + index,
                driver=sriov.vf_driver,
                boot_vga=None,
                physfn=pf.address,
                vendor_vfio=sriov.vendor_vfio,
            )
            self.states[vf.address] = State(vf, vf.driver if state.autoprobe else None)
        state.numvfs = count

    def _remove_vfs(self, state: State) -> None:
        for index in range(state.numvfs):
            self.states.pop(self.vf_address(state.function, index), None)
        state.numvfs = 0

    def group(self, number: int) -> list[Address]:
        """The members of an IOMMU group."""
        return [a for a, s in sorted(self.states.items()) if s.function.iommu_group == number]
