"""One lab host: boot it, run commands in it, cut its power."""

from __future__ import annotations

import compileall
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.guest import image
from tests.guest.lab import Done
from tests.guest.shell import GuestShell, Result
from tests.lab import disks
from tests.lab.image import build_hold, build_image, modules_root
from tests.lab.qmp import Monitor
from tests.support.places import short

ROOT = Path(__file__).resolve().parents[2]
#: the longest wait for an answer: the machine below may stand still for minutes
BOOT_S = 420
SHELLS = 3
#: in the environment: the directory of a lab host that ``python -m tests.lab keep`` has booted
KEPT = "VGPUMGR_LAB_HOST"
#: vgpumgr commands that may run at the same time, see ``server.py``
COMMANDS = 2
#: ports of the lab host's QEMU that are the shells of a guest in it, see ``nested.py``
GUEST_PORTS = 2

#: words of the kernel's command line with which systemd is its first process
SYSTEMD = ("lab.init=systemd", "fstab=no", "systemd.gpt_auto=no", "systemd.show_status=no",
           "systemd.unit=multi-user.target")  # fmt: skip

#: what there is to play with; the root ports are rp0 to rp2
DEVICES = (
    "intel-iommu,intremap=on",
    *(f"pcie-root-port,id=rp{n},slot={n}" for n in range(3)),
    # a device with virtual functions
    "nvme-subsys,id=subsys0",
    "nvme,id=nvme0,bus=rp0,serial=lab0,subsys=subsys0,max_ioqpairs=16,msix_qsize=16,"
    "sriov_max_vfs=4,sriov_vq_flexible=8,sriov_vi_flexible=4",
    # a device with a driver of its own
    "e1000e,id=nic0,bus=rp1,netdev=net0,romfile=",
    # a device alone in its group, without a driver
    "edu,id=edu0,bus=rp2",
    # two functions in one IOMMU group, as those of a graphics card are
    "bochs-display,id=gpu0,addr=10.0,multifunction=on,romfile=",
    "qemu-xhci,id=usb0,addr=10.1",
)
NVME, NIC, EDU = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
DISPLAY, USB = "0000:00:10.0", "0000:00:10.1"


class LabHostDiedError(Exception):
    """The lab host ended or hangs; says what its console said last."""


class KeptShell(GuestShell):
    """A port that has said that it is ready to somebody before."""

    def _wait_ready(self, timeout_s: float, look: Callable[[], None]) -> None:
        # nothing is awaited: answers to somebody else may still be on their way
        del timeout_s, look
        self._count = time.time_ns()


