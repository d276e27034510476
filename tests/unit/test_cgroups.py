"""Control groups of channels: what they hold, attacked from within a worker; both versions; nothing is left of them.

Other tests have channels on this machine at the same time: each test asks for the groups of its own keeper only.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.calls_rig import NULL_DRIVER, WORKER, run_python, start_python
from tests.unit.transport_rig import Rig, alive, wait_for
from vgpumgr.host.cgroups import LEAF, Cgroup, Controller, make_cgroups, name_cgroup, remove_cgroups
from vgpumgr.host.machine import Machine
from vgpumgr.model.limits import parse_limits
from vgpumgr.virtio import sandbox
from vgpumgr.virtio.channel import ChannelSpec
from vgpumgr.virtio.keeper import KeeperChannels

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups here")
MIB = 1 << 20


@contextmanager
def grouped(*limits: str) -> Iterator[tuple[Rig, dict[str, Cgroup]]]:
    """A channel on the null driver whose worker is in control groups with these limits."""
    rig = Rig("ring", worker=WORKER, worker_args=("--cuda", str(NULL_DRIVER)))
    rig.keeper.directory.mkdir(mode=0o711)
    made = sandbox.make_cgroups(rig.keeper.directory, parse_limits(limits))
    rig.options = type(rig.options)(
        **{name: getattr(rig.options, name) for name in rig.options.__slots__}
        | {"cgroups": sorted({one.path for one in made if one.path})}
    )
    try:
        with rig:
            yield rig, {one.controller: one for one in made}
    finally:
        remove_cgroups(made)


def start_guests(rig: Rig, code: str, number: int = 2) -> list[subprocess.Popen[str]]:
    """Guest processes that are ready when this returns, and go on when they get a line."""
    text = f"context()\nprint('ready', flush=True)\ninput()\n{code}"
    guests = [start_python(rig, text) for _ in range(number)]
    assert read_lines(guests) == ["ready"] * number
    go_on(guests)
    return guests


def read_lines(guests: list[subprocess.Popen[str]]) -> list[str]:
    return [guest.stdout.readline().strip() for guest in guests if guest.stdout is not None]


def go_on(guests: list[subprocess.Popen[str]]) -> None:
    for guest in guests:
        assert guest.stdin is not None
        guest.stdin.write("\n")
        guest.stdin.flush()


def end(guests: list[subprocess.Popen[str]]) -> None:
    for guest in guests:
        guest.kill()
        guest.communicate()


def burn(rig: Rig, seconds: float) -> float:
    """Processor seconds that the sessions of two busy guest processes take in that time."""
    guests = start_guests(rig, "while True: cu.cuStreamQuery(None)")
    pids = [lane.session_pid for lane in rig.status().lanes]
    before = sum(map(read_seconds, pids))
    time.sleep(seconds)
    after = sum(map(read_seconds, pids))
    end(guests)
    return after - before


def read_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def list_processes(one: Cgroup) -> set[int]:
    assert one.path is not None
    return set(map(int, Path(one.path, "cgroup.procs").read_text().split()))


def count_refused_threads(one: Cgroup) -> int:
    assert one.path is not None
    return int(Path(one.path, "pids.events").read_text().split()[1])


@ROOT_ONLY
def test_every_process_of_a_worker_is_in_its_group_and_the_group_ends_with_it() -> None:
    with grouped("host-memory=4GiB", "processes=200", "cpu=200%") as (rig, groups):
        if not all(one.path for one in groups.values()):
            pytest.skip(f"no control groups here: {groups}")
        guest = start_python(rig, "context()\nprint('ready', flush=True)\ninput()")
        assert guest.stdout is not None
        guest.stdout.readline()
        status = rig.status()
        (lane,) = status.lanes
        for one in groups.values():
            inside = list_processes(one)
            assert {status.worker.pid, lane.session_pid} <= inside
            assert status.keeper_pid not in inside
        facts = list(sandbox.audit_cgroups(rig.keeper.directory, status.worker.pid))
        assert [(fact.name, fact.holds) for fact in facts] == [
            ("cgroup memory", True), ("cgroup pids", True), ("cgroup cpu", True)
        ]  # fmt: skip
        assert {one.name: one.limit for one in sandbox.read_cgroups(rig.keeper.directory)} == {
            "host-memory": 4096 * MIB, "processes": 200, "cpu": 200
        }  # fmt: skip
        used = groups["pids"].read_used()
        assert used is not None
        assert used >= 3
        guest.kill()
        guest.communicate()
        rig.stop_agent()
        rig.keeper.stop()
        paths = [Path(one.path) for one in groups.values() if one.path]
        wait_for(lambda: not any(path.exists() for path in paths), "the groups are removed")


@ROOT_ONLY
@pytest.mark.parametrize("victim", ["keeper", "worker"])
def test_a_group_is_removed_when_its_keeper_is_killed_and_kept_when_its_worker_is(
    victim: str,
) -> None:
    with grouped("processes=200") as (rig, groups):
        if not groups["pids"].path:
            pytest.skip(f"no control groups here: {groups}")
        path = Path(groups["pids"].path)
        status = rig.status()
        os.kill(status.keeper_pid if victim == "keeper" else status.worker.pid, signal.SIGKILL)
        if victim == "keeper":
            wait_for(lambda: not path.exists(), "the group is removed")
            assert not alive(status.worker.pid)
            return
        again = rig.wait_status(
            lambda s: s.worker.starts == 2 and s.worker.state == "ready", "another worker"
        )
        assert again.worker.pid in list_processes(groups["pids"])


@ROOT_ONLY
def test_sessions_together_have_no_more_threads_than_the_group_allows() -> None:
    with grouped("processes=30") as (rig, groups):
        if not groups["pids"].path:
            pytest.skip(f"no control groups here: {groups}")
        # each call that waits has a thread of its own in the session: up to 64 without a limit
        code = """
