"""``virtio.trial``: a channel is tried for real, says which step fails, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpumgr.host.machine import Machine
from vgpumgr.host.process import read_state
from vgpumgr.virtio import trial
from vgpumgr.virtio.channel import LIVE_RING_BYTES, ChannelSpec
from vgpumgr.virtio.keeper import Keeper, KeeperChannels
from vgpumgr.virtio.trial import TRIED_ID, Handlers, Trial, try_channel

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="workers of channels are started by root"),
]
#: the deadline where nothing is to hang: the host may be loaded
LONG_S = 60.0
BOTH = ("ring", "serial")


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """Short, as paths of sockets have to be; nothing of a try is in it or runs from it at the end."""
    with tempfile.TemporaryDirectory(prefix="vgpumgr-try") as name:
        yield Path(name)
        wait_until(lambda: not list_tried(Path(name)))  # a process that ends is there for a moment
        assert not (Path(name) / "channels" / TRIED_ID).exists()


def list_tried(run_dir: Path) -> list[str]:
    """Command lines of the processes of a try, of whatever parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{run_dir}/channels/{TRIED_ID}" in words:
                found.append(words)
    return found


def try_it(run_dir: Path, deadline_s: float = LONG_S) -> Trial:
    return Handlers().run(str(run_dir), deadline_s)


def make_machine(run_dir: Path) -> Machine:
    return Machine(None, Path("/"), run_dir, run_dir, "")


def start(run_dir: Path, name: str) -> KeeperChannels:
    """A channel with the driver that has no device, and a worker that is ready."""
    own = Machine(None, Path("/"), run_dir, run_dir, "", {"VGPUMGR_CUDA": str(trial.DRIVER)})
    channels = KeeperChannels(own)
    channels.start(
        ChannelSpec(name, "vm01", "none", ring=True, serial=True, memory_bytes=LIVE_RING_BYTES)
    )
    Keeper(run_dir / "channels" / name).wait_ready(timeout_s=LONG_S)
    return channels


def test_a_program_has_a_lane_over_each_transport(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "DEADLINE_S", LONG_S)
    monkeypatch.setattr(trial, "_ANSWER_S", LONG_S)
    found = try_channel(make_machine(run_dir))
    assert found.failed is None, found
    worker = next(text for text in found.passed if text.startswith("worker: ready"))
    assert "facts of its sandbox hold" in worker
    assert found.gaps == ()
    for name in BOTH:
        (text,) = (text for text in found.passed if text.startswith(f"{name}: "))
        assert "the host answers version" in text


def test_channels_of_vms_are_not_disturbed_and_what_was_left_is_ended(run_dir: Path) -> None:
    channels = start(run_dir, "aabbccdd")
    try:
        before = channels.read_status("aabbccdd")
        left = start(run_dir, TRIED_ID).read_status(TRIED_ID)
        assert channels.list_ids() == ("aabbccdd",)
        found = try_it(run_dir)
        assert found.failed is None, found
        after = channels.read_status("aabbccdd")
        assert before is not None
        assert after is not None
        assert (after.worker_pid, after.worker_ready) == (before.worker_pid, True)
        assert left is not None
        wait_until(lambda: read_state(left.keeper_pid) in (None, "Z"))
    finally:
        channels.stop("aabbccdd")


def test_a_worker_that_does_not_start_says_why(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "DRIVER", Path("/usr/lib/no-such-libcuda.so.1"))
    found = try_it(run_dir)
    assert list(found.failed or ()) == ["worker"], found
    assert "cannot load the CUDA driver" in f"{found.failed}"
    assert [text.partition(":")[0] for text in found.passed] == ["keeper"]


def test_a_directory_with_too_long_a_path_is_named_with_what_to_do(run_dir: Path) -> None:
    long = run_dir / ("x" * 90)
    long.mkdir()
    found = try_it(long)
    assert "characters" in (found.failed or {})["keeper"]
    assert "VGPUMGR_RUN_DIR" in found.hint


def test_a_keeper_that_does_not_start_says_why(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise trial.KeeperError("cannot start the channel's keeper", cause="memfd_create: refused")

    monkeypatch.setattr(Keeper, "start", refuse)
    found = try_it(run_dir)
    assert found.passed == ()
    assert found.failed is not None
    assert "memfd_create: refused" in found.failed["keeper"]


def test_a_transport_that_fails_hides_not_the_other(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_options = trial.list_agent_options

    def list_wrong(paths: Any, socket: str, *, serial: bool) -> list[str]:
        options = list_options(paths, socket, serial=serial)
        return [*options[:-1], f"{run_dir}/nowhere/serial.sock"] if serial else options

    monkeypatch.setattr(trial, "list_agent_options", list_wrong)
    found = try_it(run_dir)
    assert list(found.failed or ()) == ["serial"], found
    assert "the guest's agent: it ended with status" in f"{found.failed}"
    assert any(text.startswith("ring: ") for text in found.passed)


def test_an_agent_that_the_worker_does_not_hear_is_named_at_the_deadline(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_options = trial.list_agent_options

    def list_serial_at_the_ring(paths: Any, socket: str, *, serial: bool) -> list[str]:
        options = list_options(paths, socket, serial=serial)
        return options if serial else [*options[:-1], f"{run_dir}/nowhere/ivshmem.sock"]

    monkeypatch.setattr(trial, "list_agent_options", list_serial_at_the_ring)
    found = try_it(run_dir, 2.0)
    assert "ring" in (found.failed or {}), found
    assert "does not hear" in (found.failed or {})["ring"]


def stopping(run_dir: Path) -> Callable[..., None]:
    start_channel = KeeperChannels.start

    def start_and_stop(channels: KeeperChannels, spec: ChannelSpec) -> None:
        start_channel(channels, spec)
        pid = Keeper(run_dir / "channels" / spec.id).find_process()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)

    return start_and_stop


def test_a_keeper_that_hangs_is_named_and_ended(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeeperChannels, "start", stopping(run_dir))
    found = try_it(run_dir, 0.5)
    assert list(found.failed or ()) == ["worker"], found
    assert "state T) does not answer" in f"{found.failed}"


def test_two_tries_at_once_are_one(run_dir: Path) -> None:
    directory = run_dir / "channels"
    directory.mkdir()
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert try_it(run_dir, 0.05) == Trial(is_busy=True)
    os.close(descriptor)


KILLED = """
import sys
from pathlib import Path
from vgpumgr.host.machine import Machine
from vgpumgr.virtio.trial import try_channel
run_dir = Path(sys.argv[1])
try_channel(Machine(None, Path("/"), run_dir, run_dir, ""))
"""


def test_a_command_that_is_killed_leaves_nothing(run_dir: Path) -> None:
    command = subprocess.Popen([sys.executable, "-c", KILLED, str(run_dir)])
    tried = run_dir / "channels" / TRIED_ID
    wait_until(lambda: (tried / "keeper.pid").exists() or command.poll() is not None)
    was_there = tried.exists()
    command.kill()
    command.wait()
    assert was_there, "the try was over before the command was killed"
    wait_until(lambda: not tried.exists() and not list_tried(run_dir))


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LONG_S
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.001)
    assert condition()
