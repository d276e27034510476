"""Which instances of MIG shares get: on GPUs of different memory, near the VM or not, and in any history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.boards import make_gpu, make_instance
from vgpumgr.backends.mig_places import choose_slices
from vgpumgr.backends.mig_shares import choose_instance_shares
from vgpumgr.errors import GpuDrainedError, NoRoomError, NotPermittedError, VgpumgrError
from vgpumgr.mig.placement import count_fits
from vgpumgr.model.attachment import (
    AttachmentRecord,
    AttachmentState,
    MigInstanceRef,
    MigPart,
    SharePart,
)
from vgpumgr.model.choices import Backend, ComputePolicy
from vgpumgr.model.gpu import Drain, Gpu
from vgpumgr.model.mig import MigProfileName
from vgpumgr.model.request import AttachRequest, ShareRequest, parse_profile_request
from vgpumgr.model.shares import Share, name_share
from vgpumgr.planning.shares import SharePlacement, measure_instance_shares
from vgpumgr.planning.snapshot import Snapshot

MIB = 1 << 20
NAME = MigProfileName.parse("1g.10gb")


def say(error: VgpumgrError) -> str:
    return " ".join([error.error, error.why or "", error.cause or "", *error.held_by])


def carry_out(gpus: list[Gpu], seat: SharePlacement, id_: str) -> AttachmentRecord:
    """The share as an attach makes it: ``gpus`` get its instance."""
    assert seat.instance is not None
    place = seat.instance.seat
    choice = place.choice
    index = next(i for i, gpu in enumerate(gpus) if gpu.uuid == choice.gpu.uuid)
    if place.creates and seat.is_first:
        number = 1 + max((i.id for i in gpus[index].instances), default=0)
        made = make_instance(index, number, choice.profile, choice.placement.start)
        there = sorted([*gpus[index].instances, made], key=lambda i: i.placement)
        gpus[index] = replace(gpus[index], instances=tuple(there))
    instance = next(i for i in gpus[index].instances if i.placement == choice.placement)
    (compute,) = instance.compute_instances
    assert compute.uuid is not None
    ref = MigInstanceRef(instance.id, compute.id, choice.placement, compute.uuid)
    part = MigPart(choice.profile.id, choice.placement, ref=ref, taken=seat.instance.taken)
    return AttachmentRecord(
        id_, f"vm-{id_}", f"uuid-{id_}", gpus[index].uuid, name_share(seat.share, str(NAME)),
        seat.share.memory, Backend.FORWARD, 0.0, state=AttachmentState.ATTACHED, mig_part=part,
        share_part=SharePart(seat.share, seat.policy),
    )  # fmt: skip


def halve(gpu: Gpu) -> Gpu:
    """A board whose profiles have the same names and half the memory."""
    halves = [replace(p, memory_bytes=p.memory_bytes // 2) for p in gpu.profiles]
    return replace(gpu, profiles=tuple(halves))


def choose(
    gpus: Sequence[Gpu],
    records: Sequence[AttachmentRecord],
    request: AttachRequest,
    nodes: Sequence[int] = (),
    **known: Any,
) -> tuple[SharePlacement, ...]:
    wanted = parse_profile_request(request.profile)
    assert isinstance(wanted, ShareRequest)
    snapshot = Snapshot(gpus=tuple(gpus), records=tuple(records), **known)
    return choose_instance_shares(request, wanted, nodes, snapshot, "no")


# --- GPUs of different memory, and near and far ones


def test_of_one_profile_name_the_gpu_whose_instances_hold_the_share_is_taken() -> None:
    gpus = [halve(make_gpu(index=0, layout=[])), make_gpu(index=1, layout=[])]
    request = AttachRequest("vm01", "share:8GiB,40%@1g.10gb", count=3)
    for spread in (False, True):
        seats = choose(gpus, [], replace(request, spread=spread))
        assert {seat.gpu.index for seat in seats} == {1}
    (small,) = choose(gpus, [], AttachRequest("vm01", "share:4GiB,40%@1g.10gb"))
    assert small.gpu.index == 0
    with pytest.raises(NoRoomError) as caught:
        choose(gpus, [], replace(request, gpu="0"))
    assert "share:8GiB,40% is more" in say(caught.value)
    with pytest.raises(NoRoomError) as caught:
        choose(gpus, [], replace(request, count=8))
    assert "7 fit: 1 on " in say(caught.value)


def test_a_new_instance_near_the_vm_comes_before_a_shared_one_elsewhere() -> None:
    gpus = [replace(make_gpu(index=index, layout=[]), numa_node=index) for index in (0, 1)]
    request = AttachRequest("vm01", "share:4GiB,30%@1g.10gb")
    (first,) = choose(gpus, [], request, [1])
    assert first.gpu.index == 1
    records = [carry_out(gpus, first, "1")]
    (seat,) = choose(gpus, records, request, [0])
    assert (seat.gpu.index, seat.is_first) == (0, True)
    assert seat.why.count("on the VM's NUMA node 0") == 1
    # the reason is true also where --gpu leaves no choice
    for number in ("0", "1"):
        (named,) = choose(gpus, [], replace(request, gpu=number), [0])
        assert named.gpu.index == int(number)
        assert named.why.count("NUMA node") == 1
        assert ("on NUMA node 1, as --gpu asks: the VM's is 0" in named.why) == (number == "1")
    # neither does --spread change that, nor does it count where no nodes are known
    (seat,) = choose(gpus, records, replace(request, spread=True), [0])
    assert seat.gpu.index == 0
    for nodes, numa in (([0], "off"), ([], "prefer")):
        (seat,) = choose(gpus, records, replace(request, numa=numa), nodes)
        assert (seat.gpu.index, seat.is_first) == (1, False)


def test_several_are_near_as_far_as_they_fit_and_the_rest_elsewhere() -> None:
    near = replace(make_gpu(index=0, layout=[("4g.40gb", 0), ("2g.20gb", 4)]), numa_node=0)
    gpus = [near, replace(make_gpu(index=1, layout=[]), numa_node=1)]
    request = AttachRequest("vm01", "share:4GiB,30%@1g.10gb", count=5)
    seats = choose(gpus, [], request, [0])
    assert Counter(seat.gpu.index for seat in seats) == {0: 2, 1: 3}
    assert "on NUMA node 1: no GPU in MIG mode on the VM's (0) has room" in seats[-3].why
    assert "on NUMA node 1: none in MIG mode on the VM's (0) is free" in seats[-2].why
    with pytest.raises(NoRoomError) as caught:
        choose(gpus, [], replace(request, count=17), [0])
    assert "16 fit: " in say(caught.value)
    with pytest.raises(NoRoomError) as caught:
        choose(gpus, [], replace(request, numa="strict"), [0])
    assert "2 fit: " in say(caught.value)


def test_mig_mode_is_turned_on_for_nearness_only_with_strict() -> None:
    off = replace(make_gpu(index=0, layout=None), numa_node=0)
    gpus = [off, replace(make_gpu(index=1, layout=[]), numa_node=1)]
    request = AttachRequest("vm01", "share:4GiB,30%@1g.10gb")
    (seat,) = choose(gpus, [], request, [0])
    assert seat.gpu.index == 1
    records = [carry_out(gpus, seat, "1")]
    (seat,) = choose(gpus, records, request, [0])
    assert (seat.gpu.index, seat.is_first) == (1, False)
    assert "none in MIG mode on the VM's (0) is free" in seat.why
    (seat,) = choose(gpus, records, replace(request, numa="strict"), [0])
    assert seat.gpu.index == 0


def test_a_refusal_counts_shares_in_what_is_there_and_in_what_could_be_made() -> None:
    gpus = [make_gpu(layout=[("4g.40gb", 0), ("2g.20gb", 4)])]
    one = AttachRequest("vm01", "share:4GiB,30%@1g.10gb")
    (seat,) = choose(gpus, [], one)
    with pytest.raises(NoRoomError) as caught:
        choose(gpus, [], replace(one, count=3))
    assert caught.value.why == "2 fit: 2 on 1g.10gb at 6:1 on GPU 0"
    gpus = [make_gpu(layout=[("4g.40gb", 0)])]
    records = [carry_out(gpus, seat, "1")]
    for spread in (False, True):
        with pytest.raises(NoRoomError) as caught:
            choose(gpus, records, replace(one, count=6, spread=spread))
        assert "5 fit: 1 on " in str(caught.value.why)
        assert "for another" not in str(caught.value.why)


def test_to_spread_comes_before_nearness() -> None:
    near = replace(
        make_gpu(index=0, layout=[("4g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5)]), numa_node=0
    )
    gpus = [near, replace(make_gpu(index=1, layout=[]), numa_node=1)]
    request = AttachRequest("vm01", "share:2GiB,10%@1g.10gb", count=3, spread=True)
    seats = choose(gpus, [], request, [0])
    assert Counter(seat.gpu.index for seat in seats) == {0: 1, 1: 2}
    assert len({(seat.gpu.index, str(seat.instance)) for seat in seats}) == 3
    # also where the near one has shares already: all but the first are elsewhere
    records = [carry_out(gpus, seats[0], "1")]
    seats = choose(gpus, records, request, [0])
    assert Counter(seat.gpu.index for seat in seats) == {0: 1, 1: 2}
    # more than there are instances go to the emptiest of the near ones
    seats = choose(gpus, records, replace(request, count=9), [0])
    assert Counter(seat.gpu.index for seat in seats) == {0: 2, 1: 7}


def test_a_near_gpu_that_refuses_a_call_is_no_reason_to_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [replace(make_gpu(index=index, layout=[]), numa_node=index) for index in (0, 1)]

    def refuse(*words: Any) -> Any:
        if len(words[-1]) == 1:
            raise NotPermittedError("only root can see where a place is free")
        return choose_slices(*words)

    monkeypatch.setattr("vgpumgr.backends.mig_shares.choose_slices", refuse)
    (seat,) = choose(gpus, [], AttachRequest("vm01", "share:2GiB,10%@1g.10gb"), [0])
    assert seat.gpu.index == 0


def test_a_whole_slice_says_how_near_the_gpu_is_that_is_named() -> None:
    gpus = [
        replace(make_gpu(index=index, layout=[("1g.10gb", 0)]), numa_node=index) for index in (0, 1)
    ]
    for number in (0, 1):
        compute = gpus[number].instances[0].compute_instances[0]
        for selector in (str(number), str(compute.uuid)):
            request = AttachRequest("vm01", "1g.10gb", gpu=selector)
            snapshot = Snapshot(gpus=tuple(gpus), records=())
            (seat,) = choose_slices(request, [0], snapshot, NAME, "no")
            near = "; on the VM's NUMA node 0"
            far = "; on NUMA node 1, as --gpu asks: the VM's is 0"
            assert seat.choice.why.endswith(far if number else near)
            assert seat.choice.why.count("NUMA node") == 1
    (seat,) = choose_slices(
        AttachRequest("vm01", "1g.10gb"), [0], Snapshot(gpus=tuple(gpus), records=()), NAME, "no"
    )
    assert seat.choice.why.count("NUMA node") == 1


# --- the nearest share that fits


OFFER = "--profile share:9984MiB,40%@1g.10gb fits"
BIG = AttachRequest("vm01", "share:16GiB,40%@1g.10gb")


def refuse(gpus: Sequence[Gpu], request: AttachRequest, **known: Any) -> VgpumgrError:
    with pytest.raises(VgpumgrError) as caught:
        choose(gpus, [], request, **known)
    return caught.value


def double(gpu: Gpu) -> Gpu:
    """A board whose profiles have the same names and twice the memory."""
    return replace(
        gpu, profiles=tuple(replace(p, memory_bytes=p.memory_bytes * 2) for p in gpu.profiles)
    )


def test_the_nearest_share_is_of_the_gpu_whose_instances_have_most() -> None:
    """Where none holds the share; the smaller one is fuller, so that an attach would prefer it."""
    gpus = [halve(make_gpu(index=0, layout=[("4g.40gb", 0)])), make_gpu(index=1, layout=[])]
    for spread in (False, True):
        error = refuse(gpus, replace(BIG, count=2, spread=spread))
        assert isinstance(error, NoRoomError)
        assert error.hint == OFFER
    # one that takes nothing now is no offer
    full = replace(gpus[1], instances=make_gpu(index=1, layout=[("7g.80gb", 0)]).instances)
    assert "share:4992MiB,40%" in str(refuse([gpus[0], full], BIG).hint)


def test_a_gpu_that_could_hold_the_share_and_is_full_leaves_the_offer_of_another() -> None:
    full = double(make_gpu(index=0, layout=[("7g.80gb", 0)]))
    gpus = [full, halve(make_gpu(index=1, layout=[])), make_gpu(index=2, layout=[])]
    error = refuse(gpus, BIG)
    assert isinstance(error, NoRoomError)
    assert error.hint == OFFER
    assert "for another 1g.10gb: " in str(error.why)
    assert "each of its places on the memory axis" in str(error.why)


def test_a_drained_gpu_that_could_hold_the_share_leaves_the_offer_of_another() -> None:
    gpus = [double(make_gpu(index=0, layout=[])), make_gpu(index=1, layout=[])]
    drain = Drain(gpus[0].pci, gpus[0].uuid, "test", 0.0)
    error = refuse(gpus, BIG, drains=(drain,))
    assert isinstance(error, GpuDrainedError)
    assert str(error.hint).endswith(f"; or {OFFER}")
    assert "fits" not in str(refuse(gpus, replace(BIG, gpu="0"), drains=(drain,)).hint)


# --- histories


SHARES = st.builds(
    Share,
    st.integers(128, 10 * 1024).map(lambda mib: mib * MIB),
    st.integers(5, 100) | st.integers(50_000, 1_000_000).map(lambda n: n / 10_000),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=3),
    st.lists(
        st.tuples(SHARES, st.integers(1, 4), st.sampled_from(ComputePolicy), st.booleans()),
        max_size=12,
    ),
)
def test_no_history_gives_away_more_than_instances_have(
    boards: list[bool], asked: list[tuple[Share, int, ComputePolicy, bool]]
) -> None:
    """Whatever is asked in whatever order: never more than an instance has, one policy in each, what is refused does
    not fit anywhere, and without --spread no instance is made while those that are there hold all. Some boards have
    instances of half the memory.
    """
    gpus = [make_gpu(index=index, layout=[]) for index in range(len(boards))]
    gpus = [halve(gpu) if is_half else gpu for gpu, is_half in zip(gpus, boards, strict=True)]
    profiles = [next(p for p in gpu.profiles if p.name == NAME) for gpu in gpus]
    records: list[AttachmentRecord] = []

    def count(free: Share, share: Share, policy: ComputePolicy) -> int:
        by_time = Fraction(str(free.compute)) // Fraction(str(share.compute))
        held = free.memory // share.memory
        return int(held if policy is ComputePolicy.BEST_EFFORT else min(held, by_time))

    for number, (share, wanted, policy, spread) in enumerate(asked):
        uses = [measure_instance_shares(g, i, records) for g in gpus for i in g.instances]
        begun = sum(count(u.free, share, policy) for u in uses if u.policy is policy)
        each = [min(64, count(Share(p.memory_bytes, 100), share, policy)) for p in profiles]
        new = [count_fits(gpu, p) * e for gpu, p, e in zip(gpus, profiles, each, strict=True)]
        most = begun + sum(new)
        request = AttachRequest(
            "vm01", f"{share}@{NAME}", count=wanted, spread=spread, compute_policy=str(policy)
        )
        try:
            seats = choose(gpus, records, request)
        except NoRoomError as error:
            assert most < wanted
            if most:
                assert str(error.why).startswith(f"{most} fit: ")
            continue
        assert most >= wanted == len(seats)
        makes = sum(s.is_first for s in seats)
        if not spread:
            able = [one for one in each if one]
            lacking = max(0, wanted - begun)
            assert (
                -(-lacking // max(able, default=1)) <= makes <= -(-lacking // min(able, default=1))
            )
        records += [carry_out(gpus, seat, f"{number}-{i}") for i, seat in enumerate(seats)]
        for gpu in gpus:
            for instance in gpu.instances:
                use = measure_instance_shares(gpu, instance, records)
                parts = [r.share_part for r in use.records if r.share_part]
                assert parts
                assert len({part.policy for part in parts}) == 1
                assert sum(part.share.memory for part in parts) <= instance.memory_bytes
                if parts[0].policy is not ComputePolicy.BEST_EFFORT:
                    assert sum(Fraction(str(part.share.compute)) for part in parts) <= 100
