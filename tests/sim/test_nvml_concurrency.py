# SPDX-License-Identifier: Apache-2.0
"""One machine used by many: processes and threads that change it at once, forks, and writers that are killed."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.sim import nvml_support as support

pytestmark = pytest.mark.native

# Takes instances at random, checks that they stay as they were made, and gives them back.
_WORKER = """
import ctypes, random, sys
import pynvml as n
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
seed, rounds = map(int, sys.argv[2:])
chance = random.Random(seed)
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
mine, made = {}, 0
for _ in range(rounds):
    if mine and chance.random() < 0.5:
        key = chance.choice(list(mine))
        instance, compute = mine.pop(key)
        n.nvmlComputeInstanceDestroy(compute)
        n.nvmlGpuInstanceDestroy(instance)
    else:
        try:
            instance = n.nvmlDeviceCreateGpuInstance(gpu, chance.choice([19, 14, 15, 9]))
        except n.NVMLError_InsufficientResources:
            continue
        made += 1
        info = n.nvmlGpuInstanceGetInfo(instance)
        compute = n.nvmlGpuInstanceCreateComputeInstance(instance, 0)
        mine[info.id, info.placement.start, info.placement.size] = instance, compute
    for (gi_id, start, size), (instance, _) in mine.items():
        info = n.nvmlGpuInstanceGetInfo(instance)
        assert (info.id, info.placement.start, info.placement.size) == (gi_id, start, size)
for instance, compute in mine.values():
    n.nvmlComputeInstanceDestroy(compute)
    n.nvmlGpuInstanceDestroy(instance)
print(made)
"""


@pytest.fixture
def dgx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A running dgx-a100 with its first GPU in MIG mode."""
    with support.running("dgx-a100", tmp_path, monkeypatch) as directory, support.nvml():
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
        yield directory


@pytest.fixture(scope="module")
def simstate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state library for clients."""
    return support.build_simstate(tmp_path_factory.mktemp("simstate"))


def check_layout(directory: Path) -> int:
    """No memory unit is taken twice, no compute slice beyond seven, no compute instance alone. Counts instances."""
    units: list[int] = []
    slices = 0
    instances = set()
    for words in support.show(directory):
        if words[0] == "gi":
            _, gpu, gi, profile, start, size = words
            units += range(int(start), int(start) + int(size))
            slices += int(profile[0])
            instances.add((gpu, gi))
        elif words[0] == "ci":
            assert (words[1], words[2]) in instances
    assert len(units) == len(set(units))
    assert slices <= 7
    return len(instances)


def _start_worker(seed: int, rounds: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", _WORKER, str(support.LIBRARY), str(seed), str(rounds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_processes_at_once(dgx: Path) -> None:
    workers = [_start_worker(seed, 1000) for seed in range(4)]
    while any(worker.poll() is None for worker in workers):
        check_layout(dgx)
    made = [int(worker.communicate(timeout=120)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert sum(made) > 400
    assert support.show(dgx) == []


def test_killed_writers_leave_a_whole_machine(dgx: Path) -> None:
    chance = random.Random(5)
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    killed_inside = 0
    for seed in range(12):
        worker = _start_worker(seed, 1_000_000)
        _wait_for_change(dgx, worker)
        time.sleep(chance.uniform(0, 0.02))
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        killed_inside += check_layout(dgx) > 0
        # the lock is free, and everything can be taken apart
        pynvml.nvmlDeviceSetMigMode(gpu, 0)
        assert support.show(dgx) == []
        pynvml.nvmlDeviceSetMigMode(gpu, 1)
    assert killed_inside


def _wait_for_change(directory: Path, worker: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not support.show(directory):
        assert worker.poll() is None
        assert time.monotonic() < deadline


def test_threads_of_one_process(dgx: Path) -> None:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                try:
                    instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, 14)
                except pynvml.NVMLError_InsufficientResources:
                    continue
                assert pynvml.nvmlGpuInstanceGetInfo(instance).profileId == 14
                pynvml.nvmlGpuInstanceDestroy(instance)
        except BaseException as err:
            failures.append(err)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert failures == []
    assert support.show(dgx) == []


def test_children_of_a_fork_use_the_library_while_the_parents_threads_do(dgx: Path) -> None:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            pynvml.nvmlDeviceGetMemoryInfo(gpu)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                instance = pynvml.nvmlDeviceCreateGpuInstance(gpu, 0)
                pynvml.nvmlGpuInstanceDestroy(instance)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert support.show(dgx) == []


def test_a_child_is_not_the_client_that_its_parent_is(dgx: Path, simstate: Path) -> None:
    sim = ctypes.CDLL(str(simstate))
    handle, slot = ctypes.c_void_p(), ctypes.c_int()
    assert sim.sim_open(None, ctypes.byref(handle)) == 0
    assert sim.sim_client_add(handle, 1, -1, -1, ctypes.byref(slot)) == 0
    assert sim.sim_client_charge(handle, slot, ctypes.c_uint64(1 << 20)) == 0
    pid = os.fork()
    if pid == 0:
        foreign = sim.sim_client_charge(handle, slot, ctypes.c_uint64(1 << 20))
        sim.sim_client_remove(handle, slot)
        own = ctypes.c_int()
        added = sim.sim_client_add(handle, 1, -1, -1, ctypes.byref(own))
        os._exit(0 if (foreign, added) == (-3, 0) and own.value != slot.value else 1)
    assert os.waitpid(pid, 0)[1] == 0
    # the child's own slot went with it, the parent's is as it was
    clients = [words for words in support.show(dgx) if words[0] == "client"]
    assert [(words[1], words[5]) for words in clients] == [(str(os.getpid()), str(1 << 20))]
    sim.sim_client_remove(handle, slot)
    assert support.show(dgx) == []
    sim.sim_close(handle)
