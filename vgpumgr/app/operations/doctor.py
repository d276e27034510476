"""``check_host`` and ``explain_check``: runs the checks of ``model.checks`` and changes nothing.

What several checks need is observed once (``ObservedHost``), and an error is remembered as well: what does not answer
is waited for once. A check that raises is itself a problem, and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from vgpumgr import __version__
from vgpumgr.app.context import LIBVIRT_ERRORS, Parts
from vgpumgr.app.documents.operations import (
    CheckDocument,
    CheckListDocument,
    CheckShowDocument,
    ExplanationDocument,
)
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import NvmlMissingError, UsageError, VgpumgrError, explain_unexpected
from vgpumgr.host.capabilities import Evidence
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.model.checks import BY_ID, CHECKS, Check, Result
from vgpumgr.model.gpu import Inventory
from vgpumgr.model.pci import NVIDIA, Function, PciAddress, User
from vgpumgr.model.text import list_near
from vgpumgr.model.vgpu import VgpuHost
from vgpumgr.nvml.client import READ_INVENTORY, STUCK

T = TypeVar("T")


class Finding(NamedTuple):
    """What a check found; ``hint`` is a command or a sentence. None: what the check's ``mend`` says; empty: none."""

    result: Result
    text: str
    evidence: tuple[str, ...] = ()
    hint: str | None = None


def report(result: Result, text: str, *evidence: object, hint: str | None = None) -> Finding:
    """A finding; of evidence that is too long only the beginning is kept."""
    return Finding(result, text, tuple(str(one)[:400] for one in evidence), hint)


def report_error(error: VgpumgrError, before: str = "") -> Finding:
    """The problem that an error is."""
    evidence = (part for part in (error.cause, error.why) if part)
    return report("problem", f"{before}{error.error}", *evidence, hint=error.hint or "")


class NotCheckedError(Exception):
    """A check cannot be made here, and why."""


