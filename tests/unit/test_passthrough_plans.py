"""Groups, verdicts, selections and plans of passthrough: pure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpumgr.app.documents.functions import PciView
from vgpumgr.backends.vf import choose_vfs
from vgpumgr.engine.step import Step, decode_step
from vgpumgr.errors import (
    GroupNotViableError,
    NoIommuError,
    PciAmbiguousError,
    PciBusyError,
    PciNotFoundError,
    StoreError,
    UsageError,
    VfUnsupportedError,
    VfVendorToolError,
)
from vgpumgr.model.pci import (
    STUB,
    VFIO,
    Binding,
    Function,
    PciAddress,
    Release,
    User,
    UserKind,
    VfSetting,
    VfSupport,
    find_function,
)
from vgpumgr.passthrough.groups import Verdict, explain_no_iommu, index_groups, judge_group
from vgpumgr.passthrough.selection import KnownGpu, select_function
from vgpumgr.planning.passthrough import BindRequest, Companions, plan_bind, plan_unbind
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.planning.vfs import VfRequest, plan_no_vfs, plan_vfs
from vgpumgr.state.store import Store
from vgpumgr.steps.pci import BindDriver, ReleaseDriver
from vgpumgr.steps.vf import ChangeVfs, CreateVfs, PrepareVf, RememberVfs, RemoveVfs

GPU = PciAddress(0, 1, 0, 0)


def make_binding(address: PciAddress = GPU, **changes: object) -> Binding:
    base = Binding(address, VFIO, "nvidia", None, 0x10DE, 0x2204, "boot-1")
    return replace(base, **changes)  # type: ignore[arg-type]


addresses = st.builds(
    PciAddress, st.just(0), st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)
)
drivers = st.sampled_from([None, VFIO, STUB, "nvidia", "e1000e"])
classes = st.sampled_from([0x030000, 0x040300, 0x060400, 0x020000, 0x0C0330])
functions = st.lists(
    st.builds(
        Function, addresses, st.just(0x10DE), st.just(1), classes, drivers, st.integers(0, 2)
    ),
    min_size=1,
    max_size=10,
    unique_by=lambda f: f.address,
).map(lambda fs: sorted(fs, key=lambda f: f.address))


def after(found: list[Function], steps: tuple[object, ...]) -> list[Function]:
    """The bus when the steps are done."""
    bound = {s.address: s.driver for s in steps if isinstance(s, BindDriver)}
    return [replace(f, driver=bound.get(f.address, f.driver)) for f in found]


@given(functions, st.sampled_from(Companions), st.booleans(), st.data())
def test_a_plan_makes_the_group_viable_or_names_who_blocks(
    found: list[Function], companions: Companions, whole: bool, data: st.DataObject
) -> None:
    chosen = data.draw(st.sampled_from(found))
    request = BindRequest(companions=companions, whole_group=whole)
    try:
        plan = plan_bind(Snapshot(functions=found), chosen, request)
    except GroupNotViableError as error:
        assert chosen.is_bridge or error.held_by
        assert not (whole and companions is not Companions.KEEP and not chosen.is_bridge)
        return
    now = after(found, plan.steps)
    members = index_groups(now)[chosen.group or 0]
    assert judge_group(members, {}).verdict is Verdict.VIABLE
    done = find_function(now, chosen.address)
    assert done is not None
    assert done.driver == VFIO
    for step in plan.steps:
        assert isinstance(step, BindDriver)
        before = find_function(found, step.address)
        assert before is not None
        assert step.previous == before.driver
        assert not before.is_bridge, "bridges stay with the host"
        assert whole or before.is_beside(chosen) or before.address == chosen.address


@given(functions)
def test_taken_and_given_back_is_as_before(found: list[Function]) -> None:
    chosen = found[0]
    if chosen.is_bridge:
        return
    plan = plan_bind(Snapshot(functions=found), chosen, BindRequest(whole_group=True))
    taken = [s for s in plan.steps if isinstance(s, BindDriver)]
    bindings = [make_binding(s.address, driver=s.driver, previous=s.previous) for s in taken]
    if not any(b.address == chosen.address for b in bindings):
        return
    observed = Snapshot(functions=after(found, plan.steps), bindings=bindings, boot_id="boot-1")
    back = {
        s.binding.address: s.binding.previous
        for s in plan_unbind(observed, chosen).steps
        if isinstance(s, ReleaseDriver)
    }
    assert back == {s.address: s.previous for s in taken}


def test_a_verdict_names_function_driver_and_user() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3)
    user = User(UserKind.PROCESS, "process 12 (Xorg), which has /dev/nvidia0 open", 12)
    judged = judge_group([gpu], {GPU: (user,)})
    assert judged.verdict is Verdict.IN_USE
    assert str(judged.blockers[0]) == f"0000:01:00.0 (gpu, nvidia): {user}"


def test_virtual_functions_keep_their_device_with_the_host() -> None:
    vf = PciAddress(0, 1, 0, 4)
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3, vf_total=16, vfs=(vf,))
    judged = judge_group([gpu], {})
    assert judged.verdict is Verdict.IN_USE
    assert "it has 1 virtual function" in str(judged.blockers[0])


@pytest.mark.parametrize(
    ("driver", "vfio", "free"),
    [
        (None, False, True),
        ("vfio-pci", False, True),
        ("mlx5_vfio_pci", False, True),
        ("nvgrace-gpu-vfio-pci", False, True),
        ("pci-stub", False, True),
        ("nvidia", True, True),
        ("nvidia", False, False),
    ],
)
def test_which_drivers_let_a_group_go(driver: str | None, vfio: bool, free: bool) -> None:
    function = Function(GPU, 0x10DE, 1, 0x030000, driver, 3, has_vfio=vfio)
    assert function.is_free == free


def test_the_driver_of_a_device_goes_before_the_general_one() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3)
    beside = PciAddress(GPU.domain, GPU.bus, GPU.device, GPU.function + 1)
    audio = Function(beside, 0x10DE, 2, 0x040300, "snd_hda_intel", 3)
    observed = Snapshot(functions=[gpu, audio], variants={GPU: "nvgrace_gpu_vfio_pci"})

    def drivers(request: BindRequest, seen: Snapshot = observed) -> list[object]:
        return [step.target["driver"] for step in plan_bind(seen, gpu, request).steps]

    assert drivers(BindRequest()) == ["vfio-pci", "nvgrace_gpu_vfio_pci"]
    assert drivers(BindRequest(driver="vfio-pci")) == ["vfio-pci", "vfio-pci"]
    taken = replace(gpu, driver="vfio-pci")
    again = observed.replace(functions=[taken, replace(audio, driver="vfio-pci")])
    assert plan_bind(again, taken, BindRequest()).steps == (), "what has one keeps it"


def test_a_disk_in_the_group_is_no_reason_to_take_the_whole_group() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3)
    disk = Function(PciAddress(0, 9, 0, 0), 0x144D, 1, 0x010802, "nvme", 3)
    for kind, hint in ((UserKind.IDLE_DISK, "--whole-group"), (UserKind.DISK, "another slot")):
        users = {disk.address: (User(kind, "disk nvme0n1"),)}
        with pytest.raises(GroupNotViableError) as refused:
            plan_bind(Snapshot(functions=[gpu, disk], users=users), gpu, BindRequest())
        assert hint in (refused.value.hint or "")
        assert hint in (judge_group([gpu, disk], users).hint or "")


@pytest.mark.parametrize(
    ("driver", "why"), [(None, "no driver"), ("vfio-pci", "it has vfio-pci"), ("amdgpu", "GIM")]
)
def test_who_makes_no_virtual_functions(driver: str | None, why: str) -> None:
    gpu = Function(GPU, 0x1002, 0x74A1, 0x120000, driver, 3, vf_total=8, vf_offset=1, vf_stride=1)
    with pytest.raises(VfUnsupportedError) as refused:
        plan_vfs(Snapshot(functions=[gpu]), gpu, VfRequest(2), VfSupport(8))
    assert why in (refused.value.why or "")
    with pytest.raises(VfUnsupportedError):
        choose_vfs(Snapshot(functions=[gpu]), str(GPU), 2, 1)


def test_amds_driver_never_has_none() -> None:
    vfs = (PciAddress(1, 0x3B, 0, 1), PciAddress(1, 0x3B, 0, 2))
    gpu = Function(GPU, 0x1002, 0x74A1, 0x120000, "gim", 3, vf_total=8, vfs=vfs)
    observed, support = Snapshot(functions=[gpu]), VfSupport(4)
    (step,) = plan_vfs(observed, gpu, VfRequest(), support).steps
    assert step == ChangeVfs(GPU, 4, 2)
    held = observed.replace(users={vfs[1]: (User(UserKind.PROCESS, "vm"),)})
    with pytest.raises(PciBusyError):
        plan_vfs(held, gpu, VfRequest(1), support)
    with pytest.raises(VfUnsupportedError, match="all virtual functions"):
        plan_no_vfs(observed, gpu, support)
    with pytest.raises(VfVendorToolError) as missing:
        plan_vfs(observed, gpu, VfRequest(1), VfSupport(4, "not found"))
    assert missing.value.cause == "not found"


def test_an_override_of_acs_is_called_a_claim() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3)
    words = ("quiet", "pcie_acs_override=downstream,multifunction")
    view = PciView(Snapshot(functions=[gpu], kernel_words=words), [], [])
    (note,) = view.describe_groups(all_groups=True).notes
    assert words[1] in note
    assert "not as the hardware isolates" in note
    assert PciView(Snapshot(functions=[gpu]), [], []).describe_groups(all_groups=True).notes == []


def test_without_iommu_nothing_goes_and_the_parameter_is_named() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia")
    with pytest.raises(NoIommuError) as refused:
        plan_bind(Snapshot(functions=[gpu], kernel_words=("quiet",)), gpu, BindRequest())
    assert "intel_iommu=on" in (refused.value.hint or "")
    assert "VT-d" in explain_no_iommu(["intel_iommu=on"])[1]
    assert "iommu=off" in explain_no_iommu(["amd_iommu=off"])[1]


def test_a_gpu_with_attached_slices_is_not_taken() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3)
    observed = Snapshot(functions=[gpu], holders={GPU: ('vm "a" (1g.10gb)',)})
    with pytest.raises(PciBusyError) as refused:
        plan_bind(observed, gpu, BindRequest(confirmed=True))
    assert refused.value.held_by == ('vm "a" (1g.10gb)',)
    assert "vgpumgr detach" in str(refused.value.hint)


def test_who_must_let_go_is_told_once_with_commands_that_can_be_pasted() -> None:
    vf = PciAddress(0, 1, 0, 4)
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3, vf_total=16, vfs=(vf,))
    several = [Release(f"vgpumgr detach vm02 --attachment {i}", "vm02", 2) for i in "ab"]
    one_of_two = Release("vgpumgr detach vm03 --attachment c", "vm03", 2)
    free = Release("vgpumgr mdev delete 6f1c")
    observed = Snapshot(
        functions=[gpu],
        holders={
            GPU: ('vm "vm02" (A16-1Q)',),
            vf: ('vm "vm02" (A16-1Q)', 'vm "vm03" (x)', "vGPU 6f1c"),
        },
        users={
            vf: (
                User(UserKind.MDEV, "mediated device 6f1c is on it"),
                User(UserKind.MDEV, "mediated device 0123 is on it"),
                User(UserKind.PROCESS, 'vm "vm02"'),
            )
        },
        releases={GPU: several, vf: [*several, one_of_two, free]},
        ours={"6f1c"},
    )
    with pytest.raises(PciBusyError) as refused:
        plan_no_vfs(observed, gpu, VfSupport(16))
    assert refused.value.held_by == (
        "mediated device 0123 is on it",
        'vm "vm02" (A16-1Q)',
        'vm "vm03" (x)',
        "vGPU 6f1c",
    )
    assert refused.value.hint == (
        "vgpumgr detach vm02 --all; vgpumgr detach vm03 --attachment c; vgpumgr mdev delete 6f1c, then"
        " repeat"
    )


def test_functions_that_vms_are_configured_with_are_asked_about() -> None:
    vf = PciAddress(0, 3, 0, 1)
    physical = Function(GPU, 0x8086, 1, 0x038000, "xe", 3, vf_total=7, vfs=(vf,))
    observed = Snapshot(functions=[physical], configured={vf: ["db"]})
    for plan in (
        plan_no_vfs(observed, physical, VfSupport(7)),
        plan_vfs(observed, physical, VfRequest(4), VfSupport(7)),
    ):
        assert plan.result["concerns"] == [f'vm "db" is configured with {vf}, and would not start']
    assert plan_vfs(observed, physical, VfRequest(1), VfSupport(7)).result["concerns"] == []


def test_selectors() -> None:
    one, two = Function(GPU, 1, 1, 0x030000), Function(PciAddress(1, 1, 0, 0), 1, 1, 0x030000)
    gpus = [
        KnownGpu(one.address, 0, "GPU-aaaa1111", "NVIDIA A100"),
        KnownGpu(two.address, 1, "GPU-aaaa2222", "NVIDIA H100"),
    ]
    for text in ("01:00.0", "0000:01:00.0", "0", "GPU-aaaa1", "aaaa1", "a100"):
        assert select_function([one, two], gpus, text) is one
    assert select_function([one, two], gpus, "0001:01:00.0") is two
    for text in ("aaaa", "nvidia"):
        with pytest.raises(PciAmbiguousError):
            select_function([one, two], gpus, text)
    for text in ("", "a", "7", "GPU-", "02:00.0"):
        with pytest.raises(PciNotFoundError):
            select_function([one, two], gpus, text)


setting = VfSetting(GPU, 4, 0x8086, 0x56C0, "boot-1", True, (("exec_quantum_ms", 20),))


@pytest.mark.parametrize(
    "step",
    [
        BindDriver(
            GPU, VFIO, "nvidia", True, True, "GPU-1", "A100", make_binding(boot_id="boot-0")
        ),
        ReleaseDriver(make_binding(previous=None, override="x"), True),
        CreateVfs(GPU, 4, True, (("exec_quantum_ms", 20),), None, setting),
        ChangeVfs(GPU, 4, 1, True, setting),
        RememberVfs(GPU, 4, setting),
        RemoveVfs(GPU, 4, "sriov-manage", setting),
        PrepareVf(GPU, 3, VFIO, GPU, (("exec_quantum_ms", 20),)),
    ],
    ids=lambda step: step.kind,
)
def test_steps_come_back_from_the_journal(step: Step) -> None:
    assert decode_step(json.loads(json.dumps(step.encode()))) == step


def test_the_record_survives_and_says_when_it_is_damaged(tmp_path: Path) -> None:
    file = Store(tmp_path / "state.sqlite")
    assert file.list_bindings() == ()
    other = make_binding(PciAddress(0, 0, 2, 0))
    for binding in (make_binding(), other, make_binding(persist=True)):
        file.save_binding(binding)
    file.save_vf_setting(setting)
    again = Store(file.path)
    assert again.list_bindings() == (other, make_binding(persist=True))
    assert again.list_vf_settings() == (setting,)
    again.forget_binding(GPU)
    again.forget_vf_setting(GPU)
    assert file.list_bindings() == (other,)
    for path in (file.path, file.path.with_suffix(".copy")):
        assert file.list_bindings() == (other,)
        path.write_bytes(path.read_bytes().replace(b"nvidia", b"nvidib"))
    with pytest.raises(StoreError, match="functions taken from the host"):
        file.list_bindings()


def test_a_group_that_a_vm_has_open_is_in_use_by_it() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, VFIO, 3)
    audio = Function(PciAddress(0, 1, 0, 1), 0x10DE, 2, 0x040300, VFIO, 3)
    vm = User(UserKind.PROCESS, 'vm "vm01"')
    judged = judge_group([gpu, audio], {GPU: (vm,)})
    assert judged.verdict is Verdict.IN_USE
    assert [str(blocker) for blocker in judged.blockers] == [f"{gpu}: {vm}"]
    display = User(UserKind.DISPLAY, "the console is on fb0")
    assert judge_group([gpu, audio], {GPU: (display,)}).verdict is Verdict.VIABLE


@pytest.mark.parametrize("had", ["nvidia", VFIO])
@pytest.mark.parametrize("asked", ["nvidia", "uio_pci_generic", STUB])
def test_bind_gives_no_gpu_to_a_driver_that_gives_it_to_no_vm(asked: str, had: str) -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, had, 3)
    audio = Function(PciAddress(0, 1, 0, 1), 0x10DE, 2, 0x040300, "snd_hda_intel", 3)
    observed = Snapshot(functions=[gpu, audio])
    with pytest.raises(UsageError) as refused:
        plan_bind(observed, gpu, BindRequest(driver=asked))
    assert f"vgpumgr passthrough unbind {GPU}" in (refused.value.hint or "")


def test_a_driver_made_for_the_gpu_is_not_forced_on_its_companions() -> None:
    gpu = Function(GPU, 0x10DE, 1, 0x030000, "nvidia", 3)
    audio = Function(PciAddress(0, 1, 0, 1), 0x10DE, 2, 0x040300, "snd_hda_intel", 3)
    observed = Snapshot(functions=[gpu, audio], variants={GPU: "made_for_it"})
    plan = plan_bind(observed, gpu, BindRequest(driver="made_for_it"))
    assert [s.target["driver"] for s in plan.steps] == [VFIO, "made_for_it"]
