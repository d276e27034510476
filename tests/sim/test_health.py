"""An unhealthy GPU takes no new slice: what its driver reports is heard, recorded and obeyed. By command lines on
simulated machines, with a daemon that is killed and a driver that does not answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sim.test_drain import FLEX, UUID, attach, host, run_json
from tests.sim.test_overviews import ROOT, Host, on
from tests.support.attached_machine import Attached, machine_of_vms
from vgpumgr.app.operations.gpus import make_events, resume_gpu
from vgpumgr.errors import GpuUnhealthyError, HelperDiedError, NotPermittedError, StoreError
from vgpumgr.host.clock import SystemClock
from vgpumgr.host.kernel_log import KernelLog, LoggedXid
from vgpumgr.model.gpu import Drain, list_drains
from vgpumgr.model.health import APPLICATION_XIDS, XIDS, GpuEvent
from vgpumgr.model.pci import PciAddress
from vgpumgr.nvml.client import NvmlClient
from vgpumgr.server.health import POLL_S, HealthWatcher
from vgpumgr.sim.lifecycle import log_xid
from vgpumgr.sim.machine import add_event, set_gpu_field
from vgpumgr.state.store import Store

pytestmark = pytest.mark.native
PATIENCE_S = 60.0
__all__ = ["host"]


def await_true(is_so: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@contextlib.contextmanager
def daemon(host: Host, *, hears: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """One that answers, and hears the driver."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vgpumgr", "--machine", host.name, "daemon"],
        env=os.environ | {"VGPUMGR_SIM_ROOT": str(host.root), "PYTHONPATH": str(ROOT)},
    )
    try:
        await_true(lambda: list(host.root.rglob("vgpumgr.sock")))
        before = count_xids(host, 1).get(13, 0) if hears else 0
        # what came before it listened is not heard
        while hears and count_xids(host, 1).get(13, 0) == before:
            cause(host, "1", "--xid", "13")
            time.sleep(1)
        yield process
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) in (0, -signal.SIGKILL)


def cause(host: Host, gpu: str, *words: str) -> None:
    host.run("sim", "fault", host.name, gpu, *words)


def count_xids(host: Host, gpu: int) -> dict[int, int]:
    health = run_json(host, "gpu", "list")["gpus"][gpu]["health"]
    return {one["xid"]: one["count"] for one in health["xids"]}


def is_healthy(host: Host, gpu: int = 0) -> bool:
    found: bool = run_json(host, "gpu", "list")["gpus"][gpu]["health"]["healthy"]
    return found


def check_refused(host: Host, *lines: tuple[str, ...], text: str) -> None:
    for line in lines:
        said = host.run(*line, code=6)
        assert "VG109" in said, said
        assert text in said
        assert re.search(r"try: .* gpu resume 0\b|try: .* cool down", said), said


