"""``check_host`` and ``explain_check``: runs the checks of ``model.checks`` and changes nothing; ``repair_host`` makes
what ``repairs`` has for those that fail.

What several checks need is observed once (``ObservedHost``), and an error is remembered as well: what does not answer
is waited for once. A check that raises is itself a problem, and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from vgpumgr import __version__
from vgpumgr.app.context import LIBVIRT_ERRORS, Parts
from vgpumgr.app.documents.operations import (
    CheckDocument,
    CheckListDocument,
    CheckShowDocument,
    ExplanationDocument,
    RepairDocument,
    RepairListDocument,
)
from vgpumgr.domain.hypervisor import Vm
from vgpumgr.errors import (
    NotPermittedError,
    NvmlMissingError,
    PreconditionError,
    UsageError,
    VgpumgrError,
    explain_unexpected,
)
from vgpumgr.host.capabilities import Evidence
from vgpumgr.host.helper import LateRecords
from vgpumgr.host.machine import Machine
from vgpumgr.model.checks import BY_ID, CHECKS, Check, Result
from vgpumgr.model.gpu import Inventory
from vgpumgr.model.pci import NVIDIA, Function, PciAddress, User
from vgpumgr.model.text import list_near
from vgpumgr.model.vgpu import VgpuHost
from vgpumgr.nvml.client import READ_INVENTORY, STUCK

if TYPE_CHECKING:
    from vgpumgr.host.repairs import Repair

T = TypeVar("T")

#: made while the others are: they wait for other processes, and use nothing that is observed once
_BESIDE = ("channel",)


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


class CheckResult(NamedTuple):
    """A check and what it found."""

    check: Check
    finding: Finding


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
    from vgpumgr.app.operations.repairs import find_repair

    host = ObservedHost(machine, parts, daemon_lock, client_version)
    return CheckListDocument(
        machine=machine.name,
        version=__version__,
        checks=[
            _describe(one, is_fixable=find_repair(host, one) is not None)
            for one in _run_checks(host, checks)
        ],
    )


def repair_host(
    machine: Machine,
    parts: Parts,
    daemon_lock: Path,
    checks: str,
    expected: Sequence[str] | None = None,
    *,
    dry_run: bool = False,
) -> RepairListDocument:
    """Does what can be done about those of these checks that fail; with ``dry_run`` it only says what. A repair that
    fails keeps no other from being made.

    ``expected``: what a plan showed, so that nothing else is done. Raises UsageError, NotPermittedError, and
    PreconditionError where the host is another now.
    """
    from vgpumgr.app.operations.repairs import find_repair

    if not parts.is_privileged:
        raise NotPermittedError("repairs of the host need root", hint="sudo vgpumgr doctor --fix")
    host = ObservedHost(machine, parts, daemon_lock, __version__)
    found = [(one.check.id, find_repair(host, one)) for one in _run_checks(host, checks)]
    planned = [(name, repair) for name, repair in found if repair is not None]
    rows = [_plan(name, repair) for name, repair in planned]
    if expected is not None and [a for row in rows for a in row.actions] != list(expected):
        raise PreconditionError(
            "the host has changed since the plan was shown, and nothing was done",
            hint="vgpumgr doctor --fix",
        )
    if not dry_run:
        rows = [_make(row, repair) for row, (_, repair) in zip(rows, planned, strict=True)]
    return RepairListDocument(machine=machine.name, dry_run=dry_run, repairs=rows)


def _plan(check: str, repair: Repair) -> RepairDocument:
    return RepairDocument(
        check=check,
        actions=[str(action) for action in repair.actions],
        needs_reboot=repair.needs_reboot,
        state="planned" if repair.actions else "waiting",
    )


def _make(row: RepairDocument, repair: Repair) -> RepairDocument:
    try:
        repair.do()
    except VgpumgrError as error:
        told = ": ".join(part for part in (error.error, error.cause, error.why) if part)
        return replace(row, state="failed", error=told)
    return replace(row, state="waiting" if repair.needs_reboot else "done")


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


def _run_checks(host: ObservedHost, checks: str | None) -> Sequence[CheckResult]:
    """All of them, or those of these ids with commas between."""
    wanted = None if checks is None else {find_check(name).id for name in checks.split(",")}
    functions = list_functions()
    chosen = [check for check in CHECKS if wanted is None or check.id in wanted]
    with ThreadPoolExecutor(len(_BESIDE)) as threads:
        beside = {
            check.id: threads.submit(_run, functions[check.id], host)
            for check in chosen
            if check.id in _BESIDE
        }
        found = {
            check.id: _run(functions[check.id], host) for check in chosen if check.id not in beside
        }
        found.update({name: future.result() for name, future in beside.items()})
    return [CheckResult(check, found[check.id]) for check in chosen]


def _run(function: CheckFunction, host: ObservedHost) -> Finding:
    try:
        return function(host)
    except NotCheckedError as error:
        return report("skipped", str(error))
    except Exception as error:
        return report_error(explain_unexpected(error, "the check"), "the check failed: ")


def _describe(result: CheckResult, *, is_fixable: bool) -> CheckDocument:
    check, finding = result
    hint = finding.hint
    if hint is None and finding.result in ("warning", "problem"):
        hint = check.mend
    return CheckDocument.of(
        check,
        result=finding.result,
        text=finding.text,
        evidence=list(finding.evidence),
        hint=hint or None,
        fixable=is_fixable,
    )
