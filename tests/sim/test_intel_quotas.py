# SPDX-License-Identifier: Apache-2.0
"""Quotas of Intel's virtual functions, as i915 and xe take them: when, in what form, and what they make of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.test_amd_vfs import Host, make_host
from vgpumgr.app.operations.restore import restore
from vgpumgr.errors import RolledBackError, VfQuotaError
from vgpumgr.host.machine import find_machine
from vgpumgr.model.pci import PciAddress
from vgpumgr.sim import lifecycle

pytestmark = pytest.mark.native

FLEX, ARC = "0000:4d:00.0", "0000:9b:00.0"
XE, I915 = "sriov_admin", "drm/card1/prelim_iov"
GIB = 1 << 30
AUTO = {"lmem_quota": "2657091584", "ggtt_quota": "2147483648"}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Two Flex 140 with i915, an Arc Pro B60 with xe."""
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    _, snapshot = lifecycle.start("intel-flex")
    if snapshot is not None:
        lifecycle.stop("intel-flex")
        pytest.skip(f"no FUSE: {snapshot}")
    made = make_host(find_machine("intel-flex"))
    with made.pci:
        yield made
    lifecycle.stop("intel-flex")


def say(host: Host, address: str, path: str) -> str:
    """What an attribute says, read without our own code."""
    file = host.machine.root / "sys/bus/pci/devices" / address / path
    return file.read_text().strip()


def quotas(host: Host, address: str) -> list[dict[str, str]]:
    """As they are listed."""
    (physical,) = host.service.list_vfs(selector=address).physicals
    return [vf.quotas for vf in physical.vfs]


def test_memory_is_set_before_the_driver_shares_it_out(host: Host) -> None:
    # two halves would be 12 GiB less 48 MiB each: afterwards there is no room for 11 and 13
    host.service.enable_vfs(selector=ARC, count=2, quotas={"vram_quota": 8 * GIB})
    assert [q["vram_quota"] for q in quotas(host, ARC)] == [str(8 * GIB)] * 2
    host.service.enable_vfs(selector=ARC, count=2)
    assert [q["vram_quota"] for q in quotas(host, ARC)] == [str(8 * GIB)] * 2, "as they were"
    host.service.disable_vfs(selector=ARC)
    host.service.enable_vfs(selector=ARC, count=2)
    assert [q["vram_quota"] for q in quotas(host, ARC)] == [str(12240 << 20)] * 2


def test_the_priority_is_a_word_for_all(host: Host) -> None:
    wanted = {"sched_priority": "high", "exec_quantum_ms": 20, "preempt_timeout_us": 4000}
    host.service.enable_vfs(selector=ARC, count=3, quotas=dict(wanted))
    assert say(host, ARC, f"{XE}/vf2/profile/sched_priority") == "low normal [high]"
    for row in quotas(host, ARC):
        assert {name: row[name] for name in wanted} == {n: str(v) for n, v in wanted.items()}
    with pytest.raises(VfQuotaError, match="sched_priority=low") as refused:
        host.pci.write_quotas(PciAddress.parse(ARC), [1], [("sched_priority", "low")])
    assert "all of them at once" in (refused.value.why or "")
    with pytest.raises(RolledBackError) as wrong:
        host.service.enable_vfs(selector=ARC, count=3, quotas={"sched_priority": "urgent"})
    assert "no such value" in (wrong.value.why or "")
    assert [row["sched_priority"] for row in quotas(host, ARC)] == ["high"] * 3, "as before"


def test_what_the_driver_rounds_is_taken_and_shown(host: Host) -> None:
    host.service.enable_vfs(selector=ARC, count=1, quotas={"vram_quota": GIB + 1})
    assert quotas(host, ARC)[0]["vram_quota"] == str(GIB + (2 << 20))
    assert (
        host.service.enable_vfs(selector=ARC, count=1, quotas={"vram_quota": GIB + 1}).steps == []
    )


def test_what_the_driver_ignores_is_an_error(host: Host) -> None:
    host.service.enable_vfs(selector=ARC, count=1)
    request_host = lifecycle.send_request
    request_host("intel-flex", "fault", "ignore */exec_quantum_ms 1")
    with pytest.raises(VfQuotaError, match="exec_quantum_ms=1") as ignored:
        host.pci.write_quotas(PciAddress.parse(ARC), [0], [("exec_quantum_ms", 1)])
    assert "accepted it, but says 0" in (ignored.value.why or "")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"vram_quota": 20 * GIB}, "not so much left"),
        ({"vram_quota": 1, "exec_quantum_ms": 1 << 40}, "no such value"),
    ],
)
def test_what_is_refused_leaves_nothing_set_aside(
    host: Host, wanted: dict[str, int | str], why: str
) -> None:
    with pytest.raises((VfQuotaError, RolledBackError)) as refused:
        host.service.enable_vfs(selector=ARC, count=3, quotas=wanted)
    assert why in (refused.value.why or "")
    assert host.count(ARC) == 0
    assert say(host, ARC, f"{XE}/vf1/profile/vram_quota") == "0"
    assert host.pci.list_vf_settings() == ()


def test_unknown_names_are_refused_before_anything_is_removed(host: Host) -> None:
    host.service.enable_vfs(selector=ARC, count=2)
    with pytest.raises(VfQuotaError, match="no quota lmem_quota") as refused:
        host.service.enable_vfs(selector=ARC, count=1, quotas={"lmem_quota": GIB})
    assert "vram_quota" in (refused.value.why or "")
    assert host.count(ARC) == 2


def test_i915_shares_out_the_rest_and_does_so_again(host: Host) -> None:
    host.service.enable_vfs(selector=FLEX, count=2, quotas={"lmem_quota": GIB})
    for row in quotas(host, FLEX):
        assert (row["lmem_quota"], row["ggtt_quota"]) == (str(GIB), AUTO["ggtt_quota"])
    assert say(host, FLEX, f"{I915}/pf/auto_provisioning") == "0"
    host.service.disable_vfs(selector=FLEX)
    assert say(host, FLEX, f"{I915}/pf/auto_provisioning") == "1"
    host.service.enable_vfs(selector=FLEX, count=2)
    assert [{name: row[name] for name in AUTO} for row in quotas(host, FLEX)] == [AUTO] * 2


def test_what_the_driver_keeps_aside_is_no_reason_to_bring_them_back(host: Host) -> None:
    host.service.enable_vfs(selector=FLEX, count=2, quotas={"lmem_quota": GIB})
    lifecycle.send_request("intel-flex", "fault", "fail */auto_provisioning EPERM 1")
    host.service.disable_vfs(selector=FLEX)
    assert host.count(FLEX) == 0
    assert say(host, FLEX, f"{I915}/pf/auto_provisioning") == "0"


def test_i915_takes_all_quotas_before(host: Host) -> None:
    all_of_them: dict[str, int | str] = {
        "lmem_quota": GIB, "ggtt_quota": GIB, "contexts_quota": 1024, "doorbells_quota": 16
    }  # fmt: skip
    host.service.enable_vfs(selector=FLEX, count=1, quotas=all_of_them, persist=True)
    (row,) = quotas(host, FLEX)
    assert {name: row[name] for name in all_of_them} == {n: str(v) for n, v in all_of_them.items()}
    lifecycle.reboot("intel-flex")
    after = make_host(host.machine)
    with after.pci:
        assert restore(after.parts, early=True).problems == []
        assert quotas(after, FLEX) == [row]
