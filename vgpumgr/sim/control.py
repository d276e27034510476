"""``/.sim`` of a machine's files: what tests and the simulated tools ask of the machine, one line for each request.

* ``hold``: ``KEY VM`` opens a vGPU (by UUID or VF) or a function bound to vfio-pci, as a VM's QEMU would.
* ``release``: ``KEY`` closes it.
* ``sriov``: ``-e ADDRESS|ALL`` or ``-d ADDRESS|ALL``; behind ``usr/lib/nvidia/sriov-manage``.
* ``gone``: ``ADDRESS`` falls off the bus.
* ``driver``: ``-NAME`` unloads a driver without functions, ``NAME`` loads it.
* ``fault``: see ``WriteFaults``: writes that are ignored, refused, or stick.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

from vgpumgr.sim.pcibus import Address, Asleep, PciBus, refuse
from vgpumgr.sim.tree import Directory, File, Node, Part, parse_address
from vgpumgr.sim.vgpuhost import VgpuHost
from vgpumgr.sim.vgpus import Vgpu

_SRIOV_MANAGE = (Path(__file__).parent / "data/sriov-manage").read_bytes()


class ControlTree(Part):
    """The machine's ``/.sim``, and NVIDIA's tool where there are GPUs for it."""

    def __init__(
        self,
        bus: PciBus,
        faults: WriteFaults,
        host: VgpuHost | None,
        lost: Callable[[Address], None],
    ) -> None:
        """``lost`` hears of functions that fall off the bus."""
        self._lost = lost
        self._bus = bus
        self._faults = faults
        self._host = host

    def add(self, root: Directory) -> None:
        """``/.sim`` and ``/usr/lib/nvidia``."""
        commands: dict[str, Callable[[str], None]] = {
            "hold": self._hold,
            "release": self._release,
            "gone": self._gone,
            "driver": self._driver,
            "sriov": self._sriov,
        }
        files: dict[str, Node] = {
            name: File(None, self._obeying(command)) for name, command in commands.items()
        }
        files["fault"] = File(
            lambda: str(self._faults).encode(), self._obeying(self._faults.command)
        )
        root.make(".sim").own.update(files)
        if self._host is not None:
            tool = File(lambda: _SRIOV_MANAGE, program=True)
            root.add("usr/lib/nvidia/sriov-manage", tool)

    @staticmethod
    def _obeying(command: Callable[[str], None]) -> Callable[[bytes], None]:
        return lambda data: command(data.decode(errors="replace").strip())

    def _hold(self, line: str) -> None:
        key, _, vm = line.partition(" ")
        if not vm:
            raise refuse(errno.EINVAL)
        vgpu = self._find(key)
        if self._host is not None and vgpu is not None:
            self._host.state.hold(vgpu.id, vm)
        else:
            self._bus.hold(parse_address(key.encode()), vm)

    def _release(self, key: str) -> None:
        vgpu = self._find(key, ghosts=True)
        if self._host is not None and vgpu is not None:
            self._host.state.release(vgpu.id)
        else:
            self._bus.release(parse_address(key.encode()))

    def _find(self, key: str, *, ghosts: bool = False) -> Vgpu | None:
        """The vGPU with this UUID, or on this VF."""
        if self._host is None:
            return None
        for vgpu in self._host.all_vgpus():
            if (ghosts or not vgpu.removed) and key in (vgpu.uuid, self._host.vf_address(vgpu)):
                return vgpu
        return None

    def _gone(self, line: str) -> None:
        address = parse_address(line.encode())
        self._bus.lose(address)
        self._lost(address)

    def _driver(self, line: str) -> None:
        name = line.removeprefix("-")
        if not line.startswith("-"):
            self._bus.drivers.add(name)
        elif any(state.driver == name for state in self._bus.states.values()):
            raise refuse(errno.EBUSY)
        else:
            self._bus.drivers.discard(name)
        self._bus.generation += 1

    def _sriov(self, line: str) -> None:
        option, _, which = line.partition(" ")
        if self._host is None or option not in ("-e", "-d"):
            raise refuse(errno.EINVAL)
        for address in self._host.sriov_gpus() if which == "ALL" else [self._gpu(which)]:
            self._bus.sriov_manage(address, None if option == "-e" else 0)

    def _gpu(self, which: str) -> Address:
        address = parse_address(which.encode())
        if self._host is None or address not in self._host.sriov_gpus():
            raise refuse(errno.ENODEV)
        return address


Kind = Literal["ignore", "fail", "late", "hang"]
_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
CONTROL = "/.sim/fault"


class Ignored(Exception):  # noqa: N818  (an outcome, not an error)
    """The write was accepted and did nothing."""


@dataclass(slots=True)
class Fault:
    """What happens to the next writes to paths of this pattern."""

    kind: Kind
    pattern: str
    value: float
    """Error number (``fail``) or seconds (``late``)."""
    times: int


class WriteFaults:
    """The faults that are set. Patterns are those of ``fnmatch``, for paths without links from the machine's root."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def command(self, line: str) -> None:
        """Obey a line: ``ignore PATTERN [TIMES]``, ``fail PATTERN ERRNO [TIMES]``, ``late PATTERN SECONDS [TIMES]``,
        ``hang PATTERN [TIMES]`` (until ``clear``) or ``clear``. EINVAL for anything else.
        """
        words = line.split()
        if words == ["clear"]:
            self._faults.clear()
            return
        try:
            self._faults.append(_parse(words))
        except (ValueError, IndexError):
            raise refuse(errno.EINVAL) from None

    def before_write(self, path: str) -> None:
        """Let the write be: return. Else raises Ignored, OSError or Asleep."""
        if path == CONTROL:
            return
        for fault in self._faults:
            if fault.times and fnmatchcase(path, fault.pattern):
                fault.times -= 1
                self._suffer(fault)

    def _suffer(self, fault: Fault) -> None:
        if fault.kind == "ignore":
            raise Ignored
        if fault.kind == "fail":
            raise refuse(int(fault.value))
        if fault.kind == "late":
            until = time.monotonic() + fault.value
            raise Asleep(lambda: time.monotonic() >= until)
        raise Asleep(lambda: fault not in self._faults)

    def __str__(self) -> str:
        rows = (f for f in self._faults if f.times)
        return "".join(f"{f.kind} {f.pattern} {f.value:g} {f.times}\n" for f in rows)


