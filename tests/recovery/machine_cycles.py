"""Endurance on a simulated machine, with a genuine libvirtd: see ``cycles``.

Everything but the hardware is real: helpers, files, journal, libvirt, and where asked for the daemon. What the
process and its helpers hold is looked at again and again: ``growth`` says whether it still grows at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from tests.recovery import growth
from tests.recovery.watched_daemon import ask
from tests.support.places import short
from vgpumgr.app.application import open_application
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.engine.journal import Journal
from vgpumgr.errors import NvmlMissingError, VgpumgrError
from vgpumgr.host.machine import find_machine
from vgpumgr.sim import lifecycle
from vgpumgr.state.store import Store

ROOT = Path(__file__).parents[2]
VM = "endurance"
#: a daemon remembers the last 200 operations: before so many cycles it grows, as it may
HISTORY = 100
#: at what is held, over all cycles
LOOKS = 20
_DOMAIN = f"""<domain type='qemu'><name>{VM}</name><memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices><controller type='usb' model='none'/></devices></domain>"""

Call = Callable[..., Any]


@dataclass(frozen=True)
class Backend:
    """A way to give a VM a device of the host: the machine, what is done first, what is asked for."""

    machine: str
    asked: dict[str, Any]
    before: tuple[tuple[str, dict[str, Any]], ...] = ()


BACKENDS = {
    "mdev": Backend("vgpu-t4", {"profile": "T4-4Q", "backend": "mdev"}),
    "vendor": Backend(
        "vgpu-l40s",
        {"profile": "L40S-12Q", "backend": "vf"},
        (("enable_vfs", {"selector": "0"}),),
    ),
    "mig-backed": Backend(
        "vgpu-a100",
        {"profile": "1g.5gb", "backend": "mdev"},
        (("set_mig_mode", {"gpu": "0", "enabled": True}), ("enable_vfs", {"selector": "0"})),
    ),
    "vf": Backend("intel-flex", {"profile": "vf:4"}),
    "passthrough": Backend("intel-flex", {"profile": "passthrough", "gpu": "51:00.0"}),
}


@dataclass
class Scene:
    """A running machine, and the process that works on it: this one, or a daemon."""

    directory: Path
    call: Call
    pid: int
    #: what the process holds
    look: Callable[[], growth.Sample]
    libvirtd: PrivateLibvirtd

    def cycle(self, asked: dict[str, Any], count: int) -> None:
        """So many times given and taken back."""
        for _ in range(count):
            self.call("attach", vm=VM, **asked)
            self.call("detach", vm=VM)

    def describe_host(self) -> dict[str, Any]:
        """What must be as before: the hardware, libvirt's definition, and all that is remembered."""
        return {
            "domain": self.libvirtd.virsh("dumpxml", "--inactive", VM).stdout.replace(
                "  <metadata/>\n", ""
            ),
            "functions": self._list_functions(),
            "mdevs": sorted(os.listdir(self.directory / "root/sys/bus/mdev/devices"))  # noqa: PTH208
            if (self.directory / "root/sys/bus/mdev/devices").is_dir()
            else [],
            "definitions": sorted(map(str, (self.directory / "host/etc").rglob("*"))),
            "remembered": self._list_remembered(),
            "instances": self._list_instances(),
            "unfinished": sorted(self._read_journal()),
            "late": sorted(map(str, (self.directory / "host/run/late").glob("*"))),
            "channels": sorted(map(str, (self.directory / "host/run/channels").glob("*"))),
            "files": self._list_files(),
        }

    def _list_instances(self) -> Any:
        with contextlib.suppress(NvmlMissingError):
            return self.call("list_mig_instances")["instances"]
        return []

    def _list_functions(self) -> dict[str, tuple[str | None, str, str]]:
        """Driver, override and vGPU type of each function, read without our own code."""
        found = {}
        for device in sorted((self.directory / "root/sys/bus/pci/devices").iterdir()):
            driver = device / "driver"
            words = [device / "driver_override", device / "nvidia/current_vgpu_type"]
            override, kind = (w.read_text().strip() if w.is_file() else "" for w in words)
            found[device.name] = (
                driver.readlink().name if driver.is_symlink() else None,
                override,
                kind,
            )
        return found

    def _list_remembered(self) -> dict[str, Any]:
        store = Store(self.directory / "host/state/state.sqlite")
        return {
            "vgpus": len(store.list_vgpus()),
            "bindings": len(store.list_bindings()),
            "vf_settings": len(store.list_vf_settings()),
        }

    def _read_journal(self) -> list[str]:
        contents = Journal(self.directory / "host/state/journal", "any").look()
        assert contents.problem is None, contents.problem
        return list(contents.unfinished)

    def _list_files(self) -> list[str]:
        """All but what is bounded by its own rule: old journals, the daemon's history."""
        host = self.directory / "host"
        found = (str(p.relative_to(host)) for p in host.rglob("*") if p.is_file())
        bounded = ("state/journal.old", "state/operations", "state/audit")
        return sorted(f for f in found if not f.startswith(bounded))

    def measure(self) -> dict[str, int]:
        """What the process and its helpers hold at rest: a daemon opens something for a moment now and then."""
        samples = []
        for _ in range(10):
            samples.append(self._count())
            time.sleep(0.1)
        return {key: min(sample[key] for sample in samples) for key in samples[0]}

    def _count(self) -> dict[str, int]:
        children = _list_children(self.pid)
        return {
            "descriptors": count_entries(f"/proc/{self.pid}/fd"),
            "threads": count_entries(f"/proc/{self.pid}/task"),
            "helpers": len(children),
            "helpers_descriptors": sum(count_entries(f"/proc/{child}/fd") for child in children),
        }

    def sample(self) -> growth.Sample:
        """What the process holds, and the memory of its helpers."""
        helpers = sum(map(growth.read_rss_bytes, _list_children(self.pid)))
        return {
            **self.look(),
            "helpers_rss_bytes": helpers,
            **growth.measure_state(self.directory / "host/state"),
        }


