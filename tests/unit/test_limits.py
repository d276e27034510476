"""The limits of a VM: attacked by guest processes together, by racing threads, by kills in the midst of a charge."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.service import make_bench
from tests.unit.calls_rig import NULL_DRIVER, WORKER, run_python, simulated_channel, start_python
from tests.unit.test_sessions import KERNELS, held
from tests.unit.transport_rig import PATIENCE_S, Rig, wait_for
from vgpumgr.app.operations.runs import start_run
from vgpumgr.errors import UsageError
from vgpumgr.host.machine import Machine
from vgpumgr.model.attachment import AttachmentRecord
from vgpumgr.model.codec import decode, encode
from vgpumgr.model.limits import KEYS, WORKER_KEYS, Limits, parse_limits
from vgpumgr.model.request import AttachRequest
from vgpumgr.state.domain_metadata import rebuild_records
from vgpumgr.steps.channel import make_spec
from vgpumgr.virtio.channel import ChannelSpec
from vgpumgr.virtio.keeper import KeeperChannels, KeeperError

NATIVE = Path(__file__).parents[2] / "vgpumgr/virtio/native"
OUT_OF_MEMORY = 2
MIB = 1 << 20
#: what a context takes of the device's memory: WK_CONTEXT_BYTES
CONTEXT = 128 * MIB
#: of ``guest_cuda.PTX``
PTX_BYTES = 45


@contextmanager
def limited(*limits: str, transport: str = "ring") -> Iterator[Rig]:
    """A channel on the null driver with these limits."""
    option = f"--limits={parse_limits(limits).for_worker}"
    args = ("--cuda", str(NULL_DRIVER), option)
    with Rig(transport, worker=WORKER, worker_args=args) as rig:
        yield rig


def used(rig: Rig, key: str) -> int:
    """What the VM uses of a limit, as the keeper tells it."""
    return rig.status().limits[[k.name for k in WORKER_KEYS].index(key)][1]


def wait_unused(rig: Rig) -> None:
    """Waits until nothing is held of any limit."""
    rig.wait_status(lambda s: not any(limit[1] for limit in s.limits), "nothing is held")


#: for each line: makes objects until one is refused, and says how many there are now and why there are no more
HOARD = """
import sys
what, size = sys.argv[1], int(sys.argv[2])
context()
held = []
def make():
    made = c_void_p()
    if what == "device-memory":
        return cu.cuMemAlloc_v2(byref(made), c_size_t(size)), made
    if what == "contexts":
        return cu.cuCtxCreate_v2(byref(made), 0, 0), made
    if what == "streams":
        return cu.cuStreamCreate(byref(made), 1) or cu.cuCtxSynchronize(), made
    if what == "events":
        return cu.cuEventCreate(byref(made), 0) or cu.cuCtxSynchronize(), made
    return cu.cuModuleLoadData(byref(made), PTX[:-1] + b"/" * size + b"\\0"), made
print("ready", flush=True)
for _ in sys.stdin:
    result = 0
    while result == 0 and len(held) < 1000:
        result, made = make()
        if result == 0:
            held.append(made)
    print(len(held), result, flush=True)
"""


class Hoarder:
    """A guest process that takes what it gets; ``size`` is of each object."""

    def __init__(self, rig: Rig, key: str, size: int) -> None:
        self._process = start_python(rig, HOARD, key, str(size))
        self._read()

    def ask(self) -> None:
        """Has it take all that there is."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def answer(self) -> int:
        """How many it has; it wanted more and was told what a full GPU tells."""
        count, result = map(int, self._read().split())
        assert result == OUT_OF_MEMORY
        return count

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


#: key, limit, what one object takes of it, its size for HOARD, and what a process takes with its context alone
HELD = [
    ("device-memory", 2 * CONTEXT + 9 * MIB + 5, 1 * MIB + 1, 1 * MIB + 1, CONTEXT),
    ("contexts", 9, 1, 0, 1),
    ("streams", 7, 1, 0, 0),
    ("events", 13, 1, 0, 0),
    ("modules", 11, 1, 0, 0),
    ("image-bytes", 100_000, 9_000, 9_000 - PTX_BYTES, 0),
]


@pytest.mark.parametrize(("key", "limit", "each", "size", "own"), HELD)
@pytest.mark.parametrize("transport", ["ring", "serial"])
def test_processes_together_get_exactly_the_limit_and_the_killed_ones_share(
    key: str, limit: int, each: int, size: int, own: int, transport: str
) -> None:
    with limited(f"{key}={limit}", transport=transport) as rig:
        first, second = Hoarder(rig, key, size), Hoarder(rig, key, size)
        for one in (first, second):
            one.ask()
        assert first.answer() + second.answer() == (limit - 2 * own) // each
        assert used(rig, key) <= limit
        first.kill()
        rig.wait_status(lambda s: len(s.lanes) == 1, "the killed one's session has ended")
        second.ask()
        assert second.answer() == (limit - own) // each
        second.kill()
        wait_unused(rig)


