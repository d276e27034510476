"""GPUs over the network: what a guest process sees through a link, whatever happens to connections."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.link_rig import LINK, Broker, Far, Near, write
from tests.unit.calls_rig import NULL_DRIVER, WORKER, start_python
from tests.unit.transport_rig import PATIENCE_S, Rig, children, read_line, wait_for

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with Far(Rig("ring"), tmp_path_factory.mktemp("b"), options=("--grace", "20")) as made:
        yield made


@pytest.fixture(scope="module")
def near(far: Far) -> Iterator[Near]:
    with Near(far, relay_options=("--grace=20",)) as made:
        yield made


STEPS = ("few", "order", "bulk", "ahead", "hold", "large", "sizes", "fork")


def test_steps_through_a_link(near: Near) -> None:
    near.check("open", *STEPS, "close")


def test_steps_over_virtio_serial_and_a_link(far: Far) -> None:
    with Near(far, transport="serial") as near:
        near.check("open", "order", "few", "close", "open", "few", "close")


def test_cuts_at_any_byte_repeat_and_lose_no_call(near: Near) -> None:
    chance = random.Random(1)
    # in the handshake, in records' heads, in the midst of bulk; the last ones live long
    near.wire.cut_after = [
        chance.choice([2_500, 6_000, 30_000, 400_000]) + chance.randrange(3_000) for _ in range(30)
    ]
    # "order" counts: one that comes twice, or not at all, is a violation, and ends the session
    steps = ("order", "bulk", "few", "order", "few", "bulk")
    near.check("open", *steps, "close")
    assert len(near.wire.cut_after) < 15
    near.wire.cut_after.clear()
    assert near.status().violations.count == 0


def test_a_dead_network_is_noticed_and_the_process_goes_on(near: Near) -> None:
    before = near.wire.connections
    client = near.client("open", "sleepy", "few", "close")
    assert read_line(client) == "ok open"
    near.wire.is_silent = True  # nothing is cut: nothing comes any more
    wait_for(lambda: near.wire.connections > before + 1, "another connection")
    near.wire.cut()
    near.wire.is_silent = False
    assert client.communicate(timeout=PATIENCE_S)[0].splitlines() == [
        "ok sleepy",
        "ok few",
        "ok close",
    ]


def test_a_cut_beyond_the_grace_ends_the_process_and_what_it_had(tmp_path: Path) -> None:
    with (
        Far(Rig("ring"), tmp_path / "b", options=("--grace", "1")) as far,
        Near(far, relay_options=("--grace=1",)) as near,
    ):
        client = near.client("open", "lost")
        assert read_line(client) == "ok open"
        assert len(far.rig.status().lanes) == 1
        near.wire.is_down = True
        near.wire.cut()
        assert read_line(client) == "ok lost"
        far.rig.wait_status(lambda s: not s.lanes, "the lane of the other host is free")
        (session,) = near.read_dialer() or [{"state": "down"}]
        assert session["state"] == "down"


def test_a_process_that_is_killed_is_gone_at_once(near: Near, far: Far) -> None:
    client = near.client("open", "hang")
    while read_line(client) != "hanging":
        assert client.poll() is None
    wait_for(lambda: len(near.read_dialer()) == 1, "those before it have ended")
    (session,) = near.read_dialer()
    assert (session["state"], session["connections"], session["name"]) == (
        "up",
        1,
        "vgpumgr-test-client",
    )
    start = time.monotonic()
    client.kill()
    far.rig.wait_status(lambda s: not s.lanes, "the lane of the other host is free")
    assert time.monotonic() - start < 15  # the grace is 20 s
    wait_for(lambda: not near.read_dialer(), "the dialer has no session")


def test_a_worker_that_dies_ends_the_process(near: Near, far: Far) -> None:
    near.check("open", "crash")
    near.check("open", "violate")
    assert near.status().violations.count == 0
    assert "vgpumgr-test-client" not in far.log.read_text()
    near.check("open", "few", "close")


def test_the_listener_ends_and_takes_no_session_along(near: Near, far: Far) -> None:
    client = near.client("open", "block")
    other = near.client("open", "hang")
    assert (read_line(client), read_line(other)) == ("ok open", "ok open")
    far.listener.kill()
    far.listener.wait()
    far.start()
    near.check("open", "few", "close")
    far.rig.wait_status(lambda s: len(s.lanes) == 2, "theirs are there")
    # they cannot come back to a listener that does not know them: both ends say so at once
    near.wire.cut()
    far.rig.wait_status(lambda s: not s.lanes, "their lanes are free")
    assert read_line(client).startswith("block: ECONNRESET")
    other.kill()
    start = time.monotonic()
    wait_for(lambda: not children(far.listener.pid), "no process of theirs is left")
    assert time.monotonic() - start < 15  # the grace is 20 s
    far.rig.wait_status(lambda s: not s.lanes, "all is free")


def test_what_a_link_does_not_have_is_refused_by_name(near: Near) -> None:
    """Of the test worker's operations ``account`` stands for those that share memory between processes."""
    assert near.run("open", "account").splitlines()[1].startswith("account: EOPNOTSUPP")
    assert near.status().violations.count == 0


