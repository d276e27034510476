"""The connection to libvirt when libvirt is not there, or does not answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import libvirt
import pytest

from vgpumgr.domain.domain import NAMESPACE, AttachmentNote, read_notes
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.domain.libvirt import LateCallError, LibvirtHypervisor, run_with_deadline
from vgpumgr.errors import (
    LibvirtDownError,
    LibvirtError,
    LibvirtLateError,
    LibvirtPermissionError,
    VmNotFoundError,
)


def test_test_driver() -> None:
    with LibvirtHypervisor("test:///default") as hypervisor:
        (vm,) = hypervisor.list_vms()
        assert (vm.name, vm.state) == ("test", "running")
        assert vm.live is not None
        assert hypervisor.read_vm(vm.uuid) == hypervisor.read_vm("test")
        with pytest.raises(VmNotFoundError) as caught:
            hypervisor.read_vm("tset")
        assert "near names: test" in str(caught.value.why)
        with pytest.raises(LibvirtError) as refused:
            hypervisor.attach_device(vm.uuid, "<shmem name='x'/>", Scope.LIVE)
        assert "not supported by the connection driver" in str(refused.value.cause)
        assert hypervisor.read_qemu_owner() is None


class _Counting:
    """A domain of the binding that notes which questions are put to libvirt."""

    #: what the binding answers by itself
    _OWN = ("name", "UUIDString")

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in self._OWN:
            self.asked.append(name)
        return getattr(self._domain, name)


def _read_counted(hypervisor: LibvirtHypervisor) -> tuple[Vm, list[str]]:
    counting = _Counting(hypervisor._connection.lookupByName("test"))
    return hypervisor._read(counting), counting.asked


def test_a_vm_is_read_with_few_questions_and_says_all() -> None:
    """Each question is a round trip, and an attach reads its VM several times."""
    note = AttachmentNote(id="ab12", profile="mtty-2", vm="v", host_devices='[{"kind": "mdev"}]')
    with LibvirtHypervisor("test:///default") as hypervisor:
        vm = hypervisor.read_vm("test")
        domain = hypervisor._connection.lookupByName("test")
        for notes in [(note,), (note, AttachmentNote(id="cd34", vm="v", number=1)), ()]:
            hypervisor.set_notes(vm.uuid, notes, Scope.CONFIG)
            seen, asked = _read_counted(hypervisor)
            assert asked == ["state", "XMLDesc", "isPersistent", "XMLDesc"]
            assert seen.notes == notes
            assert seen.live is not None
            if notes:
                told = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, 2)
                assert read_notes(told) == notes
            # written back as read, it stays what it is
            hypervisor.set_notes(vm.uuid, seen.notes, Scope.CONFIG)
            assert hypervisor.read_vm("test").notes == notes
            assert hypervisor.read_vm("test").digest == seen.digest
        domain.destroy()
        try:
            seen, asked = _read_counted(hypervisor)
            assert asked == ["state", "XMLDesc"]
            assert (seen.state, seen.live, seen.config) == ("shut off", None, vm.config)
        finally:
            domain.create()


class _CountingDomains(LibvirtHypervisor):
    """Notes which questions are put to libvirt about domains it knows."""

    asked: list[str]

    def _find_known(self, uuid: str) -> Any:
        known = super()._find_known(uuid)
        if known is None:
            return None
        counting = _Counting(known)
        self.asked = counting.asked
        return counting


def test_one_definition_is_read_again_with_fewer_questions() -> None:
    note = AttachmentNote(id="ab12", profile="mtty-2", vm="v")
    with _CountingDomains("test:///default") as hypervisor, ExitStack() as undo:
        (uuid,) = (vm.uuid for vm in hypervisor.list_vms())
        before = hypervisor.read_vm(uuid)
        undo.callback(hypervisor.set_notes, uuid, (), Scope.CONFIG)
        hypervisor.set_notes(uuid, (note,), Scope.CONFIG)
        after = hypervisor.read_vm(uuid)
        assert hypervisor.read_again(before, Scope.CONFIG) == after != before
        assert hypervisor.asked == ["XMLDesc"]
        assert hypervisor.read_again(after, Scope.LIVE) == after
        assert hypervisor.asked == ["state", "XMLDesc"]
        # of one that has stopped since, what it shows is its definition
        domain = hypervisor._connection.lookupByName("test")
        domain.destroy()
        undo.callback(domain.create)
        stopped = hypervisor.read_again(after, Scope.LIVE)
        assert (stopped.state, stopped.live) == ("shut off", None)


def test_what_is_kept_of_a_definition_ends_with_its_text() -> None:
    with LibvirtHypervisor("test:///default") as hypervisor:
        before = hypervisor.read_vm("test")
        domain = hypervisor._connection.lookupByName("test")
        title = libvirt.VIR_DOMAIN_METADATA_TITLE
        domain.setMetadata(title, "another", None, None, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
        after = hypervisor.read_vm("test")
        assert after.digest != before.digest
        assert after.live == before.live
        assert after.config is not None
        assert "<title>another</title>" in after.config.to_xml()


class _CountingConnection:
    """A connection that counts how often a domain is looked up."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.lookups = 0
        self.alive = 1

    def isAlive(self) -> int:  # noqa: N802  # libvirt's name
        return self.alive

    def __getattr__(self, name: str) -> Any:
        self.lookups += name.startswith("lookupBy")
        return getattr(self.connection, name)


@pytest.fixture
def looking() -> Iterator[tuple[LibvirtHypervisor, _CountingConnection]]:
    with LibvirtHypervisor("test:///default") as hypervisor:
        hypervisor.list_vms()
        counting = _CountingConnection(hypervisor._connection)
        hypervisor._connection = counting
        yield hypervisor, counting


