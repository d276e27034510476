"""What must hold of shares is noticed where it does not: each record here is spoilt in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.recovery.invariants import list_violations
from tests.recovery.scenarios import INSTANCE_SHARE, SHARE, attach
from tests.recovery.world import World
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.choices import ComputePolicy
from vgpumgr.model.shares import Share

Spoil = Callable[[AttachmentRecord], AttachmentRecord]


def give(share: Share) -> Spoil:
    return lambda record: record.with_share(share)


def change_policy(record: AttachmentRecord) -> AttachmentRecord:
    assert record.share_part is not None
    return replace(record, share_part=replace(record.share_part, policy=ComputePolicy.FIXED))


def make_world(root: Path, profile: str) -> World:
    world = World(root)
    world.make(mig=False, running=False)
    for vm in ("vm01", "vm02"):
        attach(vm, profile=profile)(world)
    assert list_violations(world) == []
    return world


def spoil(world: World, change: Spoil) -> str:
    """The violations after the second record was changed, with its channel where that keeps to it."""
    record = next(r for r in world.store.list_attachments() if r.vm_name == "vm02")
    changed = change(record)
    world.store.save_attachment(changed)
    assert changed.share_part is not None
    share = changed.share_part.share
    world.channels.shares[record.id] = (share.memory, share.compute)
    return "\n".join(list_violations(world))


@pytest.mark.parametrize("profile", [SHARE, INSTANCE_SHARE])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (give(Share(79 << 30, 10)), "have more memory together than its"),
        (give(Share(1 << 30, 70.1)), "% of its time together"),
        (change_policy, "have several policies"),
    ],
)
def test_shares_of_one_place_are_added_up(
    tmp_path: Path, profile: str, change: Spoil, text: str
) -> None:
    assert text in spoil(make_world(tmp_path, profile), change)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda record: record.with_mig(taken=True), "disagree on whether the last one leaves it"),
        (lambda record: record.with_mig(mode_enabled=True), "2 attachments are to turn MIG mode"),
    ],
)
def test_shares_of_one_instance_agree(tmp_path: Path, change: Spoil, text: str) -> None:
    assert text in spoil(make_world(tmp_path, INSTANCE_SHARE), change)


def test_a_channel_on_another_device_is_noticed(tmp_path: Path) -> None:
    world = make_world(tmp_path, INSTANCE_SHARE)
    (id_, spec), *_ = world.channels.specs.items()
    world.channels.specs[id_] = replace(spec, cuda_device="MIG-another")
    assert "is on MIG-another, and MIG-" in "\n".join(list_violations(world))