import threading, time
made = c_void_p()
ok(cu.cuCtxGetCurrent(byref(made)))
hold = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: time.sleep(60))
ok(cu.cuLaunchHostFunc(None, hold, None))
def wait():
    cu.cuCtxSetCurrent(made)
    cu.cuCtxSynchronize()
for _ in range(40):
    threading.Thread(target=wait, daemon=True).start()
input()
"""
        guests = start_guests(rig, code)
        # a spare session that has to end in between leaves less than all in use
        wait_for(
            lambda: count_refused_threads(groups["pids"]) > 10, "they ask for more than there is"
        )
        assert (groups["pids"].read_used() or 0) >= 20
        for _ in range(50):
            assert (groups["pids"].read_used() or 0) <= 30
            time.sleep(0.01)
        end(guests)
        rig.wait_status(lambda s: not s.lanes, "their sessions have ended")
        assert run_python(rig, "context()\nprint('ok')") == "ok\n"


#: the null driver's device memory is the session's own
TAKE = """
size = 1 << 20
data = bytes(size)
def take():
    made = c_uint64()
    return cu.cuMemAlloc_v2(byref(made), c_size_t(size)) or cu.cuMemcpyHtoD_v2(made, data, c_size_t(size))
def take_all(number):
    any(take() for _ in range(number))
    cu.cuCtxSynchronize()
    print("taken", flush=True)
    input()
    print(cu.cuCtxSynchronize() != 0, flush=True)
    input()
