"""Coming back: a daemon's restart over running workers, reconciling a large host, and ``status``
while helper processes are stuck.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.attached_daemon import PROFILE, make_vms
from bench.daemon import ask, wait_answer
from bench.machine import NAME, simulated
from bench.registry import ROOT, Figure, make_goal
from tests.support.boards import make_gpu, make_uuid
from tests.support.fake_channels import FakeChannels
from tests.support.fake_hypervisor import FakeHypervisor
from tests.support.fake_nvml import FakeNvml
from vgpumgr.app.context import Parts
from vgpumgr.app.operations.attachments import AttachmentService
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.errors import HelperLateError
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.helper import Helper, LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid
from vgpumgr.model.request import AttachRequest
from vgpumgr.state.store import Store
from vgpumgr.virtio.keeper import KeeperChannels

WORKERS = 16
GPUS, ATTACHMENTS = 64, 256
STUCK, QUESTIONS = 3, 300
_STUCK_HELPER = "import os, sys, time; os.write(int(sys.argv[1]), b'\\n'); time.sleep(600)"


def run(small: bool = False) -> Iterable[Figure]:
    """``small``: one worker, two GPUs, few questions, to see that it runs."""
    yield from _restart(1 if small else WORKERS, 2 if small else 5)
    yield from _reconcile(*((2, 4) if small else (GPUS, ATTACHMENTS)))
    yield from _status(10 if small else QUESTIONS)


def _restart(workers: int, runs: int) -> Iterator[Figure]:
    """From the start of the process to the first answer, after the one before was killed."""
    with simulated() as machine:
        command = [sys.executable, "-m", "bench.attached_daemon", str(machine.state_dir.parent)]
        command.append(str(workers))
        subprocess.run([*command, "--attach"], check=True, cwd=ROOT)
        channels = KeeperChannels(machine)
        try:
            before = _list_processes(channels)
            assert len(before) == workers
            times = [_time_start(command, machine) for _ in range(runs)]
            assert _list_processes(channels) == before, "a worker did not survive"
        finally:
            for channel in channels.list_ids():
                channels.stop(channel)
    backend = "simulated driver, libvirt in memory"
    name = f"daemon restart over {workers} workers"
    yield make_goal(name, statistics.median(t[0] for t in times), 1.0, backend)
    yield make_goal(f"{name} (CPU)", statistics.median(t[1] for t in times), 1.0, backend)


def _list_processes(channels: KeeperChannels) -> list[tuple[int, int | None]]:
    found = [channels.read_status(channel) for channel in channels.list_ids()]
    return [(status.keeper_pid, status.worker_pid) for status in found if status]


def _time_start(command: list[str], machine: Machine) -> tuple[float, float]:
    """Wall and processor time until the API answers. The daemon is killed, as a crash would."""
    start = time.perf_counter()
    daemon = subprocess.Popen(command, cwd=ROOT)
    try:
        wait_answer(str(machine.run_dir / "vgpumgr.sock"), "/1.0/vms")
        return time.perf_counter() - start, _cpu_s(daemon.pid)
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reconcile(gpus: int, attachments: int) -> Iterator[Figure]:
    """With everything in order, and after the state file was lost: all records come from the VMs."""
    with tempfile.TemporaryDirectory(prefix="vgb") as name:
        directory = Path(name)
        nvml = FakeNvml([_make_gpu(index) for index in range(gpus)])
        store = Store(directory / "state.sqlite")
        vms = make_vms(attachments)
        parts = Parts(
            nvml=nvml,
            read_inventory=nvml.read_inventory,
            hypervisor=FakeHypervisor(vms),
            channels=FakeChannels(directory / "channels"),
            store=store,
            clock=SystemClock(),
            state_dir=directory / "state",
            run_dir=directory / "run",
            boot_id="bench",
            is_privileged=True,
        )
        service = AttachmentService(parts)
        for index, vm in enumerate(vms):
            gpu = str(index % gpus)
            service.attach(AttachRequest(vm=vm.name, profile=PROFILE, gpu=gpu))
        what, backend = f"{gpus} GPUs, {attachments} attachments", "all in memory"
        seconds = _time(lambda: _recover(parts, 0))
        yield make_goal(f"reconcile {what}", seconds, 2.0, backend)
        (directory / "state.sqlite").unlink()
        for part in ("-wal", "-shm"):
            (directory / f"state.sqlite{part}").unlink(missing_ok=True)
        seconds = _time(lambda: _recover(parts, attachments + 1), runs=1)
        yield make_goal(f"rebuild the records of {what}", seconds, 2.0, backend)


def _make_gpu(index: int) -> Gpu:
    """More of them than one PCI domain of ``make_gpu`` holds."""
    domain, rest = divmod(index, 16)
    gpu = replace(make_gpu(index=rest, layout=None), index=index)
    uuid = GpuUuid(make_uuid("GPU", index))
    return replace(gpu, uuid=uuid, pci=replace(gpu.pci, domain=domain))


def _recover(parts: Parts, actions: int) -> None:
    document = Recovery(parts).recover(Policy())
    assert (len(document.actions), document.drift) == (actions, []), document


def _time(work: Callable[[], None], runs: int = 5) -> float:
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def _status(questions: int) -> Iterator[Figure]:
    """``GET /1.0/status`` while helpers hang in calls that do not return."""
    with simulated() as machine, ExitStack() as stack:
        for _ in range(STUCK):
            stack.enter_context(_stuck_helper(machine))
        command = [sys.executable, "-m", "vgpumgr", "-q", "--machine", NAME, "daemon"]
        daemon = subprocess.Popen(command, cwd=ROOT)
        try:
            path = str(machine.run_dir / "vgpumgr.sock")
            answer = wait_answer(path, "/1.0/status")
            assert answer.count(b"(unbind") == STUCK, answer
            times = sorted(_time_question(path) for _ in range(questions))
        finally:
            daemon.terminate()
            daemon.wait()
    backend = "simulated driver"
    for name, at in (("p50", 0.5), ("p99", 0.99)):
        value = times[min(len(times) - 1, int(len(times) * at))]
        yield make_goal(f"status with {STUCK} helpers stuck, {name}", value, 0.25, backend)


def _time_question(path: str) -> float:
    start = time.perf_counter()
    ask(path, "/1.0/status")
    return time.perf_counter() - start


@contextmanager
def _stuck_helper(machine: Machine) -> Iterator[None]:
    """A helper process that has missed its deadline, and is ended here alone."""
    argv = [sys.executable, "-c", _STUCK_HELPER]
    helper = Helper(argv, os.environ, LateRecords(machine.run_dir))
    with contextlib.suppress(HelperLateError):
        helper.call("unbind", {}, 0.01)
    try:
        yield
    finally:
        os.kill(helper.pid, signal.SIGKILL)
        helper.close()
