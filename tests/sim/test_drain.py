"""A drained GPU takes no new slice from any command; what is on it goes on, and comes back after a boot. As an
administrator has it: by command lines on machines of every vendor.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.test_overviews import Host, on, started
from tests.support.attached_machine import machine_of_vms
from tests.support.places import short
from vgpumgr.app.operations.gpus import drain_gpu, resume_gpu
from vgpumgr.errors import GpuDrainedError, NotPermittedError
from vgpumgr.model.gpu import Drain

pytestmark = pytest.mark.native
#: a VM with room for devices, which libvirt's test driver has anew at every connection
PORTS = "".join(f"<controller type='pci' index='{n}' model='pcie-root-port'/>" for n in range(1, 6))
NODE = f"""
<node><domain type='test'><name>vm01</name><uuid>22222222-2222-4222-8222-222222222222</uuid>
<memory unit='GiB'>4</memory><os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os><devices>
<controller type='pci' index='0' model='pcie-root'/>{PORTS}
<controller type='virtio-serial' index='0'/></devices></domain></node>
"""
LAYOUTS = """
schema: vgpumgr/mig-layout/v1
layouts:
  full: [{gpus: [0], instances: [2g.20gb, 2g.20gb, 3g.40gb]}]
  less: [{gpus: [0], instances: [3g.40gb]}]
  vgpus: [{gpus: [0], vgpus: {GRID T4-2Q: 2}}]