"""


@ROOT_ONLY
def test_a_session_that_takes_too_much_memory_ends_and_reaches_no_other() -> None:
    with grouped("host-memory=256MiB") as (rig, groups):
        if not groups["memory"].path:
            pytest.skip(f"no control groups here: {groups}")
        holders = start_guests(rig, TAKE + "take_all(60)")
        assert read_lines(holders) == ["taken", "taken"]
        greedy = start_guests(rig, TAKE + "take_all(250)", 1)
        assert read_lines(greedy) == ["taken"]
        go_on([*holders, *greedy])
        assert read_lines([*holders, *greedy]) == ["False", "False", "True"]
        assert rig.status().sessions.lost == 1
        end([*holders, *greedy])
        assert run_python(rig, "context()\nprint('ok')") == "ok\n"


@ROOT_ONLY
def test_sessions_that_together_take_too_much_memory_reach_no_other() -> None:
    """The kernel ends one of them, at times a second one, which asks before the first one's memory is back."""
    with grouped("host-memory=256MiB") as (rig, groups):
        if not groups["memory"].path:
            pytest.skip(f"no control groups here: {groups}")
        others = start_guests(rig, "print('ready', flush=True)\ninput()\ncontext()\nprint('ok')", 1)
        assert read_lines(others) == ["ready"]
        guests = start_guests(rig, TAKE + "take_all(170)")
        assert read_lines(guests) == ["taken", "taken"]
        go_on([*guests, *others])
        assert "True" in read_lines(guests)
        assert 1 <= rig.status().sessions.lost <= 2
        assert others[0].communicate(timeout=240)[0] == "ok\n"
        end(guests)


@ROOT_ONLY
def test_processors_are_shared_out_in_proportion() -> None:
    seconds = {}
    for percent in (10, 40):
        with grouped(f"cpu={percent}") as (rig, groups):
            if not groups["cpu"].path:
                pytest.skip(f"no control groups here: {groups}")
            seconds[percent] = burn(rig, 2)
    assert seconds[10] < 2 * 0.10 * 1.5
    assert seconds[10] < seconds[40] < 2 * 0.40 * 1.5


def test_a_worker_that_cannot_enter_its_group_does_not_serve(tmp_path: Path) -> None:
    rig = Rig("ring", worker=WORKER, worker_args=("--cuda", str(NULL_DRIVER)))
    words = [*rig.options.arguments(rig.keeper.directory)]
    words[words.index("--detach") : words.index("--detach")] = ["--cgroup", str(tmp_path / "none")]
    subprocess.run(words, check=True)
    try:
        with pytest.raises(Exception, match="does not start") as raised:
            rig.keeper.wait_ready()
        assert "cannot enter the cgroup" in str(getattr(raised.value, "cause", ""))
    finally:
        rig.keeper.stop()


# ---- both versions, on hierarchies of files


