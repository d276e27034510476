"""The arbiter of a GPU's time: its policy in virtual time, and its process against spoilt keepers and sessions."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.coverage import read_coverage
from tests.support.shares_rig import find_arbiter, is_held
from tests.unit.transport_rig import LIB, wait_for
from vgpumgr.errors import ChannelStartError
from vgpumgr.host.confinement import audit_keeper
from vgpumgr.virtio import arbiter
from vgpumgr.virtio.sandbox import ARBITER_USER

pytestmark = pytest.mark.native

POLICY = LIB / "test" / "vgpumgr-test-policy"
ROOT = Path(__file__).resolve().parents[2]
POLICY_SOURCE = ROOT / "vgpumgr/virtio/native/arbiter/policy.c"
#: lines of it that the runs in virtual time execute, at least
POLICY_GATE = 0.99
MESSAGE = struct.Struct("=IIII96s")
JOIN, PAGE, WEIGH, PING, WELCOME, REFUSED = 1, 2, 3, 4, 64, 65
PAGE_BYTES = 4096
ROW = 64  # the first lane's follows the turn's line; struct vg_share_page
WORK, WANTS, BUSY = 0, 8, 12
CLOSED, OPEN, CONTENDED = 0, 1, 2
GPU = "GPU-1"
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class FakeChannel:
    """A keeper and its worker, as the arbiter sees them."""

    made: ClassVar[list[FakeChannel]] = []

    def __init__(
        self, path: Path, compute: int = 50, *, fixed: bool = False, priority: int = 1
    ) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.made.append(self)
        self.socket.connect(str(path))
        self.priority = priority
        self.answer = self.ask(JOIN, compute, fixed=fixed)
        self.page: mmap.mmap | None = None

    def say(
        self, what: int, compute: int = 0, *, fixed: bool = False, fds: tuple[int, ...] = ()
    ) -> None:
        """A message, with descriptors."""
        data = MESSAGE.pack(what, compute * 10_000, fixed, self.priority, b"channel")
        socket.send_fds(self.socket, [data], list(fds))

    def ask(self, what: int, compute: int = 0, *, fixed: bool = False) -> tuple[int, str]:
        """A message that is answered: what the answer is, and its text."""
        self.say(what, compute, fixed=fixed)
        data, fds, _, _ = socket.recv_fds(self.socket, MESSAGE.size, 4)
        for fd in fds:
            os.close(fd)
        found, _, _, _, text = MESSAGE.unpack(data)
        return found, text.rstrip(b"\0").decode()

    def hand_over(self) -> None:
        """Page and bell of a worker."""
        fd = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, PAGE_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        self.page = mmap.mmap(fd, PAGE_BYTES)
        theirs, self.bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.bell.setblocking(False)
        self.say(PAGE, fds=(fd, theirs.fileno()))
        os.close(fd)
        theirs.close()

    def put(self, at: int, value: int, lane: int = 0) -> None:
        """A word of a lane's row."""
        assert self.page is not None
        struct.pack_into("=I", self.page, ROW + lane * ROW + at, value)

    def ring(self) -> None:
        """Rings the bell, if it has room."""
        with contextlib.suppress(BlockingIOError):
            self.bell.send(b"x")

    def turn(self) -> int:
        """What the sessions may do."""
        assert self.page is not None
        return int(struct.unpack_from("=I", self.page, 0)[0])

    def want(self) -> None:
        """A session waits for a turn."""
        self.put(WANTS, 1)
        self.ring()

    def begin(self) -> None:
        """It has its turn, and work on the GPU."""
        self.put(BUSY, 1)
        self.put(WANTS, 0)
        self.ring()

    def drain(self) -> None:
        """Nothing of it is left there."""
        self.put(BUSY, 0)
        self.ring()

    def is_dropped(self) -> bool:
        """Whether the arbiter has closed the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def serves(self) -> None:
        """It gets a turn, works, and gives it back."""
        self.want()
        wait_for(lambda: self.turn() != CLOSED, "a turn")
        self.begin()
        self.drain()


@pytest.fixture
def burst(tmp_path: Path) -> Iterator[Path]:
    """The socket of an arbiter with the policy burst."""
    path = arbiter.ensure(GPU, "burst", tmp_path, linger_s=1)
    yield path
    while FakeChannel.made:
        FakeChannel.made.pop().socket.close()
    wait_for(lambda: not is_held(path), "the arbiter's end")


def test_the_runs_in_virtual_time_reach_the_policy(tmp_path: Path) -> None:
    """Which lines of it, and no fewer."""
    check = ROOT / "tests/native/arbiter/policy_check.c"
    words = ["cc", "-O1", "-g2", "--coverage", f"-I{POLICY_SOURCE.parent}", check, POLICY_SOURCE]
    subprocess.run([*words, "-o", "check"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "check", "1", "12"], cwd=tmp_path, check=True, capture_output=True)
    share = read_coverage(tmp_path)[POLICY_SOURCE]
    print(f"{share:.1%} of the lines of policy.c")
    assert share >= POLICY_GATE


def test_policy_keeps_its_promises_in_virtual_time() -> None:
    """Never idle while one waits, shares within a turn, no starvation, caps: see ``policy_check.c``."""
    done = subprocess.run([POLICY, "1", "40"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "40 runs" in done.stdout
    print(done.stdout)


def test_one_arbiter_for_each_gpu(burst: Path) -> None:
    assert arbiter.ensure(GPU, "burst", burst.parent) == burst
    words = [arbiter.ARBITER_PROGRAM, "--socket", burst, "--policy", "burst"]
    assert subprocess.run(words, check=False).returncode == 3
    assert arbiter.is_running(burst)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's arbiter has rights to give away")
def test_it_has_no_rights_and_a_user_of_its_own(burst: Path) -> None:
    pid = find_arbiter(burst)
    assert [fact for fact in audit_keeper(pid) if not fact.holds] == []
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"Uid:\t{ARBITER_USER}\t" in status
    assert "Groups:\t \n" in status


def test_it_ends_after_its_last_channel_and_can_come_again(tmp_path: Path) -> None:
    for _ in range(2):
        path = arbiter.ensure(GPU, "burst", tmp_path, linger_s=1)
        channel = FakeChannel(path)
        assert channel.answer == (WELCOME, "")
        channel.hand_over()
        channel.serves()
        assert is_held(path)
        channel.socket.close()
        wait_for(lambda path=path: not is_held(path), "the arbiter's end")  # type: ignore[misc]
        assert not arbiter.is_running(path)


def test_an_arbiter_that_does_not_start_is_one_error(tmp_path: Path) -> None:
    (tmp_path / f"{GPU.removeprefix('GPU-')}.sock.lock").mkdir()
    with pytest.raises(ChannelStartError) as caught:
        arbiter.ensure(GPU, "burst", tmp_path)
    assert "does not start" in str(caught.value)
    assert caught.value.hint


def test_another_policy_is_refused_by_name_while_there_are_channels(burst: Path) -> None:
    assert FakeChannel(burst).answer == (WELCOME, "")
    refused = FakeChannel(burst, fixed=True)
    assert refused.answer == (REFUSED, "the GPU's arbiter has the policy burst")


def test_an_arbiter_without_channels_takes_the_policy_of_the_next(burst: Path) -> None:
    assert FakeChannel(burst, fixed=True).answer == (WELCOME, "")
    assert FakeChannel(burst).answer == (REFUSED, "the GPU's arbiter has the policy fixed")


def test_a_path_that_no_socket_can_have_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ChannelStartError) as caught:
        arbiter.ensure(GPU, "burst", tmp_path / ("x" * 100))
    assert "choose a shorter VGPUMGR_RUN_DIR" in str(caught.value.hint)


def test_only_one_channel_has_the_turn(burst: Path) -> None:
    channels = [FakeChannel(burst), FakeChannel(burst)]
    for channel in channels:
        channel.hand_over()
        channel.want()
    wait_for(lambda: any(c.turn() != CLOSED for c in channels), "a turn")
    first = next(c for c in channels if c.turn() != CLOSED)
    other = next(c for c in channels if c is not first)
    first.begin()
    wait_for(lambda: first.turn() == CLOSED, "the end of the turn, since the other waits")
    assert other.turn() == CLOSED  # the first has not drained
    first.drain()
    wait_for(lambda: other.turn() != CLOSED, "the other's turn")


def test_a_higher_priority_comes_first_and_a_change_counts_at_once(burst: Path) -> None:
    holder, one, two = FakeChannel(burst), FakeChannel(burst, priority=0), FakeChannel(burst)
    for channel in (holder, one, two):
        channel.hand_over()
    for high, low in ((two, one), (one, two)) * 3:
        high.priority, low.priority = 2, 0
        for channel in (high, low):
            channel.say(WEIGH, 50)
            assert channel.ask(PING)[0] == WELCOME
        holder.want()
        wait_for(lambda: holder.turn() != CLOSED, "the holder's turn")
        holder.begin()
        begun = time.monotonic()
        low.want()
        high.want()
        wait_for(lambda: holder.turn() == CLOSED, "the end of its turn")
        holder.drain()
        wait_for(lambda: any(c.turn() != CLOSED for c in (one, two)), "the next turn")
        # one that waits for half a second comes first, whatever its class
        assert high.turn() != CLOSED or time.monotonic() - begun > 0.4
        for channel in (one, two):
            channel.put(WANTS, 0)
            channel.ring()


def test_who_does_not_drain_does_not_hold_up_the_others(burst: Path) -> None:
    endless, other = FakeChannel(burst), FakeChannel(burst)
    endless.hand_over()
    other.hand_over()
    endless.want()
    wait_for(lambda: endless.turn() != CLOSED, "a turn")
    endless.begin()
    other.serves()
    log = burst.with_suffix(".log").read_text()
    assert "channel channel does not give back its turn" in log


def _spoil_size(channel: FakeChannel) -> None:
    channel.socket.send(b"short")


def _spoil_what(channel: FakeChannel) -> None:
    channel.say(77)


def _join_twice(channel: FakeChannel) -> None:
    channel.say(JOIN, 10)


def _weigh_nothing(channel: FakeChannel) -> None:
    channel.say(WEIGH, 0)


def _weigh_much(channel: FakeChannel) -> None:
    channel.say(WEIGH, 101)


def _weigh_of_no_class(channel: FakeChannel) -> None:
    channel.priority = 3
    channel.say(WEIGH, 50)


def _page_alone(channel: FakeChannel) -> None:
    channel.say(PAGE)


def _page_that_shrinks(channel: FakeChannel) -> None:
    fd = os.memfd_create("page")
    os.ftruncate(fd, PAGE_BYTES)
    theirs, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.say(PAGE, fds=(fd, theirs.fileno()))
    os.close(fd)


def _page_of_another_size(channel: FakeChannel) -> None:
    fd = os.memfd_create("page", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 1)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    theirs, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.say(PAGE, fds=(fd, theirs.fileno()))
    os.close(fd)


def _bell_that_is_a_file(channel: FakeChannel) -> None:
    channel.say(PAGE, fds=(0, 0))


@pytest.mark.parametrize(
    "spoil",
    [
        _spoil_size, _spoil_what, _join_twice, _weigh_nothing, _weigh_much, _weigh_of_no_class, _page_alone,
        _page_that_shrinks, _page_of_another_size, _bell_that_is_a_file,
    ],
)  # fmt: skip
def test_a_spoilt_message_ends_its_connection_only(burst: Path, spoil: object) -> None:
    assert callable(spoil)
    neighbour, channel = FakeChannel(burst), FakeChannel(burst)
    neighbour.hand_over()
    spoil(channel)
    assert channel.is_dropped()
    neighbour.serves()
    assert arbiter.is_running(burst)


def test_a_page_full_of_lies_and_a_bell_without_pause_harm_no_other(burst: Path) -> None:
    """A session that was taken over writes its channel's page, and rings as it likes."""
    hostile, neighbour = FakeChannel(burst), FakeChannel(burst)
    hostile.hand_over()
    neighbour.hand_over()
    assert hostile.page is not None
    end = time.monotonic() + 4  # a holder that does not drain is waited for for a second
    turns = 0
    while time.monotonic() < end:
        hostile.page[:] = os.urandom(PAGE_BYTES)
        for _ in range(50):
            hostile.ring()
        neighbour.want()
        if neighbour.turn() != CLOSED:
            neighbour.begin()
            neighbour.drain()
            turns += 1
    hostile.page[:] = bytes(PAGE_BYTES)
    hostile.bell.shutdown(socket.SHUT_RDWR)
    neighbour.serves()
    assert turns


def test_keepers_that_read_no_answer_are_dropped(burst: Path) -> None:
    deaf, neighbour = FakeChannel(burst), FakeChannel(burst)
    deaf.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionError):
        for _ in range(100_000):
            deaf.say(PING)
    neighbour.hand_over()
    neighbour.serves()