def _parse(words: list[str]) -> Fault:
    kind, pattern, *numbers = words
    value = 0.0
    if kind == "fail":
        name = numbers.pop(0)
        value = float(getattr(errno, name) if name.isalpha() else int(name))
    elif kind == "late":
        value = float(numbers.pop(0))
    if kind not in _KINDS or len(numbers) > 1:
        raise ValueError(kind)
    return Fault(_KINDS[kind], pattern, value, int(numbers[0]) if numbers else 1)


class Sleepers(Part):
    """Who sleeps where. It is a part of the machine's files too."""

    def __init__(self) -> None:
        self._places: dict[int, str] = {}
        self._generation = 0

    @contextmanager
    def sleeping(self, pid: int, where: str) -> Iterator[None]:
        """The process sleeps inside the block."""
        self._places[pid] = where
        self._generation += 1
        try:
            yield
        finally:
            self._places.pop(pid, None)
            self._generation += 1

    def generation(self) -> int:
        """Rises when one falls asleep or wakes."""
        return self._generation

    def add(self, root: Directory) -> None:
        """``/proc/PID`` of each."""
        for pid, where in dict(self._places).items():
            root.add(f"proc/{pid}/wchan", File(lambda where=where: where.encode()))  # type: ignore[misc]
            root.add(f"proc/{pid}/comm", File(lambda: b"sh\n"))