class FakeHost:
    """What a process sees of its control groups: files, as the kernel shows them."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory / "proc"
        self.top = directory / "cgroup"
        self.proc.mkdir()
        self.top.mkdir()
        self._mounts: list[str] = []
        self._groups: list[str] = []

    def mount(self, kind: str, options: str, own: str, root: str = "/") -> Path:
        """A hierarchy; answers the directory of the own group in it."""
        top = self.top / (options.replace(",", "-") or "unified")
        place = top / os.path.relpath(own, root)
        place.mkdir(parents=True, exist_ok=True)
        names = "" if kind == "cgroup2" else options
        number = 0 if kind == "cgroup2" else len(self._groups) + 1
        self._groups.append(f"{number}:{names}:{own}")
        self._mounts.append(
            f"31 23 0:28 {root} {top} rw,relatime shared:9 - {kind} {kind} rw,{options}"
        )
        (self.proc / "cgroup").write_text("\n".join(self._groups) + "\n")
        (self.proc / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        return place

    def make(self, **limits: int) -> dict[str, Cgroup]:
        """What is made on it, by the controller."""
        made = make_cgroups("vgpumgr-k-a", limits, self.proc)  # type: ignore[arg-type]
        return {one.controller: one for one in made}


def control(group: Path, controllers: str, processes: str = "") -> Path:
    """The files of a group of version 2."""
    (group / "cgroup.controllers").write_text(controllers)
    (group / "cgroup.subtree_control").write_text("")
    (group / "cgroup.procs").write_text(processes)
    return group


def read(one: Cgroup, name: str) -> str:
    assert one.path is not None
    return Path(one.path, name).read_text()


def test_version_one_has_a_group_in_each_hierarchy_below_the_own_one(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    memory = host.mount("cgroup", "memory", "/system.slice/x.service")
    cpu = host.mount("cgroup", "cpu,cpuacct", "/")
    made = host.make(memory=5 * MIB, cpu=150)
    assert made["memory"].path == str(memory / "vgpumgr-k-a")
    assert read(made["memory"], "memory.limit_in_bytes") == str(5 * MIB)
    assert made["cpu"].path == f"{cpu / 'vgpumgr-k-a'}"
    assert read(made["cpu"], "cpu.cfs_quota_us") == "150000"
    assert read(made["cpu"], "cpu.cfs_period_us") == "100000"


def test_a_mount_that_shows_a_part_of_the_hierarchy_only(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    own = host.mount("cgroup", "pids", "/docker/abc/inner", root="/docker/abc")
    assert host.make(pids=9)["pids"].path == str(own / "vgpumgr-k-a")


def test_version_two_has_one_group_below_the_root(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    own = host.mount("cgroup2", "", "/user.slice/session-1.scope")
    control(own, "memory pids", "17\n")
    top = control(own.parent.parent, "cpu memory pids")
    (own / "cgroup.controllers").write_text("cpu memory pids")
    made = host.make(memory=MIB, pids=7, cpu=50)
    assert {one.path for one in made.values()} == {str(top / "vgpumgr-k-a")}
    assert read(made["memory"], "memory.max") == str(MIB)
    assert read(made["memory"], "memory.swap.max") == "0"
    assert read(made["pids"], "pids.max") == "7"
    assert read(made["cpu"], "cpu.max") == "50000 100000"
    # a kernel takes one at a time and adds it; this file has the last one
    assert (top / "cgroup.subtree_control").read_text() == "+cpu"
    assert (own / "cgroup.procs").read_text() == "17\n"


def test_beside_the_leaf_of_a_delegated_group_of_version_two(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    leaf = control(
        host.mount("cgroup2", "", f"/system.slice/vgpumgr.service/{LEAF}"), "pids", "17\n"
    )
    unit = control(leaf.parent, "pids")
    assert host.make(pids=7)["pids"].path == str(unit / "vgpumgr-k-a")
    assert (unit / "cgroup.subtree_control").read_text() == "+pids"
    assert (leaf / "cgroup.procs").read_text() == "17\n"
    text = (Path(__file__).parents[2] / "templates/systemd/vgpumgr.service").read_text()
    assert f"\nDelegate=memory pids cpu\nDelegateSubgroup={LEAF}\n" in text


@contextmanager
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[KeeperChannels, Path]]:
    """Channel a1 of a machine, as attach starts it, with its directory."""
    monkeypatch.setenv("VGPUMGR_CUDA", str(NULL_DRIVER))
    directory = Path(tempfile.mkdtemp(prefix="vgc"))  # a socket's path is short
    machine = Machine("test", directory, directory, directory / "run", "test:///default")
    channels = KeeperChannels(machine)
    channels.start(ChannelSpec("a1", "vm01", "MIG-1", ring=True, serial=False))
    try:
        yield channels, machine.run_dir / "channels/a1"
    finally:
        channels.stop("a1")
        shutil.rmtree(directory)


@ROOT_ONLY
def test_what_a_keeper_leaves_that_was_killed_with_its_launcher_goes_with_its_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with started(monkeypatch) as (channels, directory):
        status = channels.read_status("a1")
        assert status is not None
        keeper = status.keeper_pid
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        groups = [one.cgroup for one in sandbox.read_cgroups(directory)]
        paths = [Path(one.path) for one in groups if one.path]
        if not paths:
            pytest.skip(f"no control groups here: {groups}")
        for pid in (*map(int, children), keeper):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(keeper), "the keeper's end")
        assert all(path.exists() for path in paths)
    assert not [path for path in paths if path.exists()]


def test_a_channel_without_groups_serves_and_says_why_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_name: str, limits: Mapping[Controller, int]) -> tuple[Cgroup, ...]:
        return tuple(
            Cgroup(one, 2, None, "/sys/fs/cgroup: Read-only file system") for one in limits
        )

    monkeypatch.setattr(sandbox.cgroups, "make_cgroups", fail)
    with started(monkeypatch) as (channels, _):

        def is_ready() -> bool:
            now = channels.read_status("a1")
            return now is not None and now.worker_ready

        wait_for(is_ready, "its worker")
        status = channels.read_status("a1")
        assert status is not None
        limits = {one.key.name: (one.limit, one.used) for one in status.limits}
        assert limits["host-memory"] == limits["processes"] == (None, None)
        assert limits["contexts"] == (256, 0)
        facts = {fact.name: fact for fact in channels.audit("a1")}
        for name in ("cgroup memory", "cgroup pids"):
            assert not facts[name].holds
            assert facts[name].detail == "/sys/fs/cgroup: Read-only file system"


def test_what_cannot_be_made_says_why(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.mount("cgroup", "pids", "/gone")
    (host.top / "pids/gone").rmdir()
    made = host.make(pids=7, memory=MIB)
    assert made["memory"].path is None
    assert "no hierarchy" in made["memory"].why
    assert made["pids"].path is None
    assert made["pids"].why == f"{host.top}/pids/gone/vgpumgr-k-a: No such file or directory"


def test_a_channel_has_the_same_name_each_time_and_no_other_channel_has_it(tmp_path: Path) -> None:
    names = {name_cgroup(tmp_path / one / "k") for one in "abc"}
    assert len(names) == 3
    assert name_cgroup(tmp_path / "a/k") in names
    assert all(name.startswith("vgpumgr-k-k-") for name in names)


@ROOT_ONLY
def test_version_two_of_this_kernel_takes_a_process() -> None:
    """The root of a hierarchy of version 2 that this test mounts in a namespace of its own, whatever is bound there."""
    code = """
