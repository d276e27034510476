"""The files of a simulated machine: ``/sys`` and ``/proc`` as nodes over the PCI bus model.

The tree is rebuilt when the bus changes; nodes hold closures, so reading one reads the bus as it is now. Formats are
those of ``Documentation/ABI/testing/sysfs-bus-pci``; a read-only attribute refuses a write with EACCES, a bad value
answers EINVAL.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence

from vgpumgr.model.frozen import dataclass
from vgpumgr.sim.pcibus import Address, PciBus, State, refuse

Read = Callable[[], bytes]
Write = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class File:
    """An attribute: what reading gives, and what writing does if it may be written."""

    read: Read | None
    write: Write | None = None
    program: bool = False
    opened: Callable[[int], Callable[[], None]] | None = None
    """Called with the process that opens it; gives what is called when the file is closed."""

    @property
    def mode(self) -> int:
        """Permission bits, as sysfs would show them."""
        return (
            (0o444 if self.read else 0)
            | (0o200 if self.write else 0)
            | (0o111 if self.program else 0)
        )


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, with a target relative to the link's own directory."""

    target: str


class Directory:
    """Named nodes. ``fill`` makes them at the first access: most directories of a large machine are never read."""

    __slots__ = ("_fill", "_mixed", "_overlay", "_own", "_seen", "_version")

    def __init__(self, fill: Callable[[Directory], None] | None = None) -> None:
        self._own: dict[str, Node] = {}
        self._fill = fill
        self._overlay: Callable[[], dict[str, Node]] | None = None
        self._version: Callable[[], int] = int
        self._seen = -1
        self._mixed: dict[str, Node] = {}

    @property
    def own(self) -> dict[str, Node]:
        """The nodes that stay, which the builder of the tree changes."""
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill(self)
        return self._own

    @property
    def entries(self) -> dict[str, Node]:
        """All nodes by name, as they are now."""
        own = self.own
        if self._overlay is None:
            return own
        version = self._version()
        if version != self._seen:
            self._mixed = own | self._overlay()
            self._seen = version
        return self._mixed

    def overlay(self, version: Callable[[], int], nodes: Callable[[], dict[str, Node]]) -> None:
        """Nodes beside its own that come and go: made anew when the version has changed."""
        self._version, self._overlay = version, nodes

    def make(self, path: str) -> Directory:
        """The directory at ``path`` below this one, made where it is missing."""
        here = self
        for name in path.strip("/").split("/"):
            child = here.own.setdefault(name, Directory())
            assert isinstance(child, Directory), path
            here = child
        return here

    def add(self, path: str, node: Node) -> None:
        """Put a node at ``path`` below this directory."""
        head, _, name = path.strip("/").rpartition("/")
        (self.make(head) if head else self).own[name] = node

    def link(self, path: str, to: str) -> None:
        """Put a link at ``path`` to the node at ``to``, both from this directory's root."""
        self.add(path, link_from(path, to))


Node = File | Link | Directory


def link_from(path: str, to: str) -> Link:
    """A link that stands at ``path`` and leads to ``to``, both from the root."""
    return Link("../" * path.strip("/").count("/") + to.strip("/"))


def text(value: Callable[[], object]) -> Read:
    """An attribute that prints one value and a newline."""
    return lambda: f"{value()}\n".encode()


def constant(value: object) -> File:
    """A read-only attribute that never changes."""
    data = f"{value}\n".encode()
    return File(lambda: data)


def parse_int(data: bytes) -> int:
    """A number as ``kstrtoul(…, 0, …)`` reads it; EINVAL otherwise."""
    try:
        return int(data.strip(), 0)
    except ValueError:
        raise refuse(errno.EINVAL) from None


def parse_address(data: bytes) -> Address:
    """A PCI address written to ``bind`` and its like; ENODEV for anything else, as the kernel answers."""
    try:
        return Address.parse(data.decode().strip())
    except (ValueError, UnicodeDecodeError):
        raise refuse(errno.ENODEV) from None


def device_path(address: Address) -> str:
    """Where the function's directory stands, below the root."""
    return f"sys/devices/pci{address.domain:04x}:{address.bus:02x}/{address}"


