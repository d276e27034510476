"""Intel: the kernel makes virtual functions, and their driver has quotas in ``/sys``.

xe (kernel 6.19 and later, ``Documentation/ABI/testing/sysfs-driver-intel-xe-sriov``) has
``sriov_admin/vfN/profile/`` below the function, and ``sriov_admin/.bulk_profile`` for all at once; older i915 with
SR-IOV has ``drm/cardM/prelim_iov/vfN/gtK/`` (or ``iov``). Virtual functions count from 1 there, and their
directories are there before they are. Other drivers have none; debugfs is no interface.

What is shared out goes to new virtual functions in equal parts ("auto-provisioning") unless it is set before they are
made. Afterwards a part can only become larger where something is left.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Mapping, Sequence

from vgpumgr.errors import (
    PciNotFoundError,
    PciWriteError,
    SysfsPermissionError,
    VfQuotaError,
    VgpumgrError,
)
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_tree import list_attributes, read_attribute_mode
from vgpumgr.model.pci import INTEL, Function, PciAddress, Quota
from vgpumgr.passthrough.sriov.base import SrIovDriver, SrIovHost, check_quota_names

#: what is shared out, in the order in which it is written
_RESOURCES = ("vram_quota", "lmem_quota", "ggtt_quota", "contexts_quota", "doorbells_quota")
_SCHEDULING = ("exec_quantum_ms", "preempt_timeout_us", "sched_priority")
_NAMES = (*_RESOURCES, *_SCHEDULING)
_XE = "sriov_admin"
_I915 = ("prelim_iov", "iov")
#: what is counted in bytes, and the step in which the drivers give them
_BYTES = _RESOURCES[:3]
_STEP_BYTES = 2 << 20
_NONE = (None, "0")
_REFUSALS = (PciWriteError, SysfsPermissionError, PciNotFoundError)


def find_quotas(machine: Machine, physical: PciAddress, index: int) -> dict[str, str]:
    """Quotas of the virtual function ``index`` (from 0): name to its path below the function.

    Where there is one for each GT, the name of all but the first has its GT behind a dot.
    """
    number = f"vf{index + 1}"
    profile = f"{_XE}/{number}/profile"
    found = list_attributes(machine, physical, profile)
    paths = {name: f"{profile}/{name}" for name in _NAMES if name in found}
    for base in _list_i915(machine, physical):
        for gt in list_attributes(machine, physical, f"{base}/{number}"):
            names = list_attributes(machine, physical, f"{base}/{number}/{gt}")
            for name in (n for n in _NAMES if n in names):
                key = name if gt in ("gt", "gt0") else f"{name}.{gt}"
                paths.setdefault(key, f"{base}/{number}/{gt}/{name}")
    return paths


def _list_i915(machine: Machine, physical: PciAddress) -> Iterator[str]:
    for card in list_attributes(machine, physical, "drm"):
        if card.startswith("card"):
            yield from (f"drm/{card}/{name}" for name in _I915)


class IntelSriov(SrIovDriver):
    """See ``SrIovDriver``. A quota that the kernel refuses is a VfQuotaError."""

    def probe(self, physical: Function) -> bool:
        """All functions of the vendor."""
        return physical.vendor_id == INTEL

    def list_quotas(
        self, host: SrIovHost, physical: PciAddress, count: int
    ) -> list[dict[str, str]]:
        """Of each virtual function, what can be read."""
        found = [find_quotas(host.machine, physical, index) for index in range(count)]
        paths = [path for names in found for path in names.values()]
        if not paths:
            return [{} for _ in found]
        said = iter(host.changes.read_attributes(physical, paths))
        rows = [list(zip(names, said, strict=False)) for names in found]
        return [{name: _choose(value) for name, value in row if value is not None} for row in rows]

    def check_quotas(self, host: SrIovHost, physical: PciAddress, values: Sequence[Quota]) -> None:
        """Whether it has quotas of these names, as far as that shows before there are any."""
        if paths := find_quotas(host.machine, physical, 0):
            check_quota_names(physical, 0, tuple(paths), values)

    def provide_quotas(
        self, host: SrIovHost, physical: PciAddress, count: int, values: Sequence[Quota]
    ) -> None:
        """Before they are made: checks the names, and sets what must not be given out otherwise."""
        for index in range(count):
            paths = find_quotas(host.machine, physical, index)
            if not paths:
                return  # they are only known once they are there
            check_quota_names(physical, index, tuple(paths), values)
            if early := _choose_early(paths, values):
                _write(host, physical, index, paths, early)

    def take_back_quotas(
        self, host: SrIovHost, physical: PciAddress, count: int, values: Sequence[Quota]
    ) -> None:
        """Once there are none any more: what was set for them is given out again, and by the driver.

        A driver that refuses keeps it set aside: that is no reason to bring them back.
        """
        for index in range(count):
            paths = find_quotas(host.machine, physical, index)
            kept = [paths[n] for n, _ in values if n in paths and _is_shared(n)]
            said = host.changes.read_attributes(physical, kept) if kept else []
            zeros = [(path, "0") for path, now in zip(kept, said, strict=True) if now not in _NONE]
            with contextlib.suppress(*_REFUSALS):
                if zeros:
                    host.changes.write_attributes(physical, zeros)
        for base in _list_i915(host.machine, physical):
            if "auto_provisioning" in list_attributes(host.machine, physical, f"{base}/pf"):
                with contextlib.suppress(*_REFUSALS):
                    auto = f"{base}/pf/auto_provisioning"
                    host.changes.write_attributes(physical, [(auto, "1")])

    def write_quotas(
        self,
        host: SrIovHost,
        physical: PciAddress,
        indexes: Sequence[int],
        values: Sequence[Quota],
    ) -> None:
        """Sets those of existing virtual functions; some can only be set for all of them at once."""
        every = len(indexes) == len(host.read_function(physical).vfs)
        for index in indexes:
            paths = find_quotas(host.machine, physical, index)
            check_quota_names(physical, index, tuple(paths), values)
            single = [(n, v) for n, v in values if not _is_fixed(host, physical, paths[n])]
            _write(host, physical, index, paths, single)
        for name, value in values:
            _write_bulk(host, physical, indexes, name, value, every=every)


def _is_fixed(host: SrIovHost, physical: PciAddress, path: str) -> bool:
    return not read_attribute_mode(host.machine, physical, path) & stat.S_IWUSR


def _write(
    host: SrIovHost,
    physical: PciAddress,
    index: int,
    paths: Mapping[str, str],
    values: Sequence[Quota],
) -> None:
    order = sorted(values, key=lambda pair: _rank(pair[0]))
    names = [paths[name] for name, _ in order]
    before = host.changes.read_attributes(physical, names) if names else []
    todo = [
        (pair, path, said)
        for pair, path, said in zip(order, names, before, strict=True)
        if said is None or not _is_as_asked(*pair, _choose(said))
    ]
    for (name, value), path, said in todo:
        what = f"{name}={value} of virtual function {index} of {physical}"
        now = _try_write(host, physical, what, path, value)
        _check_taken(what, value, said, now)


def _write_bulk(
    host: SrIovHost,
    physical: PciAddress,
    indexes: Sequence[int],
    name: str,
    value: int | str,
    *,
    every: bool,
) -> None:
    """What each shows, but only all together can be given."""
    paths = [find_quotas(host.machine, physical, index).get(name) for index in indexes]
    fixed = [path for path in paths if path and _is_fixed(host, physical, path)]
    if not fixed:
        return
    bulk = f"{_XE}/.bulk_profile/{name}"
    there = name in list_attributes(host.machine, physical, f"{_XE}/.bulk_profile")
    what = f"{name}={value} of virtual functions of {physical}"
    if not there or not every:
        raise VfQuotaError(
            f"cannot set {what}",
            why="it can only be set for all of them at once"
            if there
            else "its driver only shows it",
            hint=f"vgpumgr vf enable {physical} --quota {name}={value}",
        )
    before = host.changes.read_attributes(physical, fixed)
    if all(said is not None and _choose(said) == str(value) for said in before):
        return
    _try_write(host, physical, what, bulk, value)
    for said, now in zip(before, host.changes.read_attributes(physical, fixed), strict=True):
        _check_taken(what, value, said, now)


def _try_write(
    host: SrIovHost, physical: PciAddress, what: str, path: str, value: int | str
) -> str | None:
    try:
        return host.changes.write_attributes(physical, [(path, str(value))])[0]
    except _REFUSALS as error:
        raise _refused(what, error) from error


def _rank(name: str) -> int:
    return _NAMES.index(name.partition(".")[0])


def _is_as_asked(name: str, value: int | str, said: str) -> bool:
    """Whether it needs no write: the same, or what the driver has made of the same before."""
    if said == str(value):
        return True
    in_bytes = name.partition(".")[0] in _BYTES
    if not in_bytes or not isinstance(value, int) or not said.isdecimal():
        return False
    return 0 < int(said) - value < _STEP_BYTES


def _choose(text: str) -> str:
    """``[low] normal high`` shows the choice and what else there is."""
    chosen = [word for word in text.split() if word.startswith("[") and word.endswith("]")]
    return chosen[0].strip("[]") if chosen else text


def _is_shared(name: str) -> bool:
    return name.partition(".")[0] in _RESOURCES


def _choose_early(paths: Mapping[str, str], values: Sequence[Quota]) -> list[Quota]:
    """What is set before they are made. xe blocks its auto-provisioning of memory by that, as
    documented; i915 blocks all of it, so that all must be given.
    """
    shared = [name for name in paths if _is_shared(name)]
    wanted = [pair for pair in values if pair[0] in shared]
    if all(paths[name].startswith(_XE) for name in shared):
        return wanted
    return wanted if len(wanted) == len(shared) else []


def _check_taken(what: str, value: int | str, before: str | None, now: str | None) -> None:
    """The driver may round to what its hardware can; nothing, or far less, is no rounding."""
    said = None if now is None else _choose(now)
    if said == str(value):
        return
    if said is not None and said.isdecimal() and isinstance(value, int) and now != before:
        rounded = int(said)
        if rounded and 2 * rounded >= value:
            return
    raise VfQuotaError(
        f"{what} is not set",
        why=f"the driver accepted it, but says {said}"
        if said is not None
        else "the driver accepted it, but what it is now cannot be read",
    )


def _refused(what: str, error: VgpumgrError) -> VfQuotaError:
    cause = error.cause or str(error)
    whys = {
        "(EINVAL)": "the driver knows no such value",
        "(EPERM)": "this hardware or firmware does not let it be changed",
        "(EACCES)": "its driver only shows it",
        "(ENOSPC)": "there is not so much left",
        "(EIO)": "the GPU's firmware refuses it: there may not be so much left",
        "(EBUSY)": "a VM has the virtual function",
    }
    why = next((text for mark, text in whys.items() if mark in cause), None)
    return VfQuotaError(f"cannot set {what}", cause=cause, why=why)
