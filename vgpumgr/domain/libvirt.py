"""The genuine libvirt behind our interface: deadlines on every call, errors as our classes."""

from __future__ import annotations

import importlib
import os
import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any, Self, TypeVar

from vgpumgr.domain.declare import document_digest, parse_document
from vgpumgr.domain.domain import NAMESPACE, PREFIX, AttachmentNote, Domain, find_notes, write_notes
from vgpumgr.domain.hypervisor import Scope, Vm, VmState
from vgpumgr.errors import (
    DeviceMissingError,
    LibvirtDownError,
    LibvirtError,
    LibvirtLateError,
    LibvirtPermissionError,
    NoFreeSlotError,
    VgpumgrError,
    VmNotFoundError,
)
from vgpumgr.model.text import list_near

T = TypeVar("T")
_Answer = tuple[bool, object]
#: threads that wait for the next call; starting one takes longer than most calls
_MAX_IDLE = 4


class LateCallError(Exception):
    """The call has not come back by its deadline; its thread is left alone."""


class _Worker:
    """A thread that makes one call after the other until it is given up."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[
            tuple[Callable[[], object], queue.SimpleQueue[_Answer]] | None
        ]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._work, name="libvirt-call", daemon=True).start()

    def ask(self, call: Callable[[], object]) -> queue.SimpleQueue[_Answer]:
        """Begins a call; where its answer will be."""
        answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._calls.put((call, answers))
        return answers

    def give_up(self) -> None:
        """No call follows: the thread ends when the last one has come back."""
        self._calls.put(None)

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, answers = asked
            try:
                answers.put((True, call()))
            except BaseException as error:
                answers.put((False, error))
            # until the next call, nothing of this one is kept
            del asked, call, answers


_idle: deque[_Worker] = deque()
# a process that was forked has none of the threads
os.register_at_fork(after_in_child=_idle.clear)


def run_with_deadline(call: Callable[[], T], timeout_s: float) -> T:
    """Runs ``call`` on a thread of its own and waits for it; raises LateCallError, or what the call
    raised.

    libvirt's binding releases the interpreter's lock while it waits. A late thread is a daemon
    thread: it ends with the process, and whether its call takes effect after all only observing
    tells.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    try:
        done, result = worker.ask(call).get(timeout=timeout_s)
    except BaseException as error:
        worker.give_up()
        if isinstance(error, queue.Empty):
            raise LateCallError from None
        raise
    if len(_idle) < _MAX_IDLE:
        _idle.append(worker)
    else:
        worker.give_up()
    if not done:
        assert isinstance(result, BaseException)
        raise result
    return result  # type: ignore[return-value]  # the queue carries what call() returned


#: generous: a loaded libvirtd answers in seconds, a hung one never
CALL_TIMEOUT_S = 30.0
#: https://libvirt.org/formatdomaincaps.html, "Host device assignment"
_IOMMUFD_VALUES = "devices/hostdev[@supported='yes']/enum[@name='iommufd']/value"
#: 10.0.0
_VARIANT_DRIVERS = 10_000_000
_DAC_LABEL = re.compile(r"\+(\d+):\+(\d+)")
_NO_SLOTS = "No more available PCI slots"
#: an operation reads the same few definitions again and again, and changes one at a time
_KEPT_DEFINITIONS = 8
_KEPT_DOMAINS = 64


_parse_domain = lru_cache(maxsize=_KEPT_DEFINITIONS)(Domain.from_xml)
_make_digest = lru_cache(maxsize=_KEPT_DEFINITIONS)(document_digest)
_find_notes = lru_cache(maxsize=_KEPT_DEFINITIONS)(find_notes)


@cache
def load_libvirt() -> Any:
    """The binding; it has no type information."""
    lib = importlib.import_module("libvirt")
    # it prints every error to stderr otherwise
    lib.registerErrorHandler(lambda _context, _error: None, None)
    return lib