"""
UUID = "11111111-aaaa-4000-8000-000000000001"
FLEX, MI300, MI300_VF = "0000:4d:00.0", "0000:05:00.0", "0000:05:00.1"


@pytest.fixture
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    # a daemon's socket is in it, whose path may have 107 bytes
    with tempfile.TemporaryDirectory(prefix="vgd.", dir=short()) as name:
        root = Path(name)
        monkeypatch.setenv("VGPUMGR_SIM_ROOT", name)
        (root / "node.xml").write_text(NODE)
        (root / "l.yaml").write_text(LAYOUTS)
        with started(request.param, root, f"test://{root}/node.xml") as running:
            yield running


def check_refused(host: Host, gpu: str, *lines: tuple[str, ...]) -> None:
    """Each of these puts something new on the GPU: it is possible before the drain and after it, and not in between."""
    for line in lines:
        host.run(*line, "--dry-run")
    host.run("gpu", "drain", gpu, "--reason", "smells of smoke")
    tries = [(*lines[0], "--dry-run"), *lines]
    for line in tries:
        said = host.run(*line, code=6)
        assert "VG107" in said, said
        assert "smells of smoke" in said
        assert re.search(rf"try: .* gpu resume {gpu}\b", said), said
    host.run("gpu", "resume", gpu)
    host.run(*tries[0])


def attach(gpu: str, profile: str) -> tuple[str, ...]:
    return ("attach", "vm01", "--config", "--gpu", gpu, "--profile", profile)


def run_json(host: Host, *words: str) -> dict:  # type: ignore[type-arg]
    found: dict = json.loads(host.run(*words, "-o", "json"))  # type: ignore[type-arg]
    return found


@on("dgx-a100")
def test_no_mig_instance_and_no_whole_gpu(host: Host) -> None:
    layout = ("mig", "layout", "apply", str(host.root / "l.yaml"), "-c")
    host.run(*layout, "full", "--yes")
    host.run("mig", "checkpoint", "--out", str(host.root / "full.json"))
    host.run(*layout, "less", "--yes")
    (idle,) = host.run("mig", "list", "-o", "name").split()
    check_refused(
        host,
        "0",
        attach("0", "1g.10gb"),
        attach(idle, "3g.40gb"),
        (*layout, "full", "--yes"),
        ("mig", "create", "0", "1g.10gb"),
        ("mig", "restore", str(host.root / "full.json"), "--yes"),
    )
    host.run("gpu", "drain", "0")
    assert "VG107" in host.run("mig", "defrag", "--plan", "4g.40gb", "--gpu", "0", code=6)
    said = host.run("run", "--profile", "1g.10gb", "--gpu", "0", "--", "true", code=6)
    assert "cannot run true on 1g.10gb: GPU 0 (0000:07:00.0) is drained" in said
    # what only takes away is possible, as is what changes nothing
    host.run(*layout, "less")
    host.run("mig", "destroy", idle, "--yes")
    host.run("mig", "disable", "0", "--yes")
    host.run("gpu", "resume", "0")
    check_refused(host, "0", attach("0", "passthrough"), ("passthrough", "bind", "0", "--yes"))


@on("vgpu-t4")
def test_no_vgpu(host: Host) -> None:
    host.run("mdev", "create", "GRID T4-2Q", "--gpu", "0", "--uuid", UUID, "--define")
    host.run("mdev", "stop", UUID)
    check_refused(
        host,
        "0",
        ("mdev", "create", "GRID T4-2Q", "--gpu", "0"),
        ("mdev", "create", "GRID T4-2Q", "--gpu", "0000:3b:00.0", "--auto"),
        ("mdev", "define", "--type", "GRID T4-2Q", "--gpu", "0", "--auto"),
        ("mdev", "start", UUID),
        ("mig", "layout", "apply", str(host.root / "l.yaml"), "-c", "vgpus", "--yes"),
        attach("0", "T4-2Q"),
        attach("0", "passthrough"),
    )
    host.run("gpu", "drain", "0")
    host.run("mdev", "define", UUID, "--auto")
    # what is free elsewhere is taken there; why not here is said where nothing is
    assert " on 0000:af:00.0" in host.run("mdev", "create", "GRID T4-2Q")
    said = host.run("mdev", "create", "GRID T4-4Q", code=6)
    assert "GPU 0 (0000:3b:00.0): drained by " in said
    assert "GPU 1 (0000:af:00.0): the GPU runs 1 x GRID T4-2Q" in said
    host.run("gpu", "drain", "1")
    for words in (("mdev", "create", "T4-2Q"), attach("0", "T4-2Q"), attach("0", "passthrough")):
        assert "VG107" in host.run(*[w for w in words if w not in ("--gpu", "0")], code=6)
    assert {type_["free"] for type_ in run_json(host, "mdev", "types")["types"]} == {0}
    host.run("mdev", "delete", UUID, "--yes")


@on("vgpu-a100")
def test_no_vgpu_on_a_function_and_no_function(host: Host) -> None:
    check_refused(host, "0", ("vf", "enable", "0", "--yes"))
    host.run("vf", "enable", "0", "--yes")
    check_refused(
        host,
        "0",
        ("mdev", "create", "A100-4C", "--gpu", "0"),
        ("mdev", "create", "A100-4C", "--gpu", "0000:41:00.4"),
        attach("0", "A100-4C"),
        ("passthrough", "bind", "0000:41:00.4", "--yes"),
    )


@on("vgpu-l40s")
def test_no_vendor_vgpu(host: Host) -> None:
    host.run("vf", "enable", "0", "--yes")
    check_refused(host, "0", ("mdev", "create", "L40S-4C", "--gpu", "0"), attach("0", "L40S-4C"))


@on("intel-flex")
def test_no_virtual_function_of_intel(host: Host) -> None:
    check_refused(
        host,
        FLEX,
        ("vf", "enable", FLEX, "-n", "2", "--yes"),
        ("passthrough", "bind", FLEX, "--yes"),
        attach(FLEX, "vf"),
        attach(FLEX, "passthrough"),
    )
    host.run("vf", "enable", FLEX, "-n", "2", "--yes")
    vf = "0000:4d:00.1"
    check_refused(host, FLEX, attach(vf, "vf"), attach(vf, "passthrough"))
    assert "VG101" in host.run("gpu", "drain", vf, code=5), "its GPU is drained, not a function"
    host.run("gpu", "drain", FLEX)
    rows = {row["gpu"]: row for row in run_json(host, "why", "vf")["gpus"]}
    assert "is drained" in rows[FLEX]["sentence"]
    assert rows["0000:51:00.0"]["fits"]
    assert "0000:51:00.0" in host.run("attach", "vm01", "--config", "--profile", "vf", "--dry-run")
    # fewer, or none, is no new one
    host.run("vf", "disable", FLEX, "--yes")


@on("amd-mi300")
def test_no_virtual_function_of_amd(host: Host) -> None:
    check_refused(host, MI300, attach(MI300, "vf"), attach(MI300_VF, "passthrough"))


@on("dgx-a100")
def test_the_drain_is_shown_wherever_the_gpu_is(host: Host) -> None:
    reason = "x\x1b[31m\u202ey\n\tz"
    drained = host.run("gpu", "drain", "0", "--reason", reason)
    assert "GPU 0 (0000:07:00.0) is drained\n  drained by " in drained
    assert not re.search("[\x1b\u202e\t]", drained)
    assert ": x [31m y z\n" in drained
    assert "is drained already" in host.run("gpu", "drain", "GPU-216d")
    before = run_json(host, "gpu", "list")["gpus"][0]["drained"]
    assert "is drained already" in host.run("gpu", "drain", "07:00.0", "--reason", reason)
    assert run_json(host, "gpu", "list")["gpus"][0]["drained"] == before
    host.run("gpu", "drain", "0", "--reason", "fan")
    row = host.run("gpu", "list", "-o", "csv", "--no-header", "--columns", "index,slices")
    assert row.splitlines()[:2] == ["0,drained", "1,"]
    shown = run_json(host, "gpu", "show", "0")
    assert shown["gpu"]["drained"]["reason"] == "fan"
    assert {(p["free"], p["why_not"]) for p in shown["profiles"]} == {
        (0, shown["gpu"]["drained"]["text"])
    }
    for words, text in (
        (("gpu", "show", "0"), "fan"),
        (("status",), "fan"),
        (("why", "1g.10gb"), "fan"),
        (("mig", "profiles", "--gpu", "0", "-o", "wide"), "fan"),
        (("top", "--once", "--ascii"), "drained, MIG off"),
        (("passthrough", "list"), "is drained"),
    ):
        assert text in host.run(*words), words
    assert re.search(r'gpu_drained\{.*gpu="0".*\} 1.0', host.run("metrics"))
    assert re.search(r'gpu_drained\{.*gpu="1".*\} 0.0', host.run("metrics"))
    plan = host.run("attach", "vm01", "--config", "--profile", "1g.10gb", "--dry-run")
    assert re.search(r"left alone: GPU 0 \(0000:07:00.0\): drained by .*: fan", plan)
    assert "is resumed" in host.run("gpu", "resume", "0")
    assert "is not drained" in host.run("gpu", "resume", "0")
    assert "drained" not in host.run("status") + host.run("gpu", "list")


@on("dgx-a100")
def test_what_cannot_be_drained(host: Host) -> None:
    unknown, several = (5, "VG101"), (2, "VG102")
    words = {"99": unknown, "GPU-": unknown, "07:00.1": unknown, "GPU-4f": several}
    for word, (code, id_) in words.items():
        for verb in ("drain", "resume"):
            assert id_ in host.run("gpu", verb, word, code=code)
    assert "VG100" in host.run("gpu", "drain", "0", "--reason", "x" * 201, code=2)
    assert "would be drained" in host.run("gpu", "drain", "0", "--dry-run")
    assert "is not drained" in host.run("gpu", "resume", "0", "--dry-run")


@on("vgpu-t4")
def test_a_boot_brings_back_what_was_there_and_keeps_the_drain(host: Host) -> None:
    host.run("mdev", "create", "GRID T4-2Q", "--gpu", "0", "--uuid", UUID, "--auto")
    said = host.run("gpu", "drain", "0")
    assert f"used by\n    GRID T4-2Q {UUID}\n" in said
    host.run("sim", "reboot", "vgpu-t4")
    assert run_json(host, "mdev", "list")["vgpus"][0]["state"] != "active"
    host.run("restore")
    assert run_json(host, "mdev", "list")["vgpus"][0]["state"] == "active"
    assert "VG107" in host.run("mdev", "create", "GRID T4-2Q", "--gpu", "0", code=6)


@on("dgx-a100")
def test_a_boot_brings_back_a_layout(host: Host) -> None:
    host.run("mig", "layout", "apply", str(host.root / "l.yaml"), "-c", "less", "--yes")
    host.run("gpu", "drain", "0")
    host.run("sim", "reboot", "dgx-a100")
    assert host.run("mig", "list", "-o", "csv", "--no-header") == ""
    host.run("restore")
    assert "3g.40gb" in host.run("mig", "list", "-o", "csv", "--no-header")
    assert run_json(host, "gpu", "list")["gpus"][0]["drained"]


@on("intel-flex")
def test_a_boot_brings_back_functions_and_a_gpu_that_has_gone_is_resumed(host: Host) -> None:
    host.run("vf", "enable", FLEX, "-n", "2", "--persist", "--yes")
    host.run("gpu", "drain", FLEX)
    host.run("sim", "reboot", "intel-flex")
    host.run("restore")
    assert run_json(host, "gpu", "show", FLEX)["other"]["vfs_enabled"] == 2
    host.run("vf", "disable", FLEX, "--yes")
    host.run("sim", "tell", "intel-flex", "gone", FLEX)
    assert f"GPU {FLEX} was drained by" in host.run("status")
    assert f"GPU {FLEX} (not there) is resumed" in host.run("gpu", "resume", FLEX)
    assert "VG101" in host.run("gpu", "resume", FLEX, code=5)


def test_a_card_that_was_moved_or_replaced() -> None:
    """The drain goes with the UUID; one of a slot, made without a UUID, holds for what is put there."""
    with machine_of_vms() as machine:
        parts = machine.application.parts
        first, second = parts.read_inventory().gpus[:2]
        moved = Drain(second.pci, first.uuid, "root", 1.0, "moved")
        slot = Drain(first.pci, None, "root", 1.0, "slot")
        gone = Drain(second.pci, "GPU-gone", "root", 1.0, "gone")
        for drain in (moved, slot, gone):
            parts.store.save_drain(drain)
        gpus = machine.call("list_gpus")["gpus"]
        assert [gpu["index"] for gpu in gpus if gpu["drained"]] == [0]
        assert machine.call("resume_gpu", selector="1")["steps"] == []
        assert len(machine.call("resume_gpu", selector="0")["steps"]) == 2
        (told,) = machine.call("status")["drained"]
        assert told.startswith("GPU GPU-gone was drained by root")
        machine.call("resume_gpu", selector="GPU-gone")
        assert parts.store.list_drains() == ()


def test_a_user_without_rights_changes_nothing() -> None:
    with machine_of_vms() as machine:
        parts = replace(machine.application.parts, is_privileged=False)
        for verb in (drain_gpu, resume_gpu):
            with pytest.raises(NotPermittedError):
                verb(parts, selector="0")
            verb(parts, selector="0", dry_run=True)
        assert parts.store.list_drains() == ()


def test_an_attachment_goes_on_on_a_drained_gpu() -> None:
    with machine_of_vms() as machine:
        machine.call("attach", vm="vm01", profile="1g.10gb", gpu="0")
        try:
            document = machine.call("drain_gpu", selector="0", reason="fan")
            assert document["used_by"] == ['vm "vm01" (1g.10gb)']
            with pytest.raises(GpuDrainedError, match="vm02"):
                machine.call("attach", vm="vm02", profile="1g.10gb", gpu="0")
            assert machine.call("show_vm", selector="vm01")["vm"]["channels"][0]["running"]
            (id_,) = (r.id for r in machine.application.parts.store.list_attachments())
            machine.application.parts.channels.stop(id_)
            machine.call("recover")
            assert machine.call("show_vm", selector="vm01")["vm"]["channels"][0]["running"]
        finally:
            machine.call("detach", vm="vm01")