def test_a_vm_is_looked_up_once(looking: tuple[LibvirtHypervisor, _CountingConnection]) -> None:
    """Its name may be another's by the next read, its UUID may not."""
    hypervisor, counting = looking
    vm = hypervisor.read_vm("test")
    assert counting.lookups == 1
    hypervisor.set_notes(vm.uuid, (), Scope.CONFIG)
    assert hypervisor.read_vm(vm.uuid).name == "test"
    assert counting.lookups == 1
    assert hypervisor.read_vm("test").uuid == vm.uuid
    assert counting.lookups == 2
    # a connection that has ended is not asked: the lookup opens the next one
    counting.alive = 0
    hypervisor.set_notes(vm.uuid, (), Scope.CONFIG)
    assert counting.lookups == 3


def test_a_vm_that_was_read_may_go_and_come_back_by_another_name(
    looking: tuple[LibvirtHypervisor, _CountingConnection],
) -> None:
    hypervisor, counting = looking
    vm = hypervisor.read_vm("test")
    domain = counting.connection.lookupByName("test")
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    domain.destroy()
    domain.undefine()
    try:
        with pytest.raises(VmNotFoundError):
            hypervisor.read_vm(vm.uuid)
        with pytest.raises(VmNotFoundError):
            hypervisor.set_notes(vm.uuid, (), Scope.CONFIG)
        counting.connection.defineXML(xml.replace("<name>test<", "<name>again<"))
        assert hypervisor.read_vm(vm.uuid).name == "again"
        counting.connection.lookupByName("again").undefine()
        counting.connection.defineXML(xml.replace("<name>test<", "<name>more<"))
        assert hypervisor.read_vm(vm.uuid).name == "more"
    finally:
        counting.connection.lookupByUUIDString(vm.uuid).undefine()
        counting.connection.createXML(xml)
        counting.connection.defineXML(xml)


def test_nobody_listens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hypervisor = LibvirtHypervisor(f"qemu+unix:///system?socket={tmp_path}/none")
    with pytest.raises(LibvirtDownError) as caught:
        hypervisor.read_vm("x")
    assert "No such file" in str(caught.value.cause)
    assert capfd.readouterr() == ("", "")


def test_somebody_listens_and_never_answers(tmp_path: Path) -> None:
    """As a libvirtd that is stopped or deadlocked: the call ends at its deadline, and so does the program."""
    path = str(tmp_path / "hangs")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        hypervisor = LibvirtHypervisor(f"qemu+unix:///system?socket={path}", call_timeout_s=0.3)
        with pytest.raises(LibvirtLateError) as caught:
            hypervisor.list_vms()
        assert caught.value.id == "VG203"
        assert "no answer in 0.3 s" in str(caught.value.cause)
        hypervisor.close()


def test_permission_denied() -> None:
    hypervisor = LibvirtHypervisor("qemu:///system")
    error = hypervisor._down("Failed to connect socket: Permission denied")
    assert isinstance(error, LibvirtPermissionError)
    assert error.exit_code == 4


def test_deadline() -> None:
    assert run_with_deadline(lambda: 1, 5) == 1
    with pytest.raises(ZeroDivisionError):
        run_with_deadline(lambda: 1 // 0, 5)
    forever = threading.Event()
    with pytest.raises(LateCallError):
        run_with_deadline(forever.wait, 0.05)
    forever.set()


def test_calls_share_a_thread_until_one_is_late() -> None:
    first = run_with_deadline(threading.get_ident, 5)
    assert first != threading.get_ident()
    assert run_with_deadline(threading.get_ident, 5) == first
    with pytest.raises(ZeroDivisionError):
        run_with_deadline(lambda: 1 // 0, 5)
    assert run_with_deadline(threading.get_ident, 5) == first
    forever = threading.Event()
    begun: list[threading.Thread] = []

    def hang() -> None:
        begun.append(threading.current_thread())
        forever.wait()

    with pytest.raises(LateCallError):
        run_with_deadline(hang, 0.05)
    assert run_with_deadline(threading.current_thread, 5) is not begun[0]
    forever.set()
    # it has been given up: once its call has come back, it ends
    begun[0].join(30)
    assert not begun[0].is_alive()


def test_a_forked_process_has_threads_of_its_own() -> None:
    assert run_with_deadline(lambda: 1, 5) == 1
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(run_with_deadline(lambda: 7, 20))
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


class _Capable:
    """A connection that knows domain capabilities."""

    def __init__(self, text: str) -> None:
        self.text = text

    def getDomainCapabilities(self) -> str:  # noqa: N802  # libvirt's name
        return self.text


@pytest.mark.parametrize(
    ("supported", "values", "expected"),
    [
        ("yes", "<enum name='iommufd'><value>yes</value><value>no</value></enum>", True),
        ("yes", "<enum name='iommufd'><value>no</value></enum>", False),
        ("yes", "<enum name='mode'><value>subsystem</value></enum>", False),
        ("no", "<enum name='iommufd'><value>yes</value></enum>", False),
    ],
)
def test_iommufd_is_what_the_capabilities_say(supported: str, values: str, expected: bool) -> None:
    hypervisor = LibvirtHypervisor("test:///default")
    device = f"<devices><hostdev supported='{supported}'>{values}</hostdev></devices>"
    text = f"<domainCapabilities>{device}</domainCapabilities>"
    hypervisor._connection = _Capable(text)
    assert hypervisor.offers_iommufd() is expected


def test_a_driver_without_capabilities_offers_nothing() -> None:
    with LibvirtHypervisor("test:///default") as hypervisor:
        assert not hypervisor.offers_iommufd()
