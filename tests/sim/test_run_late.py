"""``vgpumgr run`` by a claim that binds late, from outside: daemon, pool, worker and command are real."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sim.test_run import PROGRAM, PROGRAM_AND_MORE, PYTHON, daemon
from tests.support.run_host import PATIENCE_S, Host, end_all, read_line, started_machine, wait_for

pytestmark = pytest.mark.native


@pytest.fixture
def host() -> Iterator[Host]:
    """A machine that is a host of its own pool, with a claim of a share that binds late."""
    # nothing is found by the timer
    with started_machine() as host, daemon(host, "--set", "reconcile.interval_s=0"):
        host.call("pool", "init")
        host.call("pool", "join", "--name", "a")
        wait_for(lambda: (host.read("status")["pool"] or {}).get("answers"), "the daemon serves")
        words = ("--profile", "share:8GiB,30%", "--binding", "late")
        host.call("claim", "create", "late", *words)
        yield host
        end_all(host)


def show(host: Host, name: str = "late") -> Any:
    return host.read("claim", "show", name)["claim"]


def is_idle(host: Host) -> bool:
    return bool(show(host)["state"] == "idle")


def test_a_lease_lasts_as_long_as_the_command(host: Host) -> None:
    process = host.start("run", "--claim", "late", *PYTHON, PROGRAM_AND_MORE)
    assert read_line(process) == "12345"
    shown = show(host)
    assert (shown["state"], shown["used_by"]["kind"]) == ("granted", "run")
    assert shown["wanted_by"]["pid"] == process.pid
    # another command by it is refused, and names the first
    second = host.call("run", "--claim", "late", *PYTHON, PROGRAM, code=6)
    assert f"process {process.pid} on host a" in second.stderr
    out, errors = process.communicate("\n", timeout=PATIENCE_S)
    assert (out, errors, process.returncode) == ("more\n", "", 0)
    wait_for(lambda: is_idle(host), "the lease ends")
    assert host.list_left() == {}
    for _ in range(3):  # right after one another
        assert host.call("run", "--claim", "late", *PYTHON, PROGRAM).stdout == "12345\n"


def test_a_command_waits_in_the_queue_and_says_why(host: Host) -> None:
    host.call("claim", "create", "all", "--profile", "whole", "--gpus", "8")
    done = host.call("run", "--claim", "late", "--wait", "0.5", *PYTHON, PROGRAM, code=6)
    assert "place 1: all are in use" in done.stderr
    assert "waits after 0.5 s" in done.stderr
    process = host.start("run", "--claim", "late", *PYTHON, PROGRAM)
    wait_for(lambda: show(host)["wanted_by"], "it waits")
    assert process.poll() is None
    host.call("claim", "delete", "all", code=None)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ("12345\n", 0), errors
    wait_for(lambda: is_idle(host), "the lease ends")


@pytest.mark.parametrize("waits", [False, True])
def test_a_command_that_is_killed_gives_it_back(host: Host, waits: bool) -> None:
    if waits:
        host.call("claim", "create", "all", "--profile", "whole", "--gpus", "8")
    process = host.start("run", "--claim", "late", *PYTHON, PROGRAM_AND_MORE)
    if waits:
        wait_for(lambda: show(host)["wanted_by"], "it waits")
    else:
        assert read_line(process) == "12345"
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
    wait_for(lambda: is_idle(host), "the lease ends")
    assert show(host)["wanted_by"] is None
    if not waits:
        assert (
            json.loads(host.call("pool", "status", "-o", "json").stdout)["gpu_free_milli"] == 8000
        )
    host.call("run", "--claim", "late", "--wait", "0", *PYTHON, PROGRAM, code=6 if waits else 0)


def test_other_claims_are_not_waited_for_unless_it_is_asked_for(host: Host) -> None:
    host.call("claim", "create", "all", "--profile", "whole", "--gpus", "8")
    host.call("claim", "create", "next", "--profile", "whole")
    refused = host.call("run", "--claim", "next", *PYTHON, PROGRAM, code=6)
    assert "it waits: all are in use" in refused.stderr
    process = host.start("run", "--claim", "next", "--wait", "200", *PYTHON, PROGRAM)
    host.call("claim", "delete", "all", code=None)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ("12345\n", 0), errors
    host.call("run", "--wait", "1", "--profile", "1g.5gb", *PYTHON, PROGRAM, code=2)


def test_many_users_share_what_is_free(host: Host) -> None:
    """Ten commands at the same time, of which four find a GPU: each gets one in its turn, and none is left out."""
    host.call("claim", "create", "all", "--profile", "whole", "--gpus", "4")
    names = [f"user-{number}" for number in range(10)]
    for name in names:
        host.call("claim", "create", name, "--profile", "whole", "--binding", "late")
    running = [host.start("run", "--claim", name, *PYTHON, PROGRAM) for name in names]
    ended = [process.communicate(timeout=PATIENCE_S) for process in running]
    assert [out for out, _ in ended] == ["12345\n"] * 10, ended
    assert [process.returncode for process in running] == [0] * 10
    assert any("waits, place" in errors for _, errors in ended)
    wait_for(lambda: all(show(host, name)["state"] == "idle" for name in names), "all are idle")
    assert host.read("pool", "status")["gpu_free_milli"] == 4000
    assert host.list_left() == {}
