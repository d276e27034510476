"""A slice is held from attach on, before any guest computes: other tools get "in use" instead of destroying it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.attached_machine import Attached, machine_of_vms
from vgpumgr.errors import LayoutBusyError
from vgpumgr.virtio.channel import ChannelStatus

pytestmark = pytest.mark.native
#: as nvidia-mig-parted begins, and ``nvidia-smi mig -dci; nvidia-smi mig -dgi``: destroys what it can on GPU 0
WIPE = """
from ctypes import byref
from pynvml import *
nvmlInit()
gpu = nvmlDeviceGetHandleByIndex(0)
for profile in range(NVML_GPU_INSTANCE_PROFILE_COUNT):
    try:
        info = nvmlDeviceGetGpuInstanceProfileInfo(gpu, profile)
    except NVMLError:
        continue
    found, count = (c_nvmlGpuInstance_t * info.instanceCount)(), c_uint()
    _nvmlGetFunctionPointer("nvmlDeviceGetGpuInstances")(gpu, info.id, found, byref(count))
    for instance in list(found[:count.value]):
        for size in range(NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            try:
                inner = nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, size, 0)
            except NVMLError:
                continue
            inside, number = (c_nvmlComputeInstance_t * inner.instanceCount)(), c_uint()
            list_ = _nvmlGetFunctionPointer("nvmlGpuInstanceGetComputeInstances")
            list_(instance, inner.id, inside, byref(number))
            for compute in list(inside[:number.value]):
                try:
                    nvmlComputeInstanceDestroy(compute)
                except NVMLError as error:
                    print(error)
        try:
            nvmlGpuInstanceDestroy(instance)
            print("destroyed")
        except NVMLError as error:
            print(error)
"""


@pytest.fixture
def machine() -> Iterator[Attached]:
    with machine_of_vms() as it:
        try:
            yield it
        finally:
            for vm in {r.vm_name for r in it.application.parts.store.list_attachments()}:
                it.call("detach", vm=vm)


def wipe(machine: Attached) -> list[str]:
    """What another program gets from NVML that destroys every instance of GPU 0."""
    program = "from pynvml import _nvmlGetFunctionPointer, c_uint\n" + WIPE
    environ = {**os.environ, **machine.machine.variables}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


def see(machine: Attached) -> list[str]:
    """The MIG UUIDs of GPU 0."""
    rows = machine.call("list_mig_instances", selector="0")["instances"]
    return [c["uuid"] for row in rows for c in row["compute_instances"]]


def read_status(machine: Attached) -> ChannelStatus:
    parts = machine.application.parts
    (record,) = parts.store.list_attachments()
    status = parts.channels.read_status(record.id)
    assert status is not None
    return status


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def list_holders(machine: Attached) -> list[int]:
    (gpu, *_) = machine.application.parts.read_inventory().gpus
    return [process.pid for process in gpu.processes if process.is_holder]


def test_another_tool_gets_in_use_until_the_detach(machine: Attached) -> None:
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    before = see(machine)
    assert len(list_holders(machine)) == 1
    assert wipe(machine) == ["In use by another client"] * 2
    assert see(machine) == before
    machine.call("detach", vm="vm01")
    assert see(machine) == []
    assert list_holders(machine) == []


def test_a_taken_instance_is_held_and_free_again_afterwards(machine: Attached) -> None:
    layout = (
        "schema: vgpumgr/mig-layout/v1\nlayouts: {a: [{gpus: [0], instances: [3g.40gb, 4g.40gb]}]}"
    )
    machine.call("apply_layout", text=layout, source="l.yaml")
    machine.call("attach", vm="vm01", profile="3g.40gb", gpu="0")
    assert sorted(wipe(machine)) == ["In use by another client"] * 2 + ["destroyed"]
    machine.call("detach", vm="vm01")
    assert wipe(machine) == ["destroyed"]


def test_a_worker_that_was_killed_comes_back_with_its_slice_held(machine: Attached) -> None:
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    before, (holder,) = read_status(machine), list_holders(machine)
    assert before.worker_pid is not None
    os.kill(before.worker_pid, signal.SIGKILL)

    def is_back() -> bool:
        now = read_status(machine)
        return now.worker_ready and now.worker_pid != before.worker_pid

    wait_for(is_back)
    wait_for(lambda: holder not in list_holders(machine) and len(list_holders(machine)) == 1)
    assert "destroyed" not in wipe(machine)


def test_who_holds_it_is_the_vm_alone(machine: Attached) -> None:
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    layout = "schema: vgpumgr/mig-layout/v1\nlayouts: {a: [{gpus: [0], instances: [7g.80gb]}]}"
    with pytest.raises(LayoutBusyError) as refused:
        machine.call("plan_layout", text=layout, source="l.yaml")
    assert refused.value.held_by == ('vm "vm01"',)
    # the VM that it is taken from gets another, and that is held, too
    again = layout.replace("[7g.80gb]", "[{profile: 2g.20gb, placement: '0:2'}]")
    machine.call("apply_layout", text=again, source="l.yaml", allow=["vm01"])
    assert "destroyed" not in wipe(machine)
    assert len(see(machine)) == 1


def wipe_all_the_same(machine: Attached) -> None:
    """As a reset of the GPU does: nothing that held it is left."""
    for holder in list_holders(machine):
        os.kill(holder, signal.SIGKILL)
    wait_for(lambda: not list_holders(machine))
    assert "destroyed" in wipe(machine)


def list_drift(machine: Attached) -> list[tuple[str, str, str | None]]:
    status = machine.call("status")
    assert status["problems"] == []
    assert machine.call("diff")["drift"] == status["drift"]
    return [(d["kind"], d["text"], d["hint"]) for d in status["drift"]]


def test_restore_brings_a_wiped_slice_back_with_its_worker(machine: Attached) -> None:
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    before, worker = see(machine), read_status(machine).worker_pid
    wipe_all_the_same(machine)
    ((kind, _, hint),) = list_drift(machine)
    assert (kind, hint) == ("slice-gone", "vgpumgr restore")
    assert machine.call("restore")["problems"] == []
    # the same place has the same UUID, and yet the old worker's instance is gone
    assert see(machine) == before
    assert read_status(machine).worker_pid != worker
    assert len(list_holders(machine)) == 1
    assert list_drift(machine) == []
    assert "destroyed" not in wipe(machine)


def test_restore_names_the_ways_out_where_another_stands_in_the_place(machine: Attached) -> None:
    machine.call("attach", vm="vm01", profile="2g.20gb", gpu="0")
    wipe_all_the_same(machine)
    parts = machine.application.parts
    (gpu, *_) = parts.read_inventory().gpus
    whole = next(p for p in gpu.profiles if str(p.name) == "7g.80gb")
    parts.nvml.create_gpu_instance(gpu.uuid, whole.id, whole.placements[0])
    (record,) = parts.store.list_attachments()
    ways = f"vgpumgr detach vm01 --attachment {record.id}, then vgpumgr attach vm01 --profile"
    ((kind, text, hint),) = list_drift(machine)
    assert kind == "slice-gone"
    assert "7g.80gb at 0:8" in text
    assert hint is not None
    assert hint.startswith(ways)
    problems = machine.call("restore")["problems"]
    assert any("7g.80gb at 0:8" in p and ways in p and "nvidia-smi mig" in p for p in problems)
    # each of them works
    machine.call("detach", vm="vm01", attachment=record.id)
    document = machine.call("attach", vm="vm01", profile="2g.20gb")
    assert document["plan"]["result"]["gpu_index"] != 0
