"""GPUs of one IOMMU group: they go to one VM, and together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fake_host import AUDIO, DISK, FLEX, GPU, OTHER_GPU
from tests.support.hostdev_rig import ask, make
from tests.support.service import Bench
from vgpumgr.backends.passthrough import choose_whole_gpus
from vgpumgr.errors import DeviceTakenError, GroupNotViableError, VgpumgrError
from vgpumgr.model.pci import VFIO, Function, PciAddress, User, UserKind
from vgpumgr.planning.snapshot import Snapshot

BOTH = (OTHER_GPU, FLEX)


def share_group(bench: Bench, *addresses: PciAddress) -> Bench:
    for address in addresses:
        bench.pci.functions[address] = replace(bench.pci.functions[address], group=11)
    return bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Two GPUs in different slots that the IOMMU cannot tell apart; the host's drivers have both."""
    return share_group(make(tmp_path), *BOTH)


def list_drivers(bench: Bench) -> list[str | None]:
    return [bench.pci.functions[address].driver for address in BOTH]


def test_one_alone_is_refused_with_what_to_do(bench: Bench) -> None:
    with pytest.raises(GroupNotViableError) as refused:
        bench.service.attach(ask(gpu=str(OTHER_GPU)))
    both = (
        f"vgpumgr attach VM --profile passthrough --gpu {OTHER_GPU} --count 2 gives all to one VM"
    )
    assert refused.value.hint == (
        f"{both}; or, to leave the rest unused: vgpumgr passthrough bind {FLEX}"
    )
    with pytest.raises(VgpumgrError) as wrong:
        bench.service.attach(ask(gpu=str(OTHER_GPU), count=3))
    assert "together with 1 others" in str(wrong.value.why)
    assert both in str(wrong.value.hint)
    # each of what is advised does
    assert bench.service.attach(ask(gpu=str(OTHER_GPU), count=2), dry_run=True).plan.steps
    bench.pci.functions[FLEX] = replace(bench.pci.functions[FLEX], driver=VFIO)
    assert bench.service.attach(ask(gpu=str(OTHER_GPU)), dry_run=True).plan.steps


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("gpu", [None, str(FLEX)])
def test_both_go_to_one_vm_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: str | None, running: bool
) -> None:
    """None is plugged before the host's drivers have left all of the group."""
    bench = share_group(make(tmp_path, running=running), *BOTH)
    if gpu is None:  # nor has the third GPU a place beside them
        bench.pci.users[GPU] = "process 7 (python3)"
    before, seen = bench.snapshot(), list[list[str | None]]()
    plug: Callable[..., None] = bench.hypervisor.attach_device

    def watch(*arguments: object) -> None:
        seen.append(list_drivers(bench))
        plug(*arguments)

    monkeypatch.setattr(bench.hypervisor, "attach_device", watch)
    done = bench.service.attach(ask(gpu=gpu, count=2))
    assert {str(a) for a in BOTH} == set(cast(list[str], done.plan.result["devices"]))
    assert any("from which the IOMMU cannot isolate it" in note for note in done.plan.notes)
    assert seen
    assert {driver for drivers in seen for driver in drivers} == {VFIO}
    hold_by_group(bench, monkeypatch)
    bench.service.detach("vm02", every=True)
    assert bench.snapshot() == before


def hold_by_group(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel does: a VM has all of a group open as long as it has one function of it."""
    real = bench.pci._list_users

    def users(address: PciAddress) -> list[User]:
        group = bench.pci.functions[address].group
        members = [f.address for f in bench.pci.functions.values() if f.group == group]
        return [user for member in members for user in real(member)]

    monkeypatch.setattr(bench.pci, "_list_users", users)


def test_what_came_along_cannot_be_given_once_more(bench: Bench) -> None:
    bench.service.attach(ask(gpu=str(GPU)))
    with pytest.raises(DeviceTakenError) as refused:
        bench.service.attach(ask(gpu=str(AUDIO), add=True))
    assert refused.value.why == "the VM has it already; the functions of a card go together"
    with pytest.raises(DeviceTakenError) as refused:
        bench.service.attach(ask(gpu=str(AUDIO), vm="vm01"))
    assert refused.value.why is None


def test_a_stranger_in_the_group_keeps_them_all(bench: Bench) -> None:
    share_group(bench, DISK)
    with pytest.raises(GroupNotViableError) as refused:
        bench.service.attach(ask(gpu=str(FLEX), count=1))
    assert refused.value.hint == f"vgpumgr passthrough bind {DISK}"
    with pytest.raises(VgpumgrError, match="only 1 of 2"):
        bench.service.attach(ask(count=2))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.sets(st.integers(0, 5)), st.data())
def test_whatever_is_chosen_is_viable(
    groups: list[int], busy: set[int], data: st.DataObject
) -> None:
    """And where nothing is chosen, no set of so many GPUs would be."""
    count = data.draw(st.integers(1, len(groups)))
    gpus = [
        Function(PciAddress(0, bus + 1, 0, 0), 0x10DE, 1, 0x030200, "nvidia", group)
        for bus, group in enumerate(groups)
    ]
    users = {
        gpu.address: (User(UserKind.PROCESS, "process 7"),)
        for number, gpu in enumerate(gpus)
        if number in busy
    }
    host = Snapshot(functions=gpus, users=users, vm_uuid="a")
    sizes = [
        groups.count(group)
        for group in set(groups)
        if not any(number in busy for number, other in enumerate(groups) if other == group)
    ]
    possible = {0}
    for size in sizes:
        possible |= {total + size for total in possible}
    try:
        chosen = choose_whole_gpus(host, None, count)
    except VgpumgrError:
        assert count not in possible
        return
    given_away = [one.gpu for one in chosen]
    assert len({gpu.address for gpu in given_away}) == count
    taken = {gpu.group for gpu in given_away}
    assert all(gpu in given_away for gpu in gpus if gpu.group in taken)
    assert not any(gpu.address in users for gpu in given_away)
