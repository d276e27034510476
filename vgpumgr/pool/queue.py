"""The queue as the process that leads a pool sees it: since when each claim waits, and what each tenant has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from vgpumgr.pool.control.records import ROOT, View
from vgpumgr.pool.control.tenants import Usage, list_queue
from vgpumgr.pool.store.interface import Put, Transaction
from vgpumgr.state.leases import SeenQueue, SeenTenant, SeenWait

#: of the queue and of the tenants, so many are kept for who only shows them
MAX_SHOWN = 256
_LEASES, _CLAIMS = f"{ROOT}lease/", f"{ROOT}claim/"


class QueueWatch:
    """``read_clock_s`` only grows, and counts from the boot; ``report`` gets a claim that was granted, its tenant, and
    how long it had waited.
    """

    def __init__(
        self,
        boot: str,
        read_clock_s: Callable[[], float],
        report: Callable[[str, str, float], None],
        before: SeenQueue | None = None,
    ) -> None:
        self._boot = boot
        self._read_clock_s = read_clock_s
        self._report = report
        is_of_boot = before is not None and before.boot == boot
        #: since when each claim waits, as far as it was seen
        self._since_s = (
            {one.claim: one.since_s for one in before.waiting} if before and is_of_boot else {}
        )
        self._tenants: dict[str, str] = {}
        self._whys: dict[str, str] = {}
        self._view: View | None = None

    def see(self, view: View) -> None:
        """The pool as it is, before a round's grants."""
        now_s = self._read_clock_s()
        waiting = [claim for claim in view.claims.values() if view.find_state(claim) == "waiting"]
        names = {one.name for one in waiting}
        for name in self._since_s.keys() - names:
            # a grant whose answer was lost, or that a command has written
            claim = view.claims.get(name)
            if claim is not None and view.find_state(claim) == "granted":
                self._report(name, claim.tenant, max(0.0, now_s - self._since_s[name]))
        self._since_s = {one.name: self._since_s.get(one.name, now_s) for one in waiting}
        self._tenants = {one.name: one.tenant for one in waiting}
        self._whys = {one.name: one.why for one in waiting}
        self._view = view

    def wrote(self, transaction: Transaction) -> None:
        """A change of this round was made: what it grants does not wait any more."""
        for change in transaction.changes:
            claim = change.key.rpartition("/")[2]
            if isinstance(change, Put) and change.key.startswith(_CLAIMS) and claim in self._whys:
                self._whys[claim] = str(json.loads(change.value).get("why", ""))
            elif isinstance(change, Put) and change.key.startswith(_LEASES):
                since_s = self._since_s.pop(claim, None)
                if since_s is not None:
                    wait_s = max(0.0, self._read_clock_s() - since_s)
                    self._report(claim, self._tenants.get(claim, ""), wait_s)

    def lose(self) -> None:
        """Another process leads. If this one does again, it begins to count anew."""
        self._since_s.clear()
        self._view = None

    def describe(self) -> SeenQueue | None:
        """The queue after a round's grants; None while another process leads."""
        view = self._view
        if view is None:
            return None
        waiting = [claim for claim in view.claims.values() if claim.name in self._since_s]
        usage = Usage(view)
        counts = Counter(one.tenant for one in waiting)
        oldest: dict[str, float] = {}
        for one in waiting:
            since_s = self._since_s[one.name]
            oldest[one.tenant] = min(since_s, oldest.get(one.tenant, since_s))
        names = sorted({"", *view.tenants, *counts})
        tenants = tuple(
            SeenTenant(
                name,
                view.tenants[name].gpu_milli if name in view.tenants else None,
                usage.read(name),
                counts[name],
                oldest.get(name),
            )
            for name in names[:MAX_SHOWN]
        )
        ordered = list(list_queue(view, waiting))[:MAX_SHOWN] if waiting else []
        hosts = Counter(view.find_host_state(name) for name in view.hosts)
        return SeenQueue(
            self._boot,
            tuple(
                SeenWait(one.name, one.tenant, self._since_s[one.name], self._whys[one.name])
                for one in ordered
            ),
            tenants,
            dict(sorted(hosts.items())),
            len(waiting),
        )
