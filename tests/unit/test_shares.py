"""Shares of GPUs: reading, planning by properties, and the acceptance split; pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.boards import A30_NAME, A100, GIB, make_gpu
from vgpumgr.errors import NoRoomError
from vgpumgr.model.attachment import AttachmentRecord, SharePart
from vgpumgr.model.choices import Backend, ComputePolicy
from vgpumgr.model.gpu import Gpu, GpuMemory
from vgpumgr.model.request import AttachRequest, ShareRequest
from vgpumgr.model.shares import Share, divide, parse_share
from vgpumgr.model.text import format_exact
from vgpumgr.planning.shares import SharePlacement, choose_shares, measure_shares
from vgpumgr.planning.snapshot import Snapshot

MIB = 1 << 20
SIZES = st.integers(128, 40 * 1024).map(lambda mib: mib * MIB) | st.integers(128 * MIB, 40 * GIB)
TIMES = st.integers(1, 100) | st.integers(10_000, 1_000_000).map(lambda n: n / 10_000)
SHARES = st.builds(Share, SIZES, TIMES)


def make_card(index: int, memory: int, reserved: int = 0) -> Gpu:
    """A GPU without MIG mode, with so much memory."""
    return replace(make_gpu(index=index, layout=None), memory=GpuMemory(memory, 0, reserved))


def exact(share: Share) -> Fraction:
    """The percentage as it is printed."""
    return Fraction(str(share).rpartition(",")[2].rstrip("%"))


def record(seat: SharePlacement, id_: str) -> AttachmentRecord:
    return AttachmentRecord(
        id_, f"vm-{id_}", f"uuid-{id_}", seat.gpu.uuid, str(seat.share), seat.share.memory,
        Backend.FORWARD, 0.0, share_part=SharePart(seat.share, seat.policy),
    )  # fmt: skip


def ask(share: Share | str, **more: object) -> tuple[AttachRequest, ShareRequest]:
    wanted = ShareRequest(share) if isinstance(share, Share) else ShareRequest(parts=int(share))
    return replace(AttachRequest("vm01", str(wanted)), **more), wanted  # type: ignore[arg-type]


def choose(snapshot: Snapshot, share: Share | str, **more: object) -> tuple[SharePlacement, ...]:
    request, wanted = ask(share, **more)
    return choose_shares(request, wanted, (), snapshot, "no")


# --- reading


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("share:8GiB,30%", Share(8 * GIB, 30)),
        ("SHARE:512MiB, 1 %", Share(512 * MIB, 1)),
        ("share:134217728,100%", Share(128 * MIB, 100)),
        ("share:1.5GiB,10%", Share(1536 * MIB, 10)),
        ("share:8GiB,12.5%", Share(8 * GIB, 12.5)),
        ("share:8GiB,1.0001%", Share(8 * GIB, 1.0001)),
        ("share:8GiB,30.0%", Share(8 * GIB, 30)),
    ],
)
def test_reading(text: str, share: Share) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("share:8GiB,0%", "1% to 100%"),
        ("share:8GiB,0.9999%", "1% to 100%"),
        ("share:8GiB,100.0001%", "1% to 100%"),
        ("share:8GiB,12.50001%", "write it like share:8GiB,30%"),
        ("share:8GiB,.5%", "write it like share:8GiB,30%"),
        ("share:8GiB,101%", "1% to 100%"),
        ("share:8GiB,99999999%", "write it like share:8GiB,30%"),
        ("share:127MiB,10%", "one CUDA context takes 128 MiB"),
        ("share:0,10%", "one CUDA context takes 128 MiB"),
        ("share:8GB,30%", "ambiguous"),
        ("share:8GiB", "write it like share:8GiB,30%"),
        ("share:8GiB,30", "write it like share:8GiB,30%"),
        ("share:,30%", "write it like share:8GiB,30%"),
        ("share:-8GiB,30%", "not a size"),
        ("share:8GiB,-30%", "write it like share:8GiB,30%"),
        ("share:8GiB,30%,40%", "write it like share:8GiB,30%"),
        ("8GiB,30%", "write it like share:8GiB,30%"),
        ("", "write it like share:8GiB,30%"),
    ],
)
def test_what_is_no_share_is_refused_with_a_sentence(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_share(text)


@given(SHARES)
def test_text_and_back_to_the_byte(share: Share) -> None:
    assert parse_share(str(share)) == share


@given(st.text(max_size=30).map(lambda text: f"share:{text}") | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        share = parse_share(text)
    except ValueError:
        return
    assert share.memory >= 128 * MIB
    assert 1 <= share.compute <= 100


@given(st.integers(0, 1 << 62))
def test_exact_sizes(size: int) -> None:
    assert parse_share(f"share:{format_exact(max(size, 128 * MIB))},1%").memory == max(
        size, 128 * MIB
    )


# --- the acceptance split


def test_sixteen_gpus_of_32_gib_are_128_shares_of_4_gib_and_nothing_is_left() -> None:
    gpus = [make_card(index, 32 * GIB) for index in range(16)]
    records: list[AttachmentRecord] = []
    for number in range(128):
        (seat,) = choose(Snapshot(gpus=gpus, records=tuple(records)), "8")
        assert seat.share == Share(4 * GIB, 12.5)
        records.append(record(seat, str(number)))
    assert set(Counter(r.gpu for r in records).values()) == {8}
    assert all(measure_shares(gpu, records).free == Share(0, 0) for gpu in gpus)
    with pytest.raises(NoRoomError):
        choose(Snapshot(gpus=gpus, records=tuple(records)), Share(128 * MIB, 1))


@given(st.integers(1 * GIB, 200 * GIB), st.integers(0, 1 * GIB - 128 * MIB), st.integers(1, 64))
@example(32 * GIB, 0, 8)
@example(80 * GIB, 571 * MIB, 7)
def test_n_equal_shares_fit_and_another_like_them_does_not(
    memory: int, reserved: int, parts: int
) -> None:
    gpu = make_card(0, memory, reserved)
    share = divide(memory - reserved, parts)
    assert parts * share.memory <= memory - reserved < parts * share.memory + parts * MIB + MIB
    assert parts * exact(share) <= 100 < parts * (exact(share) + Fraction(1, 10_000))
    assert (parts * exact(share) == 100) == (1_000_000 % parts == 0)
    if share.memory < 128 * MIB:
        with pytest.raises(NoRoomError, match="takes no such share") as caught:
            choose(Snapshot(gpus=[gpu]), str(parts))
        assert "128 MiB" in (caught.value.why or "")
        return
    seats = choose(Snapshot(gpus=[gpu]), str(parts), count=parts)
    assert [seat.share for seat in seats] == [share] * parts
    if (parts + 1) * share.memory > memory - reserved:
        with pytest.raises(NoRoomError):
            choose(Snapshot(gpus=[gpu]), str(parts), count=parts + 1)


# --- properties of placement


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 80), st.integers(0, 600)), min_size=1, max_size=4),
    st.lists(
        st.tuples(SHARES, st.integers(1, 3), st.sampled_from(ComputePolicy), st.booleans()),
        max_size=25,
    ),
)
def test_no_history_gives_away_more_than_there_is(
    sizes: list[tuple[int, int]], asked: list[tuple[Share, int, ComputePolicy, bool]]
) -> None:
    """Whatever is asked in whatever order: never more than a GPU has, one policy on each, and what is refused does
    not fit anywhere.
    """
    gpus = [make_card(i, gib * GIB, mib * MIB) for i, (gib, mib) in enumerate(sizes)]
    records: list[AttachmentRecord] = []
    for number, (share, count, policy, spread) in enumerate(asked):
        snapshot = Snapshot(gpus=gpus, records=tuple(records))
        uses = [measure_shares(gpu, records) for gpu in gpus]
        most = sum(
            min(
                use.free.memory // share.memory,
                exact(use.free) // exact(share) if policy is not ComputePolicy.BEST_EFFORT else 64,
            )
            for use in uses
            if use.policy in (None, policy)
        )
        try:
            seats = choose(snapshot, share, count=count, spread=spread, compute_policy=str(policy))
        except NoRoomError:
            assert most < count
            continue
        assert most >= count == len(seats)
        records += [record(seat, f"{number}-{i}") for i, seat in enumerate(seats)]
        for gpu in gpus:
            mine = [r.share_part for r in records if r.gpu == gpu.uuid and r.share_part]
            assert len({part.policy for part in mine}) <= 1
            if mine and mine[0].policy is not ComputePolicy.BEST_EFFORT:
                assert sum(exact(part.share) for part in mine) <= 100
            total = gpu.memory.total_bytes - gpu.memory.reserved_bytes
            assert sum(part.share.memory for part in mine) <= total


@settings(max_examples=100, deadline=None)
@given(SHARES, st.lists(SHARES, max_size=6))
def test_whole_gpus_stay_whole_while_a_begun_one_has_place(share: Share, had: list[Share]) -> None:
    gpus = [make_card(index, 80 * GIB) for index in range(8)]
    records: list[AttachmentRecord] = []
    for number, one in enumerate(had):
        (seat,) = choose(Snapshot(gpus=gpus, records=tuple(records)), one)
        records.append(record(seat, str(number)))
    begun = [gpu for gpu in gpus if measure_shares(gpu, records).records]
    fits = [gpu for gpu in begun if share.fits_in(measure_shares(gpu, records).free)]
    (seat,) = choose(Snapshot(gpus=gpus, records=tuple(records)), share)
    assert (seat.gpu in begun) == bool(fits)


def test_best_fit_takes_the_gpu_that_has_least_left_and_spread_the_emptiest() -> None:
    gpus = [make_card(0, 80 * GIB), make_card(1, 80 * GIB), make_card(2, 80 * GIB)]
    records = (
        record(SharePlacement(gpus[0], Share(20 * GIB, 20), ComputePolicy.BURST, ""), "a"),
        record(SharePlacement(gpus[1], Share(60 * GIB, 60), ComputePolicy.BURST, ""), "b"),
    )
    snapshot = Snapshot(gpus=gpus, records=records)
    assert choose(snapshot, Share(10 * GIB, 10))[0].gpu.index == 1
    assert choose(snapshot, Share(10 * GIB, 10), spread=True)[0].gpu.index == 2
    assert choose(snapshot, Share(30 * GIB, 10))[0].gpu.index == 0


def test_an_equal_share_is_one_of_the_gpu_that_it_is_on() -> None:
    small, large = make_gpu(A30_NAME, 0, None), make_gpu(A100, 1, None)
    seats = choose(Snapshot(gpus=[small, large]), "2", count=4)
    sizes = Counter((seat.gpu.index, seat.share.memory) for seat in seats)
    assert sizes == {(0, 12 * GIB): 2, (1, 40 * GIB): 2}


def test_a_gpu_has_as_many_shares_as_its_arbiter_serves_and_no_more() -> None:
    gpu, share = make_card(0, 80 * GIB), Share(128 * MIB, 1)
    records = [
        record(SharePlacement(gpu, share, ComputePolicy.BURST, ""), str(n)) for n in range(63)
    ]
    snapshot = Snapshot(gpus=[gpu], records=tuple(records))
    with pytest.raises(NoRoomError, match="2 times"):
        choose(snapshot, share, count=2)
    records.append(record(choose(snapshot, share)[0], "last"))
    with pytest.raises(NoRoomError) as caught:
        choose(Snapshot(gpus=[gpu], records=tuple(records)), share)
    assert "it has 64 shares, the most" in (caught.value.why or "")
