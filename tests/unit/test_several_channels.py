"""A VM with several channels: one agent for all, and each process on the devices that it asks for."""

from __future__ import annotations

import subprocess

import pytest

from tests.unit.several_rig import NAMES, Guest, run_guest
from tests.unit.transport_rig import PATIENCE_S, wait_for

pytestmark = pytest.mark.native
HOLD = "context()\nprint('ready', flush=True)\ninput()"


def start(guest: Guest, visible: str | None) -> subprocess.Popen[str]:
    """A process that makes a context on the first device it sees and holds it."""
    return guest.start_python(HOLD, visible)


CHOICES = [
    (None, [1, 0]),
    ("0", [1, 0]),
    ("1", [0, 1]),
    (" 1,0", [0, 1]),
    (NAMES[1], [0, 1]),
    (NAMES[0][:13] + "," + NAMES[1], [1, 0]),
]
REFUSED = [
    ("2", "this VM has no device 2: CUDA_VISIBLE_DEVICES can name 0 to 1"),
    ("", "lets this process see no device"),
    ("-1", "lets this process see no device"),
    ("first", "lets this process see no device"),
    ("MIG-77777777", "none of this VM's devices is called so"),
]


@pytest.mark.parametrize("transport", ["ring", "serial", "auto"])
def test_a_process_has_the_device_that_it_asks_for(transport: str) -> None:
    with run_guest(transport) as guest:
        for visible, lanes in CHOICES:
            process = start(guest, visible)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()
            # a name is looked for on every channel; those of the others are given back at once
            wait_for(lambda wanted=lanes: guest.lanes() == wanted, f"lanes for {visible}")  # type: ignore[misc]
            process.communicate("\n", timeout=PATIENCE_S)
            wait_for(lambda: guest.lanes() == [0, 0], "lanes given back")
        for visible, words in REFUSED if transport == "auto" else REFUSED[:1]:
            process = start(guest, visible)
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode != 0
            assert words in said, visible


def test_both_are_used_at_once_and_one_may_end() -> None:
    with run_guest("auto") as guest:
        first, second = start(guest, "0"), start(guest, "1")
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        assert guest.lanes() == [1, 1]
        guest.keepers[0].restart_worker()
        wait_for(lambda: guest.keepers[0].status().worker.state == "ready", "worker")
        assert guest.lanes()[1] == 1, "the other one's session goes on"
        third = start(guest, "0")
        assert third.stdout is not None
        assert third.stdout.readline() == "ready\n"
        for process in (first, second, third):
            process.communicate("\n", timeout=PATIENCE_S)
