"""What administrators ask of the classes of a pool: how GPUs are provided, and by which policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vgpumgr.errors import ClassExistsError, ClassNotFoundError, UsageError
from vgpumgr.model.text import list_near
from vgpumgr.pool.control.records import PREEMPTION, ClassRecord, View, check_name, put
from vgpumgr.pool.membership import CLASSES, Pool
from vgpumgr.pool.store.interface import Change, Compare, Delete
from vgpumgr.pool.versions import need


class ClassOperations:
    """The operations on the classes of an open pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def list_all(self) -> list[dict[str, Any]]:
        """Every class, by name."""
        view = self._pool.view()
        return [_describe(view, view.classes[name]) for name in sorted(view.classes)]

    def create(
        self,
        name: str,
        policy: str,
        models: Sequence[str],
        *,
        whole: bool,
        preemptible: bool = False,
    ) -> dict[str, Any]:
        """The new class. Raises ClassExistsError, UsageError for a model that no GPU of the pool has."""
        check_name(name, "class")
        view = self._pool.view()
        exists = ClassExistsError(f"there is a class {name}", hint="vgpumgr pool class list")
        if name in view.classes:
            raise exists
        if preemptible:
            need(self._pool, view, PREEMPTION, "preemption")
        known = sorted({gpu.model for gpu in view.gpus.values()})
        for model in models:
            if model not in known:
                near = list_near(model, known, n=1)
                guess = f"did you mean {near[0]!r}? " if near else ""
                raise UsageError(
                    f"no GPU of the pool is a {model!r}",
                    why=f"{guess}there are {', '.join(known) or 'no GPUs yet'}",
                    hint="vgpumgr pool status",
                )
        record = ClassRecord(name, policy, whole, tuple(dict.fromkeys(models)), preemptible)
        self._pool.change((view.at(record.key),), (put(record),), exists)
        return _describe(self._pool.view(), record)

    def delete(self, name: str) -> None:
        """Removes a class that no claim has. Raises ClassExistsError, which names the claims."""

        def plan(view: View) -> tuple[list[Compare], list[Change]]:
            record = find_class(view, name, hint="vgpumgr pool class list")
            _check_unused(view, name)
            # a claim that is made meanwhile moves the revision
            return [view.at(record.key)], [Delete(record.key)]

        changed = ClassExistsError(f"class {name} was changed at the same time")
        self._pool.change_anew(plan, changed)


def _check_unused(view: View, name: str) -> None:
    """Raises ClassExistsError."""
    if name in {one.name for one in CLASSES}:
        raise ClassExistsError(
            f"class {name} stays", why="every pool has it", hint="vgpumgr pool class list"
        )
    claims = sorted(claim.name for claim in view.claims.values() if claim.class_name == name)
    if claims:
        raise ClassExistsError(
            f"class {name} has claims",
            held_by=tuple(f"claim {claim}" for claim in claims),
            hint=f"vgpumgr claim delete {claims[0]}",
        )


def find_class(view: View, name: str, hint: str | None = None) -> ClassRecord:
    """Raises ClassNotFoundError with near names."""
    if name in view.classes:
        return view.classes[name]
    near = list_near(name, view.classes, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise ClassNotFoundError(
        f"the pool has no class {name}",
        why=f"{guess}there are {', '.join(sorted(view.classes))}",
        hint=hint or f"--class {near[0] if near else 'default'}",
    )


def _describe(view: View, record: ClassRecord) -> dict[str, Any]:
    gpus = [gpu for gpu in view.gpus.values() if record.accepts(gpu)]
    return {
        "name": record.name,
        "policy": record.policy,
        "whole": record.whole,
        "preemptible": record.preemptible,
        "models": list(record.models),
        "gpus": len(gpus),
        "claims": sum(claim.class_name == record.name for claim in view.claims.values()),
    }
