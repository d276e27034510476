"""Best-effort shares on fakes: weights that no time is reserved for, beside memory that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import GIB, make_gpu
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.capacity import why
from vgpumgr.app.operations.shares import set_share
from vgpumgr.errors import Exit, NoRoomError, UsageError
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.model.request import AttachRequest, ShareRequest, parse_profile_request
from vgpumgr.model.shares import Share
from vgpumgr.state.domain_metadata import rebuild_records

BEST_EFFORT = "best-effort"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """One A100 of 80 GiB without MIG mode."""
    return make_bench(tmp_path)


def attach(bench: Bench, profile: str, vm: str = "vm01", **more: Any) -> Any:
    more.setdefault("compute_policy", BEST_EFFORT)
    return bench.service.attach(AttachRequest(vm, profile, **more))


def get_record(bench: Bench, vm: str = "vm01") -> AttachmentRecord:
    return next(r for r in bench.store.list_attachments() if r.vm_name == vm)


def test_memory_alone_is_a_share_of_the_weight_of_all() -> None:
    request = parse_profile_request("share:8GiB")
    assert request == ShareRequest(Share(8 * GIB, 100), is_memory_only=True)
    assert str(request) == "share:8GiB"
    for text in ("share:8GB", "share:64MiB", "share:8GiB,", "share:8GiB,%"):
        with pytest.raises(ValueError, match=r"ambiguous|too small|write it like"):
            parse_profile_request(text)


def test_weights_may_be_more_than_all_of_the_time_and_memory_never_more(bench: Bench) -> None:
    attach(bench, "share:30GiB")
    attach(bench, "share:30GiB,70%", "vm02")
    record = get_record(bench)
    assert record.profile == "share:30GiB,100%"
    assert record.share_part is not None
    assert record.share_part.policy is ComputePolicy.BEST_EFFORT
    assert bench.channels.specs[record.id].compute_policy == BEST_EFFORT
    assert rebuild_records(bench.hypervisor.read_vm("vm01")) == (record,)
    with pytest.raises(NoRoomError) as caught:
        attach(bench, "share:21GiB", "vm02", add=True)
    assert caught.value.exit_code == Exit.BUSY
    assert "share:20GiB,100% more fits beside its shares" in (caught.value.why or "")
    assert "--profile share:20GiB,100% fits" in (caught.value.hint or "")
    attach(bench, "share:20GiB", "vm02", add=True)
    with pytest.raises(NoRoomError) as caught:
        attach(bench, "share:128MiB", "vm02", add=True)
    assert "nothing more fits" in (caught.value.why or "")


def test_the_plan_names_a_weight_and_no_part_of_the_time(bench: Bench) -> None:
    plan = bench.service.attach(
        AttachRequest("vm01", "share:8GiB,40%", compute_policy=BEST_EFFORT), dry_run=True
    ).plan
    (start,) = [step for step in plan.steps if step.kind == "channel.start"]
    assert "weight 40, best-effort" in start.description
    assert any("share:72GiB,100% stays free" in note for note in plan.notes)


@pytest.mark.parametrize("other", ["burst", "fixed"])
def test_one_gpu_has_one_policy(tmp_path: Path, other: str) -> None:
    for first, second in ((BEST_EFFORT, other), (other, BEST_EFFORT)):
        bench = make_bench(tmp_path / f"{first}-{second}")
        attach(bench, "share:8GiB,60%", compute_policy=first)
        before = bench.snapshot()
        with pytest.raises(NoRoomError) as caught:
            attach(bench, "share:8GiB,30%", "vm02", compute_policy=second)
        assert f"its shares are {first}, and one GPU has one policy" in (caught.value.why or "")
        assert caught.value.hint == f"--compute-policy {first}"
        assert 'vm "vm01"' in caught.value.held_by[0]
        assert bench.snapshot() == before


def test_another_gpu_takes_the_other_policy(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, [make_gpu(layout=None), make_gpu(index=1, layout=None)])
    attach(bench, "share:8GiB")
    attach(bench, "share:8GiB,30%", "vm02", compute_policy=None)
    assert get_record(bench).gpu != get_record(bench, "vm02").gpu


@pytest.mark.parametrize("policy", [None, "burst", "fixed"])
def test_other_policies_need_a_percentage(bench: Bench, policy: str | None) -> None:
    before = bench.snapshot()
    with pytest.raises(UsageError, match="share:8GiB says no percentage") as caught:
        attach(bench, "share:8GiB", compute_policy=policy)
    assert caught.value.hint == "--profile share:8GiB,30%; or --compute-policy best-effort"
    assert bench.snapshot() == before


def test_many_at_once_and_no_more_than_an_arbiter_serves(bench: Bench) -> None:
    attach(bench, "share:1GiB", count=16)
    assert len(bench.store.list_attachments()) == 16
    with pytest.raises(NoRoomError) as caught:
        attach(bench, "share:10GiB", "vm02", count=7)
    assert "6 fit" in (caught.value.why or "")
    attach(bench, "share:1/8", "vm02")
    assert get_record(bench, "vm02").profile == "share:10GiB,12.5%"


def test_a_weight_changes_without_regard_to_the_others(bench: Bench) -> None:
    attach(bench, "share:8GiB")
    attach(bench, "share:8GiB", "vm02")
    set_share(bench.service.parts, vm="vm02", compute=25, memory_bytes=72 * GIB)
    record = get_record(bench, "vm02")
    assert record.profile == "share:72GiB,25%"
    assert bench.channels.shares[record.id] == (72 * GIB, 25)
    with pytest.raises(NoRoomError):
        set_share(bench.service.parts, vm="vm02", memory_bytes=73 * GIB)


def test_why_and_the_gpus_document_say_what_fits(bench: Bench) -> None:
    attach(bench, "share:60GiB")
    (row,) = why(bench.service.parts, profile="share:20GiB").gpus
    assert row.fits
    (row,) = why(bench.service.parts, profile="share:21GiB").gpus
    assert "share:20GiB,100% more fits" in row.sentence
    (row,) = why(bench.service.parts, profile="share:10GiB,10%").gpus
    assert "its shares are best-effort" in row.sentence
