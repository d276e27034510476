"""What goes wrong in a guest or its worker stays there: errors where they belong, and everything freed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.guest.conftest import attached_vm, wait_for
from tests.guest.lab import GuestLab
from tests.unit.transport_rig import alive, children

VM = "faulty"
MIB = 1 << 20


@pytest.fixture(scope="module")
def vm(scene: GuestLab) -> Iterator[GuestLab]:
    with attached_vm(scene, VM):
        scene.start(VM)
        yield scene


def channel(scene: GuestLab) -> dict[str, Any]:
    shown: dict[str, Any] = scene.document("virtio", "show", VM)["channel"]
    return shown


def lanes_named(scene: GuestLab, name: str) -> list[dict[str, Any]]:
    return [lane for lane in channel(scene)["lanes"] if lane["name"] == name]


def used_bytes(scene: GuestLab) -> int:
    gpus = scene.document("gpu", "list")["gpus"]
    return sum(
        process["memory_bytes"] or 0
        for gpu in gpus
        for instance in gpu["instances"]
        for process in instance["processes"]
    )


def test_who_uses_what_while_it_runs(vm: GuestLab) -> None:
    idle = used_bytes(vm)
    running = vm.shell(VM, 1).start("holdmem 96 600")
    wait_for(lambda: any(x["memory_bytes"] >= 96 * MIB for x in lanes_named(vm, "holdmem")), "lane")
    assert used_bytes(vm) >= idle + 96 * MIB
    vm.shell(VM).check("killall -USR1 holdmem")
    assert vm.shell(VM, 1).finish(running).status == 0
    wait_for(lambda: not channel(vm)["lanes"], "lane closed")
    assert used_bytes(vm) <= idle


def test_a_killed_guest_process_leaves_nothing(vm: GuestLab) -> None:
    idle = used_bytes(vm)
    vm.shell(VM).check("holdmem 64 600 >/tmp/hold 2>&1 & echo $! >/tmp/pid; usleep 100000")
    wait_for(lambda: lanes_named(vm, "holdmem"), "lane")
    vm.shell(VM).check("kill -9 $(cat /tmp/pid)")
    wait_for(lambda: not channel(vm)["lanes"] and used_bytes(vm) <= idle, "freed")


def test_worker_killed_gives_a_cuda_error_and_the_next_process_works(vm: GuestLab) -> None:
    running = vm.shell(VM, 1).start("holdmem 16 600")
    wait_for(lambda: lanes_named(vm, "holdmem"), "lane")
    before = channel(vm)
    sessions = children(before["worker_pid"])
    os.kill(before["worker_pid"], signal.SIGKILL)
    # else the process may be done before its session knows
    wait_for(lambda: not any(map(alive, sessions)), "its sessions ended")
    vm.shell(VM).check("killall -USR1 holdmem")
    failed = vm.shell(VM, 1).finish(running)
    assert failed.status != 0
    assert "cudaError" in failed.output
    wait_for(lambda: channel(vm)["worker_ready"] and channel(vm)["hello"], "new worker")
    assert channel(vm)["worker_pid"] != before["worker_pid"]
    assert "PASS" in vm.shell(VM).check("vectoradd")


def spied(vm: GuestLab, word: str) -> str:
    """What another user of the guest sees of one who copies that word."""
    running = vm.shell(VM, 1).start(f"scribble as 1001 secret {word} 4")
    wait_for(lambda: any(x["calls"] > 3 for x in lanes_named(vm, "secret")), "lane")
    output = ""
    while lanes_named(vm, "secret"):
        output += vm.shell(VM).check(f"scribble as 1002 scribble spy {word}")
    assert "PASS secret" in vm.shell(VM, 1).finish(running).output
    return output


def test_users_of_a_guest_are_kept_apart(vm: GuestLab) -> None:
    word = "0x5ec2e7c0ffee1234"
    output = spied(vm, word)
    assert "refused the device" in output
    assert "opened" not in output
    assert "found 0 words" in output
    assert "words in 67108864 bytes" not in output
    start = "/usr/sbin/vgpumgr-guestd {} >/tmp/guestd.log 2>&1 & echo $! >/tmp/guestd.pid"
    restart = f"kill $(cat /tmp/guestd.pid); {start}"
    vm.shell(VM).check(restart.format("--lanes shared"))
    wait_for(lambda: vm.shell(VM).run("vectoradd").status == 0, "agent is back")
    found = re.search(r"found ([1-9]\d*) words in 67108864 bytes", spied(vm, word))
    assert found, "with shared lanes the same attack succeeds"
    vm.shell(VM).check(restart.format(""))
    wait_for(lambda: vm.shell(VM).run("vectoradd").status == 0, "agent is back")


def test_garbage_on_the_ring_ends_sessions_and_nothing_else(vm: GuestLab) -> None:
    with attached_vm(vm, "bystander"):
        vm.start("bystander")
        attacking = vm.shell(VM).start("scribble ring 3 7")
        for _ in range(3):
            assert "PASS" in vm.shell("bystander").check("matmul")
        assert vm.shell(VM).finish(attacking).status == 0
    keeper = channel(vm)["keeper_pid"]
    wait_for(lambda: vm.shell(VM).run("vectoradd").status == 0, "channel heals after garbage")
    assert channel(vm)["keeper_pid"] == keeper


def test_garbage_on_the_serial_port_ends_its_session_and_nothing_else(vm: GuestLab) -> None:
    keeper = channel(vm)["keeper_pid"]
    vm.shell(VM).check("kill $(cat /tmp/guestd.pid); usleep 300000")
    vm.shell(VM).run("scribble serial 200000 9")
    vm.shell(VM).check("/usr/sbin/vgpumgr-guestd >/tmp/guestd.log 2>&1 & echo $! >/tmp/guestd.pid")
    wait_for(lambda: vm.shell(VM).run("vectoradd").status == 0, "agent is back")
    assert channel(vm)["keeper_pid"] == keeper


def test_guest_destroyed_in_mid_kernel_frees_everything(vm: GuestLab) -> None:
    idle = used_bytes(vm)
    vm.shell(VM).start("holdmem 64 600 spin")
    wait_for(lambda: lanes_named(vm, "holdmem"), "lane")
    vm.destroy(VM)
    wait_for(lambda: not channel(vm)["lanes"] and used_bytes(vm) <= idle, "memory freed")
    vm.start(VM)
    assert "PASS" in vm.shell(VM).check("vectoradd")


def test_one_process_too_many_is_told_so_and_the_others_go_on(vm: GuestLab) -> None:
    begin = "for i in $(seq 20); do holdmem 8 600 >/tmp/many.$i 2>&1 & done"
    settled = "while [ $(cat /tmp/many.* | grep -c -e ^HOLD -e 'all lanes') -lt 20 ]; do usleep 100000; done"
    output = (
        vm.shell(VM).run(f"{begin}; {settled}; killall -USR1 holdmem; wait; cat /tmp/many.*").output
    )
    passed = output.count("PASS holdmem")
    assert 16 <= passed < 20, output
    assert output.count("all lanes of this VM are in use by other processes") == 20 - passed
    wait_for(lambda: not channel(vm)["lanes"], "lanes closed")
    assert "PASS" in vm.shell(VM).check("vectoradd")


def test_more_memory_than_the_slice_has(vm: GuestLab) -> None:
    result = vm.shell(VM).run("holdmem 20000 1")
    assert result.status != 0
    assert "cudaErrorMemoryAllocation" in result.output
    assert "PASS" in vm.shell(VM).check("holdmem 64 1")


def test_a_program_with_the_static_runtime_is_told_what_to_do(vm: GuestLab) -> None:
    result = vm.shell(VM).run("static_runtime")
    assert result.status != 0
    assert "-cudart shared" in result.output


def test_detach_from_a_running_guest_frees_the_slice(vm: GuestLab) -> None:
    assert vm.run("detach", VM, "--yes").status == 0
    assert vm.shell(VM).run("vectoradd").status != 0
    shown = vm.document("vm", "show", VM)["vm"]
    assert shown["attachment"] is None
    assert shown["devices_live"] == shown["devices_config"] == []
    gpus = vm.document("gpu", "list")["gpus"]
    assert all(not gpu["instances"] for gpu in gpus)
