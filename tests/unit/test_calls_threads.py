"""Guest programs with several threads: what one of them destroys, waits for or leaves behind harms nobody.

The null driver aborts the worker on a handle or an address that is no longer there. tests/sanitize runs
these under address and thread sanitizers.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.calls_rig import PROGRAM_S, guest_env, null_channel, run_program, simulated_channel
from tests.unit.test_codegen import _include
from tests.unit.transport_rig import LIB, Rig

pytestmark = pytest.mark.native

SOURCE = Path(__file__).parents[1] / "native" / "calls" / "threads.c"
WAITS = ("free", "unload", "context", "stream", "event")
RACES = ("free", "free-elsewhere", "launch", "create", "look-up", "copy")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("threads") / "threads"
    flags = ["-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    words = ["cc", *flags, "-pthread", "-D__CUDA_API_VERSION_INTERNAL", f"-isystem{_include()}"]
    words += ["-o", str(target), str(SOURCE), f"-L{LIB / 'guest'}", "-lcuda"]
    subprocess.run(words, check=True)
    return str(target)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with simulated_channel("ring", tmp_path_factory.mktemp("sim")) as found:
        yield found


def check_worker(rig: Rig, before: int) -> None:
    """The worker is the one of before, and nothing of the program is left in it."""
    after = rig.wait_status(lambda s: not s.lanes, "lanes freed")
    seen = (after.worker.pid, after.worker.state, after.violations.count, after.totals.memory_bytes)
    assert seen == (before, "ready", 0, 0)


@pytest.mark.parametrize("case", RACES)
def test_a_context_is_destroyed_while_another_thread_uses_it(case: str, program: str) -> None:
    # wider than nature has it: the driver takes its time where an object must not go away
    with null_channel("ring", VGPUMGR_NULL_SLOW="cuLaunchKernel:500") as rig:
        before = rig.status().worker.pid
        done = run_program(rig, program, case, "20")
        assert (done.returncode, done.stderr) == (0, "")
        check_worker(rig, before)


@pytest.mark.parametrize("case", RACES)
def test_the_same_with_a_driver_that_executes(case: str, program: str, rig: Rig) -> None:
    before = rig.status().worker.pid
    done = run_program(rig, program, case, "5")
    assert (done.returncode, done.stderr) == (0, "")
    check_worker(rig, before)


@pytest.mark.parametrize("transport", ["ring", "private", "serial"])
def test_a_driver_call_waits_for_a_host_function(transport: str, program: str) -> None:
    with null_channel(transport) as rig:
        before = rig.status().worker.pid
        done = run_program(rig, program, "host-free", "3")
        assert (done.returncode, done.stderr) == (0, "")
        check_worker(rig, before)


def test_a_host_function_in_a_driver_that_executes(program: str, rig: Rig) -> None:
    before = rig.status().worker.pid
    done = run_program(rig, program, "host-free", "3")
    assert (done.returncode, done.stderr) == (0, "")
    check_worker(rig, before)


def test_processes_killed_in_a_host_function_free_their_lanes(program: str, rig: Rig) -> None:
    before = rig.status().worker.pid
    for _ in range(20):  # more than there are lanes
        stuck = subprocess.Popen(
            [program, "host-stuck"], env=guest_env(rig), stdout=subprocess.PIPE, text=True
        )
        assert stuck.stdout is not None
        assert stuck.stdout.readline() == "stuck\n"
        stuck.kill()
        stuck.communicate()
        # a lane is free when its session has ended, which sanitizers make slow
        rig.wait_status(lambda s: len(s.lanes) < 8, "lanes freed")
    check_worker(rig, before)
    done = run_program(rig, program, "host-free", "1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("what", WAITS)
def test_a_wait_of_one_thread_holds_up_no_other(what: str, program: str, rig: Rig) -> None:
    before = rig.status().worker.pid
    done = run_program(rig, program, f"wait-{what}", "5")
    assert (done.returncode, done.stderr) == (0, "")
    check_worker(rig, before)


@pytest.mark.skipif("VGPUMGR_TEST_LIB" in os.environ, reason="the program has no sanitizer")
@pytest.mark.usefixtures("rig")  # its machine
@pytest.mark.parametrize("what", WAITS)
def test_the_same_without_a_channel(what: str, program: str) -> None:
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [program, f"wait-{what}", "5"],
        env=env | {"LD_LIBRARY_PATH": str(LIB / "sim")},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