@on("dgx-a100")
def test_an_xid_is_heard_and_the_gpu_takes_nothing_new(host: Host) -> None:
    layout = ("mig", "layout", "apply", str(host.root / "l.yaml"), "-c", "full", "--yes")
    with daemon(host):
        assert is_healthy(host, 1), "an Xid of a program"
        cause(host, "0", "--xid", "79")
        await_true(lambda: not is_healthy(host))
        text = "Xid 79 (GPU has fallen off the bus)"
        check_refused(
            host,
            attach("0", "1g.10gb"),
            attach("0", "passthrough"),
            layout,
            ("passthrough", "bind", "0", "--yes"),
            ("mig", "defrag", "--plan", "4g.40gb", "--gpu", "0"),
            ("run", "--profile", "1g.10gb", "--gpu", "0", "--", "true"),
            text=text,
        )
        for words in (
            ("gpu", "show", "0"),
            ("status",),
            ("why", "1g.10gb"),
            ("mig", "profiles", "--gpu", "0", "-o", "wide"),
        ):
            assert text in host.run(*words), words
        row = host.run("gpu", "list", "-o", "csv", "--no-header", "--columns", "index,slices")
        assert row.splitlines()[:2] == ["0,unhealthy", "1,"]
        assert "unhealthy, MIG off" in host.run("top", "--once", "--ascii")
        drained = run_json(host, "gpu", "show", "0")["gpu"]["drained"]
        assert drained["fault"] == {"kind": "xid", "xid": 79, "text": text}
        assert abs(drained["since_s"] - time.time()) < PATIENCE_S
        plan = host.run("attach", "vm01", "--config", "--profile", "1g.10gb", "--dry-run")
        assert re.search(r"left alone: GPU 0 \(0000:07:00.0\): unhealthy since .*Xid 79", plan)
        await_true(lambda: re.search(r'gpu_healthy\{.*gpu="0".*\} 0.0', host.run("metrics")))
        metrics = host.run("metrics")
        assert re.search(r'gpu_xid_errors_total\{.*gpu="0".*xid="79"\} 1.0', metrics)
        assert re.search(r'gpu_healthy\{.*gpu="1".*\} 1.0', metrics)
        assert re.search(r'gpu_drained\{.*gpu="0".*\} 1.0', metrics)
        # an administrator's word, until the next event
        assert "is resumed" in host.run("gpu", "resume", "0")
        assert is_healthy(host)
        host.run(*attach("0", "passthrough"), "--dry-run")
        cause(host, "0", "--xid", "94", "--instance", "2")
        await_true(lambda: not is_healthy(host))
        assert "Xid 94 (contained ECC error) in GPU instance 2" in host.run("status")
    check_refused(host, layout, text="Xid 94")
    host.run("sim", "reboot", host.name)
    assert is_healthy(host), "a boot ends what the driver no longer reports"
    host.run(*layout)


@on("dgx-a100")
def test_what_is_asked_for_without_a_daemon(host: Host) -> None:
    cause(host, "0", "--ecc-single", "7")
    assert is_healthy(host), "corrected errors"
    cause(host, "0", "--ecc-double", "2")
    check_refused(host, attach("0", "1g.10gb"), text="2 uncorrectable ECC errors")
    assert "is resumed" in host.run("gpu", "resume", "0")
    host.run(*attach("0", "1g.10gb"), "--dry-run")
    cause(host, "0", "--ecc-double", "1")
    check_refused(host, attach("0", "1g.10gb"), text="3 uncorrectable ECC errors")
    cause(host, "0", "--reset")
    assert is_healthy(host)
    cause(host, "0", "--ecc-double", "1")
    assert not is_healthy(host), "fewer than were accepted before the reset are others"
    cause(host, "0", "--reset", "--temperature", "95")
    check_refused(host, attach("0", "1g.10gb"), text="95 °C; at 89 °C it slows down")
    assert "let GPU 0 cool down" in host.run("gpu", "resume", "0")
    assert not is_healthy(host)
    cause(host, "0", "--temperature", "60")
    host.run(*attach("0", "1g.10gb"), "--dry-run")
    assert "VG101" in host.run("sim", "fault", host.name, "99", "--xid", "1", code=5)
    for words in ((), ("--instance", "1"), ("--temperature", "9999"), ("--xid", "-4")):
        assert "VG100" in host.run("sim", "fault", host.name, "0", *words, code=2)


@on("vgpu-t4")
def test_a_restore_brings_back_what_was_there(host: Host) -> None:
    host.run("mdev", "create", "GRID T4-2Q", "--gpu", "0", "--uuid", UUID, "--auto")
    host.run("sim", "reboot", host.name)
    cause(host, "0", "--ecc-double", "1")
    check_refused(
        host,
        ("mdev", "create", "GRID T4-2Q", "--gpu", "0"),
        attach("0", "T4-2Q"),
        text="1 uncorrectable ECC error",
    )
    host.run("restore")
    assert run_json(host, "mdev", "list")["vgpus"][0]["state"] == "active"
    host.run("mdev", "stop", UUID)
    assert "VG109" in host.run("mdev", "start", UUID, code=6)
    assert " on 0000:af:00.0" in host.run("mdev", "create", "GRID T4-2Q")
    # both reasons at once: an administrator's word ends both
    host.run("gpu", "drain", "0", "--reason", "fan")
    assert len([line for line in host.run("status").splitlines() if "GPU 0 " in line]) == 2
    host.run("gpu", "resume", "0")
    host.run("mdev", "start", UUID)


