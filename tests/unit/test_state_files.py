"""The small state files survive any damage to one of their two copies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vgpumgr.errors import StoreError
from vgpumgr.model.pci import PciAddress
from vgpumgr.passthrough.values import VfSetting
from vgpumgr.store.pci import PciFile

SETTING = VfSetting(PciAddress.parse("0000:3a:00.0"), 4, 0x8086, 0x56C0, "boot")


@pytest.fixture
def store(tmp_path: Path) -> PciFile:
    store = PciFile(tmp_path / "passthrough.json")
    store.save_vf_setting(SETTING)
    return store


def test_every_byte_of_either_flipped_or_cut_off(store: PciFile) -> None:
    for path in (store.path, store.path.with_suffix(".copy")):
        good = path.read_bytes()
        for at in range(len(good)):
            for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :]):
                path.write_bytes(bad)
                assert store.list_vf_settings() == (SETTING,)
        path.unlink()
        assert store.list_vf_settings() == (SETTING,)
        path.write_bytes(good)


def test_the_next_write_makes_both_good(store: PciFile) -> None:
    copy = store.path.with_suffix(".copy")
    store.path.write_text("garbage")
    store.save_vf_setting(replace(SETTING, count=2))
    assert store.path.read_bytes() == copy.read_bytes()
    store.path.unlink()
    assert [s.count for s in store.list_vf_settings()] == [2]


def test_both_damaged_is_said(store: PciFile) -> None:
    store.path.write_text("garbage")
    store.path.with_suffix(".copy").write_text("{}")
    with pytest.raises(StoreError, match="functions taken from the host"):
        store.list_vf_settings()
