"""AppArmor, as a stock Debian has it: what vgpumgr gives a VM reaches it under the VM's own rules, and the workers of
its channels run in a profile of ours.

The nested guest and its devices are confined in all tests of the lab host. Here: channels, whose sockets QEMU opens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.guest.build_programs import build_programs
from tests.lab.host import ROOT, LabHost
from tests.lab.nested import apparmor, confine, start_libvirtd
from tests.unit.test_worker_escapes import ROOT_MAY
from vgpumgr.host.machine import LIB_DIR

MACHINE, NAME = "a30-pair", "bare"
#: it has no system: its firmware waits, and devices are plugged in all the same
_XML = f"""<domain type="kvm"><name>{NAME}</name><uuid>6695eb01-f6a4-4304-99aa-97f2502e193f</uuid>
<memory unit="MiB">64</memory><vcpu>1</vcpu><features><acpi/></features>
<os><type arch="x86_64" machine="pc">hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type="virtio-serial" index="0"/>
<controller type="usb" model="none"/><memballoon model="none"/></devices></domain>"""


@pytest.fixture
def host(lab_host: LabHost) -> Iterator[LabHost]:
    """The lab host with a VM that runs, and a simulated machine whose GPUs it may have."""
    if not apparmor().is_dir():
        pytest.skip("Debian's AppArmor could not be fetched")
    start_libvirtd(lab_host)
    (lab_host.out / "bare.xml").write_text(_XML)
    lab_host.check("virsh -q define /out/bare.xml && virsh -q start bare")
    # libvirt looks at every QEMU first, which may take it longer under emulation than a command waits
    lab_host.check("virsh -q capabilities >/dev/null")
    lab_host.succeed("sim", "start", MACHINE)
    yield lab_host
    lab_host.run("virsh -q destroy bare; virsh -q undefine bare")
    lab_host.vgpumgr("sim", "stop", MACHINE)


def list_denied(host: LabHost) -> list[str]:
    return [line for line in host.check("dmesg").splitlines() if 'apparmor="DENIED"' in line]


def read_labels(host: LabHost) -> list[str]:
    return sorted(host.check("ps -C libvirtd,qemu-system-x86_64 -o label=").splitlines())


OURS = ROOT / "templates/apparmor/vgpumgr-worker"
#: what AppArmor has no word for in Debian's kernel: SECURITY.md names it, and other parts of the sandbox hold it
BEYOND_APPARMOR = {
    "abstract_socket", "affinity", "clone_user", "fork_process", "keeper_socket", "limits",
    "name_handle", "pidfd", "set_personality", "terminal", "unix_socket",
}  # fmt: skip


@pytest.fixture
def profile(lab_host: LabHost) -> Iterator[LabHost]:
    """The lab host with the package's profile loaded, for the programs of this checkout."""
    if not apparmor().is_dir():
        pytest.skip("Debian's AppArmor could not be fetched")
    confine(lab_host)
    lab_host.check(
        "mkdir -p /etc/apparmor.d/tunables/vgpumgr.d && "
        f"echo '@{{vgpumgr_lib}}+={LIB_DIR}' >/etc/apparmor.d/tunables/vgpumgr.d/lab && "
        f"cp {OURS} /etc/apparmor.d/ && apparmor_parser -r /etc/apparmor.d/{OURS.name}"
    )
    yield lab_host
    lab_host.check(f"apparmor_parser -R /etc/apparmor.d/{OURS.name}")


def list_ours(host: LabHost) -> list[str]:
    return [line for line in list_denied(host) if 'profile="vgpumgr-worker"' in line]


def read_fact(host: LabHost) -> tuple[bool, str]:
    (sandbox,) = json.loads(
        host.succeed("--machine", MACHINE, "virtio", "show", NAME, "-o", "json")
    )["sandboxes"]
    assert [f for f in sandbox["facts"] if not f["holds"]] == []
    (fact,) = (f for f in sandbox["facts"] if f["name"] == "AppArmor")
    return sandbox["confined"], fact["detail"]


@pytest.mark.usefixtures("profile")
def test_a_worker_computes_in_its_profile_and_nothing_is_refused(host: LabHost) -> None:
    before = list_denied(host)
    program = build_programs(["vectoradd"])["vectoradd"]
    done = host.succeed(
        "--machine", MACHINE, "run", "--profile", "1g.6gb", "--", str(program), "5000"
    )
    assert done == "PASS vectoradd 5000 elements\n"
    host.run(f"virsh -q destroy {NAME}")
    host.succeed("--machine", MACHINE, "attach", NAME, "--profile", "1g.6gb")
    try:
        labels = host.check("ps -C vgpumgr-worker,vgpumgr-hold -o label=").split("\n")
        assert len(labels) >= 2
        assert {label.strip() for label in labels} == {"vgpumgr-worker (enforce)"}
        assert read_fact(host) == (True, "vgpumgr-worker (enforce)")
        host.succeed("--machine", MACHINE, "virtio", "restart", NAME)
    finally:
        host.succeed("--machine", MACHINE, "detach", NAME)
    assert list_denied(host) == before
    checks = host.vgpumgr("doctor", "--check", "access-control", "-o", "json")
    assert "vgpumgr-worker (enforce)" in checks.stdout