@on("dgx-a100")
def test_a_daemon_that_is_killed_loses_no_record(host: Host) -> None:
    with daemon(host) as process:
        cause(host, "0", "--ecc-double", "1", "--xid", "48")
        process.kill()
        process.wait(PATIENCE_S)
        # heard or not: what the driver counts is asked for
        assert not is_healthy(host)
        status = json.loads(host.run("status", "-o", "json"))
        assert not [one for one in status["drift"] or () if one["kind"].startswith("state")]
    cause(host, "2", "--xid", "62")
    with daemon(host):
        assert not is_healthy(host)
        await_true(lambda: not is_healthy(host, 2))


@on("dgx-a100")
def test_what_comes_while_no_daemon_runs_is_in_the_kernels_log(host: Host) -> None:
    cause(host, "0", "--xid", "79", "--instance", "3")
    text = "Xid 79 (GPU has fallen off the bus) in GPU instance 3"
    check_refused(host, attach("0", "1g.10gb"), text=text)
    assert "no new slice on GPU 0: unhealthy" in host.run("doctor", "--check", "gpu-health", code=3)
    host.run("gpu", "resume", "0")
    assert is_healthy(host), "each line is read once"
    for _ in range(3):
        cause(host, "4", "--xid", "31")
    cause(host, "2", "--xid", "62")
    with daemon(host):
        await_true(lambda: not is_healthy(host, 2))
        assert is_healthy(host)
        # what NVML reports and the log has is counted once
        before = count_xids(host, 3).get(45, 0)
        for _ in range(5):
            cause(host, "3", "--xid", "45")
        await_true(lambda: count_xids(host, 3).get(45, 0) >= before + 5)
        time.sleep(4)
        assert count_xids(host, 3)[45] == before + 5
        assert count_xids(host, 4) == {31: 3}
    assert count_xids(host, 4) == {31: 3}
    host.run("sim", "reboot", host.name)
    assert is_healthy(host, 2)


class Listener:
    """A watcher of a machine, with what it reports."""

    def __init__(self, machine: Attached, store: Any = None) -> None:
        parts = machine.application.parts
        self.directory = Path(machine.machine.child_env()["VGPUMGR_SIM"])
        self.found: list[tuple[int | None, bool]] = []
        self.watcher = HealthWatcher(
            NvmlClient(machine.machine),
            store or Store(parts.store.path, parts.boot_id),
            SystemClock(),
            self.report,
            bool,
            KernelLog(machine.machine),
            retry_s=0.1,
        )

    def report(self, event: GpuEvent, drain: Drain | None) -> None:
        self.found.append((event.xid, drain is not None))

    def __enter__(self) -> Listener:
        self.watcher.start()
        self.hear(7, 13)
        return self

    def __exit__(self, *_: object) -> None:
        self.watcher.close()
        assert "nvml-events" not in {thread.name for thread in threading.enumerate()}

    def hear(self, gpu: int, xid: int) -> None:
        """The event is caused until it is heard."""

        def is_heard() -> bool:
            add_event(self.directory, gpu, "xid", xid)
            time.sleep(0.7)
            return xid in [heard for heard, _ in self.found]

        await_true(is_heard)


def test_an_event_while_an_attach_runs() -> None:
    """It is recorded at once; the attach that was planned before ends as it would, the next one is refused."""
    with machine_of_vms() as machine, Listener(machine) as listener:
        directory = listener.directory
        tool = ROOT / "vgpumgr/_lib/bin/vgpumgr-simstate"
        subprocess.run([tool, "fault", directory, "gi.create", "1", "1", "0", "4000"], check=True)
        attaching = threading.Thread(
            target=lambda: machine.call("attach", vm="vm01", profile="1g.10gb", gpu="0")
        )
        parts = machine.application.parts
        attaching.start()
        try:
            time.sleep(1.5)
            add_event(directory, 0, "xid", 95)
            store = Store(parts.store.path, parts.boot_id)
            await_true(store.list_drains)
            assert attaching.is_alive(), "recorded while the attach goes on"
            attaching.join(PATIENCE_S)
            with pytest.raises(GpuUnhealthyError, match="vm02"):
                machine.call("attach", vm="vm02", profile="1g.10gb", gpu="0")
            assert machine.call("show_vm", selector="vm01")["vm"]["channels"][0]["running"]
        finally:
            attaching.join(PATIENCE_S)
            machine.call("detach", vm="vm01")