class observed(Generic[T]):  # noqa: N801 (used as a decorator)
    """An attribute that is read at most once; its error is raised again."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, host: ObservedHost, owner: type | None = None) -> T:
        if self._name not in host.known:
            try:
                host.known[self._name] = self._read(host)
            except Exception as error:
                host.known[self._name] = error
        found = host.known[self._name]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]


@dataclass
class ObservedHost:
    """The host as the checks see it. ``daemon_lock`` is the file that a daemon locks, ``client_version`` the version of
    the command that asks; None: it did not say.
    """

    machine: Machine
    parts: Parts
    daemon_lock: Path
    client_version: str | None = None
    known: dict[str, Any] = field(default_factory=dict)

    def need(self, fact: Evidence) -> str:
        """The text of a fact. Raises NotCheckedError where it is absent: the architecture or the machine has none."""
        if fact.text is None:
            which = "the simulated machine" if self.machine.is_simulated else "this kernel"
            raise NotCheckedError(f"{which} has no {fact.source}")
        return fact.text

    def need_real(self) -> None:
        """Raises NotCheckedError on a simulated machine."""
        if self.machine.is_simulated:
            raise NotCheckedError("the machine is simulated; this is about the real host only")

    @observed
    def functions(self) -> Sequence[Function]:
        """All PCI functions."""
        return self.parts.pci.list_functions()

    @property
    def gpu_functions(self) -> list[Function]:
        """GPUs as PCI functions, without their virtual functions."""
        return [f for f in self.functions if f.is_gpu and not f.physical]

    @property
    def nvidia(self) -> list[Function]:
        """Those of NVIDIA."""
        return [f for f in self.gpu_functions if f.vendor_id == NVIDIA]

    @observed
    def users(self) -> Mapping[PciAddress, tuple[User, ...]]:
        """Who uses the GPUs, and the functions beside them."""
        groups = {f.group for f in self.gpu_functions}
        beside = [f for f in self.functions if f.group is not None and f.group in groups]
        return self.parts.pci.list_users(list(dict.fromkeys((*self.gpu_functions, *beside))))

    @observed
    def inventory(self) -> Inventory:
        """The GPUs that NVML reports."""
        LateRecords(self.parts.run_dir).check_not_stuck(READ_INVENTORY, STUCK)
        return self.parts.read_inventory()

    def need_inventory(self) -> Inventory:
        """The same. Raises NotCheckedError where NVML does not answer, which is a check of its own."""
        try:
            inventory = self.inventory
        except NvmlMissingError as error:
            raise NotCheckedError("there is no NVML") from error
        except VgpumgrError as error:
            raise NotCheckedError("NVML does not answer: see nvml") from error
        if not inventory.driver_version:
            raise NotCheckedError("there is no NVML")
        return inventory

    @observed
    def vms(self) -> Sequence[Vm]:
        """The VMs that libvirt lists."""
        return self.parts.hypervisor.list_vms()

    def need_libvirt(self) -> None:
        """Raises NotCheckedError where libvirt does not answer, which is a check of its own."""
        try:
            _ = self.vms
        except LIBVIRT_ERRORS as error:
            raise NotCheckedError("libvirt does not answer: see libvirt") from error

    @observed
    def vgpus(self) -> VgpuHost:
        """vGPU types and devices. Raises NotCheckedError where NVML hangs, which is asked for them, too."""
        if self.nvidia:
            try:
                _ = self.inventory
            except NvmlMissingError:
                pass
            except VgpumgrError as error:
                raise NotCheckedError("NVML does not answer: see nvml") from error
        return self.parts.vgpus.read_host()


CheckFunction = Callable[[ObservedHost], Finding]


def list_functions() -> Mapping[str, CheckFunction]:
    """The function of each check, by its id."""
    from vgpumgr.app.operations import device_checks, service_checks

    return {**device_checks.CHECKS, **service_checks.CHECKS}


def check_host(
    machine: Machine,
    parts: Parts,
    daemon_lock: Path,
    checks: str | None = None,
    client_version: str | None = None,
) -> CheckListDocument:
    """Runs all checks, or those of ``checks`` (ids with commas between). Raises UsageError for an unknown one."""
    wanted = None if checks is None else {find_check(name).id for name in checks.split(",")}
    host = ObservedHost(machine, parts, daemon_lock, client_version)
    functions = list_functions()
    return CheckListDocument(
        machine=machine.name,
        version=__version__,
        checks=[
            _describe(check, _run(functions[check.id], host))
            for check in CHECKS
            if wanted is None or check.id in wanted
        ],
    )


def explain_check(selector: str) -> CheckShowDocument:
    """What a check means, how it is made, and how to mend what it finds. Raises UsageError."""
    return CheckShowDocument(check=ExplanationDocument.of(find_check(selector)))


def find_check(name: str) -> Check:
    """The check of that id. Raises UsageError, with the nearest one."""
    if name in BY_ID:
        return BY_ID[name]
    near = list_near(name, BY_ID, n=1)
    nearest = ", ".join(list_near(name, BY_ID, cutoff=0.0))
    raise UsageError(
        f'there is no check "{name}"',
        why=f"did you mean {near[0]}?" if near else f"the nearest are {nearest}",
        hint=f"vgpumgr doctor explain {near[0]}" if near else "vgpumgr doctor, which has all",
    )


def _run(function: CheckFunction, host: ObservedHost) -> Finding:
    try:
        return function(host)
    except NotCheckedError as error:
        return report("skipped", str(error))
    except Exception as error:
        return report_error(explain_unexpected(error, "the check"), "the check failed: ")


def _describe(check: Check, finding: Finding) -> CheckDocument:
    hint = finding.hint
    if hint is None and finding.result in ("warning", "problem"):
        hint = check.mend
    return CheckDocument.of(
        check,
        result=finding.result,
        text=finding.text,
        evidence=list(finding.evidence),
        hint=hint or None,
    )