def test_a_device_is_as_large_as_its_limit_and_as_free_as_the_vm_has_left_it() -> None:
    look = """
free, total = c_size_t(), c_size_t()
def look():
    ok(cu.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value, total.value
context()
"""
    with limited("device-memory=1GiB") as rig:
        first = start_python(rig, f"{look}\nmemory(1000)\nprint(look(), flush=True)\ninput()")
        assert first.stdout is not None
        assert first.stdout.readline() == f"({1024 * MIB - CONTEXT - 1000}, {1024 * MIB})\n"
        seen = run_python(
            rig,
            f"""{look}
print(look())
size = c_size_t()
ok(cu.cuDeviceTotalMem_v2(byref(size), 0))
print(size.value)
made = c_void_p()
print(cu.cuMemAlloc_v2(byref(made), c_size_t(free.value + 1)))
print(cu.cuMemAlloc_v2(byref(made), c_size_t(free.value)))
ok(cu.cuMemFree_v2(made))
print(look()[0])
pitch = c_size_t()
print(cu.cuMemAllocPitch_v2(byref(made), byref(pitch), c_size_t(513), c_size_t(1000), 4))
print(free.value - look()[0] - pitch.value * 1000)
""",
        )
        left = 1024 * MIB - 2 * CONTEXT - 1000
        lines = [f"({left}, {1024 * MIB})", 1024 * MIB, OUT_OF_MEMORY, 0, left, 0, 0]
        assert seen.splitlines() == [str(line) for line in lines]
        first.kill()
        first.communicate()


def test_what_a_stream_has_not_freed_yet_is_charged(tmp_path: Path) -> None:
    code = f"""{KERNELS}
context()
def stream():
    made = c_void_p()
    ok(cu.cuStreamCreate(byref(made), 1))
    return made
def allocate(on, mib):
    made = c_void_p()
    r = cu.cuMemAllocAsync(byref(made), c_size_t(mib << 20), on)
    return r or cu.cuMemFreeAsync(made, on)
done, stuck = stream(), stream()
print([allocate(done, 500) for _ in range(20)] == [0] * 20)
ok(cu.cuCtxSynchronize())
f = function(module(image), b"endless")
ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stuck, None, None))
print([allocate(stuck, 250) for _ in range(4)], allocate(done, 100), flush=True)
input()
"""
    option = f"--limits={parse_limits(['device-memory=1GiB']).for_worker}"
    with simulated_channel("ring", tmp_path, option) as rig:
        guest = start_python(rig, code)
        assert guest.stdout is not None
        lines = [guest.stdout.readline() for _ in range(2)]
        assert lines == ["True\n", f"[0, 0, 0, {OUT_OF_MEMORY}] 0\n"]
        assert used(rig, "device-memory") <= 1024 * MIB
        guest.kill()
        guest.communicate()
        wait_unused(rig)


@pytest.mark.parametrize("size", ["2**63", "2**64-1", "2**64-4096"])
def test_sizes_that_overflow_a_sum_are_refused_and_leave_nothing(size: str) -> None:
    with limited("device-memory=1GiB") as rig:
        code = f"""
context()
made = c_void_p()
print([cu.cuMemAlloc_v2(byref(made), c_size_t({size})) for _ in range(3)])
print(cu.cuMemAlloc_v2(byref(made), c_size_t({1024 * MIB - CONTEXT})))
"""
        assert run_python(rig, code).splitlines() == [f"{[OUT_OF_MEMORY] * 3}", "0"]


def test_what_a_context_reserves_for_kernels_counts() -> None:
    with limited("device-memory=1GiB") as rig:
        code = f"""
context()
HEAP = 2
made = c_void_p()
print(cu.cuCtxSetLimit(HEAP, c_size_t({1024 * MIB})), cu.cuCtxSetLimit(HEAP, c_size_t({512 * MIB})))
print(cu.cuMemAlloc_v2(byref(made), c_size_t({512 * MIB})))
"""
        assert run_python(rig, code).splitlines() == [f"{OUT_OF_MEMORY} 0", str(OUT_OF_MEMORY)]
        wait_unused(rig)


