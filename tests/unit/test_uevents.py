"""The kernel's events: their form, whose they are, and what the reconciler makes of them."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import binary

from tests.support.service import make_bench
from tests.support.watched import watched
from vgpumgr.errors import LibvirtDownError
from vgpumgr.host.sockets import KernelUevents, Uevent, UeventBatch, parse_uevent
from vgpumgr.model.request import AttachRequest
from vgpumgr.server.reconciler import Sources
from vgpumgr.server.settings import ReconcileSettings, Settings

BIND = (
    b"bind@/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.4\0ACTION=bind\0"
    b"DEVPATH=/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.4\0SUBSYSTEM=pci\0DRIVER=vfio-pci\0"
    b"PCI_ID=10DE:2236\0SEQNUM=4711\0"
)
NO_TIMER = Settings(reconcile=ReconcileSettings(interval_s=0))


def test_form() -> None:
    event = parse_uevent(BIND)
    assert event == Uevent("bind", "pci", "0000:3b:00.4", "vfio-pci")
    assert str(event) == "pci 0000:3b:00.4: bind (vfio-pci)"
    assert parse_uevent(b"libudev\0\xfe\xed\xca\xfe") is None
    assert parse_uevent(b"add@relative\0SUBSYSTEM=pci\0") is None
    assert parse_uevent(b"add@/x\0ACTION=add\0") is None


@given(binary(max_size=200))
def test_anything_may_come(data: bytes) -> None:
    parse_uevent(data)
    parse_uevent(b"add@/devices/x\0SUBSYSTEM=pci\0" + data)


def test_the_kernel_can_be_listened_to_and_a_process_is_not_believed() -> None:
    try:
        uevents = KernelUevents()
    except OSError as error:
        pytest.skip(f"no uevents here: {error}")
    with uevents:
        uevents.read()
        number = uevents._socket.getsockname()[0]
        sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
        with sender, suppress(PermissionError):  # only root gets even this far
            sender.sendto(BIND, (number, 0))
        assert not [e for e in uevents.read().events if e.name == "0000:3b:00.4"]


class PipedUevents:
    """Events that a test sends: a byte for each batch."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._batches: list[UeventBatch] = []

    def send(self, batch: UeventBatch) -> None:
        self._batches.append(batch)
        self._writer.send(b".")

    def fileno(self) -> int:
        return self._reader.fileno()

    def read(self) -> UeventBatch:
        self._reader.recv(1)
        return self._batches.pop(0)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def test_a_device_event_is_told_and_looked_into(tmp_path: Path) -> None:
    bench, pipe = make_bench(tmp_path), PipedUevents()
    bench.service.attach(AttachRequest("vm01", "1g.10gb"))
    with watched(bench.service.parts, NO_TIMER, Sources(None, lambda: pipe)) as seen:
        bench.channels.running.clear()
        pipe.send(UeventBatch((Uevent("bind", "pci", "0000:3b:00.4", "vfio-pci"),)))
        seen.wait(lambda: seen.actions(), "looked into")
        assert seen.actions() == ["vm01: started its keeper again"]
        device, look = seen.events[:2]
        assert (device["type"], device["action"], device["name"]) == (
            "device",
            "bind",
            "0000:3b:00.4",
        )
        assert look["reasons"] == ["pci 0000:3b:00.4: bind (vfio-pci)"]


def test_lost_events_are_a_reason_to_look(tmp_path: Path) -> None:
    bench, pipe = make_bench(tmp_path), PipedUevents()
    with watched(bench.service.parts, NO_TIMER, Sources(None, lambda: pipe)) as seen:
        pipe.send(UeventBatch(lost=True))
        seen.wait(lambda: seen.reconciler.looks, "a look")


def test_a_burst_is_one_look(tmp_path: Path) -> None:
    bench, pipe = make_bench(tmp_path), PipedUevents()
    with watched(bench.service.parts, NO_TIMER, Sources(None, lambda: pipe)) as seen:
        for number in range(100):
            pipe.send(UeventBatch((Uevent("add", "pci", f"0000:3b:00.{number}"),)))
        seen.wait(lambda: seen.reconciler.looks, "a look")
        seen.wait(lambda: len([e for e in seen.events if e["type"] == "device"]) == 100, "all told")
        time.sleep(1)
        assert seen.reconciler.looks < 10


def test_the_timer_alone_finds_it_and_tells_what_fails_once(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    settings = Settings(reconcile=ReconcileSettings(interval_s=0.05, jitter=0.5))
    with watched(bench.service.parts, settings, Sources()) as seen:
        seen.wait(lambda: seen.reconciler.looks > 2, "looks")
        assert [e["type"] for e in seen.events] == ["reconcile"], "nothing new is not told again"
        real = bench.hypervisor.list_vms

        def fail() -> None:
            raise LibvirtDownError("libvirt is away")

        bench.hypervisor.list_vms = fail  # type: ignore[method-assign,assignment]
        before = seen.reconciler.looks
        seen.wait(lambda: seen.reconciler.looks > before + 3, "looks")
        failures = [e for e in seen.events if e["type"] == "reconcile" and e["error"]]
        assert [e["error"]["id"] for e in failures] == [LibvirtDownError.id]
        bench.hypervisor.list_vms = real  # type: ignore[method-assign]
        seen.wait(lambda: seen.events[-1]["error"] is None, "well again")
