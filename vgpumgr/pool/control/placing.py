"""Claims as tasks of the scheduler, and GPUs as its hosts: one for each host, model and size of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import format_exact, format_size
from vgpumgr.pool.control.keeping import Keeping
from vgpumgr.pool.control.records import (
    ClaimRecord,
    ClassRecord,
    GpuRecord,
    LeaseRecord,
    View,
    is_among,
)
from vgpumgr.pool.control.tenants import Usage
from vgpumgr.pool.scheduler.choosing import RANDOM, Chooser, open_chooser
from vgpumgr.pool.scheduler.cluster import Cluster
from vgpumgr.pool.scheduler.filters import explain_impossible, find_reason, fits
from vgpumgr.pool.scheduler.fragmentation import Mix
from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, Placement, Task
from vgpumgr.pool.scheduler.policies import POLICIES


@dataclass(frozen=True, slots=True)
class Grant:
    """Where a claim gets its GPUs: their indices on a host, and how much of each."""

    host: str
    gpus: tuple[int, ...]
    milli: int

    @property
    def total_milli(self) -> int:
        """Of all its GPUs together."""
        return self.milli * len(self.gpus)


def name_model(gpu: GpuRecord) -> str:
    """The scheduler's model: a share of memory is another part of a GPU of the same name with another size."""
    return f"{gpu.model} ({format_exact(gpu.memory_bytes)})"


def list_demands(claim: ClaimRecord, kind: ClassRecord, gpus: Iterable[GpuRecord]) -> list[Demand]:
    """What the claim asks of the models of these GPUs. A part of their memory is another part of each size: the
    largest stands first, so that GPUs with more memory stay free for claims that need it.
    """
    by_milli: dict[int, set[str]] = {}
    for gpu in gpus:
        milli = GPU_MILLI if kind.whole else claim.count_milli(gpu.memory_bytes)
        is_enough = claim.count_milli(gpu.memory_bytes) <= GPU_MILLI
        if is_enough and kind.accepts(gpu):
            by_milli.setdefault(milli, set()).add(name_model(gpu))
    return [
        Demand(0, 0, claim.gpus, milli, tuple(sorted(models)))
        for milli, models in sorted(by_milli.items(), reverse=True)
    ]


