"""Memory and events between processes of one guest: cuIpc, directly and over the channel."""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.unit.calls_rig import WORKER, guest_env, simulated_channel
from tests.unit.ipc_rig import Process
from tests.unit.test_lane_privacy import EVERYONE, House
from tests.unit.test_limits import CONTEXT, MIB, OUT_OF_MEMORY, used, wait_unused
from tests.unit.transport_rig import LIB, Rig, wait_for
from vgpumgr.sim.machine import create_machine

pytestmark = [pytest.mark.native, pytest.mark.cuda]

INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, NOT_SUPPORTED = 1, 201, 400, 600, 801
TRANSPORTS = ("ring", "private", "serial")
KEY = "device-memory"
SIZE = 3 * MIB
NATIVE = Path(__file__).parents[2] / "vgpumgr/virtio/native"
#: of one process or user, and of a VM: transport/worker_exports.h
TOKENS_OF_ONE, TOKENS = 3072, 4096
#: as many tokens as there are
HOARD = """
def hoard():
    count, code = 0, 0
    while code == 0 and count < 5000:
        code, _ = get(alloc(512))
        count += code == 0
    return count, code
"""


@contextmanager
def environment(how: str, root: Path) -> Iterator[Mapping[str, str]]:
    """Of processes on a simulated machine: directly, or in a guest."""
    with pytest.MonkeyPatch.context() as patch:
        if how == "direct":
            patch.setenv("VGPUMGR_SIM_ROOT", str(root))
            directory = create_machine("a30-pair")
            yield {
                **os.environ,
                "VGPUMGR_SIM": str(directory),
                "LD_LIBRARY_PATH": str(LIB / "sim"),
            }
            return
        with simulated_channel(how, root) as rig:
            yield guest_env(rig)
            status = rig.wait_status(lambda s: not s.lanes, "lanes freed")
            assert (status.violations.count, status.sessions.lost) == (0, 0)


@pytest.fixture(params=["direct", *TRANSPORTS])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    with (
        environment(request.param, tmp_path) as env,
        Process(env) as one,
        Process(env) as other,
    ):
        yield one, other


def export(process: Process, size_bytes: int = SIZE) -> tuple[int, str]:
    """New memory, and its handle."""
    address = process.ask(f"alloc({size_bytes})")
    code, handle = process.ask(f"get({address})")
    assert code == 0
    return address, handle


def import_(process: Process, handle: str) -> int:
    """The address of another process's memory."""
    code, address = process.ask(f"opened({handle!r})")
    assert code == 0
    return int(address)


def wait_gone(process: Process, handle: str) -> None:
    """Until the token has ended, as it does with its maker's session."""

    def is_gone() -> bool:
        code, address = process.ask(f"opened({handle!r})")
        assert code in (0, INVALID_HANDLE)
        return bool(code) or process.ask(f"close({address})") != 0

    wait_for(is_gone, "the token ends with its maker")


# ---- memory


def test_both_processes_see_what_either_writes(pair: tuple[Process, Process]) -> None:
    one, other = pair
    mine, handle = export(one)
    assert one.ask(f"write({mine}, b'one' * 1000)") == 0
    theirs = import_(other, handle)
    assert other.ask(f"read({theirs}, 3000)") == b"one" * 1000
    assert other.ask(f"write({theirs + SIZE - 5}, b'other')") == 0
    assert one.ask(f"read({mine + SIZE - 5}, 5)") == b"other"
    assert other.ask(f"memory_range({theirs + 7})") == (theirs, SIZE)
    assert other.ask(f"write({theirs + SIZE - 4}, b'other')") == INVALID_VALUE  # beyond its end


def test_a_copy_from_the_host_is_done_when_it_returns(pair: tuple[Process, Process]) -> None:
    """Also where the stream has work before it: then it returns when that is done."""
    one, other = pair
    word, word_handle = export(one, 4)
    mine, handle = export(one)
    theirs, their_word = import_(other, handle), import_(other, word_handle)
    assert one.ask(f"write({mine}, b'old')") == 0
    assert one.ask(f"hold({word}, 0)") is None
    one.send(f"write({mine}, b'new')")
    assert one.popen.stdout is not None
    assert not select.select([one.popen.stdout], [], [], 0.3)[0]
    assert other.ask(f"write({their_word}, bytes([1, 0, 0, 0]))") == 0
    assert one.answer() == 0
    assert other.ask(f"read({theirs}, 3)") == b"new"


