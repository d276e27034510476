"""What administrators ask of the tenants of a pool. Answers are plain data, as ``-o json`` has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vgpumgr.errors import TenantExistsError, TenantNotFoundError, UsageError
from vgpumgr.pool.classes import find_class
from vgpumgr.pool.control.placing import name_model
from vgpumgr.pool.control.records import (
    PREEMPTION,
    STATES,
    TENANTS,
    ClaimRecord,
    TenantRecord,
    View,
    check_name,
    find_named,
    put,
)
from vgpumgr.pool.control.tenants import Usage, divide
from vgpumgr.pool.membership import Pool
from vgpumgr.pool.scheduler.model import GPU_MILLI
from vgpumgr.pool.sizes import read_size
from vgpumgr.pool.store.interface import Change, Compare, Delete
from vgpumgr.pool.versions import need


class TenantOperations:
    """The operations on the tenants of an open pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def list_all(self) -> list[dict[str, Any]]:
        """Every tenant, by name."""
        view = self._pool.view()
        usage = Usage(view)
        names = [name for name in sorted(view.tenants) if view.scope in (None, name)]
        return [_describe(view, view.tenants[name], usage) for name in names]

    def show(self, name: str) -> dict[str, Any]:
        """One tenant. Raises TenantNotFoundError."""
        view = self._pool.view()
        return _describe(view, find_tenant(view, name), Usage(view))

    def create(
        self,
        name: str,
        gpu_milli: int | None,
        priority: int,
        weight: int,
        *,
        preemptible: bool = False,
    ) -> dict[str, Any]:
        """The new tenant. Raises TenantExistsError."""
        check_name(name, "tenant")
        view = self._pool.view()
        need(self._pool, view, TENANTS, "tenants")
        if preemptible:
            need(self._pool, view, PREEMPTION, "preemption")
        exists = TenantExistsError(f"there is a tenant {name}", hint=f"vgpumgr tenant show {name}")
        if name in view.tenants:
            raise exists
        tenant = TenantRecord(name, gpu_milli, priority, weight, preemptible)
        self._pool.change((view.at(tenant.key),), (put(tenant),), exists)
        return self.show(name)

    def change(self, name: str, changes: dict[str, int | None]) -> dict[str, Any]:
        """The tenant with other values of some fields. What it has stays, also above its quota."""

        def plan(view: View) -> tuple[list[Compare], list[Change]]:
            tenant = find_tenant(view, name)
            if changes.get("preemptible"):
                need(self._pool, view, PREEMPTION, "preemption")
            changed = replace(tenant, **changes)  # type: ignore[arg-type]
            return [view.at(tenant.key)], [put(changed)]

        self._pool.change_anew(plan, _changed_meanwhile(name))
        return self.show(name)

    def split(
        self, names: Sequence[str], profile: str, class_name: str, *, dry_run: bool
    ) -> tuple[int, list[dict[str, Any]]]:
        """Gives these tenants quotas of whole shares, or whole GPUs: all of the class are divided by weight, with none
        left over. Those that have no entry are made. The number of all shares, and a row for each tenant.

        Raises UsageError where GPUs differ in what such a share takes of them, or a tenant would get none.
        """
        for name in names:
            check_name(name, "tenant")
        planned: list[tuple[View, int, list[int], list[TenantRecord]]] = []

        def plan(view: View) -> tuple[list[Compare], list[Change]]:
            need(self._pool, view, TENANTS, "tenants")
            units, parts, changed = _divide(view, names, profile, class_name)
            planned.append((view, units, parts, changed))
            return [view.at(one.key) for one in changed], [put(one) for one in changed]

        if dry_run:
            plan(self._pool.view())
        else:
            self._pool.change_anew(plan, TenantExistsError("a tenant was changed at the same time"))
        view, units, parts, changed = planned[-1]
        usage = Usage(view)
        rows = [
            {**_describe(view, tenant, usage), "shares": part}
            for tenant, part in zip(changed, parts, strict=True)
        ]
        return units, rows

    def delete(self, name: str) -> None:
        """Removes a tenant that has no claims. Raises TenantExistsError, which names them."""

        def plan(view: View) -> tuple[list[Compare], list[Change]]:
            tenant = find_tenant(view, name)
            _check_unused(view, name)
            # a claim that is made meanwhile moves the revision
            return [view.at(tenant.key)], [Delete(tenant.key)]

        self._pool.change_anew(plan, _changed_meanwhile(name))


def find_tenant(view: View, name: str) -> TenantRecord:
    """Raises TenantNotFoundError with near names."""
    own = {n: one for n, one in view.tenants.items() if view.scope in (None, n)}
    return find_named(own, name, "tenant", TenantNotFoundError)


def _check_unused(view: View, name: str) -> None:
    """Raises TenantExistsError, which names the claims."""
    claims = sorted(claim.name for claim in view.claims.values() if claim.tenant == name)
    if claims:
        raise TenantExistsError(
            f"tenant {name} has claims",
            held_by=tuple(f"claim {claim}" for claim in claims),
            hint=f"vgpumgr claim delete {claims[0]}",
        )


def _divide(
    view: View, names: Sequence[str], profile: str, class_name: str
) -> tuple[int, list[int], list[TenantRecord]]:
    """All shares, how many each tenant gets, and the tenants with these quotas."""
    milli, units = _count_units(view, profile, class_name)
    tenants = [view.tenants.get(name, TenantRecord(name)) for name in names]
    parts = divide(units, [tenant.weight for tenant in tenants])
    if not all(parts):
        raise UsageError(
            f"{units} x {profile} cannot be divided among {len(tenants)} tenants",
            why=f"tenant {names[parts.index(0)]} would get none",
            hint="a smaller --profile, or other weights (vgpumgr tenant set)",
        )
    changed = [
        replace(tenant, gpu_milli=part * milli) for tenant, part in zip(tenants, parts, strict=True)
    ]
    return units, parts, changed


def _count_units(view: View, profile: str, class_name: str) -> tuple[int, int]:
    """How much of a GPU one such share takes, and how many all GPUs of the class have."""
    memory, compute = read_size(profile)
    kind = find_class(view, class_name)
    claim = ClaimRecord("", class_name, 1, memory, compute)
    gpus = [gpu for gpu in view.gpus.values() if kind.accepts(gpu)]
    asked = {claim.count_milli(gpu.memory_bytes) for gpu in gpus}
    sizes = {GPU_MILLI} if kind.whole else asked
    if not gpus or len(sizes) > 1 or max(asked) > GPU_MILLI:
        models = ", ".join(sorted({name_model(gpu) for gpu in gpus})) or "there are none"
        raise UsageError(
            f"the GPUs of class {class_name} cannot be divided into {profile}",
            why=f"it has to be the same part of each of them: {models}",
            hint="vgpumgr pool status",
        )
    milli = sizes.pop()
    return milli, len(gpus) * (GPU_MILLI // milli)


def _changed_meanwhile(name: str) -> TenantExistsError:
    return TenantExistsError(f"tenant {name} was changed at the same time", hint="the same again")


def _describe(view: View, tenant: TenantRecord, usage: Usage) -> dict[str, Any]:
    claims = [claim for claim in view.claims.values() if claim.tenant == tenant.name]
    states = Counter(view.find_state(claim) for claim in claims)
    return {
        "name": tenant.name,
        "quota_milli": tenant.gpu_milli,
        "used_milli": usage.read(tenant.name),
        "priority": tenant.priority,
        "weight": tenant.weight,
        "preemptible": tenant.preemptible,
        "claims": {state: states[state] for state in STATES},
    }
