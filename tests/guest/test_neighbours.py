"""Other shared memory in the same VM: the agent finds its own among devices that look the same."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.conftest import PROFILE, remove
from tests.guest.lab import GuestLab

#: slots before and behind the one that ours gets on a bare machine of type pc
SLOTS = (0x03, 0x1E)


@pytest.fixture
def vm(scene: GuestLab) -> Iterator[str]:
    """A domain with two foreign ivshmem devices, one of them with something in it."""
    name = "neighbours"
    names = [f"vgpumgr-test-{secrets.token_hex(4)}" for _ in SLOTS]
    scene.define(name, machine="pc")
    devices = "".join(
        f"<shmem name='{shmem}'><model type='ivshmem-plain'/><size unit='M'>4</size>"
        f"<address type='pci' domain='0' bus='0' slot='{slot:#x}' function='0'/></shmem>"
        for shmem, slot in zip(names, SLOTS, strict=True)
    )
    path = scene.directory / name / "neighbours.xml"
    xml = scene.virsh("dumpxml", "--inactive", name)
    path.write_text(xml.replace("</devices>", f"{devices}</devices>"))
    scene.virsh("define", str(path))
    memories = [Path("/dev/shm") / shmem for shmem in names]
    memories[0].write_bytes(b"something else of somebody else's".ljust(4 << 20, b"\xa5"))
    try:
        yield name
    finally:
        remove(scene, name)
        for memory in memories:
            memory.unlink(missing_ok=True)


def test_a_vm_with_other_shared_memory_uses_its_slice(scene: GuestLab, vm: str) -> None:
    scene.vgpumgr("attach", vm, "--profile", PROFILE, "--transport", "ring")
    assert "PASS" in scene.start(vm).check("vectoradd")
    assert scene.document("virtio", "show", vm)["channel"]["transport"] == "ring"


def test_ours_may_come_later(scene: GuestLab, vm: str) -> None:
    shell = scene.start(vm)
    assert "PASS" not in shell.run("vectoradd").output
    words = ("attach", vm, "--profile", PROFILE, "--transport", "ring", "--live", "--config")
    assert scene.document(*words, "--hello-timeout", "60")["usable"] == "now"
    assert "PASS" in shell.check("vectoradd")
