"""Endurance on a simulated machine, with a genuine libvirtd: see ``cycles``.

Everything but the hardware is real: helpers, files, journal, libvirt, and where asked for the daemon. Memory is
counted twice: what Python holds (tracemalloc, in this process only) and what the kernel says of the process (RSS).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import Any
from unittest import mock

from tests.guest.libvirtd import PrivateLibvirtd, private_libvirtd
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.daemon.local import open_application
from vgpumgr.errors import NvmlMissingError, VgpumgrError
from vgpumgr.host.machine import find_machine
from vgpumgr.plan.journal import Journal
from vgpumgr.sim import lifecycle

ROOT = Path(__file__).parents[2]
VM = "endurance"
#: what a process that lives for weeks may hold more after 1,000 cycles
MAX_RSS_GROWTH_KIB = 8 << 10
#: what Python may hold more for each cycle; history that has its bound is full after the warm-up
MAX_GROWTH_PER_CYCLE = 256
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
        state = self.directory / "host/state"
        found: dict[str, Any] = {}
        for name in ("vgpus.json", "passthrough.json"):
            data = json.loads((state / name).read_text()) if (state / name).exists() else {}
            found[name] = {
                key: len(rows) for key, rows in data.items() if isinstance(rows, list) and rows
            }
        return found

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
            "descriptors": _count(f"/proc/{self.pid}/fd"),
            "threads": _count(f"/proc/{self.pid}/task"),
            "helpers": len(children),
            "helpers_descriptors": sum(_count(f"/proc/{child}/fd") for child in children),
        }

    def read_rss_kib(self) -> dict[str, int]:
        """Resident memory of the process and of its helpers."""
        forget_caches()
        helpers = sum(map(_read_rss_kib, _list_children(self.pid)))
        return {"process": _read_rss_kib(self.pid), "helpers": helpers}


def _count(directory: str) -> int:
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
        return b"vgpumgr" in words and b"daemon" not in words.split(b"\0")
    return False


def _read_rss_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def forget_caches() -> None:
    """Caches have their bounds, and need not be full yet; what is still held then has none."""
    for module in [m for name, m in sys.modules.items() if name.startswith("vgpumgr.")]:
        for value in vars(module).values():
            if isinstance(value, _lru_cache_wrapper):
                value.cache_clear()
    gc.collect()


def count_held_bytes() -> int:
    """What Python holds. Paths intern their parts: the table of all such strings, which doubles now and then and
    grows by no cycle, counts for nobody.
    """
    paths = tracemalloc.Filter(False, pathlib.__file__)
    found = tracemalloc.take_snapshot().filter_traces([paths])
    return sum(trace.size for trace in found.traces)


@contextmanager
def open_scene(backend: Backend, *, daemon: bool) -> Iterator[Scene]:
    """The machine with a libvirtd and one shut off VM; everything ends with it."""
    # short: the paths of sockets are limited
    directory = Path(tempfile.mkdtemp(prefix="vgend.", dir="/tmp"))
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
            with serve(backend.machine) as (call, pid):
                for operation, asked in backend.before:
                    call(operation, **asked)
                yield Scene(home, call, pid, libvirtd)
        finally:
            lifecycle.stop(backend.machine)
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _work_here(machine: str) -> Iterator[tuple[Call, int]]:
    with open_application(machine) as application:
        yield (
            lambda operation, **asked: getattr(application, operation)(**asked).as_data(),
            os.getpid(),
        )


@contextmanager
def _serve(machine: str) -> Iterator[tuple[Call, int]]:
    command = [sys.executable, "-m", "vgpumgr", "--machine", machine, "daemon"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    socket = find_machine(machine).run_dir / "vgpumgr.sock"
    backend = HttpBackend(lambda: connect_unix(str(socket)))
    try:
        end_s = time.monotonic() + 60
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
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def run(name: str, count: int, warm_up: int, *, daemon: bool) -> dict[str, Any]:
    """Counts, memory and the machine before and after so many cycles."""
    backend = BACKENDS[name]
    with open_scene(backend, daemon=daemon) as scene:
        scene.cycle(backend.asked, warm_up)
        host, before, rss = scene.describe_host(), scene.measure(), scene.read_rss_kib()
        if not daemon:
            tracemalloc.start()
            scene.cycle(backend.asked, 2)
            forget_caches()
        held = 0 if daemon else count_held_bytes()
        started_s = time.monotonic()
        scene.cycle(backend.asked, count)
        seconds = round(time.monotonic() - started_s, 1)
        forget_caches()
        answer: dict[str, Any] = {
            "backend": name,
            "through": "daemon" if daemon else "this process",
            "cycles": count,
            "seconds": seconds,
            "before": before,
            "after": scene.measure(),
            "rss_kib_before": rss,
            "rss_kib_after": scene.read_rss_kib(),
        }
        if not daemon:
            answer["grown_bytes"] = count_held_bytes() - held
            tracemalloc.stop()
        now = scene.describe_host()
        answer["changed"] = {key: [host[key], now[key]] for key in host if host[key] != now[key]}
        answer["journal_bytes"] = (scene.directory / "host/state/journal").stat().st_size
    return answer


def judge(answer: dict[str, Any]) -> list[str]:
    """What has leaked."""
    wrong = [f"{key} of the host differ: {seen}" for key, seen in answer["changed"].items()]
    if any(answer["after"][key] > count for key, count in answer["before"].items()):
        wrong.append(f"it holds {answer['after']}, before {answer['before']}")
    grown = answer.get("grown_bytes", 0)
    if grown > MAX_GROWTH_PER_CYCLE * answer["cycles"] + (128 << 10):
        wrong.append(f"Python holds {grown} bytes more")
    # tracing takes memory of its own: in this process that is what counts
    watched = ("helpers",) if "grown_bytes" in answer else ("process", "helpers")
    for who in watched:
        kib = answer["rss_kib_after"][who]
        if kib - answer["rss_kib_before"][who] > MAX_RSS_GROWTH_KIB:
            wrong.append(f"{who} has grown by {kib - answer['rss_kib_before'][who]} KiB")
    return wrong