class Placing:
    """The hosts that are ready, with what is free of their GPUs; with ``everything`` all that joined, ready or not.
    ``without`` names a claim whose own lease is not counted. ``now_s`` is the time of day, by which reservations keep
    GPUs from claims; None: none does.
    """

    def __init__(
        self,
        view: View,
        *,
        everything: bool = False,
        without: str = "",
        now_s: float | None = None,
    ) -> None:
        self._view = view
        self.now_s = now_s
        self._keeping: Keeping | None = None
        self._gpus: dict[tuple[str, str, int], list[GpuRecord]] = {}
        for gpu in view.gpus.values():
            if everything or view.is_ready(gpu.host):
                key = (gpu.host, gpu.model, gpu.memory_bytes)
                self._gpus.setdefault(key, []).append(gpu)
        self._groups = list(self._gpus)
        #: one GPU of each model and size: what a claim asks of them is the same
        kinds = {(gpus[0].model, gpus[0].memory_bytes): gpus[0] for gpus in self._gpus.values()}
        self._kinds = list(kinds.values())
        #: of each GPU the number of its group, and its place there
        self._where = {
            (gpu.host, gpu.index): (number, place)
            for number, gpus in enumerate(self._gpus.values())
            for place, gpu in enumerate(gpus)
        }
        self._demands: dict[tuple[object, ...], list[Demand]] = {}
        #: the groups of each host
        self._on: dict[str, list[int]] = {}
        for number, key in enumerate(self._groups):
            self._on.setdefault(key[0], []).append(number)
        hosts = [
            Host(key[0], 0, 0, len(gpus), name_model(gpus[0])) for key, gpus in self._gpus.items()
        ]
        self._cluster = Cluster(hosts)
        self._mix = Mix(
            demand
            for claim in view.claims.values()
            if claim.class_name in view.classes
            for demand in self._list_demands(claim)[:1]
        )
        self._choosers: dict[str, Chooser] = {}
        #: the groups that are on no host of such a ``where``
        self._elsewhere: dict[tuple[str, ...], frozenset[int]] = {}
        #: the hosts that have a claim of each anti-affinity group
        self._apart: dict[str, set[str]] = {}
        if now_s is not None and view.reservations:
            self._keeping = Keeping(view, now_s, self._cluster, self._where)
        for lease in view.leases.values():
            if lease.claim == without:
                continue
            self.take(Grant(lease.host, lease.gpus, lease.milli), lease.claim)
            if lease.claim in view.claims:
                self._note_host(view.claims[lease.claim], lease.host)
        self._closed: set[str] = set()
        for gpu in view.gpus.values():
            if gpu.closed and (gpu.host, gpu.index) in self._where:
                self._close(gpu)

    def _close(self, gpu: GpuRecord) -> None:
        """Of a GPU that takes nothing new nothing is free; again where something on it became smaller."""
        number, place = self._where[gpu.host, gpu.index]
        name = f"closed {gpu.index}"
        if (known := f"{gpu.host}/{name}") in self._closed:
            self._cluster.remove(known)
            self._closed.remove(known)
        if left := self._cluster.read_gpus(number)[place]:
            self.take(Grant(gpu.host, (gpu.index,), left), name)
            self._closed.add(known)

    def _list_demands(self, claim: ClaimRecord) -> list[Demand]:
        key = (claim.class_name, claim.gpus, claim.memory_bytes, claim.compute_percent)
        if key not in self._demands:
            self._demands[key] = list_demands(
                claim, self._view.classes[claim.class_name], self._kinds
            )
        return self._demands[key]

    def take(self, grant: Grant, name: str) -> None:
        """GPUs that a lease has; of hosts that are not ready nothing is counted."""
        found: dict[int, list[int]] = {}
        for index in grant.gpus:
            if (at := self._where.get((grant.host, index))) is not None:
                found.setdefault(at[0], []).append(at[1])
        first = self._where.get((grant.host, grant.gpus[0]), (None, 0))[0]
        for number, places in found.items():
            demand = Demand(0, 0, len(places), grant.milli)
            suffix = "" if number == first else f"/{number}"
            self._cluster.restore(
                Placement(Task(f"{grant.host}/{name}{suffix}", demand), number, tuple(places))
            )
        if self._keeping is not None:
            self._keeping.note(name, grant.host, grant.gpus, grant.milli)

    def _prepare(self, claim: ClaimRecord) -> None:
        """What is free then is free for this claim."""
        if self._keeping is not None:
            self._keeping.prepare(claim)

    def hold_back(self, claim: ClaimRecord, grant: Grant) -> None:
        """Takes what is free of these GPUs by now: others made way for the claim there."""
        for index in grant.gpus:
            number, place = self._where[grant.host, index]
            left = min(grant.milli, self._cluster.read_gpus(number)[place])
            if left > 0:
                self.take(Grant(grant.host, (index,), left), f"nominated {claim.name} {index}")

    def list_open(self, claim: ClaimRecord) -> list[tuple[str, int, list[GpuRecord]]]:
        """The GPUs that can hold it if nothing else has them: of each group the host, and how much of each."""
        others = self._list_elsewhere(claim) | self._list_others(claim)
        demands = {model: one for one in self._list_demands(claim) for model in one.models}
        found = []
        for number, (key, gpus) in enumerate(self._gpus.items()):
            demand = demands.get(name_model(gpus[0]))
            usable = [gpu for gpu in gpus if not gpu.closed]
            if demand is not None and number not in others and len(usable) >= claim.gpus:
                found.append((key[0], demand.gpu_milli, usable))
        return found

    def read_held(self, claim: ClaimRecord, gpu: GpuRecord) -> int:
        """How much of a GPU reservations keep from the claim."""
        if self._keeping is None:
            return 0
        return self._keeping.read_held((gpu.host, gpu.index), self._keeping.find_against(claim))

    def _note_host(self, claim: ClaimRecord, host: str) -> None:
        if claim.anti_affinity:
            self._apart.setdefault(claim.anti_affinity, set()).add(host)

    def _list_others(self, claim: ClaimRecord) -> set[int]:
        """The groups of GPUs on hosts that have a claim of its anti-affinity group."""
        hosts = self._apart.get(claim.anti_affinity, set())
        return {number for host in hosts for number in self._on.get(host, ())}

    def _list_elsewhere(self, claim: ClaimRecord) -> frozenset[int]:
        """The groups of GPUs on hosts that it may not be on."""
        where = self._view.find_where(claim)
        if not where:
            return frozenset()
        if where not in self._elsewhere:
            self._elsewhere[where] = frozenset(
                number
                for host, numbers in self._on.items()
                if not is_among(host, where)
                for number in numbers
            )
        return self._elsewhere[where]

    def find_least(self, claim: ClaimRecord) -> int:
        """The least that it takes of the GPUs of its class together; 0 where there are none."""
        return min((demand.total_milli for demand in self._list_demands(claim)), default=0)

    def place(self, claim: ClaimRecord, left: int | None = None) -> Grant | None:
        """The GPUs that it gets now, no more of them than is ``left``; they are free no longer. None where it has to
        wait.
        """
        kind = self._view.classes[claim.class_name]
        self._prepare(claim)
        for demand in self._list_demands(claim):
            if left is not None and demand.total_milli > left:
                continue
            # the mix holds one moment; a chooser keeps up with what is taken
            chooser = self._choosers.get(kind.policy)
            if chooser is None:
                chooser = open_chooser(kind.policy, self._cluster, self._mix)
                self._choosers[kind.policy] = chooser
            choice = chooser.choose(demand, self._list_elsewhere(claim) | self._list_others(claim))
            if choice is not None:
                key = self._groups[choice.host]
                host, gpus = key[0], self._gpus[key]
                task = Task(f"{host}/{claim.name}", demand)
                placement = self._cluster.place(task, *choice)
                indices = tuple(gpus[place].index for place in placement.gpus)
                self._note_host(claim, host)
                if self._keeping is not None:
                    self._keeping.note(claim.name, host, indices, demand.gpu_milli)
                return Grant(host, indices, demand.gpu_milli)
        return None

    def read_free(self) -> Mapping[tuple[str, int], int]:
        """How much of each GPU is free, by host and index."""
        return {
            (key[0], gpu.index): free
            for number, key in enumerate(self._groups)
            for gpu, free in zip(self._gpus[key], self._cluster.read_gpus(number), strict=True)
        }

    def measure_unusable(self) -> int:
        """What is free and cannot be used by the mix of all claims, in thousandths of a GPU: the mean over the mix."""
        if not self._mix.count:
            return 0
        states = map(self._cluster.read_state, range(len(self._groups)))
        return round(sum(map(self._mix.measure_unusable, states)) / self._mix.count)

    def list_groups(self) -> list[tuple[str, str, Mapping[int, int]]]:
        """Of each host, and of each of its models: what is free of the GPUs, by their indices."""
        return [
            (
                key[0],
                name_model(gpus[0]),
                {
                    gpu.index: free
                    for gpu, free in zip(gpus, self._cluster.read_gpus(number), strict=True)
                },
            )
            for number, (key, gpus) in enumerate(self._gpus.items())
        ]

    def judge(
        self, claim: ClaimRecord, number: int, usage: Usage
    ) -> tuple[tuple[float, ...] | None, str]:
        """The key by which a group of GPUs is preferred, the least first: the smallest GPUs that are enough, then what
        the claim's policy says, in words; or None, and why it gets none of them.
        """
        self._prepare(claim)
        kind, state = self._view.classes[claim.class_name], self._cluster.read_state(number)
        demand = next((d for d in self._list_demands(claim) if state.model in d.models), None)
        if demand is None:
            return None, f"its GPUs are too small, or not of class {claim.class_name}"
        if number in self._list_elsewhere(claim):
            return None, f"the claim asks for {self._name_where(claim)}"
        if number in self._list_others(claim):
            return None, f"it has a claim of anti-affinity {claim.anti_affinity}"
        if reason := find_reason(state, demand):
            return None, _name_claim(reason) + self._explain_kept(claim, [number])
        left = usage.read_left(claim)
        if left is not None and demand.total_milli > left:
            return None, usage.explain(claim, demand.total_milli)
        size = -demand.gpu_milli
        if kind.policy == RANDOM:
            return (size,), "any host that it fits on"
        policy = POLICIES[kind.policy](self._cluster.hosts, self._mix)
        key = policy.score(state, demand)[0]
        return (size, *key), policy.describe(key)

    def find_limit(self, claim: ClaimRecord) -> str | None:
        """Why no GPU can hold it even when nothing else is granted; None where one can, or where there is none."""
        if not self._groups:
            return None
        demands = self._list_demands(claim)
        if not demands:
            largest = max(gpus[0].memory_bytes for gpus in self._gpus.values())
            models = self._view.classes[claim.class_name].models
            of_class = f" of class {claim.class_name} ({' or '.join(models)})" if models else ""
            return f"no GPU{of_class} is large enough; the largest of the pool has {format_size(largest)}"
        hosts = [self._cluster.hosts[number] for number in self._list_near(claim)]
        if not hosts:
            return f"it asks for {self._name_where(claim)}, and there are {', '.join(sorted(self._on))}"
        reasons = [explain_impossible(hosts, demand) for demand in demands]
        return None if None in reasons else _name_claim(str(reasons[0]))

    def explain(self, claim: ClaimRecord, usage: Usage) -> str:
        """Why it has to wait: of all hosts, the reason of that which comes nearest."""
        self._prepare(claim)
        if not self._groups:
            return "no host of the pool with GPUs is ready"
        demands = self._list_demands(claim)
        if not demands:
            return "no GPU of the hosts that are ready is large enough, or of a model of its class"
        near, others = self._list_near(claim), self._list_others(claim)
        hosts = [self._cluster.hosts[number] for number in near]
        if not hosts:
            return f"it asks for {self._name_where(claim)}, and no such host is ready"
        possible = [d for d in demands if not explain_impossible(hosts, d)]
        if not possible:
            return _name_claim(str(explain_impossible(hosts, demands[0])))
        wanted = {model: demand for demand in possible for model in demand.models}
        states = [self._cluster.read_state(number) for number in near if number not in others]
        states = [state for state in states if state.model in wanted]
        if not states:
            names = ", ".join(sorted(self._apart[claim.anti_affinity]))
            return f"anti-affinity {claim.anti_affinity} has a claim on each host already: {names}"
        if free := [wanted[state.model] for state in states if fits(state, wanted[state.model])]:
            # it would have been granted, but for the quota
            return usage.explain(claim, min(demand.total_milli for demand in free))
        nearest = max(states, key=lambda state: state.free_milli)
        reason = _name_claim(str(find_reason(nearest, wanted[nearest.model])))
        return f"all are in use: {reason}{self._explain_kept(claim, self._list_near(claim))}"

    def _name_where(self, claim: ClaimRecord) -> str:
        where = self._view.find_where(claim)
        return f"{'a host' if len(where) > 1 else 'host'} {' or '.join(where)}"

    def _list_near(self, claim: ClaimRecord) -> list[int]:
        """The groups of GPUs on hosts that it may be on."""
        elsewhere = self._list_elsewhere(claim)
        return [number for number in range(len(self._groups)) if number not in elsewhere]

    def _explain_kept(self, claim: ClaimRecord, numbers: Iterable[int]) -> str:
        """The end of a reason: what of these groups is closed, or reserved for others."""
        numbers = list(numbers)
        text = self._explain_closed(numbers)
        if self._keeping is not None:
            text += self._keeping.explain(claim, {self._groups[number][0] for number in numbers})
        return text

    def _explain_closed(self, numbers: Iterable[int]) -> str:
        """The end of a reason: the GPUs of these groups that take nothing new."""
        gpus = [gpu for number in numbers for gpu in self._gpus[self._groups[number]] if gpu.closed]
        if not gpus:
            return ""
        more = f", as {len(gpus) - 1} more" if len(gpus) > 1 else ""
        return f"; GPU {gpus[0].index} of host {gpus[0].host} takes nothing new{more}: {gpus[0].closed}"

    def _find_group(self, lease: LeaseRecord) -> int | None:
        """That of the lease's GPUs; None where its host is not ready."""
        return next(
            (
                number
                for number, key in enumerate(self._groups)
                if key[0] == lease.host and lease.gpus[0] in {gpu.index for gpu in self._gpus[key]}
            ),
            None,
        )

    def _count_milli(self, claim: ClaimRecord, number: int) -> int:
        """How much the claim takes of each GPU of a group."""
        kind = self._view.classes[claim.class_name]
        memory_bytes = self._gpus[self._groups[number]][0].memory_bytes
        return GPU_MILLI if kind.whole else claim.count_milli(memory_bytes)

    def find_growth(self, claim: ClaimRecord, lease: LeaseRecord) -> int:
        """How much more its new size takes than its lease; below 0 where it is less."""
        number = self._find_group(lease)
        if number is None:
            return 0
        return claim.gpus * self._count_milli(claim, number) - lease.total_milli

    def resize(self, claim: ClaimRecord, lease: LeaseRecord) -> Grant | str:
        """The GPUs of its host that it has then, the ones of now first; or why it stays as it is."""
        number = self._find_group(lease)
        if number is None:
            return f"host {lease.host} is not ready"
        self._prepare(claim)
        gpus, free = self._gpus[self._groups[number]], self._cluster.read_gpus(number)
        milli = self._count_milli(claim, number)
        own = set(lease.gpus)
        if own - {gpu.index for gpu in gpus}:
            return f"its GPUs of host {lease.host} are of different models or sizes"
        left = {
            gpu.index: free[place] + (lease.milli if gpu.index in own else 0)
            for place, gpu in enumerate(gpus)
        }
        # what runs cannot leave its GPU; more of them may come
        fitting = sorted(
            (index for index in left if left[index] >= milli),
            key=lambda index: (index not in own, left[index], index),
        )
        chosen = fitting[: claim.gpus]
        kept = min(len(own), claim.gpus)
        if len(own.intersection(chosen)) < kept:
            return f"its own GPU on host {lease.host} has no {milli} milli free for it"
        if len(chosen) < claim.gpus:
            return f"{len(chosen)} GPUs of host {lease.host} have {milli} milli free, and it asks for {claim.gpus}"
        self._cluster.remove(f"{lease.host}/{claim.name}")
        grant = Grant(lease.host, tuple(sorted(chosen)), milli)
        self.take(grant, claim.name)
        for gpu in gpus:
            if gpu.closed and gpu.index in own:
                self._close(gpu)
        return grant


def _name_claim(reason: str) -> str:
    """The scheduler's tasks are claims here."""
    return reason.replace("the task", "the claim")
