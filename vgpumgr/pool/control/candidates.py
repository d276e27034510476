"""Why a claim is where it is, or is not: every host with its score, or with the reason that excludes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgpumgr.model.frozen import dataclass
from vgpumgr.pool.control.controller import decide, find_exclusion
from vgpumgr.pool.control.placing import Grant, Placing
from vgpumgr.pool.control.preempting import Preemption, find_nominated, find_preemption
from vgpumgr.pool.control.records import ClaimRecord, View
from vgpumgr.pool.control.tenants import Usage, list_queue


@dataclass(frozen=True, slots=True)
class Candidate:
    """GPUs of one model on one host. ``free_milli`` is what is free of each, by its index; ``score`` is None where the
    claim cannot have them, and ``why`` says the same in words.
    """

    host: str
    model: str
    free_milli: Mapping[int, int]
    chosen: bool
    score: tuple[float, ...] | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        """As ``-o json`` has it."""
        return {
            "name": self.host,
            "model": self.model,
            "free_milli": {str(index): free for index, free in self.free_milli.items()},
            "chosen": self.chosen,
            "score": None if self.score is None else list(self.score),
            "why": self.why,
        }


def list_candidates(view: View, claim: ClaimRecord, now_s: float | None = None) -> list[Candidate]:
    """All hosts: that which the claim has or would get, then by score, then those that it cannot have.

    The claim's own lease counts as free. ``now_s`` is the time of day, by which GPUs are reserved. A claim that is
    granted is where it was granted, also where another host would be better by now.
    """
    placing, usage = Placing(view, without=claim.name, now_s=now_s), Usage(view)
    lease = view.find_lease(claim)
    if lease is not None:
        usage.add(claim, -lease.total_milli)
    excluded = find_exclusion(view, claim, placing, usage) if lease is None else None
    ready = {(host, model): n for n, (host, model, _) in enumerate(placing.list_groups())}
    groups = Placing(view, everything=True, without=claim.name).list_groups()
    judged: list[tuple[tuple[float, ...] | None, str]] = []
    for host, model, _ in groups:
        if excluded is not None:
            judged.append((None, excluded))
        elif (host, model) not in ready:
            judged.append((None, f"the host is {view.find_host_state(host)}"))
        else:
            judged.append(placing.judge(claim, ready[host, model], usage))
    chosen = _find_chosen(view, claim, now_s)
    found = [
        Candidate(host, model, free, (host, model) == chosen, score, why)
        for (host, model, free), (score, why) in zip(groups, judged, strict=True)
    ]
    return sorted(
        found, key=lambda one: (not one.chosen, one.score is None, one.score or (), one.host)
    )


def _find_chosen(view: View, claim: ClaimRecord, now_s: float | None) -> tuple[str, str] | None:
    """The host and the model that it has, or would get now."""
    lease = view.find_lease(claim)
    if lease is not None:
        host, gpus = lease.host, lease.gpus
    else:
        grant, _ = grant_in_turn(view, claim, now_s)
        if grant is None:
            return None
        host, gpus = grant.host, grant.gpus
    return next(
        (
            (host, model)
            for name, model, free in Placing(view, everything=True).list_groups()
            if name == host and gpus[0] in free
        ),
        None,
    )


def grant_in_turn(
    view: View, claim: ClaimRecord, now_s: float | None
) -> tuple[Grant | None, Preemption | None]:
    """What it gets once the claims before it in the queue have got theirs; or what would be preempted for it."""
    placing, usage = Placing(view, now_s=now_s), Usage(view)
    waiting = [one for one in view.claims.values() if view.find_state(one) == "waiting"]
    for one in list_queue(view, waiting, usage):
        found = decide(view, one, placing, usage)
        if one.name != claim.name:
            continue
        if not isinstance(found, str):
            return found, None
        if find_exclusion(view, one, placing, usage) or find_nominated(view, one, placing):
            return None, None
        return None, find_preemption(view, one, placing, usage, now_s or 0.0)
    return None, None