def test_a_close_that_waits_holds_up_no_open(pair: tuple[Process, Process]) -> None:
    """A driver's close waits for the context's work, which may wait for what another thread does."""
    one, other = pair
    handles = [export(one)[1] for _ in range(2)]
    theirs = import_(other, handles[0])
    assert other.ask(f"close_beside({theirs}, {handles[1]!r})") == (0, 0)


def test_a_copy_that_blocks_is_seen_when_it_returns(pair: tuple[Process, Process]) -> None:
    one, other = pair
    mine, handle = export(one)
    theirs = import_(other, handle)
    for turn in range(60):
        assert one.ask(f"write({mine}, bytes([{turn}]) * {SIZE})") == 0
        assert other.ask(f"read({theirs + SIZE - 1}, 1)") == bytes([turn])
        rows = f"write_rows({mine}, 1024, bytes([{turn}]) * 2048 + b'{turn:1024}', 3)"
        assert one.ask(rows) == 0
        assert other.ask(f"read({theirs + 3071 - 2}, 3)") == f"{turn:3}".encode()


def test_a_handle_names_the_whole_allocation(pair: tuple[Process, Process]) -> None:
    one, other = pair
    mine, handle = export(one)
    assert one.ask(f"get({mine + 12345})") == (0, handle)
    assert one.ask(f"get({mine})") == (0, handle)
    beside, small = export(one, 100)
    assert one.ask(f"write({beside}, b'small')") == 0
    assert small != handle
    assert other.ask(f"read({import_(other, small)}, 5)") == b"small"


def test_opening_twice_counts(pair: tuple[Process, Process]) -> None:
    one, other = pair
    _, handle = export(one)
    theirs = import_(other, handle)
    assert import_(other, handle) == theirs
    assert other.ask(f"close({theirs + 1})") == INVALID_VALUE
    assert [other.ask(f"close({theirs})") for _ in range(3)] == [0, 0, INVALID_VALUE]
    assert other.ask(f"cu.cuMemsetD8_v2(c_uint64({theirs}), 1, c_size_t(1))") == INVALID_VALUE
    again = import_(other, handle)
    assert other.ask(f"read({again}, 1)")
    assert other.ask(f"close({again})") == 0


def test_what_cannot_be_shared_is_refused(pair: tuple[Process, Process]) -> None:
    one, other = pair
    mine, handle = export(one)
    assert one.ask(f"opened({handle!r})") == (INVALID_CONTEXT, 0)  # its own
    theirs = import_(other, handle)
    assert other.ask(f"free({theirs})") == INVALID_VALUE
    assert other.ask(f"free_async({theirs})") == INVALID_VALUE
    assert other.ask(f"get({theirs})")[0] == INVALID_VALUE
    assert one.ask(f"close({mine})") == INVALID_VALUE
    assert other.ask(f"opened({handle!r}, 0)")[0] == INVALID_VALUE
    assert other.ask(f"opened({handle!r}, 2)")[0] == INVALID_VALUE
    for kind in ("managed", "pooled"):
        address = one.ask(f"{kind}(4096)")
        assert one.ask(f"get({address})")[0] == INVALID_VALUE
        assert one.ask(f"is_capable({address})") == 0
    assert one.ask("get(4096)")[0] == INVALID_VALUE
    assert (one.ask(f"is_capable({mine})"), other.ask(f"is_capable({theirs})")) == (1, 0)
    assert one.ask("attribute(125)") == 1  # CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
    assert other.ask(f"read({theirs}, 1)")


@pytest.mark.parametrize("how", ["free", "end", "kill", "context"])
def test_the_memory_outlives_who_has_made_it(pair: tuple[Process, Process], how: str) -> None:
    one, other = pair
    mine, handle = export(one)
    beside, small = export(one, 1000)
    assert one.ask(f"write({mine}, b'kept') or write({beside}, b'small')") == 0
    theirs, little = import_(other, handle), import_(other, small)
    if how == "free":
        assert [one.ask(f"free({at})") for at in (mine, beside)] == [0, 0]
    elif how == "context":
        assert one.ask("cu.cuCtxDestroy_v2(context)") == 0
    elif how == "end":
        one.end()
    else:
        one.kill()
    assert other.ask(f"opened({small!r})") == (0, little)  # it has that already
    assert other.ask(f"close({little})") == 0
    if how == "free":  # what is allocated now lies elsewhere
        for _ in range(8):
            assert one.ask(f"write(alloc({SIZE}), b'new!') or write(alloc(1000), b'newer')") == 0
    assert (other.ask(f"read({theirs}, 4)"), other.ask(f"read({little}, 5)")) == (b"kept", b"small")
    assert other.ask(f"write({theirs}, b'more')") == 0
    assert other.ask(f"read({theirs}, 4)") == b"more"
    assert [other.ask(f"close({at})") for at in (theirs, little)] == [0, 0]
    wait_gone(other, handle)