@dataclass(slots=True)
class LabHost:
    """A running lab host; made by ``boot``."""

    directory: Path
    process: subprocess.Popen[bytes] | None
    """None: off, or somebody else's."""
    arguments: Sequence[str] = ()
    shells: list[GuestShell] = field(default_factory=list)
    died: bool = False
    """It has once not answered in time: nothing that is in it can be relied on."""
    _commands: dict[int, GuestShell] = field(default_factory=dict)
    _monitor: Monitor | None = None

    @property
    def out(self) -> Path:
        """Seen as ``/out`` in the lab host, writable there."""
        return self.directory / "out"

    def run(self, command: str, timeout_s: float = 420, shell: int = 0) -> Result:
        """Run a command of one line in a shell of the lab host (bash, as root)."""
        try:
            return self.shells[shell].run(command, timeout_s)
        except (TimeoutError, OSError) as error:
            raise self._died(command, error) from error

    def check(self, command: str, timeout_s: float = 420, shell: int = 0) -> str:
        """Run a command that must succeed; its output without the last newline."""
        result = self.run(command, timeout_s, shell)
        assert result.status == 0, f"{command}: exit {result.status}\n{result.output}"
        return result.output.rstrip("\n")

    def vgpumgr(self, *arguments: str, timeout_s: float = 420, port: int = 0) -> Done:
        """Run vgpumgr in the lab host, whatever its exit status."""
        return self.finish_vgpumgr(self.start_vgpumgr(*arguments, port=port), timeout_s, port)

    def start_vgpumgr(self, *arguments: str, port: int = 0) -> bytes:
        """Start vgpumgr without waiting for it; for ``finish_vgpumgr``."""
        try:
            return self._command_port(port).start(json.dumps({"argv": arguments}))
        except (TimeoutError, OSError) as error:
            raise self._died(" ".join(arguments), error) from error

    def _command_port(self, port: int) -> GuestShell:
        if port not in self._commands:
            shell = GuestShell if self.process else KeptShell
            self._commands[port] = shell(self.directory / f"vgpumgr.{port}", BOOT_S)
        return self._commands[port]

    def run_module(self, name: str, *arguments: str, timeout_s: float = 420) -> Any:
        """Run a Python module in the lab host, vgpumgr already loaded; the JSON that it prints."""
        command = json.dumps({"module": name, "argv": arguments})
        done = self.finish_vgpumgr(self._command_port(0).start(command), timeout_s)
        assert done.status == 0, f"{name}: exit {done.status}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def finish_vgpumgr(self, name: bytes, timeout_s: float = 420, port: int = 0) -> Done:
        """Wait for a started vgpumgr."""
        try:
            output = self._commands[port].finish(name, timeout_s).output
            # a port that nobody has used yet says first that it is ready
            answer = json.loads(output.rpartition("\n")[2])
        except (TimeoutError, OSError) as error:
            raise self._died("vgpumgr", error) from error
        return Done(answer["status"], answer["stdout"], answer["stderr"])

    def succeed(self, *arguments: str, timeout_s: float = 420) -> str:
        """Run a vgpumgr command that must succeed; its output."""
        done = self.vgpumgr(*arguments, timeout_s=timeout_s)
        assert done.status == 0, (
            f"vgpumgr {' '.join(arguments)}: exit {done.status}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def document(self, *arguments: str) -> Any:
        """Run a vgpumgr command with ``-o json`` that must succeed."""
        return json.loads(self.succeed(*arguments, "-o", "json"))

    def assert_alive(self, error: Exception) -> None:
        """Whether it still answers, after something in it did not. Raises LabHostDiedError."""
        if self.process is None or self.process.poll() is not None:
            raise self._died("a command", error) from error
        self.run("true")

    def _died(self, what: str, error: Exception) -> LabHostDiedError:
        self.died = True
        return LabHostDiedError(f"{what}: {error}\n{self.console()}\n{self._log()}")

    def _log(self) -> str:
        path = self.out / "server.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def write(self, path: str, text: str, timeout_s: float = 420) -> str | None:
        """Write a line to a kernel's file; None, or the error's text (``File exists``)."""
        words = f"echo {shlex.quote(text)} >{shlex.quote(path)}"
        result = self.run(words, timeout_s)
        return None if result.status == 0 else result.output.strip().rpartition(": ")[2]

    def wait_until(self, condition: str, timeout_s: float = 420, shell: int = 0) -> None:
        """Wait until a command of the lab host succeeds."""
        self.check(
            f"for _ in {{1..{int(timeout_s * 5)}}}; do {{ {condition}; }} >/dev/null 2>&1 && exit 0; sleep 0.2; done; "
            f"echo {shlex.quote('never so: ' + condition)}; exit 1",
            timeout_s + 60, shell,
        )  # fmt: skip

    def driver(self, address: str) -> str | None:
        """The driver that has a PCI function."""
        link = self.check(f"readlink /sys/bus/pci/devices/{address}/driver || true")
        return Path(link).name if link else None

    def monitor(self, command: str) -> str:
        """Give QEMU's human monitor a command (``device_del edu0``); its answer."""
        if self._monitor is None:
            self._monitor = Monitor(self.directory / "qmp")
        answer = self._monitor.execute("human-monitor-command", **{"command-line": command})
        return str(answer)

    def console(self) -> str:
        """What the kernel said last."""
        path = self.directory / "console.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        code = self.process.poll() if self.process else None
        return f"lab host {'runs' if code is None else f'ended ({code})'}; the end of its console:\n{text[-4000:]}"

    def power_on(self) -> None:
        """Start QEMU, which ends with this process, and wait for the shells. Raises LabHostDiedError."""
        command = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *self.arguments]
        path = self.directory / "qemu.log"
        with path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            for number in range(SHELLS):
                self._wait_for(path)
                self.shells.append(GuestShell(self.directory / f"shell.{number}", BOOT_S))
        except (OSError, TimeoutError) as error:
            raise LabHostDiedError(f"{error}\n{self.console()}") from error

    def _wait_for(self, log: Path) -> None:
        """Until QEMU listens."""
        deadline = time.monotonic() + BOOT_S
        while not (self.directory / "shell.0").exists():
            ended = self.process is None or self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise LabHostDiedError(f"QEMU: {log.read_text(errors='replace')}")
            time.sleep(0.05)

    def reboot(self) -> None:
        """Cut its power and boot it again: what reached its disks is there."""
        self.cut_power()
        for path in self.directory.glob("*.[0-9]"):
            path.unlink()
        self.power_on()

    def hang_up(self) -> None:
        """Leave its shells to others."""
        for shell in [*self.shells, *self._commands.values()]:
            shell.close()
        self.shells.clear()
        self._commands.clear()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def cut_power(self) -> None:
        """End it at once: what was not synced to a disk is lost."""
        self.hang_up()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def boot(
    *, more: Sequence[str] = (), memory_mib: int = 3072, systemd: bool = False
) -> Iterator[LabHost]:
    """A lab host with new disks, until the context ends. ``more`` are further arguments for QEMU; ``systemd`` is its
    first process then, and starts the shells."""
    # the lab host cannot write here, and would compile for every command
    compileall.compile_dir(ROOT / "vgpumgr", quiet=1)
    directory = Path(tempfile.mkdtemp(prefix="vgl.", dir=short()))
    words = SYSTEMD if systemd else ()
    arguments = [*qemu_arguments(directory, memory_mib, words), *more]
    host = LabHost(directory, None, arguments)
    try:
        (directory / "out").mkdir()
        disks.make(directory)
        host.power_on()
        yield host
    finally:
        host.cut_power()
        shutil.rmtree(directory, ignore_errors=True)