def test_a_cuda_program_computes_on_the_other_host(tmp_path: Path) -> None:
    channel = Rig("ring", worker=WORKER, worker_args=("--cuda", str(NULL_DRIVER)))
    with Far(channel, tmp_path / "b", program=LINK) as far, Near(far) as near:
        process = start_python(
            near,
            """
import os
context(); f = function(module()); n = (9 << 20) + 13; p = memory(n); stream = c_void_p()
data = os.urandom(n); back = ctypes.create_string_buffer(n)
ok(cu.cuMemcpyHtoD_v2(p, data, c_size_t(n))); ok(cu.cuMemcpyDtoH_v2(back, p, c_size_t(n)))
assert back.raw == data
ok(cu.cuStreamCreate(byref(stream), 1)); before = waits()
for _ in range(300): ok(launch(f, stream=stream))
assert waits() == before; ok(cu.cuStreamSynchronize(stream)); assert waits() == before + 1
handle = ctypes.create_string_buffer(64)
assert cu.cuIpcGetMemHandle(handle, p) == 801, "tokens are not for links"
""",
        )
        errors = process.communicate()[1]
        assert (process.returncode, "ipc_memory_export is not supported" in errors) == (0, True), (
            errors
        )
        assert far.rig.status().violations.count == 0


def test_a_session_of_the_listener_has_no_rights(near: Near, far: Far) -> None:
    client = near.client("open", "hang")
    while read_line(client) != "hanging":
        assert client.poll() is None
    wait_for(lambda: len(children(far.listener.pid)) == 1, "those before it have ended")
    (session,) = children(far.listener.pid)
    lines = (
        line.split(":", 1) for line in Path(f"/proc/{session}/status").read_text().splitlines()
    )
    facts = {name: text.split() for name, text in lines}
    assert (facts["NoNewPrivs"], facts["CapEff"], facts["CapBnd"][:1] if os.geteuid() == 0 else []) == (
        ["1"], ["0" * 16], ["0" * 16] if os.geteuid() == 0 else [],
    )  # fmt: skip
    if "VGPUMGR_TEST_LIB" not in os.environ:
        assert facts["Seccomp"] == ["2"]
    if os.geteuid() == 0:
        assert facts["Uid"] == ["1879048186"] * 4
        assert facts["Groups"] == []
    client.kill()
    wait_for(lambda: not near.read_dialer(), "it is gone")


def test_the_first_call_waits_for_a_gpu_as_long_as_it_takes(near: Near) -> None:
    """Late binding: the dialer asks a broker, which binds, and gives back when the last session has ended."""
    answers: list[dict[str, object]] = [{"wait": "place 2 of 3"}]
    go = threading.Event()

    def answer(_: dict[str, object]) -> dict[str, object]:
        if answers:
            threading.Thread(target=later).start()
            return answers.pop(0)
        return {"tcp": [["127.0.0.1", near.wire.port]]}

    def later() -> None:
        go.wait()
        # the broker says more to the same question
        connection = broker.connections[-1]
        broker.reply(connection, {"tcp": [["127.0.0.1", 1], ["127.0.0.1", near.wire.port]]})

    path = near.link_directory / "broker.sock"
    broker = Broker(path, answer)
    path.chmod(0o666)
    old = (near.link_directory / "address").read_bytes()
    write(near.link_directory / "address", f"broker {path} 00000009\n".encode())
    (near.link_directory / "address").chmod(0o644)
    try:
        client = near.client("open", "few", "hang")
        wait_for(lambda: [s["state"] for s in near.read_dialer()] == ["waiting"], "it waits")
        assert near.read_dialer()[0]["text"] == "place 2 of 3"
        assert (broker.asked[0]["dial"], broker.asked[0]["name"]) == (
            "00000009",
            "vgpumgr-test-client",
        )
        go.set()
        assert [read_line(client) for _ in range(2)] == ["ok open", "ok few"]
        answers.clear()
        assert broker.open == 1
        # a daemon that begins anew is asked again while the session lives
        for connection in broker.connections:
            connection.shutdown(2)
        wait_for(lambda: len(broker.asked) == 2, "asked again")
        client.send_signal(signal.SIGKILL)
        wait_for(lambda: broker.open == 0, "what was bound is given back")
    finally:
        go.set()
        write(near.link_directory / "address", old)
        (near.link_directory / "address").chmod(0o644)
        broker.close()
