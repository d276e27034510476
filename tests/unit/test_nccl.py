"""NCCL in a guest: between the slices of one process, between processes, and what ends it.

The programs are in nccl_cases.py; the machine is a simulated one with two GPUs, a slice of each.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.cuda_harness import cuda_include
from tests.unit.calls_rig import PROGRAM_S
from tests.unit.several_rig import Guest, run_simulated
from tests.unit.transport_rig import LIB, wait_for

pytestmark = [pytest.mark.native, pytest.mark.cuda]
SHM = Path("/dev/shm")
CASE = (sys.executable, "-m", "tests.unit.nccl_cases")
#: in one process each
CASES = (
    "sequences 0 9",
    "held_stream + aborted + abort_own + other_calls + nonblocking + scaled_sums",
    "captured + beside_a_capture + splits + bad_input + child_of_fork + small_floats",
)
OTHER_USER = 65534
SOURCE = Path(__file__).parent / "nccl/all_devices.c"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with run_simulated("ring", tmp_path_factory.mktemp("sim")) as found:
        yield found


def find_file(id_: Path) -> Path:
    """That of the communicator of an id, until all have joined."""
    return SHM / f"vgpumgr-nccl-{id_.read_bytes()[32:48].hex()}"


def start(guest: Guest, *words: str, user: int | None = None, **env: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*CASE, *words],
        env=guest.environment() | env,
        stdout=pipe,
        stderr=pipe,
        text=True,
        user=user,
    )


def end(process: subprocess.Popen[str]) -> str:
    """What it has printed; it has found nothing wrong."""
    out, errors = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 0, out + errors
    return out


@pytest.mark.parametrize("case", CASES)
def test_in_one_process(case: str, guest: Guest) -> None:
    out = end(start(guest, *case.split()))
    assert out.splitlines() == [f"{one.split()[0]} ok" for one in case.split(" + ")]


def test_two_processes_know_the_id_by_a_file_and_leave_none(guest: Guest, tmp_path: Path) -> None:
    for process in [start(guest, "pair", str(n), str(tmp_path / "id")) for n in range(2)]:
        assert end(process).endswith("ok\n")
    assert not find_file(tmp_path / "id").exists()


@pytest.mark.parametrize("moment", range(2))
def test_a_killed_rank_ends_the_others_wait(guest: Guest, tmp_path: Path, moment: int) -> None:
    """kill -9 in the middle of endless reductions: the other has the error, and its stream goes on."""
    both = [start(guest, "endless", str(n), str(tmp_path / "id")) for n in range(2)]
    for process in both:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n", "going\n"]
    time.sleep(0.03 * moment)
    both[moment % 2].kill()
    out = end(both[1 - moment % 2])
    assert f"6 rank {1 - moment % 2}: rank {moment % 2} is no more: its process has ended" in out
    both[moment % 2].communicate()


def wait_file(id_: Path) -> Path:
    """That of a communicator which one rank has joined."""
    wait_for(lambda: id_.exists() and find_file(id_).exists(), "the communicator's file")
    found = find_file(id_)
    wait_for(lambda: found.read_bytes()[88:92] == b"\1\0\0\0", "the first rank")
    return found


def test_a_rank_that_ends_before_all_have_joined(guest: Guest, tmp_path: Path) -> None:
    id_ = tmp_path / "id"
    first = start(guest, "alone", str(id_), "0")
    wait_file(id_)
    first.kill()
    first.communicate()
    out = end(start(guest, "alone", str(id_), "1"))
    assert out.startswith("6 rank 1: rank 0 is no more: its process has ended")
    assert not find_file(id_).exists()


def test_ranks_that_do_not_come(guest: Guest, tmp_path: Path) -> None:
    out = end(start(guest, "alone", str(tmp_path / "id"), "0", VGPUMGR_NCCL_JOIN_S="1"))
    assert "1 of 2 ranks have joined in 1 s: all run in one guest, as one user" in out
    assert out.startswith("2 ")
    found = find_file(tmp_path / "id")
    assert found.stat().st_blocks * 512 < 1 << 20, "what it had of memory is given back"
    found.unlink()


def change_id(path: Path, at: int, to: bytes) -> Path:
    changed = path.with_name(f"changed-{at}")
    old = path.read_bytes()
    changed.write_bytes(old[:at] + to + old[at + len(to) :])
    return changed


def test_no_other_machine_or_user_joins(guest: Guest, tmp_path: Path) -> None:
    """An id of another boot or user is refused; so is a process that knows the file's name and not the id."""
    id_ = tmp_path / "id"
    first = start(guest, "alone", str(id_), "0")
    found = wait_file(id_)
    assert found.stat().st_mode & 0o777 == 0o600
    machine = end(start(guest, "alone", str(change_id(id_, 16, bytes(16))), "1"))
    assert machine.startswith("2 ")
    assert "was made on another machine" in machine
    user = end(start(guest, "alone", str(change_id(id_, 12, b"\1\2\3\0")), "1"))
    assert user.startswith("2 ")
    assert "was made by user 197121" in user
    secret = end(start(guest, "alone", str(change_id(id_, 64, bytes(8))), "1"))
    assert "the unique id is not that of the communicator's memory" in secret
    first.kill()
    first.communicate()
    found.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