def attach_kept(directory: Path) -> LabHost:
    """A lab host that somebody else has booted and nobody else uses."""
    shells = [KeptShell(directory / f"shell.{n}", BOOT_S) for n in range(SHELLS)]
    return LabHost(directory, None, shells=list(shells))


def qemu_arguments(directory: Path, memory_mib: int, more: Sequence[str] = ()) -> list[str]:
    """The lab host as QEMU's command line; ``more`` are words for its kernel's."""
    words = [
        *more,
        f"lab.root={ROOT}",
        f"lab.python={sys.executable}",
        "lab.boot=" + str(ROOT / "tests/lab/boot.sh"),
        "lab.modules=" + str(modules_root() / "lib/modules"),
    ]
    kernel = "console=ttyS0 panic=-1 cryptomgr.notests no_timer_check intel_iommu=on iommu=pt mitigations=off"
    # One CPU: two that share what the tests leave them wait for each other's locks, and take half as much time again.
    # erms and fsrm recommend rep movsb, which is one byte after the other under TCG.
    arguments = [
        "-machine", "q35", "-accel", "tcg,tb-size=512", "-cpu", "max,-erms,-fsrm", "-smp", "1",
        "-m", str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-serial", f"file:{directory}/console.log",
        "-kernel", str(image.kernel()), "-initrd", str(build_image()),
        "-append", f"{kernel} {' '.join(words)}",
        "-netdev", "user,id=net0,restrict=on",
        "-chardev", f"socket,id=qmp,path={directory}/qmp,server=on,wait=off",
        "-mon", "chardev=qmp,mode=control",
        *share("root", Path("/"), ",readonly=on"), *share("out", directory / "out"),
        *ports(directory), *disks.qemu_arguments(directory),
    ]  # fmt: skip
    for device in DEVICES:
        arguments += ["-device", device]
    return arguments


def share(tag: str, path: Path, options: str = "") -> list[str]:
    """A directory for the lab host; QEMU wants commas doubled."""
    name = str(path).replace(",", ",,")
    what = f"local,path={name},mount_tag={tag},security_model=none,multidevs=remap{options}"
    return ["-virtfs", what]


def ports(directory: Path) -> list[str]:
    """The virtio-serial ports of the lab host's shells, and of those of a guest in it."""
    arguments = ["-device", "virtio-serial,max_ports=16"]
    counts = {"shell": SHELLS, "vgpumgr": COMMANDS, "guest": GUEST_PORTS}
    names = [f"{name}.{n}" for name, count in counts.items() for n in range(count)]
    for name in names:
        chardev = f"socket,id={name},path={directory}/{name},server=on,wait=off"
        arguments += ["-chardev", chardev]
        arguments += ["-device", f"virtserialport,chardev={name},name=lab.{name}"]
    return arguments


def hold_command(device: str, seconds: int = 3600) -> str:
    """What keeps a device under VFIO open, as a virtual machine would, in the lab host's background."""
    return f"{build_hold()} {device} {seconds}"


def unprivileged_reason() -> str | None:
    """Why there can be no lab host here; None if there can."""
    return (
        None if os.geteuid() == 0 else "needs root: the lab host sees all of this machine's files"
    )
