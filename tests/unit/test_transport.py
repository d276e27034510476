"""The channel between processes of one host: what works, over both transports."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.transport_rig import CLIENT, FUZZ, PATIENCE_S, Rig, open_fds, read_line, wait_for

pytestmark = pytest.mark.native


@pytest.fixture(params=["ring", "private", "serial"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig(request.param) as made:
        yield made


@pytest.mark.parametrize(
    "step", ["echo", "words", "order", "bulk", "ahead", "hold", "threads", "large", "sizes", "fork"]
)
def test_steps(rig: Rig, step: str) -> None:
    rig.check("open", step, "close")


def test_opens_again_in_one_process(rig: Rig) -> None:
    rig.check("open", "echo", "close", "open", "order", "close")


def test_sleeping_worker_is_woken() -> None:
    with Rig("ring") as rig:
        before = rig.status().totals.doorbells
        rig.check("open", "sleepy", "close")
        assert rig.status().totals.doorbells >= before + 30


def test_several_processes_at_once(rig: Rig) -> None:
    steps = ("open", "order", "bulk", "threads", "close")
    clients = [rig.client(*steps) for _ in range(4)]
    for client in clients:
        out = client.communicate(timeout=PATIENCE_S * 2)[0]
        assert out.splitlines() == [f"ok {step}" for step in steps]
    assert rig.wait_status(lambda s: not s.lanes, "lanes free").totals.lanes_opened == 4


def test_small_memory() -> None:
    with Rig("ring", shm_size_bytes=1 << 20) as rig:
        assert rig.status().ring_lanes == 4
        steps = "echo words order bulk ahead hold threads large sizes"
        rig.check("open", *steps.split(), "close")


@pytest.mark.parametrize("transport", ["ring", "private"])
def test_a_copy_that_the_worker_does_not_take_uses_the_whole_window(transport: str) -> None:
    with Rig(transport) as rig:
        rig.check("open", "stalled", "close")


def test_status_names_the_process(rig: Rig) -> None:
    client = rig.client("open", "order", "account", "hang")
    while read_line(client) != "hanging":
        assert client.poll() is None
    (lane,) = rig.status().lanes
    assert (lane.pid, lane.name) == (client.pid, "vgpumgr-test-client")
    assert lane.transport == rig.transport
    assert (lane.calls, lane.posts, lane.memory_bytes) == (2, 20000, 123456)
    assert lane.bytes_in > 20000 * 40
    assert abs(lane.since_s - time.time()) < PATIENCE_S * 4
    client.kill()
    status = rig.wait_status(lambda s: not s.lanes, "the killed process's lane is free")
    assert (status.totals.calls, status.totals.posts) == (2, 20000)
    assert status.totals.memory_bytes == 0


def test_hello_is_shown(rig: Rig) -> None:
    guest = rig.status().guest
    hello = guest.ring if rig.transport == "ring" else guest.serial
    assert guest.hello == rig.transport
    assert hello is not None
    assert hello.matches
    assert hello.kernel


def test_ring_is_preferred() -> None:
    with Rig("auto") as rig:
        client = rig.client("open", "hang")
        while read_line(client) != "hanging":
            assert client.poll() is None
        assert [lane.transport for lane in rig.status().lanes] == ["ring"]


def test_full_house_is_said(rig: Rig) -> None:
    clients = [rig.client("open", "hang") for _ in range(16)]
    for client in clients:
        assert (read_line(client), read_line(client)) == ("ok open", "hanging")
    assert "EUSERS: all lanes of this VM are in use" in rig.run("open")
    clients[3].kill()
    rig.wait_status(lambda s: len(s.lanes) == 15, "a lane is free")
    rig.check("open", "echo", "close")


def test_no_descriptors_are_left(rig: Rig) -> None:
    rig.check("churn")
    rig.wait_status(lambda s: not s.lanes, "lanes free")
    status = rig.status()
    assert rig.agent is not None
    pids = [status.keeper_pid, status.worker.pid, rig.agent.pid]
    children = Path(f"/proc/{status.worker.pid}/task/{status.worker.pid}/children")
    wait_for(lambda: len(children.read_text().split()) == 1, "another spare, whose sockets count")
    before = [open_fds(pid) for pid in pids]
    rig.check("churn")
    # not equal: the count before may include a connection that was just being closed
    wait_for(
        lambda: all(open_fds(pid) <= n for pid, n in zip(pids, before, strict=True)),
        "descriptors are given back",
    )


def test_no_agent(rig: Rig) -> None:
    rig.stop_agent()
    assert "ENOTCONN: no guest agent at" in rig.run("open")


def test_refused_by_the_worker(rig: Rig, tmp_path: Path) -> None:
    link = tmp_path / "refused"
    link.symlink_to(CLIENT)
    lanes = rig.transport if rig.lanes == "shared" else rig.lanes
    with Rig(lanes, worker_args=("--refuses",)) as strict:
        for _ in range(2):
            out = strict.client("open", program=link).communicate(timeout=PATIENCE_S)[0]
            assert "EACCES: the worker has refused this process" in out
            strict.check("open", "echo", "close")
    # where nobody waits for that, the lane ends
    out = rig.client("open", "lost", program=link).communicate(timeout=PATIENCE_S)[0]
    assert out.splitlines() == ["ok open", "ok lost"]


def test_fuzzed_decoder() -> None:
    for seed in range(4):
        done = subprocess.run(
            [str(FUZZ), str(seed), "500"], capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3000:]
        words = done.stdout.split()
        assert int(words[1]) > 500, "the fuzzer's frames reach what lies behind the first checks"
        assert int(words[3]) > 100
