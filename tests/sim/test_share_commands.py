"""Shares on a simulated machine, with keepers, workers and arbiters, from outside."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.run_host import (
    Host,
    wait_for,
)
from tests.support.share_tenant import OUT_OF_MEMORY, Tenant
from vgpumgr.app.metric_spec import SHARE_METRICS

pytestmark = pytest.mark.native

MIB, GIB = 1 << 20, 1 << 30


def test_shares_beside_each_other_are_shown_everywhere_and_leave_nothing(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:8GiB,30%", "--gpu", "0")
    two = Tenant(host, "two", "--profile", "share:16GiB,20%", "--gpu", "0")
    assert one.say(f"alloc {1 * GIB}") == [0]
    channel = one.read()
    assert (channel["profile"], channel["share"]["compute"]) == ("share:8GiB,30%", 30)
    assert channel["share"]["policy"] == "burst"
    assert channel["device"].startswith("GPU-")
    gpu = host.read("gpu", "show", "0")["gpu"]
    shares = gpu["shares"]
    assert {holder["name"]: holder["compute"] for holder in shares["holders"]} == {
        "one": 30,
        "two": 20,
    }
    total = shares["memory_total_bytes"]
    assert (shares["memory_free_bytes"], shares["compute_free"]) == (total - 24 * GIB, 50)
    text = host.call("gpu", "list").stdout
    assert "2 shares, share:" in text
    assert "one, two" in text
    assert "vgpumgr-hold" not in text
    assert "run one (attachment" in host.call("gpu", "show", "0").stdout
    assert "30% of the time, burst" in host.call("virtio", "show", "one").stdout
    assert host.read("gpu", "show", "0")["gpu"]["mig"]["current"] is False
    refused = host.call("run", "--profile", "share:1GiB,60%", "--gpu", "0", "--", "true", code=6)
    assert "share:" in refused.stderr
    assert "50% more fits beside its shares" in refused.stderr
    assert 'run "two"' in refused.stderr
    refused = host.call("run", "--profile", "1g.10gb", "--gpu", "0", "--", "true", code=6)
    assert "shares of the GPU" in refused.stderr
    one.end()
    two.end()


def test_memory_is_kept_to_the_byte_by_each_share(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:2GiB,50%", "--gpu", "1")
    two = Tenant(host, "two", "--equal", "8", "--gpu", "1")
    free, total, size = one.say("info")
    assert total == size == 2 * GIB
    assert one.say(f"alloc {free + 1}") == [OUT_OF_MEMORY]
    assert one.say(f"alloc {free}") == [0]
    assert one.say("info")[0] == 0
    assert two.say(f"alloc {4 * GIB}") == [0]  # what the other has is not this one's
    share = two.read()["share"]
    gpu = host.read("gpu", "show", "1")["gpu"]["shares"]
    assert share["memory_bytes"] == gpu["memory_total_bytes"] // 8 // MIB * MIB
    assert share["compute"] == 12.5
    one.end()
    two.end()


def test_set_changes_memory_and_time_of_programs_that_run(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:2GiB,30%", "--gpu", "0")
    assert one.say(f"alloc {3 * GIB}") == [OUT_OF_MEMORY]
    done = host.call("virtio", "set", "one", "--memory", "6GiB", "--compute", "40")
    assert "changed the share of one to share:6GiB,40%" in done.stdout
    assert one.say(f"alloc {3 * GIB}") == [0]

    def read_limit() -> Any:
        limits = one.read()["limits"]
        return next(limit for limit in limits if limit["key"] == "device-memory")

    # what sessions use is reported a moment later
    wait_for(lambda: read_limit()["used"] >= 3 * GIB, "all of it is counted")
    channel = one.read()
    assert (channel["share"]["compute"], channel["profile"]) == (40, "share:6GiB,40%")
    (limit,) = [limit for limit in channel["limits"] if limit["key"] == "device-memory"]
    assert limit["limit"] == 6 * GIB
    # what is used is not taken away
    refused = host.call("virtio", "set", "one", "--memory", "2GiB", code=6)
    assert "its programs use 3" in refused.stderr
    assert f"--memory {limit['used'] // MIB}MiB or more" in refused.stderr
    assert one.read()["profile"] == "share:6GiB,40%"
    assert one.say("free") == [0]
    host.call("virtio", "set", "one", "--memory", "2GiB")
    assert one.say(f"alloc {3 * GIB}") == [OUT_OF_MEMORY]
    # another worker of the keeper has what was set, not what the channel began with
    pid = one.read()["worker_pid"]
    host.call("virtio", "restart", "one", "--yes")
    wait_for(
        lambda: one.read()["worker_ready"] and one.read()["worker_pid"] != pid, "another worker"
    )
    (limit,) = [limit for limit in one.read()["limits"] if limit["key"] == "device-memory"]
    assert limit["limit"] == 2 * GIB
    assert one.read()["share"]["compute"] == 40
    one.process.kill()


def test_memory_in_use_is_shrunk_at_its_programs_end(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:4GiB,30%", "--gpu", "0")
    assert one.say(f"alloc {3 * GIB}") == [0]
    done = host.call("virtio", "set", "one", "--memory", "2GiB", "--compute", "40", "--at-exit")
    assert "changed the share of one to share:4GiB,40%, and to 2GiB at its programs' end" in (
        done.stdout
    )
    assert "no daemon runs here: vgpumgr recover" in done.stdout
    assert one.read()["share"]["memory_at_exit_bytes"] == 2 * GIB
    assert "2GiB, once its programs use no more" in host.call("virtio", "show", "one").stdout
    assert "40% burst" in (listed := host.call("virtio", "list").stdout)
    assert "2GiB at exit" in listed
    assert "share:4GiB,40%, 2GiB at exit" in host.call("gpu", "show", "0").stdout
    assert "its share shrinks to 2GiB" in host.call("status", code=None).stdout
    assert "shrank" not in host.call("recover").stdout
    assert one.say("free") == [0]
    # what sessions have freed is reported a moment later
    wait_for(
        lambda: "shrink-due" in host.call("status", "-o", "json", code=None).stdout, "it is due"
    )
    assert "shrank its share to share:2GiB,40%" in host.call("recover").stdout
    assert one.say(f"alloc {3 * GIB}") == [OUT_OF_MEMORY]
    channel = one.read()
    assert (channel["profile"], channel["share"]["memory_at_exit_bytes"]) == (
        "share:2GiB,40%",
        None,
    )
    one.end()


def test_policies_have_gpus_of_their_own_and_an_empty_gpu_takes_either(host: Host) -> None:
    one = Tenant(
        host, "one", "--profile", "share:2GiB,30%", "--gpu", "2", "--compute-policy", "fixed"
    )
    words = ("--profile", "share:2GiB,30%", "--gpu", "2")
    refused = host.call("run", *words, "--", "true", code=6)
    assert "one GPU has one policy" in refused.stderr
    assert "try:     --compute-policy fixed" in refused.stderr
    one.end()
    two = Tenant(host, "two", *words)
    assert two.read()["share"]["policy"] == "burst"
    two.end()


def test_a_priority_is_given_changed_and_shown(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:2GiB,30%", "--gpu", "5", "--priority", "high")
    assert one.read()["share"]["priority"] == "high"
    assert "30% of the time, burst, high priority" in host.call("virtio", "show", "one").stdout
    assert "share:2GiB,30%, high priority" in host.call("gpu", "show", "5").stdout
    dry = host.call("virtio", "set", "one", "--priority", "low", "--dry-run").stdout
    assert "change its priority from high to low" in dry
    assert "low priority" in host.call("virtio", "set", "one", "--priority", "low").stdout
    assert "30% burst, low priority" in host.call("virtio", "list").stdout
    assert one.read()["share"]["kept"] is True
    refused = host.call("virtio", "set", "one", "--priority", "urgent", code=2)
    assert "'urgent' is not one of" in refused.stderr
    one.end()


def test_best_effort_shares_reserve_memory_and_no_time(host: Host) -> None:
    words = ("--gpu", "3", "--compute-policy", "best-effort")
    one = Tenant(host, "one", "--profile", "share:2GiB", *words)
    two = Tenant(host, "two", "--profile", "share:4GiB,50%", *words)
    for tenant, weight in ((one, 100), (two, 50)):
        share = tenant.read()["share"]
        assert (share["policy"], share["compute"], share["kept"]) == ("best-effort", weight, True)
    assert "2 GiB, weight 100, best-effort" in host.call("virtio", "show", "one").stdout
    assert host.read("gpu", "show", "3")["gpu"]["shares"]["compute_free"] == 100
    assert one.say(f"alloc {3 * GIB}") == [OUT_OF_MEMORY]
    refused = host.call("run", "--equal", "4", "--gpu", "3", "--", "true", code=6)
    assert "its shares are best-effort, and one GPU has one policy" in refused.stderr
    refused = host.call("run", "--profile", "share:2GiB", "--", "true", code=2)
    assert "says no percentage of the GPU's time" in refused.stderr
    one.end()
    two.end()


def test_why_lists_each_gpu_and_malformed_shares_are_refused_in_a_sentence(host: Host) -> None:
    assert all(row["fits"] for row in host.read("why", "share:8GiB,30%")["gpus"])
    refused = host.call("why", "share:8GiB,101%", code=2)
    assert "1% to 100% can" in refused.stderr
    assert "Traceback" not in refused.stderr
    for words, text in (
        (("--profile", "share:64MiB,1%"), "one CUDA context takes 128 MiB"),
        (("--profile", "share:8GB,1%"), "write 8GiB"),
        (("--profile", "share:8GiB,0%"), "1% to 100% can"),
        (("--equal", "0"), "0 is not from 1 to 64"),
        (("--equal", "4", "--profile", "1g.10gb"), "contradict each other"),
        (("--compute-policy", "slow", "--equal", "4"), "'slow' is not one of"),
    ):
        refused = host.call("run", *words, "--", "true", code=2)
        assert text in refused.stderr
        # nothing about MIG profiles, and no guess at what was meant
        assert ("gpu list" in refused.stderr) == (words[0] == "--profile")
        assert "did you mean" not in refused.stderr
    words = ("--equal", "4", "--dry-run", "-o", "json", "--", "true")
    plan = json.loads(host.call("run", *words).stdout)["plan"]
    assert [step["kind"] for step in plan["steps"]] == [
        "attachment.record",
        "channel.start",
        "attachment.mark",
    ]
    assert json.dumps(plan["result"]).count("share:")


def test_the_channel_of_a_share_is_in_the_metrics(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:8GiB,30%", "--gpu", "0")
    text = host.call("metrics").stdout
    for spec in SHARE_METRICS:
        for name in spec.list_series():
            found = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
            assert found, name
            assert all(
                set(re.findall(r"([A-Za-z_]+)=\"", line)) == set(spec.labels) for line in found
            )
    for line in (
        "vgpumgr_gpu_share_memory_bytes{",
        'state="free"',
        "vgpumgr_channel_share_compute_ratio{",
    ):
        assert line in text
    (ratio,) = [
        line
        for line in text.splitlines()
        if line.startswith("vgpumgr_channel_share_compute_ratio{")
    ]
    assert ratio.endswith(" 0.3")
    assert 'policy="burst"' in ratio
    one.end()


def test_an_arbiter_that_was_killed_is_named_and_recover_starts_another(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:8GiB,30%", "--gpu", "4")
    assert one.read()["share"]["kept"] is True
    one.kill_arbiter()
    wait_for(lambda: one.read()["share"]["kept"] is False, "the keeper notices")
    assert one.say(f"alloc {1 * GIB}") == [0]  # programs go on
    status = json.loads(host.call("status", "-o", "json", code=None).stdout)
    (drift,) = [d for d in status["drift"] if d["kind"] == "arbiter-gone"]
    assert "30% of the time is not kept" in drift["text"]
    assert "started the arbiter of its share again" in host.call("recover").stdout
    assert one.read()["share"]["kept"] is True
    one.end()
