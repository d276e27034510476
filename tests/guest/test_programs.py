"""The proof: CUDA programs compiled by nvcc run in a guest and check their own results, over both transports."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.guest.conftest import attached_vm
from tests.guest.lab import GuestLab

PROGRAMS = (
    "vectoradd",
    "matmul",
    "reduction",
    "histogram",
    "linked",
    "overlap",
    "device_functions",
    "errors",
    "output",
    "graphs",
    "graph_reads",
    "managed",
    "pools",
    "libraries",
    "batches",
    "stream_memory",
    "graph_memory",
    "graph_allocations",
    "conditionals",
    "boxes",
    "tensor",
    "virtual",
    "textures",
    "surfaces",
    "together",
    "clusters",
    "processes",
    "descriptors",
    "peers",
    "attributes",
    "perthread",
    "profiler",
    "lazy",
)


@pytest.fixture(scope="module", params=["ring", "serial"])
def vm(scene: GuestLab, request: pytest.FixtureRequest) -> Iterator[tuple[GuestLab, str]]:
    transport: str = request.param
    with attached_vm(scene, f"prog-{transport}", "--transport", transport) as name:
        scene.start(name)
        yield scene, name


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_gives_right_results(vm: tuple[GuestLab, str], program: str) -> None:
    scene, name = vm
    output = scene.shell(name).check(program)
    assert f"PASS {program}" in output
    assert "FAIL" not in output


def test_an_assertion_is_named_in_the_guest(vm: tuple[GuestLab, str]) -> None:
    scene, name = vm
    output = scene.shell(name).check("output assert 2>&1")
    assert "Assertion `number == 1` failed." in output
    assert "PASS output" in output


def test_guest_sees_its_slice_and_nothing_else(vm: tuple[GuestLab, str]) -> None:
    scene, name = vm
    attachment = scene.document("vm", "show", name)["vm"]["attachment"]
    lines = scene.shell(name).check("devinfo").splitlines()
    assert sum(line.startswith("device=") for line in lines) == 1
    assert attachment["device"].removeprefix("MIG-") in lines[0]
    assert "MIG 1g.10gb" in lines[0]


def test_the_guests_check_finds_nothing_wrong(vm: tuple[GuestLab, str]) -> None:
    scene, name = vm
    # the guest has no ldconfig: its programs go by LD_LIBRARY_PATH
    output = scene.shell(name).check("/usr/bin/vgpumgr-guest-check")
    found = dict(
        re.findall(r"^(\S+(?: \d+)?) +(ok|warning|problem|skipped) ", output, re.MULTILINE)
    )
    wanted = ("channel", "agent", "gpu 0", "libraries", "environment")
    assert {found[check] for check in wanted} == {"ok"}, output
    assert found["loader"] == "skipped", output
    assert ("port org.vgpumgr.0" in output) == name.endswith("serial"), output
    shell = scene.shell(name)
    alone = shell.run("VGPUMGR_AGENT=/no/where /usr/bin/vgpumgr-guest-check")
    assert (alone.status, "vgpumgr-guestd does not run" in alone.output) == (3, True)


def test_the_transport_asked_for_is_the_one_used(vm: tuple[GuestLab, str]) -> None:
    scene, name = vm
    channel = scene.document("virtio", "show", name)["channel"]
    assert channel["transport"] == name.removeprefix("prog-")
    assert channel["calls"] > 0
    assert channel["lanes"] == []


def test_a_program_of_cuda_12(vm: tuple[GuestLab, str]) -> None:
    scene, name = vm
    assert "PASS" in scene.shell(name).check("vectoradd12")


def test_several_processes_at_once(vm: tuple[GuestLab, str]) -> None:
    scene, name = vm
    command = (
        "for i in 1 2 3; do (vectoradd; matmul) >/tmp/out.$i 2>&1 & done; wait; cat /tmp/out.*"
    )
    output = scene.shell(name).check(command)
    assert output.count("PASS vectoradd") == 3
    assert output.count("PASS matmul") == 3