def test_who_has_opened_it_may_end_first(pair: tuple[Process, Process]) -> None:
    one, other = pair
    mine, handle = export(one)
    theirs = import_(other, handle)
    assert other.ask(f"write({theirs}, b'left')") == 0
    other.kill()
    assert one.ask(f"read({mine}, 4)") == b"left"
    assert one.ask(f"free({mine})") == 0


def test_a_context_that_ends_closes_what_it_has_opened(pair: tuple[Process, Process]) -> None:
    one, other = pair
    mine, handle = export(one)
    import_(other, handle)
    assert other.ask("cu.cuCtxDestroy_v2(context)") == 0
    assert other.ask("start()") is None
    assert other.ask(f"read({import_(other, handle)}, 1)")
    assert one.ask(f"free({mine})") == 0


# ---- events


def shared_event(one: Process, other: Process) -> tuple[int, int]:
    """An event of the first process, in both."""
    code, mine = one.ask("event()")
    assert code == 0
    code, handle = one.ask(f"event_get({mine})")
    assert code == 0
    code, theirs = other.ask(f"event_opened({handle!r})")
    assert code == 0
    return mine, theirs


@pytest.mark.parametrize("order", ["maker", "opener"])
def test_streams_of_one_wait_for_work_of_the_other(
    pair: tuple[Process, Process], order: str
) -> None:
    one, other = pair
    mine, theirs = shared_event(one, other)
    if order == "opener":
        one, other, mine, theirs = other, one, theirs, mine
    assert (one.ask(f"query({mine})"), other.ask(f"query({theirs})")) == (0, 0)
    for process in pair:
        process.ask("s, t, word = stream(), stream(), alloc(4)")
    assert one.ask("hold(word, s)") is None
    assert one.ask(f"record({mine}, s)") == 0
    # the record is seen at once
    assert (other.ask(f"query({theirs})"), other.ask(f"stream_wait(s, {theirs})")) == (NOT_READY, 0)
    assert other.ask("stream_query(s)") == NOT_READY
    assert one.ask("release(word, t)") is None
    assert other.ask(f"synchronize({theirs})") == 0
    wait_for(lambda: other.ask("stream_query(s)") == 0, "the stream goes on")
    assert (one.ask(f"query({mine})"), other.ask(f"query({theirs})")) == (0, 0)


def test_events_are_what_their_flags_say(pair: tuple[Process, Process]) -> None:
    one, other = pair
    assert one.ask("event(4)")[0] == INVALID_VALUE  # it would have times
    _, plain = one.ask("event(2)")
    assert one.ask(f"event_get({plain})")[0] == INVALID_HANDLE
    mine, theirs = shared_event(one, other)
    assert other.ask(f"event_get({theirs})")[0] == INVALID_HANDLE  # its maker's to hand on
    _, handle = one.ask(f"event_get({mine})")
    assert one.ask(f"event_get({mine})") == (0, handle)
    assert one.ask(f"event_opened({handle!r})")[0] == INVALID_CONTEXT
    elapsed = (
        f"cu.cuEventElapsedTime_v2(byref(ctypes.c_float()), c_void_p({theirs}), c_void_p({theirs}))"
    )
    assert other.ask(elapsed) == INVALID_HANDLE
    assert other.ask(f"destroy_event({theirs})") == 0
    assert one.ask(f"record({mine}) or synchronize({mine})") == 0
    assert one.ask(f"destroy_event({mine})") == 0
    assert other.ask(f"event_opened({handle!r})")[0] == INVALID_HANDLE