class Part:
    """What a kind of hardware adds to a machine's files: by default nothing, which never changes."""

    def generation(self) -> int:
        """Rises when ``add`` or ``add_function`` would make other nodes than before. What is read at each reading, and
        what overlays hold, does not count.
        """
        return 0

    def add(self, root: Directory) -> None:
        """Add nodes that belong to no PCI function."""

    def add_function(self, root: Directory, path: str, state: State) -> None:
        """Add nodes to the directory of a function, which is at ``path``; called at the first access."""


class MachineTree:
    """All files of one machine. ``proc`` and ``sys`` add constant files below ``/proc`` and ``/sys``: path to text."""

    def __init__(
        self,
        bus: PciBus,
        proc: Mapping[str, str],
        cpus: Mapping[int, str],
        parts: Sequence[Part] = (),
        sys: Mapping[str, str] | None = None,
    ) -> None:
        self._bus = bus
        self._sys = dict(sys or {})
        self._proc = dict(proc)
        self._cpus = dict(cpus)
        self._parts = parts
        self._generation: tuple[int, ...] = ()
        self._root = Directory()

    def root(self) -> Directory:
        """The tree as of now."""
        generation = (self._bus.generation, *(part.generation() for part in self._parts))
        if self._generation != generation:
            self._generation = generation
            self._root = self._build()
        return self._root

    def find(self, path: str) -> Node:
        """The node at an absolute path; ENOENT or ENOTDIR where there is none. Links are not followed."""
        node: Node = self.root()
        for name in filter(None, path.split("/")):
            if not isinstance(node, Directory):
                raise refuse(errno.ENOTDIR)
            if name not in node.entries:
                raise refuse(errno.ENOENT)
            node = node.entries[name]
        return node

    def _build(self) -> Directory:
        root = Directory()
        for path, content in self._proc.items():
            root.add(f"proc/{path}", constant(content.rstrip("\n")))
        for path, content in self._sys.items():
            root.add(f"sys/{path}", constant(content))
        for node, cpus in self._cpus.items():
            root.add(f"sys/devices/system/node/node{node}/cpulist", constant(cpus))
        self._build_drivers(root)
        for address, state in self._bus.states.items():
            self._build_function(root, address, state)
        for part in self._parts:
            part.add(root)
        return root

    def _build_drivers(self, root: Directory) -> None:
        bus = self._bus
        root.make("sys/bus/pci/devices")
        probe = File(None, lambda data: bus.probe(parse_address(data)))
        root.add("sys/bus/pci/drivers_probe", probe)
        root.add("sys/bus/pci/drivers_autoprobe", constant(1))
        rescan = File(None, lambda data: bus.rescan() if parse_int(data) else None)
        root.add("sys/bus/pci/rescan", rescan)
        for driver in sorted(bus.drivers):
            directory = root.make(f"sys/bus/pci/drivers/{driver}")
            directory.own["bind"] = File(None, self._binder(driver))
            directory.own["unbind"] = File(None, self._unbinder(driver))

    def _binder(self, driver: str) -> Write:
        return lambda data: self._bus.bind(driver, parse_address(data))

    def _unbinder(self, driver: str) -> Write:
        return lambda data: self._bus.unbind(driver, parse_address(data))

    def _build_function(self, root: Directory, address: Address, state: State) -> None:
        path = device_path(address)
        root.add(path, Directory(lambda _: self._fill_function(root, path, state)))
        root.link(f"sys/bus/pci/devices/{address}", path)
        if state.driver is not None:
            root.link(f"sys/bus/pci/drivers/{state.driver}/{address}", path)
        group = state.function.iommu_group
        if group is not None:
            root.link(f"sys/kernel/iommu_groups/{group}/devices/{address}", path)
            root.add(f"sys/kernel/iommu_groups/{group}/type", constant("DMA"))

    def _fill_function(self, root: Directory, path: str, state: State) -> None:
        function = state.function
        directory = root.make(path)
        directory.own.update(self._identity(state))
        root.link(f"{path}/subsystem", "sys/bus/pci")
        if state.driver is not None:
            root.link(f"{path}/driver", f"sys/bus/pci/drivers/{state.driver}")
        if function.iommu_group is not None:
            root.link(f"{path}/iommu_group", f"sys/kernel/iommu_groups/{function.iommu_group}")
        if function.sriov is not None:
            self._fill_sriov(root, path, state)
        if function.physfn is not None:
            root.link(f"{path}/physfn", device_path(function.physfn))
        for part in self._parts:
            part.add_function(root, path, state)

    def _identity(self, state: State) -> dict[str, Node]:
        function = state.function
        node = function.numa_node
        bus, address = self._bus, function.address
        files: dict[str, Node] = (
            {} if function.boot_vga is None else {"boot_vga": constant(int(function.boot_vga))}
        )
        return files | {
            "vendor": constant(f"0x{function.vendor:04x}"),
            "device": constant(f"0x{function.device:04x}"),
            "subsystem_vendor": constant(f"0x{function.subsystem_vendor:04x}"),
            "subsystem_device": constant(f"0x{function.subsystem_device:04x}"),
            "class": constant(f"0x{function.class_code:06x}"),
            "revision": constant(f"0x{function.revision:02x}"),
            "modalias": constant(function.modalias),
            "numa_node": constant(node),
            "reset_method": constant(function.reset_methods),
            "power_state": constant("D0"),
            "local_cpulist": constant(self._cpus.get(node, "")),
            "current_link_speed": constant(function.link_speed),
            "max_link_speed": constant(function.link_speed),
            "current_link_width": constant(function.link_width),
            "max_link_width": constant(function.link_width),
            "enable": File(text(lambda: int(state.driver is not None))),
            "resource": constant(resource_lines(function.bars)),
            "uevent": File(lambda: uevent(state)),
            "remove": File(None, lambda data: bus.remove(address) if parse_int(data) else None),
            "driver_override": File(
                lambda: self._read_locked(state, lambda: state.driver_override or "(null)"),
                lambda data: bus.override(address, data.decode().strip()),
            ),
        }

    def _read_locked(self, state: State, value: Callable[[], object]) -> bytes:
        """An attribute that is read under the device's lock."""
        self._bus.wait_for(state)
        return f"{value()}\n".encode()

    def _fill_sriov(self, root: Directory, path: str, state: State) -> None:
        sriov = state.function.sriov
        assert sriov is not None
        bus, address = self._bus, state.function.address

        def read_numvfs() -> bytes:
            bus.wait_for_core()
            return self._read_locked(state, lambda: state.numvfs)

        files: dict[str, Node] = {
            "sriov_totalvfs": constant(sriov.total),
            "sriov_numvfs": File(
                read_numvfs, lambda data: bus.set_numvfs(address, parse_int(data))
            ),
            "sriov_offset": constant(sriov.offset),
            "sriov_stride": constant(sriov.stride),
            "sriov_vf_device": constant(f"{sriov.vf_device:x}"),
            "sriov_drivers_autoprobe": File(
                text(lambda: int(state.autoprobe)),
                lambda data: bus.set_autoprobe(address, bool(parse_int(data))),
            ),
        }
        root.make(path).own.update(files)
        for index in range(state.numvfs):
            root.link(f"{path}/virtfn{index}", device_path(bus.vf_address(state.function, index)))


def resource_lines(bars: tuple[int, ...]) -> str:
    """``resource``: start, end and flags of six BARs and the ROM, as the kernel prints them."""
    lines, start = [], 0x38000000000
    for size in bars:
        start = (start + size - 1) // size * size
        lines.append(f"0x{start:016x} 0x{start + size - 1:016x} 0x{0x14220C:016x}")
        start += size
    empty = f"0x{0:016x} 0x{0:016x} 0x{0:016x}"
    return "\n".join(lines + [empty] * (7 - len(lines)))


def uevent(state: State) -> bytes:
    """``uevent``: what udev reads of the function."""
    function = state.function
    lines = [f"DRIVER={state.driver}"] if state.driver else []
    lines += [
        f"PCI_CLASS={function.class_code:X}",
        f"PCI_ID={function.vendor:04X}:{function.device:04X}",
        f"PCI_SUBSYS_ID={function.subsystem_vendor:04X}:{function.subsystem_device:04X}",
        f"PCI_SLOT_NAME={function.address}",
        f"MODALIAS={function.modalias}",
    ]
    return ("\n".join(lines) + "\n").encode()