#: as NVIDIA's packages lay out a toolkit
_TOOLKIT = "/usr/local/cuda-13.99/targets/x86_64-linux/lib"
_PROFILE = f"/etc/apparmor.d/{OURS.name}"
_CUBLAS = """
import ctypes
h, v = ctypes.c_void_p(), ctypes.c_int()
lib = ctypes.CDLL("libcublas.so.13")
print(lib.cublasCreate_v2(ctypes.byref(h)), lib.cublasGetVersion_v2(h, ctypes.byref(v)), v.value > 130000)
"""


@pytest.mark.usefixtures("profile")
def test_a_worker_in_its_profile_loads_the_toolkits_cublas(host: LabHost) -> None:
    there = host.run("readlink /usr/local/cuda").output.strip()
    host.check(
        f"mkdir -p {_TOOLKIT} && ln -sfn cuda-13.99 /usr/local/cuda && "
        f"ln -sfn targets/x86_64-linux/lib /usr/local/cuda/lib64 && cp {LIB_DIR}/sim/libcublas*.so.13 {_TOOLKIT}"
    )
    try:
        (check,) = host.document("--machine", MACHINE, "doctor", "--check", "mathematics")["checks"]
        assert f"libcublas.so: {_TOOLKIT}/libcublas.so.13" in check["evidence"]
        run = ("--machine", MACHINE, "run", "--profile", "1g.6gb", "--", "python3", "-c", _CUBLAS)
        assert host.succeed(*run) == "0 0 True\n"
        assert not [line for line in list_ours(host) if "libcublas" in line]
        # the rule is what lets it: without it the profile refuses the file
        host.check(
            f"sed '/^  @{{vgpumgr_math}}/d' {_PROFILE} >/tmp/without && "
            "apparmor_parser -r /tmp/without"
        )
        host.vgpumgr(*run)  # another one is found beside the simulated driver
        assert any(_TOOLKIT in line for line in list_ours(host))
    finally:
        back = f"ln -sfn {there} /usr/local/cuda" if there else "rm /usr/local/cuda"
        host.run(f"rm -rf /usr/local/cuda-13.99; {back}; apparmor_parser -r {_PROFILE}")


def test_the_profile_alone_refuses_what_a_worker_without_a_sandbox_tries(profile: LabHost) -> None:
    """A driver of ours tries in a worker that root started without a sandbox: no filter, no namespaces, all rights."""
    probes = sorted({*ROOT_MAY} - BEYOND_APPARMOR)
    before = len(list_ours(profile))
    said = profile.run_module("tests.unit.test_worker_escapes", *probes)
    assert len(probes) >= 18
    assert {probe: said[probe] for probe in probes if said[probe] in (None, "done")} == {}
    denied = list_ours(profile)[before:]
    for what in ('name="/etc/shadow"', 'operation="ptrace"', 'capname="setuid"', 'family="inet"'):
        assert any(what in line for line in denied), (what, denied)


def test_channels_of_a_confined_vm(host: LabHost) -> None:
    """Plugged into the running VM, and there at its start: keeper, libvirtd, QEMU, kernel and rules are real."""
    uuid = host.check(f"virsh -q domuuid {NAME}").strip()
    own = f"libvirt-{uuid} (enforce)"
    assert {own, "libvirtd (enforce)"} <= set(read_labels(host))
    before = list_denied(host)
    slice_ = ("--machine", MACHINE, "attach", NAME, "--profile", "1g.6gb")
    plugged = host.vgpumgr(*slice_, "--live", "--hello-timeout", "0")
    # all but the agent, which this VM has not
    assert "the running guest does not use its new devices" in plugged.stderr, plugged
    assert "-ring" in plugged.stderr, plugged
    host.run(f"virsh -q destroy {NAME}")
    host.succeed("--machine", MACHINE, "detach", NAME)
    host.succeed(*slice_)
    host.check(f"virsh -q start {NAME}")
    assert own in read_labels(host)
    rules = host.check(f"cat /etc/apparmor.d/libvirt/libvirt-{uuid}.files")
    sockets = [line for line in rules.splitlines() if "/channels/" in line]
    assert [line.split("/")[-1] for line in sorted(sockets)] == [
        'ivshmem.sock" rw,',
        'serial.sock" rw,',
    ]
    (channel,) = json.loads(host.succeed("--machine", MACHINE, "virtio", "list", "-o", "json"))[
        "channels"
    ]
    assert (channel["running"], channel["problem"]) == (True, None)
    # without the profile its worker has the rest of the sandbox
    assert read_fact(host) == (True, "the profile vgpumgr-worker is not loaded")
    host.run(f"virsh -q destroy {NAME}")
    host.succeed("--machine", MACHINE, "detach", NAME)
    assert list_denied(host) == before