@pytest.mark.parametrize(
    "code", [3, 9, 15, 999], ids=["unsupported", "unloaded", "lost", "unknown"]
)
def test_a_driver_that_does_not_answer_is_asked_again(code: int) -> None:
    with machine_of_vms() as machine, Listener(machine) as listener:
        tool = ROOT / "vgpumgr/_lib/bin/vgpumgr-simstate"
        fault = ["read", "1", "100000", str(code), "0"]
        subprocess.run([tool, "fault", listener.directory, *fault], check=True)
        time.sleep(1.5)
        subprocess.run([tool, "clear", listener.directory], check=True)
        listener.hear(0, 64)
        assert (64, True) in listener.found


def test_a_lost_gpu_hides_no_other() -> None:
    with machine_of_vms() as machine, Listener(machine) as listener:
        add_event(listener.directory, 0, "xid", 79)
        set_gpu_field(listener.directory, 0, "lost", 1)
        listener.hear(1, 74)
        assert (79, True) in listener.found
        parts = machine.application.parts
        (told, other) = machine.call("status")["drained"]
        assert re.match(r"GPU GPU-216d\S+ is unhealthy since .*: Xid 79", told)
        assert "Xid 74" in other
        # after a reset it is there again, and resumed by whatever it is called
        set_gpu_field(listener.directory, 0, "lost", 0)
        machine.call("resume_gpu", selector="GPU-216d")
        assert [d.fault.xid for d in parts.store.list_drains() if d.fault] == [74]


def test_a_full_disk_does_not_lose_an_event() -> None:
    class Full(Store):
        is_full = True

        def save_event(self, event: GpuEvent, now_s: float, times: int = 1) -> Drain | None:
            if self.is_full and event.xid == 79:
                raise StoreError("cannot use the state file", cause="disk full")
            return super().save_event(event, now_s, times)

    with machine_of_vms() as machine:
        parts = machine.application.parts
        store = Full(parts.store.path, parts.boot_id)
        with Listener(machine, store) as listener:
            add_event(listener.directory, 0, "xid", 79)
            time.sleep(1.5)
            assert store.list_drains() == ()
            store.is_full = False
            await_true(store.list_drains)


def test_a_guest_that_causes_xids_without_end_makes_few_records_and_reports() -> None:
    with machine_of_vms() as machine, Listener(machine) as listener:
        before, began_s = len(listener.found), time.monotonic()
        for _ in range(60):
            add_event(listener.directory, 2, "xid", 31)
        listener.hear(0, 64)
        reports = [xid for xid, _ in listener.found[before:] if xid == 31]
        # at most one each time that the driver is asked
        assert 1 <= len(reports) <= (time.monotonic() - began_s) / POLL_S + 1
        (known,) = (
            one for one in machine.application.parts.store.list_health()
            if 31 in [count.xid for count in one.xids]
        )  # fmt: skip
        assert [count.count for count in known.xids if count.xid == 31] == [60]


def test_a_helper_that_is_killed_is_followed_by_another() -> None:
    """As by a command that takes a GPU from its driver."""
    with machine_of_vms() as machine, Listener(machine) as listener:
        helper = listener.watcher._nvml._helper._helper
        assert helper is not None
        os.kill(helper.pid, signal.SIGKILL)
        listener.hear(3, 61)