@pytest.mark.parametrize("kind", ["owner", "mode", "link"])
def test_a_file_that_another_user_has_put_there_is_not_used(
    guest: Guest, tmp_path: Path, kind: str
) -> None:
    id_ = tmp_path / "id"
    code = f"from tests.unit.guest_nccl import *\nmake_id({str(id_)!r})"
    made = guest.run(sys.executable, "-c", code)
    assert made.returncode == 0, made.stderr
    planted = find_file(id_)
    if kind == "link":
        planted.symlink_to(tmp_path / "elsewhere")
    else:
        planted.touch(0o600)
        os.chown(planted, OTHER_USER if kind == "owner" else 0, 0)
        planted.chmod(0o600 if kind == "owner" else 0o666)
    try:
        out = end(start(guest, "alone", str(id_), "1"))
    finally:
        planted.unlink()
    assert out.startswith("2 ")
    assert "the communicator's memory in /dev/shm cannot be opened" in out
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("seed", range(2))
def test_memory_that_is_written_from_outside_crashes_no_rank(
    guest: Guest, tmp_path: Path, seed: int
) -> None:
    """A program of the same user that scribbles over states, forms and counters: an error, or none, and no signal."""
    id_, rng = str(tmp_path / "id"), random.Random(seed)
    both = [start(guest, "endless", "0", id_)]
    with wait_file(Path(id_)).open("r+b") as file:
        both.append(start(guest, "endless", "1", id_))
        for process in both:
            assert process.stdout is not None
            process.stdout.readline()
        deadline = time.monotonic() + PROGRAM_S
        while all(process.poll() is None for process in both) and time.monotonic() < deadline:
            file.seek(4096 * rng.randrange(0, 4) + 8 * rng.randrange(512))
            file.write(rng.randbytes(rng.choice((1, 4, 8, 64))))
            file.flush()
    both[1].send_signal(signal.SIGKILL) if both[1].poll() is None and both[
        0
    ].poll() is None else None
    for process in both:
        out, errors = process.communicate(timeout=PROGRAM_S)
        assert process.returncode in (0, 1), (process.returncode, out, errors)
        assert re.search(r"^[2-6] ", out, re.MULTILINE) or process.returncode == 1, out


def test_the_guides_program_of_one_process_and_two_devices(guest: Guest, tmp_path: Path) -> None:
    """In C with the runtime; and with a thread for each rank."""
    library, program = LIB / "guest", tmp_path / "all_devices"
    subprocess.run(
        ["gcc", "-Wall", "-Werror", f"-isystem{cuda_include()}", SOURCE, "-o", program,
         f"-L{library}", "-l:libcudart.so.13", "-l:libnccl.so.2", "-lpthread"],
        check=True,
    )  # fmt: skip
    for words in ((), ("threads",)):
        done = guest.run(str(program), *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
