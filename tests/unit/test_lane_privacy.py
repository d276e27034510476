"""Users of one guest are kept apart: each attack is made from outside, by processes of other users than the agent's."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.calls_rig import NULL_DRIVER, WORKER
from tests.unit.transport_rig import (
    CLIENT,
    HOSTILE,
    PATIENCE_S,
    Rig,
    alive,
    open_fds,
    read_line,
    wait_for,
)  # fmt: skip

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users"),
]

ALICE, BOB = 61001, 61002
EVERYONE = ("--mode", "0666")
RELAY_ID_FIRST = 1879048192


def has_lane(pid: int) -> bool:
    """Whether it has become the user that only it runs as; the agent's spare one has not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return int(status.split("Uid:")[1].split()[0]) >= RELAY_ID_FIRST


class House(Rig):
    """A channel whose socket all users may open."""

    def __enter__(self) -> House:
        self.directory.chmod(0o711)
        super().__enter__()
        return self

    def user(self, uid: int, code: str, *groups: int) -> subprocess.Popen[str]:
        """Starts a user's process that has ``guest_lane`` at hand."""
        start = f"from tests.unit.guest_lane import *\nbecome(*{(uid, *groups)})\n"
        made = subprocess.Popen(
            [sys.executable, "-c", start + code],
            env=self.env | {"PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._clients.append(made)
        return made

    def outcome(self, uid: int, code: str, *groups: int) -> list[str]:
        """Runs one to its end; its lines."""
        made = self.user(uid, code, *groups)
        lines = made.communicate(timeout=PATIENCE_S)[0].splitlines()
        assert made.returncode == 0, lines
        return lines

    def program(self, uid: int, program: Path, *arguments: str) -> subprocess.Popen[str]:
        """Starts one of our programs as a user, who need not be able to read this project."""
        copy = self.directory / program.name
        if not copy.exists():
            shutil.copy(program, copy)
        made = subprocess.Popen(
            [str(copy), *arguments], env=self.env, stdout=subprocess.PIPE, text=True,
            user=uid, group=uid, extra_groups=[],
        )  # fmt: skip
        self._clients.append(made)
        return made

    def relays(self) -> list[int]:
        """The processes that copy for private lanes."""
        assert self.agent is not None
        children = Path(f"/proc/{self.agent.pid}/task/{self.agent.pid}/children").read_text()
        return [int(pid) for pid in children.split() if has_lane(int(pid))]

    def relay(self) -> int:
        """The only one, which may still be getting its lane."""
        wait_for(lambda: len(self.relays()) == 1, "a relay")
        return self.relays()[0]

    def log(self) -> str:
        """What the agent has said."""
        return (self.directory / "agent.log").read_text()


def works(house: House, uid: int = BOB) -> None:
    """Another user's process has a lane, and all of it works."""
    steps = ("open", "order", "bulk", "echo", "threads", "close")
    out = house.program(uid, CLIENT, *steps).communicate(timeout=PATIENCE_S * 2)[0]
    assert out.splitlines() == [f"ok {step}" for step in steps]


@pytest.fixture(params=["private", "serial"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    with House(request.param, agent_options=EVERYONE) as made:
        yield made


@pytest.fixture
def private() -> Iterator[House]:
    with House("private", agent_options=EVERYONE) as made:
        yield made


# ---- what a user can read ----

SECRET = """
secret = bytes.fromhex({secret!r}) * 2048
lane = Lane()
lane.call(STORE, struct.pack("<Q", 0), BULK_IN, secret)
lane.call(ECHO, secret[:8192])
lane.call(LOAD, struct.pack("<Q", 0), BULK_OUT, room=len(secret))
assert lane.memory.find(secret[:64]) >= 0
say("stored", os.getpid())
sys.stdin.readline()
"""

SPY = """
needle = bytes.fromhex({needle!r})
lane = Lane()
say("size", lane.size)
say("found", lane.memory[:].find(needle) >= 0)
for fd in lane.fds:
    try:
        say("found", os.pread(fd, 1 << 27, 0).find(needle) >= 0)
    except OSError:
        pass
for pid in {pids}:
    seen = f"/proc/{{pid}}"
    for path in ("mem", "maps", "fd", "map_files", "environ"):
        say("opened" if readable(f"{{seen}}/{{path}}") else "refused", path)
    say("opened" if any(readable(f"{{seen}}/fd/{{n}}") for n in range(64)) else "refused", "fd/*")
"""


def spy(house: House, secret: bytes, *pids: int) -> list[str]:
    """What BOB sees of it; secret in the test's own words would stand in his memory, so half of it."""
    return house.outcome(BOB, SPY.format(needle=secret.hex(), pids=list(pids)))


def test_no_user_can_read_what_another_copies(private: House) -> None:
    secret = os.urandom(32)
    alice = private.user(ALICE, SECRET.format(secret=secret.hex()))
    assert read_line(alice).startswith("stored")
    assert private.agent is not None
    pids = (alice.pid, private.agent.pid, *private.relays())
    assert len(pids) == 3
    lines = spy(private, secret, *pids)
    assert "found True" not in lines
    assert not [line for line in lines if line.startswith("opened")]
    assert lines.count("refused mem") == 3
    assert int(lines[0].split()[1]) < 8 << 20, "one lane, not the window"
    alice.communicate("end\n", timeout=PATIENCE_S)
    private.wait_status(lambda s: not s.lanes, "the lane is free")
    assert "found True" not in spy(private, secret), "nor by one who gets the same lane"


def test_shared_lanes_show_everything() -> None:
    """The same attack where it must succeed: so this file is seen to notice."""
    secret = os.urandom(32)
    with House("ring", agent_options=EVERYONE) as house:
        alice = house.user(ALICE, SECRET.format(secret=secret.hex()))
        assert read_line(alice).startswith("stored")
        assert "found True" in spy(house, secret)


@pytest.mark.parametrize("lanes", ["private", "ring"])
def test_no_user_can_write_the_guard(lanes: str) -> None:
    """The page that ends all sessions of a device: descriptors of it open again as what they name."""
    code = """
lane = Lane()
say("opened" if readable(f"/proc/self/fd/{lane.fds[2]}", os.O_RDWR) else "refused")
"""
    with House(lanes, agent_options=EVERYONE) as house:
        assert house.outcome(ALICE, code) == ["refused"]


def test_a_lane_is_sealed(private: House) -> None:
    code = """
lane = Lane()
for size in (0, 4096, 1 << 30):
    try:
        os.ftruncate(lane.fds[0], size)
        say("cut")
    except PermissionError:
        say("sealed")
for seal in (1, 2, 4, 8, 16):
    try:
        fcntl.fcntl(lane.fds[0], fcntl.F_ADD_SEALS, seal)
        say("sealed by me", seal)
    except PermissionError:
        pass
# holes are allowed: they read as zeros
libc = ctypes.CDLL(None)
libc.fallocate(lane.fds[0], 3, ctypes.c_long(0), ctypes.c_long(lane.size))
say("holes")
lane.set_word(640, lane.generation)
lane.head = lane.tail = 0
lane.post(NULL)
lane.ring()
"""
    lines = private.outcome(ALICE, code)
    assert lines == ["sealed"] * 3 + ["holes"]
    works(private)


def test_a_relay_has_no_rights(private: House) -> None:
    alice = private.user(ALICE, "lane = Lane()\nlane.call(NULL)\nsay('open')\nsys.stdin.readline()")
    assert read_line(alice) == "open"
    relay = private.relay()
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{relay}/status").read_text().splitlines()
    )
    uids = {int(word) for word in (status["Uid"] + status["Gid"]).split()}
    assert len(uids) == 1
    assert uids.pop() >= RELAY_ID_FIRST
    assert status["Groups"].split() == []
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    shared = [
        line for line in Path(f"/proc/{relay}/maps").read_text().splitlines() if " rw-s " in line
    ]
    sizes = [int(b, 16) - int(a, 16) for a, b in (line.split()[0].split("-") for line in shared)]
    assert len(sizes) == 2, "the lane, and the process's own memory"
    assert max(sizes) < 8 << 20
    kinds = [str(entry.readlink()) for entry in Path(f"/proc/{relay}/fd").iterdir()]
    assert sum("eventfd" in kind for kind in kinds) == 2
    assert not [kind for kind in kinds if "memfd" in kind or "resource" in kind]


# ---- what a user can spoil ----


@pytest.mark.parametrize("mode", ["lane", "frames", "race", "all"])
def test_a_hostile_user_disturbs_nobody(private: House, mode: str) -> None:
    """In the same VM, which shared lanes do not promise: there, mode "all" spoils everybody's."""
    assert private.agent is not None
    busy = private.program(BOB, CLIENT, "open", *["order", "bulk", "echo", "threads"] * 3, "close")
    attackers = [private.program(ALICE, HOSTILE, mode, str(seed), "3") for seed in range(2)]
    for attacker in attackers:
        assert int(attacker.communicate(timeout=PATIENCE_S)[0].split()[0]) > 0
    assert busy.communicate(timeout=PATIENCE_S)[0].endswith("ok close\n")
    assert alive(private.agent.pid)
    status = private.wait_status(lambda s: not s.lanes, "all lanes are free")
    assert status.worker.starts == 1
    assert status.sessions.lost == 0
    wait_for(lambda: not private.relays(), "no relay is left")
    works(private)
    assert len(private.log().splitlines()) < 30, "one line a second"


FLOOD = """
lane = Lane()
say("open")
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(200):
        lane.ring()
"""


def test_a_flood_of_doorbells_stops_nobody(private: House) -> None:
    flood = private.user(ALICE, FLOOD)
    assert read_line(flood) == "open"
    works(private)
    assert flood.wait(timeout=PATIENCE_S) == 0


def test_a_stopped_process_stops_nobody(house: House) -> None:
    """It leaves its replies, until there is no room for more; then its session ends."""
    code = """
lane = Lane()
if lane.transport == 1:
    for _ in range(12):
        lane.post(LARGE, b"", WANTS_REPLY)
        lane.sequence -= 63
else:
    for n in range(12):
        lane.send(1, struct.pack("<IIIIIIQ", 32, LARGE, n, 1, 0, 0, 0))
say("open")
sys.stdin.readline()
"""
    alice = house.user(ALICE, code)
    assert read_line(alice) == "open"
    alice.send_signal(signal.SIGSTOP)
    works(house)
    if house.transport == "ring":
        wait_for(
            lambda: "a reply ring left full" in house.log() or not house.status().lanes, "ended"
        )
    alice.kill()
    house.wait_status(lambda s: not s.lanes, "the lane is free")


def test_strange_descriptors_are_not_kept(house: House) -> None:
    assert house.agent is not None
    before = open_fds(house.agent.pid) + 1  # for the spare relay
    assert house.outcome(ALICE, "lane = Lane(20)\nsay(lane.number > 0)") == ["True"]
    wait_for(lambda: open_fds(house.agent.pid) <= before, "all are closed")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "code",
    [
        "connect().sendall(request()[:50])",
        "connect().sendall(b'x' * 96)",
        "connect().sendall(request(77))",
        "s = connect(); s.sendall(request()); s.close()",
        "s = connect(); s.sendall(request()); s.shutdown(socket.SHUT_WR); s.recv(256)",
        "Lane().socket.sendall(b'?' * 50)",
        "lane = Lane(); lane.post(NULL) if lane.transport == 1 else lane.send(1, b'')",
        "lane = Lane(); lane.socket.sendall(struct.pack('<IIII', 0x31534756, lane.number, 1, 32768))",
    ],
)
def test_broken_off_conversations_leave_nothing(house: House, code: str) -> None:
    assert house.agent is not None
    before = open_fds(house.agent.pid) + 1  # for the spare relay
    for _ in range(4):
        house.user(ALICE, code).wait(timeout=PATIENCE_S)
    works(house)
    house.wait_status(lambda s: not s.lanes, "lanes are free")
    wait_for(
        lambda: open_fds(house.agent.pid) <= before and not house.relays(),  # type: ignore[union-attr]
        "nothing is left",
    )


def test_processes_killed_in_the_middle_leave_nothing(house: House) -> None:
    for round_ in range(6):
        victims = [house.program(ALICE, CLIENT, "open", *["bulk", "order"] * 50) for _ in range(3)]
        for victim in victims:
            read_line(victim)
        time.sleep(0.02 * round_)
        for victim in victims:
            victim.kill()
    house.wait_status(lambda s: not s.lanes, "lanes are free")
    wait_for(lambda: not house.relays(), "no relay is left")
    works(house)


# ---- one user cannot take everything ----

TAKE = """
kept = []
try:
    while True:
        kept.append(Lane())
except RefusedError as why:
    say(len(kept), why)
sys.stdin.readline()
"""


def test_one_user_cannot_take_all_lanes(house: House) -> None:
    alice = house.user(ALICE, TAKE)
    most = "12 user 61001 holds 12 lanes of this VM, as many as one user may"
    assert read_line(alice) == most
    works(house)


def test_the_limit_is_an_option() -> None:
    with House("private", agent_options=(*EVERYONE, "--user-lanes", "2")) as house:
        assert read_line(house.user(ALICE, TAKE)).startswith("2 user 61001 holds 2 lanes")
        assert read_line(house.user(BOB, TAKE)).startswith("2 user 61002 holds 2 lanes")


def test_one_user_cannot_take_all_connections(house: House) -> None:
    code = """
kept = [connect() for _ in range(100)]
say("connected")
sys.stdin.readline()
"""
    alice = house.user(ALICE, code)
    assert read_line(alice) == "connected"
    works(house)


def test_who_says_nothing_is_hung_up(private: House) -> None:
    code = "s = connect()\nsay(s.recv(1))"
    assert private.outcome(ALICE, code) == ["b''"]


# ---- who shares ----


def test_one_user_alone_shares_with_himself() -> None:
    """Options of an agent, and whether root then has the whole window."""
    code = "lane = Lane()\nsay(lane.size > 8 << 20)"
    for mode, lanes, whole in (
        ("0600", "auto", True), ("0660", "auto", False), ("0666", "auto", False),
        ("0600", "private", False), ("0666", "shared", True),
    ):  # fmt: skip
        with House("ring") as house:
            house.stop_agent()
            house.lanes, house.agent_options = lanes, ("--mode", mode)
            house.start_agent()
            assert house.outcome(0, code) == [str(whole)], (mode, lanes)


def test_members_of_the_direct_group_have_the_window() -> None:
    code = "lane = Lane()\nsay(lane.size > 8 << 20)"
    with House("private", agent_options=(*EVERYONE, "--direct-group", "61099")) as house:
        assert house.outcome(ALICE, code) == ["False"]
        assert house.outcome(ALICE, code, 61099) == ["True"]
        assert house.outcome(ALICE, code, 61098, 61100) == ["False"]


# ---- ends ----


def test_a_killed_relay_ends_one_lane(private: House) -> None:
    alice = private.program(ALICE, CLIENT, "open", "lost")
    assert read_line(alice) == "ok open"
    relay = private.relay()
    bob = private.program(BOB, CLIENT, "open", *["order", "bulk"] * 4, "close")
    assert read_line(bob) == "ok open"
    os.kill(relay, signal.SIGKILL)
    assert alice.communicate(timeout=PATIENCE_S)[0] == "ok lost\n"
    assert bob.communicate(timeout=PATIENCE_S)[0].endswith("ok close\n")


def test_relays_end_with_their_agent(private: House) -> None:
    alice = private.program(ALICE, CLIENT, "open", "lost")
    assert read_line(alice) == "ok open"
    relay = private.relay()
    private.stop_agent(signal.SIGKILL)
    assert alice.communicate(timeout=PATIENCE_S)[0] == "ok lost\n", "it need not wait for the next"
    wait_for(lambda: not alive(relay), "the relay ends")
    private.start_agent()
    works(private)


def ticks(*pids: int) -> int:
    """CPU time used so far, in hundredths of a second."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields)


def test_an_idle_agent_uses_no_time(private: House) -> None:
    code = "lane = Lane()\nlane.call(NULL)\nsay('open')\nsys.stdin.readline()"
    for _ in range(3):
        assert read_line(private.user(ALICE, code)) == "open"
    assert private.agent is not None
    pids = (private.agent.pid, *private.relays())
    assert len(pids) == 4
    time.sleep(1)
    before = ticks(*pids)
    time.sleep(4)
    assert ticks(*pids) - before <= 2


# ---- the serial transport goes through the agent already ----


def test_a_lost_serial_lane_is_nobodys() -> None:
    """Its number is given to the next process: who had it before must neither hear nor speak on it."""
    ended = """
lane = Lane()
lane.send(1, struct.pack("<IIIIIIQ", 32, REFUSE, 1, 1, 0, 0, 0))
heard = lane.socket.recv(4096)
say("lost", lane.number, heard[8] == 5)
sys.stdin.readline()
for n in range(50):
    try:
        lane.send(1, struct.pack("<IIIIIIQ", 32, REFUSE, n, 1, 0, 0, 0))
    except OSError:
        break
lane.socket.settimeout(2)
try:
    say("heard", len(lane.socket.recv(4096)))
except OSError:
    say("heard 0")
"""
    with House("serial", agent_options=EVERYONE) as house:
        alice = house.user(ALICE, ended)
        lost = re.fullmatch(r"lost (\d+) True", read_line(alice))
        assert lost
        house.wait_status(lambda s: not s.lanes, "the lane is free")
        bob = house.user(
            BOB,
            f"""
while (lane := Lane()).number != {lost[1]}:
    lane.socket.close()
say("open", lane.number)
sys.stdin.readline()
for n in range(20):
    lane.send(1, struct.pack("<IIIIIIQ", 40, ECHO, n, 1, 0, 0, 0) + b"private!")
    got = b""
    while b"private!" not in got:
        more = lane.socket.recv(4096)
        assert more, "ended"
        got += more
say("done")
""",
        )
        assert read_line(bob) == f"open {lost[1]}", "the same lane"
        assert alice.stdin is not None
        assert bob.stdin is not None
        alice.stdin.write("go\n")
        alice.stdin.flush()
        time.sleep(0.5)
        bob.stdin.write("go\n")
        bob.stdin.flush()
        assert read_line(bob) == "done"
        assert read_line(alice) == "heard 0"


def test_nobody_speaks_on_anothers_serial_lane() -> None:
    code = """
lane = Lane()
for other in [0, *range(33, 49)]:
    if other != lane.number:
        break
lane.send(1, struct.pack("<IIIIIIQ", 32, REFUSE, 1, 1, 0, 0, 0), lane=other)
lane.socket.settimeout(20)
say(lane.socket.recv(10))
"""
    with House("serial", agent_options=EVERYONE) as house:
        bob = house.program(BOB, CLIENT, "open", *["order", "echo"] * 5, "close")
        assert read_line(bob) == "ok open"
        assert house.outcome(ALICE, code) == ["b''"], "the agent hangs up"
        assert bob.communicate(timeout=PATIENCE_S)[0].endswith("ok close\n")
        assert house.status().violations.count == 0


# ---- copies ----

COPIES = """
import hashlib
from tests.unit.guest_cuda import byref, c_size_t, context, cu, memory, ok
context()
for size in (1, 4095, 64 << 10, (64 << 10) + 1, 1 << 20, 5_000_011, 16 << 20, 64 << 20):
    there = os.urandom(min(size, 1 << 20)) * (size // (1 << 20) + 1)
    there = there[:size]
    back = ctypes.create_string_buffer(size)
    place = memory(size)
    ok(cu.cuMemcpyHtoD_v2(place, there, c_size_t(size)))
    ok(cu.cuMemcpyDtoH_v2(back, place, c_size_t(size)))
    ok(cu.cuMemFree_v2(place))
    say(size, back.raw == there)
"""


def test_copies_of_all_sizes_arrive() -> None:
    with House("private", worker=WORKER, worker_args=("--cuda", str(NULL_DRIVER))) as house:
        done = subprocess.run(
            [sys.executable, "-c", "import ctypes\nfrom tests.unit.guest_lane import *\n" + COPIES],
            env=house.env | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True, text=True, timeout=PATIENCE_S * 2, check=True,
        )  # fmt: skip
        assert len(done.stdout.split()) == 16
        assert "False" not in done.stdout
        assert house.status().totals.bytes_in > 80 << 20
