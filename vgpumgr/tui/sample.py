"""What is on the machine at one moment, from the application's documents, what changes between two
moments, and the thread that asks, so that the terminal never waits for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any

from vgpumgr.errors import VgpumgrError
from vgpumgr.host.clock import Clock
from vgpumgr.model.frozen import dataclass

#: as many as a wide terminal shows
HISTORY = 120

Call = Callable[[str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One snapshot of the machine; ``problems`` says what could not be read. GPUs None: nothing was."""

    monotonic_s: float
    wall_s: float
    machine: Mapping[str, Any] | None = None
    gpus: Sequence[Mapping[str, Any]] | None = None
    #: GPUs that NVML does not speak about
    others: Sequence[Mapping[str, Any]] = ()
    lost: Sequence[Mapping[str, Any]] = ()
    vms: Sequence[Mapping[str, Any]] | None = None
    problems: tuple[str, ...] = ()


def take_sample(call: Call, clock: Clock) -> Sample:
    """Asks for GPUs and VMs; failures are reported and hide nothing else."""
    problems: list[str] = []
    listing = _try(call, "list_gpus", problems) or {}
    vms = _try(call, "list_vms", problems)
    return Sample(
        monotonic_s=clock.monotonic_s(),
        wall_s=clock.wall_s(),
        machine=listing.get("machine"),
        gpus=listing.get("gpus"),
        others=listing.get("others", ()),
        lost=listing.get("lost", ()),
        vms=vms["vms"] if vms else None,
        problems=tuple(problems),
    )


def _try(call: Call, operation: str, problems: list[str]) -> dict[str, Any] | None:
    try:
        return call(operation)
    except VgpumgrError as error:
        problems.append(f"{error.error}: {error.cause}" if error.cause else error.error)
        return None


@dataclass
class History:
    """Loads of the last samples by the key of their row: a GPU's utilisation (0 to 1), a VM's
    forwarded calls per second.
    """

    last: Sample | None = None
    loads: dict[str, deque[float | None]] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Takes a sample in. Rows that are gone are forgotten; unknown values leave a gap."""
        found = dict(self._measure(sample))
        if sample.gpus is None:
            # nothing is known: no row is gone
            found = dict.fromkeys(self.loads) | found
        self.loads = {key: self._extend(self.loads.get(key), value) for key, value in found.items()}
        if sample.gpus is not None:
            self.last = sample

    def read(self, key: str) -> tuple[float | None, ...]:
        """The loads of a row, oldest first."""
        return tuple(self.loads.get(key, ()))

    def read_last(self, key: str) -> float | None:
        """The newest load of a row."""
        loads = self.loads.get(key)
        return loads[-1] if loads else None

    def _extend(
        self, values: deque[float | None] | None, value: float | None
    ) -> deque[float | None]:
        values = values if values is not None else deque(maxlen=HISTORY)
        values.append(value)
        return values

    def _measure(self, sample: Sample) -> Iterable[tuple[str, float | None]]:
        rates = self._measure_rates(sample)
        for gpu in sample.gpus or ():
            use = gpu["utilisation"]
            own = [rates[id_] for i in gpu["instances"] if (id_ := i["attachment"]) in rates]
            yield gpu["uuid"], use["gpu_ratio"] if use else _sum(own)
        for id_, rate in rates.items():
            yield channel_key(id_), rate
        for vm in sample.vms or ():
            if vm["channels"]:
                yield vm_key(vm["name"]), _sum([rates[c["id"]] for c in vm["channels"]])

    def _measure_rates(self, sample: Sample) -> dict[str, float | None]:
        before = {c["id"]: c for c in _list_channels(self.last)}
        passed_s = sample.monotonic_s - self.last.monotonic_s if self.last else 0.0
        return {
            channel["id"]: _rate(before.get(channel["id"]), channel, passed_s)
            for channel in _list_channels(sample)
        }


def vm_key(name: str) -> str:
    """The key of a VM's history."""
    return f"vm:{name}"


def channel_key(attachment: str) -> str:
    """The key of an attachment's history."""
    return f"channel:{attachment}"


def _list_channels(sample: Sample | None) -> list[Mapping[str, Any]]:
    return [c for vm in (sample.vms if sample else None) or () for c in vm["channels"]]


def _sum(rates: Sequence[float | None]) -> float | None:
    """Of those that are known; None if none is."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _rate(old: Mapping[str, Any] | None, new: Mapping[str, Any], passed_s: float) -> float | None:
    """Calls per second; None for the first sample, another worker, or no keeper."""
    if not old or not new["running"] or passed_s <= 0 or old["worker_pid"] != new["worker_pid"]:
        return None
    moved = int(new["calls"]) - int(old["calls"])
    return moved / passed_s if moved >= 0 else None


OpenCall = Callable[[], AbstractContextManager[Call]]


class Poller:
    """Hands every sample to ``deliver``, in its own thread, until it is stopped."""

    def __init__(
        self,
        open_call: OpenCall,
        clock: Clock,
        interval_s: float,
        deliver: Callable[[Sample], None],
    ) -> None:
        self._open_call = open_call
        self._clock = clock
        self._interval_s = interval_s
        self._deliver = deliver
        self._wake = threading.Event()
        self._stopped = False
        self._asked_s: float | None = None

    def start(self) -> None:
        """A daemon thread: one that is stuck in a call must not keep the program."""
        threading.Thread(target=self._run, name="poller", daemon=True).start()

    def stop(self) -> None:
        """No sample is delivered after the next; does not wait."""
        self._stopped = True
        self._wake.set()

    def hurry(self) -> None:
        """Asks again at once, or when the running question is answered."""
        self._wake.set()

    def waiting_s(self) -> float:
        """For how long the running question has had no answer; 0 if none runs."""
        asked_s = self._asked_s
        return 0.0 if asked_s is None else self._clock.monotonic_s() - asked_s

    def _run(self) -> None:
        while not self._stopped:
            try:
                with self._open_call() as call:
                    self._ask_on(call)
            except VgpumgrError as error:
                # the machine cannot even be opened: say so, and try again later
                self._answer(Sample(0, self._clock.wall_s(), problems=(error.error,)))
                self._pause()

    def _ask_on(self, call: Call) -> None:
        while not self._stopped:
            self._asked_s = self._clock.monotonic_s()
            self._answer(take_sample(call, self._clock))
            self._pause()

    def _answer(self, sample: Sample) -> None:
        self._asked_s = None
        if not self._stopped:
            self._deliver(sample)

    def _pause(self) -> None:
        self._wake.wait(self._interval_s)
        self._wake.clear()