def test_what_nvml_does_not_report_is_taken_from_the_log() -> None:
    """While the driver cannot be heard, and after; what a guest causes there without end is one record, too."""
    with machine_of_vms() as machine:
        directory = Path(machine.machine.child_env()["VGPUMGR_SIM"])
        parts = machine.application.parts
        address = str(parts.read_inventory().gpus[5].pci)
        with Listener(machine) as listener:
            tool = ROOT / "vgpumgr/_lib/bin/vgpumgr-simstate"
            subprocess.run([tool, "fault", directory, "read", "1", "100000", "15", "0"], check=True)
            for _ in range(200):
                log_xid(directory, address, 31)
            log_xid(directory, address, 79)
            await_true(lambda: 79 in [xid for xid, _ in listener.found])
            subprocess.run([tool, "clear", directory], check=True)
            assert [xid for xid, _ in listener.found].count(31) <= 3
            (known,) = (h for h in parts.store.list_health() if str(h.address) == address)
            assert {one.xid: one.count for one in known.xids} == {31: 200, 79: 1}
            await_true(lambda: list_drains(parts.store, parts.read_inventory().gpus))


def test_a_gpu_that_nvml_lists_no_more_is_known_by_its_address() -> None:
    with machine_of_vms() as machine:
        parts = machine.application.parts
        store = Store(parts.store.path, parts.boot_id)
        logged = [LoggedXid(n, 1.0, PciAddress(0, 0xEE, 0), 79) for n in range(4)]
        found = make_events(logged, parts.read_inventory, store, parts.clock)
        ((event, seen),) = found.items()
        assert (event.uuid, seen.times) == ("", 4)
        drain = store.save_event(event, seen.last_s, seen.times)
        assert drain is not None
        assert (drain.uuid, drain.is_of(event.address, "GPU-1")) == (None, True)
        assert {one.xid: one.count for h in store.list_health() for one in h.xids} == {79: 4}
        # it is known since: NVML does not need to answer
        known = store.save_event(GpuEvent(event.address, "GPU-1", 31), 1.0)
        assert known is None

        def fail() -> Any:
            raise HelperDiedError("gone")

        (later,) = make_events(logged[:1], fail, store, parts.clock)
        assert later.uuid == "GPU-1"


def test_a_change_of_mig_mode_ends_our_own_listeners() -> None:
    """An A100 would not be reset while they have it open."""
    with machine_of_vms() as machine:
        gpu = machine.application.parts.read_inventory().gpus[6]
        with NvmlClient(machine.machine) as listener, NvmlClient(machine.machine) as nvml:
            assert listener.take_events() == ()
            nvml.set_mig_mode(gpu.uuid, not gpu.mig.current)
            with pytest.raises(HelperDiedError):
                listener.take_events()
            assert listener.take_events() == ()
            nvml.set_mig_mode(gpu.uuid, gpu.mig.current)


def test_a_user_without_rights_changes_nothing() -> None:
    with machine_of_vms() as machine:
        parts = replace(machine.application.parts, is_privileged=False)
        drain = parts.store.save_event(event(parts, 79), 1.0)
        assert drain is not None
        with pytest.raises(NotPermittedError):
            resume_gpu(parts, selector="0")
        resume_gpu(parts, selector="0", dry_run=True)
        assert list_drains(parts.store, parts.read_inventory().gpus) == (drain,)


def event(parts: Any, xid: int | None) -> GpuEvent:
    gpu = parts.read_inventory().gpus[0]
    return GpuEvent(gpu.pci, gpu.uuid, xid)


def test_the_first_event_says_since_when_and_another_boot_knows_of_none() -> None:
    with machine_of_vms() as machine:
        parts = machine.application.parts
        assert parts.store.save_event(event(parts, 79), 1.0)
        assert parts.store.save_event(event(parts, 79), 9.0) is None, "known already"
        assert all(parts.store.save_event(event(parts, x), 2.0) is None for x in APPLICATION_XIDS)
        assert parts.store.save_event(event(parts, None), 3.0)
        assert [d.since_s for d in parts.store.list_drains()] == [1.0, 3.0]
        later = Store(parts.store.path, "another boot")
        assert later.list_drains() == ()
        (health,) = later.list_health()
        assert {one.xid: one.count for one in health.xids} == {79: 2} | dict.fromkeys(
            APPLICATION_XIDS, 1
        )
        assert set(XIDS) > APPLICATION_XIDS


@on("intel-flex")
def test_a_host_without_nvml(host: Host) -> None:
    assert "VG101" in host.run("sim", "fault", host.name, FLEX, "--xid", "79", code=5)
    with daemon(host, hears=False):
        assert "unhealthy" not in host.run("gpu", "list") + host.run("status")
