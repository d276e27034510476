"""Shares of MIG instances on a simulated machine, with keepers, workers and arbiters, from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_host import (
    MACHINE,
    PATIENCE_S,
    Host,
    read_line,
    wait_for,
)
from tests.support.share_tenant import OUT_OF_MEMORY, Tenant
from tests.support.shares_rig import TENANT, Load
from vgpumgr.app.metric_spec import MIG_SHARE_METRICS
from vgpumgr.sim import machine as machines

pytestmark = pytest.mark.native

MIB, GIB = 1 << 20, 1 << 30
#: kernels of 5 ms, always more than one in the stream
BUSY = Load(5_000_000)


@pytest.fixture
def named(host: Host) -> Iterator[str]:
    """The UUID of an idle 1g.10gb of GPU 0, which another command has made."""
    host.call("mig", "enable", "0")
    host.call("mig", "create", "0", "1g.10gb")
    (row,) = host.read("mig", "list")["instances"]
    uuid = str(row["compute_instances"][0]["uuid"])
    yield uuid
    for process in host.started:
        process.kill()
        process.wait(PATIENCE_S)
    host.call("recover")
    host.call("mig", "destroy", uuid, "--yes")
    host.call("mig", "disable", "0", "--yes")


def read_instance(host: Host, uuid: str) -> Any:
    rows = host.read("mig", "list")["instances"]
    return next(r for r in rows if uuid in [c["uuid"] for c in r["compute_instances"]])


def test_shares_of_a_named_instance_are_shown_everywhere_and_leave_it(
    host: Host, named: str
) -> None:
    one = Tenant(host, "one", "--profile", "share:4GiB,50%", "--gpu", named)
    two = Tenant(host, "two", "--profile", "share:2GiB,30%@1g.10gb", "--gpu", "0")
    channel = one.read()
    assert channel["profile"] == "share:4GiB,50%@1g.10gb"
    assert channel["device"] == two.read()["device"] == named
    assert (channel["share"]["compute"], channel["share"]["kept"]) == (50, True)
    row = read_instance(host, named)
    shares = row["shares"]
    assert {h["name"]: h["compute"] for h in shares["holders"]} == {"one": 50, "two": 30}
    assert shares["memory_total_bytes"] == row["memory_bytes"]
    assert shares["memory_free_bytes"] == row["memory_bytes"] - 6 * GIB
    assert host.read("gpu", "show", "0")["gpu"]["instances"][0]["shares"] == shares
    assert host.read("gpu", "list")["gpus"][0]["instances"][0]["shares"] == shares
    text = host.call("gpu", "list").stdout
    assert "2 shares of a 1g.10gb, share:" in text
    assert "one, two" in text
    text = host.call("gpu", "show", "0").stdout
    assert "shares (burst), share:" in text
    assert "run two (attachment" in text
    assert "one, two" in host.call("mig", "list").stdout
    assert "share:2GiB,30%" in host.call("mig", "show", named).stdout
    assert "30% burst" in host.call("virtio", "list").stdout
    text = host.call("metrics").stdout
    for spec in MIG_SHARE_METRICS:
        (name,) = spec.list_series()
        found = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        assert len(found) == 2
        assert all(f'{label}="' in line for line in found for label in spec.labels)
    assert host.read("why", "share:1GiB,20%", "--gpu", named)["fits"]
    one.end()
    two.end()
    assert read_instance(host, named)["shares"] is None


def test_memory_is_kept_to_the_byte_and_every_figure_agrees(host: Host, named: str) -> None:
    one = Tenant(host, "one", "--profile", "share:2GiB,50%", "--gpu", named)
    two = Tenant(host, "two", "--equal", "4", "--gpu", named)
    free, total, size = one.say("info")
    assert total == size == 2 * GIB
    # NVML counts what programs have allocated, CUDA their contexts, too
    assert one.say("nvml") == [total, total, 1]
    assert one.say(f"alloc {free + 1}") == [OUT_OF_MEMORY]
    assert one.say(f"alloc {free}") == [0]
    assert one.say("info")[0] == 0
    wait_for(lambda: one.say("nvml") == [total - free, total, 1], "NVML says the same")
    quarter = read_instance(host, named)["memory_bytes"] // 4 // MIB * MIB
    free, total, size = two.say("info")  # what the other has is not this one's
    assert total == size == two.say("nvml")[1] == quarter
    assert two.say(f"alloc {free}") == [0]
    assert two.read()["share"]["compute"] == 25
    done = host.call("virtio", "set", "one", "--memory", "3GiB", "--compute", "60")
    assert "changed the share of one to share:3GiB,60%@1g.10gb" in done.stdout
    assert one.say(f"alloc {1 * GIB}") == [0]
    assert one.say("info")[1] == 3 * GIB
    refused = host.call("virtio", "set", "one", "--compute", "80", code=6)
    assert f"{named} has share:" in refused.stderr
    assert 'run "two"' in refused.stderr
    one.end()
    two.end()


def test_two_programs_compute_on_one_instance_and_each_has_its_part(host: Host, named: str) -> None:
    """Device time is the simulated hardware's own count, not the arbiter's."""
    directory = host.root / MACHINE
    machines.start_clock(directory)
    words = ("--gpu", named, "--compute-policy", "burst", "--", str(TENANT), *BUSY.words)
    tenants = [
        host.start("run", "--name", name, "--profile", f"share:2GiB,{percent}%", *words)
        for name, percent in (("most", 75), ("less", 25))
    ]
    assert [read_line(tenant) for tenant in tenants] == ["ready", "ready"]
    workers = [
        host.read("virtio", "show", name)["channel"]["worker_pid"] for name in ("most", "less")
    ]
    parts: list[float] = []
    end = time.monotonic() + PATIENCE_S
    while not (parts and abs(parts[0] - 75) < 9):
        assert time.monotonic() < end, parts
        before = [sum_time(directory, worker) for worker in workers]
        time.sleep(3)
        had = [sum_time(directory, w) - b for w, b in zip(workers, before, strict=True)]
        assert min(had) > 0
        parts = [100 * one / sum(had) for one in had]
    processes = read_instance(host, named)["processes"]
    assert {p["pid"] for p in processes} & set(machines.read_device_time(directory))
    shown = host.read("virtio", "show", "less")["channel"]["share"]
    assert shown["used_s"] > 0
    assert shown["throttled_s"] > 0


def sum_time(directory: Path, worker: int) -> int:
    """Device time of the sessions of a worker."""
    return sum(
        ns
        for pid, ns in machines.read_device_time(directory).items()
        if worker in list_ancestors(pid)
    )


def list_ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(text.rpartition(")")[2].split()[1])
        yield pid


def test_an_instance_is_made_for_the_first_share_and_goes_with_the_last(host: Host) -> None:
    one = Tenant(host, "one", "--profile", "share:1/4@2g.20gb", "--gpu", "3")
    two = Tenant(host, "two", "--profile", "share:1/4@2g.20gb", "--gpu", "3")
    assert one.read()["device"] == two.read()["device"]
    assert "2 shares of a 2g.20gb" in host.call("gpu", "list").stdout
    one.end()
    assert len(host.read("mig", "list", "--gpu", "3")["instances"]) == 1
    assert two.say("info")[0] > 0
    assert host.read("gpu", "show", "3")["gpu"]["mig"]["current"]
    two.end()
    assert host.list_left() == {}


def test_what_cannot_be_is_refused_with_who_has_it(host: Host, named: str) -> None:
    one = Tenant(host, "one", "--profile", "share:4GiB,50%", "--gpu", named)
    run = ("run", "--gpu", named, "--name", "two")
    for words, text in (
        ((*run, "--profile", "1g.10gb", "--", "true"), 'run "one" (share:4GiB,50%@1g.10gb)'),
        ((*run, "--profile", "share:4GiB,60%", "--", "true"), 'run "one"'),
        ((*run, "--profile", "share:4GiB,1%@2g.20gb", "--", "true"), "it is a 1g.10gb"),
        (("mig", "destroy", named, "--yes"), 'run "one"'),
        (("mig", "disable", "0", "--yes"), 'run "one"'),
    ):
        refused = host.call(*words, code=6)
        assert text in refused.stderr, words
        assert "Traceback" not in refused.stderr
    for profile, text in (
        ("share:4GiB,50%@1c.2g.20gb", "write 2g.20gb"),
        ("share:4GiB,50%@", "not a MIG profile name"),
    ):
        refused = host.call("run", "--profile", profile, "--", "true", code=2)
        assert text in refused.stderr
    words = ("--profile", "share:1GiB,5%", "--gpu", named, "--dry-run", "-o", "json", "--", "true")
    plan = json.loads(host.call("run", *words).stdout)["plan"]
    assert [step["kind"] for step in plan["steps"]] == [
        "attachment.record",
        "attachment.take",
        "channel.start",
        "attachment.mark",
    ]
    one.end()


def test_a_killed_command_leaves_the_other_share_alone(host: Host, named: str) -> None:
    one = Tenant(host, "one", "--profile", "share:2GiB,50%", "--gpu", named)
    two = Tenant(host, "two", "--profile", "share:2GiB,50%", "--gpu", named)
    two.process.kill()
    two.process.wait(PATIENCE_S)
    host.call("recover")
    assert one.say(f"alloc {1 * GIB}") == [0]
    holders = read_instance(host, named)["shares"]["holders"]
    assert [holder["name"] for holder in holders] == ["one"]
    one.end()


def test_the_killed_arbiter_of_an_instance_is_named_and_started_again_for_all(
    host: Host, named: str
) -> None:
    one = Tenant(host, "one", "--profile", "share:2GiB,50%", "--gpu", named)
    two = Tenant(host, "two", "--profile", "share:2GiB,30%", "--gpu", named)
    assert [t.read()["share"]["kept"] for t in (one, two)] == [True, True]
    one.kill_arbiter()
    for tenant in (one, two):
        wait_for(lambda t=tenant: t.read()["share"]["kept"] is False, "the keeper notices")  # type: ignore[misc]
        assert tenant.say(f"alloc {1 * GIB}") == [0]
    status = json.loads(host.call("status", "-o", "json", code=None).stdout)
    found = [d["text"] for d in status["drift"] if d["kind"] == "arbiter-gone"]
    assert sorted(found) == [
        f"the arbiter of its share does not run: its {part} of the time is not kept"
        for part in ("30%", "50%")
    ]
    host.call("recover")
    for tenant in (one, two):
        wait_for(lambda t=tenant: t.read()["share"]["kept"], "the keeper has joined another")  # type: ignore[misc]
        tenant.end()


def test_of_two_commands_at_once_one_gets_the_last_part_of_an_instance(
    host: Host, named: str
) -> None:
    one = Tenant(host, "one", "--profile", "share:2GiB,50%", "--gpu", named)
    words = ("--profile", "share:2GiB,40%", "--gpu", named, "--", "sleep", "20")
    both = [host.start("run", "--name", name, *words) for name in ("two", "three")]
    wait_for(lambda: any(process.poll() is not None for process in both), "one is refused")
    wait_for(
        lambda: len(read_instance(host, named)["shares"]["holders"]) == 2, "the other one starts"
    )
    assert sorted([process.poll() for process in both], key=str) == [6, None]
    assert read_instance(host, named)["shares"]["compute_free"] == 10
    (refused,) = [process for process in both if process.poll() == 6]
    assert refused.stderr is not None
    assert "10% more fits beside its shares" in refused.stderr.read()
    one.end()