class LibvirtHypervisor:
    """A connection, opened at the first call; use it as a context manager or close it."""

    def __init__(self, uri: str, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self.uri = uri
        self._timeout_s = call_timeout_s
        self._connection: Any = None
        #: the connection's domains that were read lately, by UUID: what libvirt is asked about them it
        #: finds by that, so that none is looked up for each question
        self._domains: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _lib(self) -> Any:
        """Loaded when first needed."""
        return load_libvirt()

    def close(self) -> None:
        """Closes the connection; without one nothing happens. A late libvirt is not waited for."""
        connection = self._connection
        self._hang_up()
        if connection is not None:
            try:
                run_with_deadline(connection.close, self._timeout_s)
            except (LateCallError, self._lib.libvirtError):
                return

    def list_vms(self) -> tuple[Vm, ...]:
        """All VMs, by name; one that goes away meanwhile is left out."""
        return self._ask(self._list_now)

    def _list_now(self) -> tuple[Vm, ...]:
        found = []
        for domain in self._call("list VMs", lambda: self._connected().listAllDomains(0)):
            try:
                found.append(self._read(domain))
            except VmNotFoundError:
                continue
        return tuple(sorted(found, key=lambda vm: vm.name))

    def read_vm(self, selector: str) -> Vm:
        """The VM of that name or UUID."""
        return self._ask(lambda: self._read_selected(selector))

    def _read_selected(self, selector: str) -> Vm:
        known = self._find_known(selector)
        if known is not None:
            try:
                return self._read(known)
            except VmNotFoundError:
                self._domains.pop(selector, None)  # it may be another's name
        domain = self._find_now(selector)
        vm = self._read(domain)
        if len(self._domains) >= _KEPT_DOMAINS:
            self._domains.clear()
        self._domains[vm.uuid] = domain
        return vm

    def _find_known(self, uuid: str) -> Any:
        """The domain of the connection that there is; None where that may have ended meanwhile: a lookup
        opens the next one, which a change must not.
        """
        known = self._domains.get(uuid)
        return known if known is not None and self._connection.isAlive() == 1 else None

    def _hang_up(self) -> None:
        """Without the connection; its domains would keep it open."""
        self._connection = None
        self._domains.clear()

    def read_again(self, vm: Vm, scope: Scope) -> Vm:
        """The VM with that definition as it is now: fewer questions than all of it takes."""
        return self._ask(lambda: self._read_again(vm, scope))

    def _read_again(self, vm: Vm, scope: Scope) -> Vm:
        domain = self._find_known(vm.uuid) or self._find_now(vm.uuid)
        return self._call("read a VM", lambda: self._read_definition(domain, vm, scope))

    def attach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        """Adds one device."""
        domain = self._find(uuid)
        self._call(
            f"attach a device ({scope})", lambda: domain.attachDeviceFlags(xml, self._flag(scope))
        )

    def detach_device(self, uuid: str, xml: str, scope: Scope) -> None:
        """Removes one device, or asks the running guest to release it."""
        domain = self._find(uuid)
        self._call(
            f"detach a device ({scope})", lambda: domain.detachDeviceFlags(xml, self._flag(scope))
        )

    def set_notes(self, uuid: str, notes: Sequence[AttachmentNote], scope: Scope) -> None:
        """Writes our notes into the domain's metadata; none takes them away."""
        domain = self._find(uuid)
        text = write_notes(notes)
        kind = self._lib.VIR_DOMAIN_METADATA_ELEMENT
        self._call(
            "write the domain's metadata",
            lambda: domain.setMetadata(
                kind, text, PREFIX if text else None, NAMESPACE, self._flag(scope)
            ),
        )

    def read_qemu_owner(self) -> tuple[int, int] | None:
        """uid and gid that QEMU runs as: the base label of libvirt's security model ``dac``."""
        text = self._ask(
            lambda: self._call("read capabilities", lambda: self._connected().getCapabilities())
        )
        for label in parse_document(text).iterfind("host/secmodel[model='dac']/baselabel"):
            match = _DAC_LABEL.fullmatch(label.text or "")
            if match is not None:
                return int(match[1]), int(match[2])
        return None

    def offers_iommufd(self) -> bool:
        """The enumeration ``iommufd`` of host devices in the capabilities of the host's own kind of VM."""
        try:
            text = self._call(
                "read the domain capabilities", lambda: self._connected().getDomainCapabilities()
            )
        except LibvirtError:
            return False  # a driver that has none
        values = parse_document(text).iterfind(_IOMMUFD_VALUES)
        return any(value.text == "yes" for value in values)

    def takes_variant_drivers(self) -> bool:
        """By libvirt's version, as nothing else says it: its NEWS of 10.0.0 have them."""
        version = self._ask(
            lambda: self._call("read its version", lambda: self._connected().getLibVersion())
        )
        return bool(version >= _VARIANT_DRIVERS)

    def read_versions(self) -> tuple[str, str]:
        """As libvirt counts them: a million for the first part, a thousand for the second."""
        numbers = self._ask(
            lambda: self._call(
                "read its version",
                lambda: (self._connected().getLibVersion(), self._connected().getVersion()),
            )
        )
        library, hypervisor = (f"{n // 10**6}.{n // 1000 % 1000}.{n % 1000}" for n in numbers)
        return library, hypervisor

    def _flag(self, scope: Scope) -> int:
        lib = self._lib
        return int(
            lib.VIR_DOMAIN_AFFECT_LIVE if scope is Scope.LIVE else lib.VIR_DOMAIN_AFFECT_CONFIG
        )

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._lib.open(self.uri)
        return self._connection

    def _ask(self, read: Callable[[], T]) -> T:
        """A read, once more if libvirt was started anew since the last one: what one connection
        cannot say any more, the next one can.
        """
        was_connected = self._connection is not None
        try:
            return read()
        except LibvirtDownError:
            if not was_connected:
                raise
            return read()

    def _find(self, uuid: str) -> Any:
        known = self._find_known(uuid)
        return known if known is not None else self._ask(lambda: self._find_now(uuid))

    def _find_now(self, selector: str) -> Any:
        lookups = [partial(self._lookup, "lookupByName", selector)]
        if len(selector) == 36:
            lookups.insert(0, partial(self._lookup, "lookupByUUIDString", selector))
        for lookup in lookups:
            try:
                return self._call("look up a VM", lookup)
            except VmNotFoundError:
                continue
        raise self._unknown(selector)

    def _lookup(self, method: str, selector: str) -> Any:
        try:
            return getattr(self._connected(), method)(selector)
        except self._lib.libvirtError as error:
            # 36 characters need not be a UUID: they may be a name
            if error.get_error_code() == self._lib.VIR_ERR_INVALID_ARG:
                raise VmNotFoundError(selector) from error
            raise

    def _unknown(self, selector: str) -> VmNotFoundError:
        names = self._call(
            "list VMs", lambda: sorted(d.name() for d in self._connected().listAllDomains(0))
        )
        near = list_near(selector, names, n=3, cutoff=0.5) or names[:5]
        known = f"near names: {', '.join(near)}" if near else "libvirt has no VMs at all"
        return VmNotFoundError(
            f'no VM "{selector}"', why=f"{self.uri}: {known}", hint="vgpumgr vm list"
        )

    def _read(self, domain: Any) -> Vm:
        return self._call("read a VM", lambda: self._read_now(domain))

    def _read_now(self, domain: Any) -> Vm:
        """As few questions as it takes: each is a round trip."""
        lib = self._lib
        code, reason = domain.state()
        state = VmState.PAUSED if code == lib.VIR_DOMAIN_PAUSED else VmState.RUNNING
        if not self._is_active(domain, code):
            state = VmState.SHUT_OFF
        live = domain.XMLDesc(0) if state is not VmState.SHUT_OFF else None
        config = None
        # what does not run and is not defined does not exist
        if live is None or domain.isPersistent():
            config = domain.XMLDesc(lib.VIR_DOMAIN_XML_INACTIVE)
        text = config or live
        assert text is not None
        return Vm(
            name=_parse_domain(text).name,  # what is kept of a domain has the name it had
            uuid=domain.UUIDString(),
            state=state,
            live=_parse_domain(live) if live else None,
            config=_parse_domain(config) if config else None,
            digest=_make_digest(text),
            notes=_find_notes(text),
            migrated=state is VmState.SHUT_OFF and reason == lib.VIR_DOMAIN_SHUTOFF_MIGRATED,
        )

    def _read_definition(self, domain: Any, vm: Vm, scope: Scope) -> Vm:
        if scope is Scope.CONFIG:
            text = domain.XMLDesc(self._lib.VIR_DOMAIN_XML_INACTIVE)
            return replace(
                vm, config=_parse_domain(text), digest=_make_digest(text), notes=_find_notes(text)
            )
        if vm.config is None or not self._is_active(domain, domain.state()[0]):
            # it may have stopped, and what it shows then is its definition
            return self._read_now(domain)
        return replace(vm, live=_parse_domain(domain.XMLDesc(0)))

    def _is_active(self, domain: Any, code: int) -> bool:
        """Only of a crashed machine, or one without a state, the state does not say whether it is there."""
        lib = self._lib
        if code in (lib.VIR_DOMAIN_NOSTATE, lib.VIR_DOMAIN_CRASHED):
            return bool(domain.isActive())
        return bool(code != lib.VIR_DOMAIN_SHUTOFF)

    def _call(self, what: str, call: Callable[[], T]) -> T:
        try:
            return run_with_deadline(call, self._timeout_s)
        except LateCallError:
            self._hang_up()
            raise LibvirtLateError(
                f"cannot {what}: libvirt does not answer",
                cause=f"{self.uri}: no answer in {self._timeout_s:g} s",
                why="its daemon hangs or is overloaded; the call may still take effect",
                hint="systemctl status libvirtd",
            ) from None
        except self._lib.libvirtError as error:
            raise self._translate(what, error) from error

    def _translate(self, what: str, error: Any) -> VgpumgrError:
        lib, code = self._lib, error.get_error_code()
        cause = f"{self.uri}: {error.get_error_message()} (libvirt error {code})"
        if code == lib.VIR_ERR_NO_DOMAIN:
            return VmNotFoundError(f"cannot {what}: it is gone", cause=cause)
        if code == lib.VIR_ERR_DEVICE_MISSING:
            return DeviceMissingError(f"cannot {what}: it is not there", cause=cause)
        if code in (
            lib.VIR_ERR_AUTH_FAILED,
            lib.VIR_ERR_ACCESS_DENIED,
            lib.VIR_ERR_OPERATION_DENIED,
        ):
            return LibvirtPermissionError(f"cannot {what}: not permitted", cause=cause)
        if _NO_SLOTS in str(error):
            return NoFreeSlotError(f"cannot {what}: no free PCI slot", cause=cause)
        if self._is_down(error):
            self._hang_up()
            return self._down(cause)
        return LibvirtError(f"cannot {what}", cause=cause)

    def _is_down(self, error: Any) -> bool:
        """Whether there is no connection (any more): refused, or broken in the middle of a call."""
        lib = self._lib
        if self._connection is None:
            return True
        gone = error.get_error_domain() in (lib.VIR_FROM_RPC, lib.VIR_FROM_REMOTE)
        return gone or error.get_error_code() in (lib.VIR_ERR_INVALID_CONN, lib.VIR_ERR_NO_CONNECT)

    def _down(self, cause: str) -> VgpumgrError:
        if "Permission denied" in cause:
            return LibvirtPermissionError(
                "cannot reach libvirt",
                cause=cause,
                hint="run it as root, or join the group libvirt",
            )
        return LibvirtDownError(
            "cannot reach libvirt",
            cause=cause,
            why="its daemon does not run, or VGPUMGR_LIBVIRT_URI names another one",
            hint="systemctl start libvirtd",
        )
