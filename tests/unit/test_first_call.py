"""What the first call of a new guest process does not wait for: its lane and its relay are there before it comes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.transport_rig import Rig, children, read_line, wait_for

pytestmark = pytest.mark.native

#: longer than the agent waits after a process has come, and after the worker had none
SOON_S = 1.0


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("transport", ["ring", "private"])
def test_a_process_has_its_lane_before_the_worker_hears_of_it(transport: str) -> None:
    with Rig(transport) as rig:
        rig.check("open", "close")
        for _ in range(3):
            worker = rig.status().worker.pid
            wait_for(lambda w=worker: len(children(w)) == 1, "a spare session")
            time.sleep(SOON_S)
            assert not rig.status().lanes  # nobody has what is reserved
            with stopped(worker):
                client = rig.client("open", "echo", "hang")
                assert read_line(client) == "ok open"
            assert (read_line(client), read_line(client)) == ("ok echo", "hanging")
            (lane,) = rig.status().lanes
            assert (lane.pid, lane.name) == (client.pid, "vgpumgr-test-client")
            client.kill()
            rig.wait_status(lambda s: not s.lanes, "its lane is free")
        assert rig.status().totals.lanes_opened == 4


@pytest.mark.parametrize("transport", ["ring", "private"])
def test_a_lane_that_was_reserved_by_a_worker_that_is_gone_is_not_used(transport: str) -> None:
    with Rig(transport) as rig:
        for _ in range(3):
            rig.check("open", "echo", "close")
            time.sleep(SOON_S)
            worker = rig.status().worker.pid
            os.kill(worker, signal.SIGKILL)
            rig.wait_status(
                lambda s, old=worker: s.worker.state == "ready" and s.worker.pid != old, "another"
            )
        rig.check("open", "echo", "close")


def test_a_lane_is_taken_back_when_the_spare_session_ends() -> None:
    with Rig("ring") as rig:
        rig.check("open", "close")
        for _ in range(3):
            time.sleep(SOON_S)
            worker = rig.status().worker.pid
            (spare,) = children(worker)
            os.kill(int(spare), signal.SIGKILL)
            wait_for(lambda w=worker, old=spare: old not in children(w), "the worker has noticed")
            rig.check("open", "echo", "close")


def test_all_lanes_can_be_used_and_the_reserved_one_is_the_last() -> None:
    with Rig("ring") as rig:
        for _ in range(2):
            clients = []
            for _ in range(16):
                clients.append(rig.client("open", "hang"))
                assert (read_line(clients[-1]), read_line(clients[-1])) == ("ok open", "hanging")
                time.sleep(0.06)
            assert "EUSERS" in rig.run("open")
            for client in clients:
                client.kill()
            rig.wait_status(lambda s: not s.lanes, "lanes are free")


def test_the_next_relay_is_started_before_it_is_needed() -> None:
    with Rig("private") as rig:
        assert rig.agent is not None
        agent = rig.agent.pid
        took_s = []
        for _ in range(5):
            client = rig.client("open", "hang")
            assert (read_line(client), read_line(client)) == ("ok open", "hanging")
            begin_s = time.monotonic()
            # without anything that wakes the agent
            wait_for(lambda: len(children(agent)) == 2, "its relay, and a spare")
            took_s.append(time.monotonic() - begin_s)
            client.kill()
            wait_for(lambda: len(children(agent)) == 1, "the relay has ended")
        assert min(took_s) < 0.2, (
            "not when the agent looks at its device, or the next process comes"
        )