import ctypes, os, sys
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0 and libc.mount(None, b"/", None, 1 << 18 | 16384, None) == 0
top = Path(sys.argv[1])
if libc.mount(b"none", str(top).encode(), b"cgroup2", 0, None):
    sys.exit(77)
group = top / f"vgpumgr-k-test-{os.getpid()}"
group.mkdir()
try:
    child = os.fork()
    if not child:
        (group / "cgroup.procs").write_text("0")
        os._exit(0 if group.name in Path("/proc/self/cgroup").read_text() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
finally:
    group.rmdir()
"""
    directory = Path(os.environ.get("TMPDIR", "/tmp")) / f"cgroup2-{os.getpid()}"
    directory.mkdir()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(directory)],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        directory.rmdir()
    if done.returncode == 77:
        pytest.skip("cgroup2 cannot be mounted here")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_group_that_cannot_be_entered_is_none(tmp_path: Path) -> None:
    """As for a process whose own group is outside of its cgroup namespace: it is made, and nothing may move there."""
    top = tmp_path / "cgroup"
    (top / "name" / "cgroup.procs").mkdir(parents=True)  # writing to it fails
    (top / "cgroup.controllers").write_text("memory pids\n")
    (top / "cgroup.subtree_control").write_text("memory pids\n")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/\n")
    (proc / "mountinfo").write_text(f"31 23 0:28 / {top} rw - cgroup2 cgroup2 rw,nsdelegate\n")
    (found,) = make_cgroups("name", {"memory": 1 << 30}, proc)
    assert (found.controller, found.version, found.path) == ("memory", 2, None)
    assert "cannot be entered" in found.why
