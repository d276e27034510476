"""Whether a host can hold a task: one rule a line, and a reason where it cannot."""

from __future__ import annotations

from collections.abc import Iterable

from vgpumgr.pool.scheduler.model import GPU_MILLI, Demand, Host, State


def fits(state: State, demand: Demand) -> bool:
    """Whether all rules hold. The same rules as ``find_reason``, without words: this is the scheduler's inner loop."""
    model, cpu_milli, memory_mib, gpus = state
    if demand.cpu_milli > cpu_milli or demand.memory_mib > memory_mib:
        return False
    count = demand.num_gpu
    if not count:
        return True
    if count > len(gpus) or (demand.models and model not in demand.models):
        return False
    # ascending: the largest pieces stand last
    return gpus[-count] >= demand.gpu_milli


def find_reason(state: State, demand: Demand) -> str | None:
    """The first rule that forbids the task on a host in this state; None where it fits."""
    if demand.num_gpu:
        if not state.gpus:
            return "the host has no GPU"
        if demand.models and state.model not in demand.models:
            return f"its GPUs are {state.model}, and the task needs {' or '.join(demand.models)}"
        if demand.num_gpu > len(state.gpus):
            return f"it has {_count(len(state.gpus))}, and the task needs {demand.num_gpu}"
        if demand.is_share and state.gpus[-1] < demand.gpu_milli:
            return f"the largest free piece of a GPU is {state.gpus[-1]} of the {demand.gpu_milli} milli that it needs"
        if state.gpus[-demand.num_gpu] < demand.gpu_milli:
            idle = state.gpus.count(GPU_MILLI)
            return f"{_count(idle)} of {len(state.gpus)} idle, and the task needs {demand.num_gpu}"
    if demand.cpu_milli > state.cpu_milli:
        return f"{state.cpu_milli} milli-CPU free, and the task needs {demand.cpu_milli}"
    if demand.memory_mib > state.memory_mib:
        return f"{state.memory_mib} MiB of memory free, and the task needs {demand.memory_mib}"
    return None


def explain_impossible(hosts: Iterable[Host], demand: Demand) -> str | None:
    """Why no host can hold the task even when nothing else runs; None where one can.

    Of the reasons, that of the host which comes nearest: it fails by the latest rule.
    """
    reasons: dict[State, str] = {}
    for host in hosts:
        if fits(host.state, demand):
            return None
        if host.state not in reasons:
            reasons[host.state] = str(find_reason(host.state, demand))
    nearest = max(reasons, key=lambda state: _rank(state, demand), default=None)
    return "there is no host" if nearest is None else f"on an empty host, {reasons[nearest]}"


def _rank(state: State, demand: Demand) -> tuple[bool, int, bool, int, int]:
    """More rules hold on a host that is nearer."""
    has_model = not demand.num_gpu or not demand.models or state.model in demand.models
    gpus = min(demand.num_gpu, len(state.gpus)) if has_model else 0
    has_cpu = demand.cpu_milli <= state.cpu_milli
    return has_model, gpus, has_cpu, state.cpu_milli, state.memory_mib


def _count(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"