def count_entries(directory: str | Path) -> int:
    """Files, or what stands for such."""
    return len(os.listdir(directory))  # noqa: PTH208


def _list_children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return [child for child in found if _is_ours(child)]


def _is_ours(pid: int) -> bool:
    """Helpers alone: a libvirtd or a daemon that this process started is none."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        ours = b"vgpumgr" in words
        return ours and not any(word.endswith(b"daemon") for word in words.split(b"\0"))
    return False


@contextmanager
def open_scene(backend: Backend, *, daemon: bool) -> Iterator[Scene]:
    """The machine with a libvirtd and one shut off VM; everything ends with it."""
    directory = Path(tempfile.mkdtemp(prefix="vgend.", dir=short()))
    with (
        private_libvirtd() as libvirtd,
        mock.patch.dict(os.environ, VGPUMGR_SIM_ROOT=str(directory), PYTHONPATH=str(ROOT)),
    ):
        path = libvirtd.scratch / "domain.xml"
        path.write_text(_DOMAIN)
        libvirtd.virsh("define", str(path))
        home, without_fuse = lifecycle.start(backend.machine, libvirtd.uri)
        try:
            assert without_fuse is None, without_fuse
            serve = _serve if daemon else _work_here
            with serve(backend.machine) as (call, pid, look):
                for operation, asked in backend.before:
                    call(operation, **asked)
                yield Scene(home, call, pid, look, libvirtd)
        finally:
            lifecycle.stop(backend.machine)
            shutil.rmtree(directory, ignore_errors=True)


Worker = tuple[Call, int, Callable[[], growth.Sample]]


@contextmanager
def _work_here(machine: str) -> Iterator[Worker]:
    with open_application(machine) as application:
        yield (
            lambda operation, **asked: getattr(application, operation)(**asked).as_data(),
            os.getpid(),
            growth.read_own,
        )


@contextmanager
def _serve(machine: str) -> Iterator[Worker]:
    run_dir = find_machine(machine).run_dir
    # beside what is counted
    watch = run_dir.parent.parent / "watch.sock"
    words = ("tests.recovery.watched_daemon", str(watch), machine)
    with call_daemon(words, run_dir) as (call, pid):
        yield call, pid, lambda: ask(watch)


@contextmanager
def call_daemon(words: Sequence[str], run_dir: Path) -> Iterator[tuple[Call, int]]:
    """A daemon that ``python -m`` and these words start; its API, and which process it is."""
    process = subprocess.Popen([sys.executable, "-m", *words], stdin=subprocess.DEVNULL, cwd=ROOT)
    backend = HttpBackend(lambda: connect_unix(str(run_dir / "vgpumgr.sock")))
    try:
        end_s = time.monotonic() + 300
        while True:
            with contextlib.suppress(VgpumgrError):
                backend.request("GET", "/1.0").document()
                break
            assert process.poll() is None, "the daemon has ended"
            assert time.monotonic() < end_s, "the daemon does not answer"
            time.sleep(0.1)
        yield backend.call, process.pid
    finally:
        process.terminate()
        try:
            process.wait(300)
        finally:
            process.kill()
            process.wait()


def run(name: str, count: int, warm_up: int, *, daemon: bool) -> dict[str, Any]:
    """Counts, memory and the machine before and after so many cycles."""
    backend = BACKENDS[name]
    with open_scene(backend, daemon=daemon) as scene:
        scene.cycle(backend.asked, warm_up)
        host, before = scene.describe_host(), scene.measure()
        started_s = time.monotonic()
        series = growth.watch(
            lambda more: scene.cycle(backend.asked, more), scene.sample, count, LOOKS
        )
        seconds = round(time.monotonic() - started_s, 1)
        now = scene.describe_host()
        return {
            "backend": name,
            "through": "daemon" if daemon else "this process",
            "cycles": count,
            "is_full": not daemon or warm_up + count / 2 >= HISTORY,
            "seconds": seconds,
            "before": before,
            "after": scene.measure(),
            "growth": series.describe(),
            "largest": series.find_largest(),
            "changed": {key: [host[key], now[key]] for key in host if host[key] != now[key]},
        }


def judge(answer: dict[str, Any]) -> list[str]:
    """What has leaked."""
    changed = answer.get("changed", {})
    wrong = [f"{key} of the host differ: {seen}" for key, seen in changed.items()]
    if any(answer["after"][key] > count for key, count in answer["before"].items()):
        wrong.append(f"it holds {answer['after']}, before {answer['before']}")
    described = answer["growth"] if answer.get("is_full", True) else {}
    return wrong + growth.judge(described, answer["largest"], answer["cycles"])
