"""Memory between processes of one guest by descriptors: cuMemExportToShareableHandle, pools; directly and forwarded."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.unit.calls_rig import guest_env, simulated_channel
from tests.unit.ipc_rig import Process
from tests.unit.test_ipc import TRANSPORTS, environment, second_channel
from tests.unit.test_lane_privacy import EVERYONE, House
from tests.unit.test_limits import CONTEXT, MIB, OUT_OF_MEMORY, used
from tests.unit.transport_rig import Rig, wait_for

pytestmark = [pytest.mark.native, pytest.mark.cuda]

INVALID_VALUE, NOT_SUPPORTED = 1, 801
FABRIC = 8
UNIT = 2 * MIB
KEY = "device-memory"
PRELUDE = "from tests.unit import guest_lane, shareable_process"


def process(env: Mapping[str, str], prelude: str = "") -> Process:
    """One that can share."""
    return Process(env, prelude=f"{PRELUDE}\n{prelude}")


@pytest.fixture(params=["direct", *TRANSPORTS])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    with environment(request.param, tmp_path) as env, process(env) as one, process(env) as other:
        yield one, other


def ask(who: Process, line: str) -> int | str:
    """What a call gives that succeeds."""
    code, value = who.ask(line)
    assert code == 0, line
    assert isinstance(value, int | str)
    return value


def share(one: Process, size_bytes: int = UNIT) -> tuple[int | str, str]:
    """Memory, and the path of its descriptor."""
    handle = ask(one, f"physical({size_bytes})")
    return handle, str(ask(one, f"exported({handle})"))


def test_physical_memory_is_one_in_both_processes(pair: tuple[Process, Process]) -> None:
    one, other = pair
    handle, path = share(one)
    mine = one.ask(f"mapped({handle})")
    assert one.ask(f"write({mine}, b'one' * 1000)") == 0
    part = ask(other, f"imported({path!r})")
    theirs = other.ask(f"mapped({part})")
    assert other.ask(f"read({theirs}, 3000)") == b"one" * 1000
    for turn in range(20):  # a copy that blocks is seen when it returns
        assert other.ask(f"write({theirs + UNIT - 1}, bytes([{turn}]))") == 0
        assert one.ask(f"read({mine + UNIT - 1}, 1)") == bytes([turn])
    # what is mapped stays, whoever lets go of it first
    assert [one.ask(f"release({handle})"), one.ask(f"unmap({mine})")] == [0, 0]
    assert other.ask(f"read({theirs}, 3)") == b"one"
    assert other.ask(f"imported({path!r})")[0] == INVALID_VALUE
    one.kill()
    assert other.ask(f"read({theirs}, 3)") == b"one"
    assert [other.ask(f"release({part})"), other.ask(f"unmap({theirs})")] == [0, 0]


def test_a_descriptor_may_be_used_by_its_maker_and_again(pair: tuple[Process, Process]) -> None:
    one, other = pair
    handle, path = share(one)
    same = ask(one, f"imported({path!r})")
    mine = one.ask(f"mapped({same})")
    assert one.ask(f"write({mine}, b'kept')") == 0
    assert [one.ask(f"release({part})") for part in (handle, same)] == [0, 0]
    parts = [ask(other, f"imported({path!r})") for _ in range(2)]
    addresses = [other.ask(f"mapped({part})") for part in parts]
    assert [other.ask(f"read({at}, 4)") for at in addresses] == [b"kept", b"kept"]
    assert other.ask(f"exported({parts[0]})")[0] == NOT_SUPPORTED  # it is its maker's to hand on


def test_what_cannot_be_shared_is_refused(pair: tuple[Process, Process]) -> None:
    one, other = pair
    handle, path = share(one)
    plain = ask(one, "physical(UNIT, 0)".replace("UNIT", str(UNIT)))
    assert one.ask(f"exported({plain})")[0] == INVALID_VALUE
    assert one.ask(f"exported({handle}, {FABRIC})")[0] == NOT_SUPPORTED
    assert one.ask(f"exported({handle}, 77)")[0] == INVALID_VALUE
    assert one.ask(f"exported({handle}, 1, 1)")[0] == INVALID_VALUE
    assert one.ask("exported(12345)")[0] == INVALID_VALUE
    assert [other.ask(f"imported_number({file})") for file in (-1, 0, 9999, 1 << 40)] == [
        INVALID_VALUE
    ] * 4
    assert other.ask(f"imported({path!r}, {FABRIC})")[0] == NOT_SUPPORTED
    assert other.ask(f"imported_pool({path!r})")[0] == INVALID_VALUE
    private = ask(one, "pool(0)")
    assert one.ask(f"exported_pool({private})")[0] == INVALID_VALUE
    for place in (2, 3, 4):  # the host, and its nodes
        assert one.ask(f"pool(0, {place})")[0] == NOT_SUPPORTED
    assert one.ask("attribute(103), attribute(119), attribute(142), attribute(144)") == (1, 1, 0, 0)


def test_memory_of_a_pool_goes_to_another_process(pair: tuple[Process, Process]) -> None:
    one, other = pair
    mine = ask(one, "pool()")
    address = ask(one, f"pool_alloc({mine}, 3000)")
    beside = ask(one, f"pool_alloc({mine}, {3 * MIB})")
    assert one.ask(f"exported_memory({address})")[0] == INVALID_VALUE  # its pool is nobody's yet
    path = ask(one, f"exported_pool({mine})")
    tokens = [ask(one, f"exported_memory({at})") for at in (address, beside)]
    assert one.ask(f"write({address}, b'pooled' * 500) or write({beside}, b'large')") == 0
    pool = ask(other, f"imported_pool({path!r})")
    theirs, large = (ask(other, f"imported_memory({pool}, {token!r})") for token in tokens)
    assert other.ask(f"read({theirs}, 3000)") == b"pooled" * 500
    assert other.ask(f"write({large}, b'LARGE')") == 0
    assert one.ask(f"read({beside}, 5)") == b"LARGE"
    assert other.ask(f"memory_range({theirs})") == (theirs, 3000)
    # opened twice it is one, and freed as often
    assert other.ask(f"imported_memory({pool}, {tokens[0]!r})") == (0, theirs)
    assert [other.ask(f"free({theirs})") for _ in range(3)] == [0, 0, INVALID_VALUE]
    assert other.ask(f"close({large})") == INVALID_VALUE  # that is for cuIpc
    assert other.ask(f"free_async({large})") == 0
    # nothing is allocated from another process's pool
    assert other.ask(f"pool_alloc({pool}, 512)")[0] == INVALID_VALUE
    assert other.ask(f"set_pool({pool})") == INVALID_VALUE
    assert other.ask(f"destroy_pool({pool})") == 0
    assert [one.ask(f"free_async({at})") for at in (address, beside)] == [0, 0]
    assert one.ask(f"destroy_pool({mine})") == 0


def test_memory_of_one_pool_is_not_opened_in_another(pair: tuple[Process, Process]) -> None:
    one, other = pair
    pools = [ask(one, "pool()") for _ in range(2)]
    paths = [ask(one, f"exported_pool({pool})") for pool in pools]
    tokens = [
        ask(one, f"exported_memory({ask(one, f'pool_alloc({pool}, 512)')})") for pool in pools
    ]
    theirs = [ask(other, f"imported_pool({path!r})") for path in paths]
    assert other.ask(f"imported_memory({theirs[0]}, {tokens[1]!r})")[0] == INVALID_VALUE
    assert other.ask(f"imported_memory({theirs[0]}, {'00' * 64!r})")[0] == INVALID_VALUE
    own = ask(other, "pool()")
    assert other.ask(f"imported_memory({own}, {tokens[0]!r})")[0] == INVALID_VALUE
    assert (
        one.ask(f"imported_pool({paths[0]!r})")[0] == INVALID_VALUE
    )  # into the process that has it
    assert ask(other, f"imported_memory({theirs[0]}, {tokens[0]!r})")


def test_a_pool_of_the_hosts_memory_is_refused_by_name(tmp_path: Path) -> None:
    code = f"{PRELUDE}\nfrom tests.unit.ipc_process import *\nstart(); assert pool(0, 2)[0] == pool(8)[0] == 801"
    with simulated_channel("ring", tmp_path) as rig:
        env = {**guest_env(rig), "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("cuMemPoolCreate of a pool of the host's memory") == 1
        assert done.stderr.count("\n") == 1


# ---- limits


def test_memory_is_charged_once_and_as_long_as_anybody_has_it(tmp_path: Path) -> None:
    limit = 2 * CONTEXT + 8 * MIB
    with (
        simulated_channel("ring", tmp_path, f"--limits={KEY}:{limit}") as rig,
        process(guest_env(rig)) as one,
        process(guest_env(rig)) as other,
    ):

        def charged(bytes_: int) -> None:
            wait_for(lambda: used(rig, KEY) == bytes_, f"{bytes_} are charged: {used(rig, KEY)}")

        handle, path = share(one, 6 * MIB)
        part = ask(other, f"imported({path!r})")
        charged(2 * CONTEXT + 6 * MIB)
        assert one.ask(f"release({handle})") == 0
        charged(2 * CONTEXT + 6 * MIB)  # the VM's, until the other lets go of it
        assert one.ask(f"try_physical({4 * MIB})") == OUT_OF_MEMORY
        assert other.ask(f"release({part})") == 0
        charged(2 * CONTEXT)
        pool = ask(one, "pool()")
        theirs = ask(other, f"imported_pool({ask(one, f'exported_pool({pool})')!r})")
        address = ask(one, f"pool_alloc({pool}, {6 * MIB})")
        ask(other, f"imported_memory({theirs}, {ask(one, f'exported_memory({address})')!r})")
        charged(2 * CONTEXT + 6 * MIB)
        one.kill()
        charged(CONTEXT + 6 * MIB)
        assert other.ask(f"try_alloc({limit - CONTEXT - 5 * MIB})") == OUT_OF_MEMORY
        other.kill()
        charged(0)


# ---- attacks


def test_no_descriptor_can_be_made_up(tmp_path: Path) -> None:
    with (
        simulated_channel("ring", tmp_path) as rig,
        process(guest_env(rig)) as one,
        process(guest_env(rig)) as other,
    ):
        handle, path = share(one)
        good = one.ask(f"content({path!r})")
        assert isinstance(good, bytes)
        # who it is of, which device, what kind, the token; the maker's own names tell nothing to others
        places = [*range(0, 32), *range(56, 60), *range(64, len(good))]
        for at in places:
            bad = bytearray(good)
            bad[at] ^= 1 << at % 8
            assert other.ask(f"imported_bytes({bytes(bad)!r})") in (INVALID_VALUE, NOT_SUPPORTED), (
                at
            )
        for other_bytes in (good[:-1], good + b"\0", b"", secrets.token_bytes(len(good))):
            assert other.ask(f"imported_bytes({other_bytes!r})") == INVALID_VALUE
        assert other.ask(f"imported_bytes({good!r}, 0)") == INVALID_VALUE  # that may still change
        # nobody can change one, and nothing in it is the driver's
        assert Path(path).read_bytes() == good
        with pytest.raises(PermissionError), Path(path).open("r+b", buffering=0) as file:
            file.write(b"x")
        assert b"vgpumgr-sim" not in good
        assert ask(other, f"imported({path!r})")
        assert one.ask(f"release({handle})") == 0
        assert other.ask(f"imported_bytes({good!r})") == INVALID_VALUE


def test_a_descriptor_is_of_no_use_in_another_vm(tmp_path: Path) -> None:
    """Both on one GPU, where the driver's own descriptor would do."""
    with ExitStack() as stack:
        rigs = [stack.enter_context(simulated_channel("ring", tmp_path))]
        rigs.append(stack.enter_context(second_channel()))
        one, other = (stack.enter_context(process(guest_env(rig))) for rig in rigs)
        _, path = share(one)
        pool = ask(one, "pool()")
        pool_path = ask(one, f"exported_pool({pool})")
        assert other.ask(f"imported({path!r})")[0] in (INVALID_VALUE, NOT_SUPPORTED)
        assert other.ask(f"imported_pool({pool_path!r})")[0] in (INVALID_VALUE, NOT_SUPPORTED)
        friend = stack.enter_context(process(guest_env(rigs[0])))
        assert ask(friend, f"imported({path!r})")


def test_another_user_of_the_vm_opens_nothing(tmp_path: Path) -> None:
    class Open(House):
        def __init__(self, transport: str, **options: object) -> None:
            super().__init__(transport, agent_options=EVERYONE, **options)  # type: ignore[arg-type]

    def user(rig: Rig, uid: int) -> Process:
        become = f"guest_lane.become({uid})"
        return process(guest_env(rig), become)

    with (
        simulated_channel("private", tmp_path, make=Open) as rig,
        user(rig, 61001) as alice,
        user(rig, 61002) as bob,
    ):
        _, path = share(alice)
        content = alice.ask(f"content({path!r})")
        assert bob.ask(f"imported_bytes({content!r})") == INVALID_VALUE
