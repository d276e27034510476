"""Views of a pool from outside: daemon, pool, worker, program and commands are real."""

from __future__ import annotations

import csv
import io
import json
import signal
import socket
from typing import Any

import pytest

from tests.sim.test_run import PROGRAM_AND_MORE, PYTHON, daemon
from tests.support.run_host import PATIENCE_S, Host, end_all, read_line, started_machine, wait_for

pytestmark = pytest.mark.native


def read_report(host: Host) -> dict[str, Any]:
    return {row["name"]: row for row in host.read("pool", "report", "--since", "1h")["claims"]}


def read_metrics(host: Host) -> dict[str, float]:
    lines = [line for line in host.call("metrics").stdout.splitlines() if "vgpumgr_pool_" in line]
    found = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in found}


def test_who_has_a_gpu_is_seen_from_every_side() -> None:
    with started_machine() as host, daemon(host, "--set", "reconcile.interval_s=0"):
        for words in (("init",), ("join", "--name", "a")):
            host.call("pool", *words)
        wait_for(lambda: (host.read("status")["pool"] or {}).get("answers"), "the daemon serves")
        host.call("tenant", "create", "vision", "--gpus", "4")
        host.call("claim", "create", "all", "--profile", "whole", "--gpus", "8")
        share = ("--profile", "share:8GiB,30%")
        host.call("claim", "create", "train", *share, "--tenant", "vision")
        # bad: nothing is recorded of what was refused
        host.call("claim", "create", "train", *share, code=6)
        host.call("claim", "delete", "all", code=None)
        host.call("claim", "wait", "train", "--timeout", "240")
        process = host.start("run", "--claim", "train", *PYTHON, PROGRAM_AND_MORE)
        assert read_line(process) == "12345"

        (row,) = host.read("pool", "bindings")["bindings"]
        assert row["use_unknown"] is None
        (seen,) = row["use"]["processes"]
        assert (seen["name"].startswith("python"), seen["pid"] > 1) == (True, True)
        assert (row["use"]["memory_used_bytes"] > 0, row["use"]["gpu_used_s"] >= 0) == (True, True)
        once = host.call("pool", "top", "--once").stdout.splitlines()
        (line,) = [one for one in once if "train (vision)" in one]
        assert f"run {row['used_by']['name']}: {seen['name']}" in line
        assert line.split()[-1].endswith("%")
        host.call("pool", "top", code=2)  # no terminal

        wait_for(
            lambda: (read_report(host).get("train") or {}).get("used_gpu_hours") is not None,
            "it is counted",
        )
        found = read_report(host)["train"]
        assert (found["tenant"], found["granted"]) == ("vision", 1)
        assert found["granted_gpu_hours"] > 0
        assert found["wait_median_s"] > 0
        text = host.call("pool", "report", "-o", "csv").stdout
        assert {one["name"] for one in csv.DictReader(io.StringIO(text))} >= {"train"}

        def has_use() -> bool:
            found = read_metrics(host)
            used = [name for name in found if "pool_lease_used_seconds_total" in name]
            return any('claim="train"' in name and 'tenant="vision"' in name for name in used)

        wait_for(has_use, "the lease has a series")
        check_events(host)
        check_audit(host)
        process.communicate("\n")
        end_all(host)


def check_events(host: Host) -> None:
    host.call("claim", "create", "last", "--profile", "whole")
    told: list[tuple[str, str]] = []
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE_S)
        stream.connect(str(host.root / "dgx-a100" / "host" / "run" / "vgpumgr.sock"))
        stream.sendall(b"GET /1.0/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 0\r\n\r\n")
        with stream.makefile() as lines:
            while ("last", "granted") not in told:
                line = lines.readline()
                event = json.loads(line[6:]) if line.startswith("data: ") else {}
                if event.get("type") == "claim":
                    told.append((event["claim"], event["state"]))
    order = [("all", "granted"), ("train", "waiting"), ("all", "ended")]
    assert [told.index(one) for one in order] == sorted(told.index(one) for one in order)
    assert told.index(("train", "waiting")) < told.index(("train", "granted"))


def check_audit(host: Host) -> None:
    log = host.root / "dgx-a100" / "host" / "state" / "audit.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    words = [entry["words"][2:] for entry in entries if entry["event"] == "pool-command"]
    assert words[:2] == [["pool", "init"], ["pool", "join", "--name", "a"]]
    created = [one for one in words if one[:3] == ["claim", "create", "train"]]
    assert len(created) == 1
    assert all(one[:2] not in (["pool", "report"], ["claim", "wait"]) for one in words)
    assert all(
        entry["uid"] == 0 and entry["pid"] > 1
        for entry in entries
        if entry["event"] == "pool-command"
    )
    host.call("audit")


def test_a_daemon_that_is_killed_loses_no_time() -> None:
    with started_machine() as host:
        host.call("pool", "init")
        host.call("pool", "join", "--name", "a")
        host.call("claim", "create", "train", "--profile", "whole")
        serving = host.start("pool", "serve")
        wait_for(
            lambda: (read_report(host).get("train") or {}).get("granted_gpu_hours"), "it counts"
        )
        serving.kill()
        serving.wait()
        before = read_report(host)["train"]["granted_gpu_hours"]
        serving = host.start("pool", "serve")
        wait_for(lambda: read_report(host)["train"]["granted_gpu_hours"] > before, "it goes on")
        hours = host.read("pool", "report", "--since", "1h")["gpu_hours"]
        # the claim had one GPU of eight all the time, that without a process included
        assert read_report(host)["train"]["granted_gpu_hours"] * 8 == pytest.approx(hours, rel=0.2)
        serving.send_signal(signal.SIGTERM)
        serving.communicate()
        end_all(host)