@pytest.mark.parametrize("dies", ["maker", "opener"])
def test_nobody_waits_for_a_process_that_has_died(pair: tuple[Process, Process], dies: str) -> None:
    one, other = pair
    mine, theirs = shared_event(one, other)
    if dies == "opener":
        one, other, mine, theirs = other, one, theirs, mine
    for process in pair:
        process.ask("s, word = stream(), alloc(4)")
    one.ask("hold(word, s)")
    assert one.ask(f"record({mine}, s)") == 0
    assert other.ask(f"stream_wait(s, {theirs})") == 0
    other.send(f"synchronize({theirs})")
    time.sleep(0.2)
    one.kill()
    assert other.answer() == 0
    assert other.ask("cu.cuStreamSynchronize(c_void_p(s))") == 0


# ---- limits


@pytest.mark.parametrize("transport", ["ring", "serial"])
def test_memory_is_charged_once_and_as_long_as_anybody_has_it(
    tmp_path: Path, transport: str
) -> None:
    limit = 2 * CONTEXT + 8 * MIB
    with (
        simulated_channel(transport, tmp_path, f"--limits={KEY}:{limit}") as rig,
        Process(guest_env(rig)) as one,
        Process(guest_env(rig)) as other,
    ):
        mine, handle = export(one, 6 * MIB)
        theirs = import_(other, handle)
        import_(other, handle)

        def charged(bytes_: int) -> None:
            wait_for(lambda: used(rig, KEY) == bytes_, f"{bytes_} are charged: {used(rig, KEY)}")

        charged(2 * CONTEXT + 6 * MIB)
        assert one.ask(f"free({mine})") == 0
        charged(2 * CONTEXT + 6 * MIB)  # the VM's, until it is closed
        assert one.ask(f"try_alloc({3 * MIB})") == OUT_OF_MEMORY
        assert other.ask(f"close({theirs})") == 0
        assert one.ask(f"try_alloc({3 * MIB})") == OUT_OF_MEMORY
        assert other.ask(f"close({theirs})") == 0
        charged(2 * CONTEXT)
        assert one.ask(f"try_alloc({8 * MIB})") == 0

        _, handle = export(one, 6 * MIB)
        theirs = import_(other, handle)
        one.kill()
        charged(CONTEXT + 6 * MIB)
        assert other.ask(f"try_alloc({limit - CONTEXT - 5 * MIB})") == OUT_OF_MEMORY
        assert other.ask(f"read({theirs}, 1)")
        other.kill()
        wait_unused(rig)


def test_tokens_are_limited_and_leave_some_to_others(tmp_path: Path) -> None:
    with (
        simulated_channel("ring", tmp_path) as rig,
        Process(guest_env(rig)) as one,
        Process(guest_env(rig)) as other,
        Process(guest_env(rig)) as third,
    ):
        for process in (one, other, third):
            process.ask(f"exec({HOARD!r}, globals())")
        assert one.ask("hoard()") == (TOKENS_OF_ONE, OUT_OF_MEMORY)
        assert other.ask("hoard()") == (TOKENS - TOKENS_OF_ONE, OUT_OF_MEMORY)
        assert third.ask("hoard()") == (0, OUT_OF_MEMORY)
        one.kill()
        wait_for(lambda: third.ask(f"get(alloc({SIZE}))")[0] == 0, "its tokens have ended")


# ---- attacks


def changed(handle: str) -> list[str]:
    """The handle with one bit of each byte changed."""
    raw = bytes.fromhex(handle)
    return [(raw[:i] + bytes([raw[i] ^ 1 << i % 8]) + raw[i + 1 :]).hex() for i in range(len(raw))]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_token_can_be_made_up_or_used_again(tmp_path: Path, transport: str) -> None:
    with (
        simulated_channel(transport, tmp_path) as rig,
        Process(guest_env(rig)) as one,
        Process(guest_env(rig)) as other,
    ):
        mine, handle = export(one)
        _, event = one.ask("event()")
        _, event_handle = one.ask(f"event_get({event})")
        guesses = [*changed(handle), "00" * 64, "ff" * 64, event_handle]
        guesses += [secrets.token_hex(64) for _ in range(64)]
        for guess in guesses:
            assert other.ask(f"opened({guess!r})") == (INVALID_HANDLE, 0)
        for guess in (*changed(event_handle)[:8], "00" * 64, handle):
            assert other.ask(f"event_opened({guess!r})")[0] == INVALID_HANDLE
        assert one.ask(f"free({mine})") == 0
        assert other.ask(f"opened({handle!r})")[0] == INVALID_HANDLE
        again, fresh = export(one)
        assert fresh != handle
        assert other.ask(f"opened({handle!r})")[0] == INVALID_HANDLE
        assert again
        one.kill()
        wait_gone(other, fresh)
        assert other.ask(f"event_opened({event_handle!r})")[0] == INVALID_HANDLE
        # nothing of a token is the driver's: its handles begin with a small number
        assert not fresh.startswith("01000000")