def test_threads_of_two_processes_that_race_get_exactly_the_limit() -> None:
    code = """
import threading
context()
count, lock = 0, threading.Lock()
barrier = threading.Barrier(8)
current = c_void_p()
ok(cu.cuCtxGetCurrent(byref(current)))
def race():
    global count
    ok(cu.cuCtxSetCurrent(current))
    barrier.wait()
    made, refused = c_void_p(), 0
    while refused < 3:
        if cu.cuMemAlloc_v2(byref(made), c_size_t(1 << 20)):
            refused += 1
        else:
            with lock:
                count += 1
print("ready", flush=True)
input()
threads = [threading.Thread(target=race) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
print(count, flush=True)
input()
"""
    with limited(f"device-memory={2 * CONTEXT + 300 * MIB}") as rig:
        processes = [start_python(rig, code) for _ in range(2)]
        total = 0
        for go in (True, False):
            for one in processes:
                assert one.stdout is not None
                assert one.stdin is not None
                total += 0 if go else int(one.stdout.readline())
                if go:
                    assert one.stdout.readline() == "ready\n"
            for one in processes:
                assert one.stdin is not None
                one.stdin.write("\n")
                one.stdin.flush()
        for one in processes:
            one.communicate(timeout=PATIENCE_S)
        assert total == 300


def test_sessions_killed_in_the_midst_of_charges_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a charge stands while the driver works on what it is for
    monkeypatch.setenv("VGPUMGR_NULL_SLOW", "cuMemAlloc_v2:3000")
    code = """
context()
made = c_void_p()
print("ready", flush=True)
while True:
    cu.cuMemAlloc_v2(byref(made), c_size_t(1 << 20))
    cu.cuMemFree_v2(made)
    cu.cuEventCreate(byref(made), 0)
"""
    chance = random.Random(11)
    with limited("device-memory=1GiB", "events=50") as rig:
        for _ in range(4):
            guests = [start_python(rig, code) for _ in range(3)]
            for guest in guests:
                assert guest.stdout is not None
                guest.stdout.readline()
            for guest in guests:
                time.sleep(chance.random() * 0.02)
                guest.kill()
                guest.communicate()
            wait_unused(rig)


