"""A keeper that does not answer: named, hides nothing of others, and a restart gets past it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.sim.test_run import PROGRAM_AND_MORE, PYTHON, RUN
from tests.support.run_host import PATIENCE_S, Host, read_line
from vgpumgr.host.process import list_descendants

pytestmark = pytest.mark.native

#: one keeper may be waited for
PROMPT_S = 30.0


def find_keeper(host: Host) -> int:
    """Its process, while it answers."""
    pid = host.read("virtio", "list")["channels"][0]["keeper_pid"]
    assert isinstance(pid, int)
    return pid


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("whole", [False, True], ids=["keeper", "and-all-its-processes"])
def test_a_keeper_that_was_stopped_is_named_and_a_restart_gets_past_it(
    host: Host, whole: bool
) -> None:
    process = host.start(*RUN, *PYTHON, PROGRAM_AND_MORE)
    assert read_line(process) == "12345"
    keeper = find_keeper(host)
    others = list(list_descendants(keeper))
    assert len(others) >= 3, "launcher, worker, sessions"
    for pid in (keeper, *(others if whole else ())):
        os.kill(pid, signal.SIGSTOP)
    begin_s = time.monotonic()
    (channel,) = host.read("virtio", "list")["channels"]
    assert (channel["keeper_pid"], channel["keeper_hangs"]) == (keeper, True)
    assert time.monotonic() - begin_s < PROMPT_S
    named = f"its keeper (pid {keeper}, state T) does not answer"
    assert named in host.call("virtio", "show", channel["id"]).stdout
    assert f"kill -CONT {keeper}" in host.call("virtio", "show", channel["id"]).stdout
    assert named in host.call("status", code=None).stdout
    (sample,) = [
        line
        for line in host.call("metrics").stdout.splitlines()
        if line.startswith("vgpumgr_channel_keeper_hangs{")
    ]
    assert sample.endswith(" 1.0")
    # of others nothing is hidden, and changes go on
    assert host.call("run", "--profile", "1g.10gb", "--", "true").returncode == 0
    restarted = host.call("virtio", "restart", channel["id"], "--yes").stdout
    assert f"its keeper (pid {keeper}) does not answer, and is killed" in restarted
    assert not [pid for pid in (keeper, *others) if is_running(pid)]
    (after,) = host.read("virtio", "list")["channels"]
    assert (after["worker_ready"], after["keeper_hangs"], after["problem"]) == (True, False, None)
    assert after["keeper_pid"] != keeper
    process.communicate("\n", timeout=PATIENCE_S)


def test_a_slice_whose_keeper_was_stopped_can_be_taken_back(host: Host) -> None:
    process = host.start(*RUN, *PYTHON, PROGRAM_AND_MORE)
    assert read_line(process) == "12345"
    keeper = find_keeper(host)
    others = list(list_descendants(keeper))
    os.kill(keeper, signal.SIGSTOP)
    process.communicate("\n", timeout=PATIENCE_S)  # ends, and takes its slice back
    assert host.list_left() == {}
    assert not [pid for pid in (keeper, *others) if is_running(pid)]