def test_a_token_is_of_no_use_in_another_vm(tmp_path: Path) -> None:
    """Both on one GPU, where the driver's own handle would do."""
    with ExitStack() as stack:
        rigs = [stack.enter_context(simulated_channel("ring", tmp_path))]
        rigs.append(stack.enter_context(second_channel()))
        one, other = (stack.enter_context(Process(guest_env(rig))) for rig in rigs)
        _, handle = export(one)
        _, event = one.ask("event()")
        _, event_handle = one.ask(f"event_get({event})")
        assert other.ask(f"opened({handle!r})") == (INVALID_HANDLE, 0)
        assert other.ask(f"event_opened({event_handle!r})")[0] == INVALID_HANDLE
        friend = stack.enter_context(Process(guest_env(rigs[0])))
        assert friend.ask(f"read({import_(friend, handle)}, 1)")


@contextmanager
def second_channel() -> Iterator[Rig]:
    """Another VM's, on the same machine."""
    driver = LIB / "sim" / "libcuda.so.1"
    with Rig("ring", worker=WORKER, worker_args=("--cuda", str(driver))) as rig:
        yield rig


@pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")
@pytest.mark.parametrize(
    ("transport", "code"), [("private", INVALID_HANDLE), ("ring", 0), ("serial", 0)]
)
def test_users_that_are_kept_apart_share_with_themselves_only(
    tmp_path: Path, transport: str, code: int
) -> None:
    """The rig's other lanes are shared: there all users are one."""

    def user(rig: Rig, uid: int) -> Process:
        prelude = f"from tests.unit import ipc_process, guest_lane\nguest_lane.become({uid})"
        return Process(guest_env(rig), prelude=prelude)

    class Open(House):
        def __init__(self, transport: str, **options: object) -> None:
            super().__init__(transport, agent_options=EVERYONE, **options)  # type: ignore[arg-type]

    with (
        simulated_channel(transport, tmp_path, make=Open) as rig,
        user(rig, 61001) as alice,
        user(rig, 61001) as alice_too,
        user(rig, 61002) as bob,
    ):
        mine, handle = export(alice)
        _, event = alice.ask("event()")
        _, event_handle = alice.ask(f"event_get({event})")
        assert bob.ask(f"opened({handle!r})")[0] == code
        assert bob.ask(f"event_opened({event_handle!r})")[0] == code
        assert alice.ask(f"write({mine}, b'alice')") == 0
        assert alice_too.ask(f"read({import_(alice_too, handle)}, 5)") == b"alice"
        if code:  # no user has all tokens
            for process in (alice, alice_too, bob):
                process.ask(f"exec({HOARD!r}, globals())")
            assert alice.ask("hoard()") == (TOKENS_OF_ONE - 2, OUT_OF_MEMORY)
            assert alice_too.ask("hoard()") == (0, OUT_OF_MEMORY)
            assert bob.ask(f"get(alloc({SIZE}))")[0] == 0


def test_a_session_that_lies_about_what_it_shares_is_ended(tmp_path: Path) -> None:
    """The server's table against requests of sessions that were taken over, with a model beside it."""
    program, tests, native = tmp_path / "exports", Path(__file__).parents[1], NATIVE / "transport"
    sources = [
        tests / "fuzz/exports.c",
        native / "worker_exports.c",
        native / "worker_exports_pass.c",
        native / "worker_limits.c",
    ]
    options = ["-g1", "-O1", "-pthread", "-D_GNU_SOURCE", "-fsanitize=address,undefined"]
    command = ["gcc", "-std=gnu11", *options, "-o", str(program), *map(str, sources)]
    subprocess.run([*command, "-I", str(NATIVE)], check=True)
    for seed in ("1", secrets.token_hex(4)):
        words = [str(program), "60000", str(int(seed, 16))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), (seed, done.stdout)