@pytest.mark.parametrize("words", [("3",), ("3", "changing")], ids=["fixed", "changing"])
def test_no_interleaving_of_charges_exceeds_a_limit_and_kills_leave_nothing(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Processes with threads charge and refund one table, and count beside it what they were granted; the limit of
    device memory may change meanwhile.
    """
    program = tmp_path / "charges"
    sources = [Path(__file__).parents[1] / "fuzz/charges.c", NATIVE / "transport/worker_limits.c"]
    command = ["cc", "-O2", "-pthread", "-D_GNU_SOURCE", "-o", str(program), *map(str, sources)]
    subprocess.run([*command, "-I", str(NATIVE)], check=True)
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


CALLS = """
import sys, time
made = context()
ok(cu.cuCtxSynchronize())
begin = time.monotonic()
for _ in range(int(sys.argv[1])):
    cu.cuStreamQuery(None)
print(time.monotonic() - begin)
"""


def test_calls_a_second_are_delayed_in_proportion_and_none_fails() -> None:
    seconds = {}
    for rate in ("none", "200", "1600"):
        with limited(f"calls={rate}") as rig:
            seconds[rate] = float(run_python(rig, CALLS, "800"))
            waited_ns = rig.status().limits[[k.name for k in WORKER_KEYS].index("calls")][3]
            assert (waited_ns > 0) == (rate != "none")
    # a machine that is busy with other things makes all of them slower, and the quick ones by more
    assert 0.85 * 800 / 200 < seconds["200"] < 3 * 800 / 200
    assert seconds["1600"] > 0.85 * 800 / 1600
    assert seconds["200"] > 2 * seconds["1600"]
    assert seconds["200"] > 4 * seconds["none"]


def test_processes_share_the_calls_a_second() -> None:
    with limited("calls=500") as rig:
        begin = time.monotonic()
        both = [start_python(rig, CALLS, "500") for _ in range(2)]
        for one in both:
            assert one.communicate(timeout=PATIENCE_S)[1] == ""
        assert time.monotonic() - begin > 0.85 * 1000 / 500


def test_bytes_a_second_are_delayed_in_proportion() -> None:
    code = """
import time
context()
size = 1 << 20
to, data = memory(size), bytes(size)
ok(cu.cuCtxSynchronize())
begin = time.monotonic()
for _ in range(16):
    ok(cu.cuMemcpyHtoD_v2(to, data, c_size_t(size)))
ok(cu.cuCtxSynchronize())
print(time.monotonic() - begin)
"""
    seconds = {}
    for rate in ("4MiB", "32MiB"):
        with limited(f"bytes={rate}") as rig:
            seconds[rate] = float(run_python(rig, code))
    assert 0.85 * 16 / 4 < seconds["4MiB"] < 3 * 16 / 4
    assert seconds["32MiB"] > 0.85 * 16 / 32
    assert seconds["4MiB"] > 2 * seconds["32MiB"]


def test_compilations_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUMGR_NULL_SLOW", "cuModuleLoadDataEx:300000")
    code = """
context()
print("ready", flush=True)
input()
module()
"""
    seconds = {}
    for jit in ("none", "1"):
        with limited(f"jit={jit}") as rig:
            guests = [start_python(rig, code) for _ in range(4)]
            for guest in guests:
                assert guest.stdout is not None
                guest.stdout.readline()
            begin = time.monotonic()
            for guest in guests:
                assert guest.stdin is not None
                guest.stdin.write("\n")
                guest.stdin.flush()
            for guest in guests:
                assert guest.communicate(timeout=PATIENCE_S)[1] == ""
            seconds[jit] = time.monotonic() - begin
    assert seconds["1"] > 1.2
    assert seconds["none"] < seconds["1"]


def test_a_load_that_waits_to_be_compiled_is_no_call_that_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VGPUMGR_NULL_SLOW", "cuModuleLoadDataEx:1200000")
    args = ("--cuda", str(NULL_DRIVER), "--limits=jit:1", "--watchdog=0:3")
    with Rig("ring", worker=WORKER, worker_args=args) as rig:
        guests = [start_python(rig, "context(); module()") for _ in range(5)]
        for guest in guests:
            assert (guest.communicate(timeout=PATIENCE_S)[1], guest.returncode) == ("", 0)
        assert rig.status().sessions.overdue == 0


@pytest.mark.parametrize("limits", ["moon:1", "contexts:", "contexts", "jit:0", "events:1:2"])
def test_a_worker_that_does_not_understand_its_limits_does_not_serve(limits: str) -> None:
    args = ("--cuda", str(NULL_DRIVER), f"--limits={limits}")
    with pytest.raises(KeeperError) as raised, Rig("ring", worker=WORKER, worker_args=args):
        pass
    assert "does not understand its limits" in (raised.value.cause or "")


def test_the_keys_are_those_of_the_worker_in_its_order() -> None:
    text = (NATIVE / "transport/stats.h").read_text()
    enum = text.split("enum vg_limit {")[1].split("}")[0]
    names = [line.strip().rstrip(",") for line in enum.splitlines() if "VG_LIMIT_" in line]
    known = [n.split(" =")[0].removeprefix("VG_LIMIT_").lower().replace("_", "-") for n in names]
    assert known == [key.name for key in WORKER_KEYS]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("device-mem=1GiB", "there is no limit 'device-mem': device-memory?"),
        ("event=1", "there is no limit 'event': events?"),
        ("calls", "'calls' has no value: write calls=VALUE, or calls=none"),
        ("calls=", "'calls=' has no value: write calls=VALUE, or calls=none"),
        ("contexts=-1", "contexts=-1: not a number"),
        ("contexts=0", "contexts=0: at least 1, or none"),
        ("processes=15", "processes=15: at least 16, or none"),
        ("host-memory=1KiB", "host-memory=1KiB: at least 64MiB, or none"),
        ("device-memory=127MiB", "device-memory=127MiB: at least 128MiB, or none"),
        ("cpu=0%", "cpu=0%: at least 1%, or none"),
        ("calls=" + "9" * 5000, f"calls={'9' * 20}: at most {(1 << 63) - 1}, or none"),
        ("bytes=" + "9" * 20, f"bytes={'9' * 20}: at most {(1 << 63) - 1}, or none"),
        ("bytes=" + "9" * 400, f"not a size: {'9' * 24}... has 400 digits"),
        ("device-memory=8GB", "'8GB' is ambiguous: write 8GiB"),
        ("cpu=all", "cpu=all: not a number"),
    ],
    ids=lambda text: text[:24],
)
def test_a_limit_that_cannot_be_is_refused_with_the_nearest_that_can(word: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        parse_limits([word])


def test_a_limit_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="calls is given twice"):
        parse_limits(["calls=1", "jit=none", "calls=2"])


def test_limits_are_written_as_they_are_read() -> None:
    words = ("device-memory=1536MiB", "contexts=3", "jit=none", "bytes=1000B", "cpu=150%")
    limits = parse_limits(words)
    assert parse_limits(limits.changed) == limits
    assert [key for key, _ in Limits().items()] == list(KEYS)
    assert limits.changed == ("device-memory=1.5GiB", *words[1:])


# ---- where they are kept


def test_an_attachment_keeps_its_limits_in_state_and_domain_and_its_plan_shows_them(
    tmp_path: Path,
) -> None:
    bench = make_bench(tmp_path)
    request = AttachRequest("vm01", "1g.10gb", limits=("device-memory=1GiB", "jit=none"))
    plan = bench.service.attach(request, dry_run=True).plan
    (start,) = [step for step in plan.steps if step.kind == "channel.start"]
    assert start.description.endswith("at most device-memory=1GiB, jit=none)")
    bench.service.attach(request)
    (record,) = bench.store.list_attachments()
    assert record.channel is not None
    assert record.channel.limits == request.limits
    assert bench.channels.specs[record.id].limits == parse_limits(request.limits)
    (rebuilt,) = rebuild_records(bench.hypervisor.read_vm("vm01"))
    assert rebuilt.channel is not None
    assert rebuilt.channel.limits == record.channel.limits


def test_an_attachment_of_an_earlier_version_has_the_defaults(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.service.attach(AttachRequest("vm01", "1g.10gb"))
    (record,) = bench.store.list_attachments()
    data = encode(record)
    del data["channel"]["limits"]
    old = decode(AttachmentRecord, data)
    assert old.channel is not None
    assert make_spec(old).limits == Limits()


def test_a_run_has_limits_from_its_start(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    asked = {"name": "a", "command": "a", "profile": "1g.10gb", "pid": os.getpid()}
    start_run(bench.service.parts, **asked, limits=("calls=100",))  # type: ignore[arg-type]
    (spec,) = bench.channels.specs.values()
    assert spec.limits.for_worker.endswith("calls:100")
    with pytest.raises(UsageError, match="cannot read --limit") as raised:
        start_run(bench.service.parts, **asked, limits=("call=100",))  # type: ignore[arg-type]
    assert raised.value.cause == "there is no limit 'call': calls?"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups here")
def test_a_channel_shows_what_it_enforces_and_a_new_worker_enforces_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VGPUMGR_CUDA", str(NULL_DRIVER))
    directory = Path(tempfile.mkdtemp(prefix="vgl"))  # a socket's path is short
    channels = KeeperChannels(
        Machine("test", directory, directory, directory / "run", "test:///default")
    )
    limits = parse_limits(["events=5", "host-memory=1GiB", "cpu=none"])
    channels.start(ChannelSpec("a1", "vm01", "MIG-1", ring=True, serial=False, limits=limits))
    try:
        for _ in range(2):
            wait_for(lambda: bool(find(channels) and find(channels)["events"]), "a worker")
            seen = find(channels)
            assert seen["events"] == (5, 0)
            assert seen["contexts"] == (256, 0)
            assert seen["device-memory"] == (None, 0)
            limit, used_bytes = seen["host-memory"]
            assert limit == 1 << 30
            assert used_bytes is None or used_bytes > 0
            assert "cpu" not in seen
            channels.restart_worker("a1")
            time.sleep(0.2)
        groups = [Path(fact.detail) for fact in channels.audit("a1") if "cgroup " in fact.name]
    finally:
        channels.stop("a1")
        shutil.rmtree(directory)
    assert not [path for path in groups if path.is_absolute() and path.exists()]


def find(channels: KeeperChannels) -> dict[str, tuple[int | None, int | None]]:
    """Each limit of channel a1 with what is used of it."""
    status = channels.read_status("a1")
    if status is None or not status.worker_ready:
        return {}
    return {one.key.name: (one.limit, one.used) for one in status.limits}


@pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="a sanitizer's session is traced")
@pytest.mark.parametrize("transport", ["ring", "serial"])
def test_what_a_session_holds_that_does_not_end_is_not_for_others(transport: str) -> None:
    with limited("events=9", transport=transport) as rig:
        first = Hoarder(rig, "events", 0)
        first.ask()
        assert first.answer() == 9
        (lane,) = rig.status().lanes
        with held(lane.session_pid):
            os.kill(lane.session_pid, signal.SIGSTOP)  # it gives nothing back itself
            first.kill()
            # a serial lane is then another's, a ring's is not
            rig.wait_status(lambda s: bool(s.sessions.stuck), "it is named as stuck")
            second = Hoarder(rig, "events", 0)
            second.ask()
            assert second.answer() == 0
        wait_for(lambda: used(rig, "events") == 0, "it has ended")
        second.ask()
        assert second.answer() == 9
