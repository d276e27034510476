"""Random kills: ``python -m tests.recovery.kill_many --seed N --count N [--check-every N]``.

A child attaches and detaches at random until it is killed (SIGKILL) at a random time; the next one
goes on on the same machine and state, so that what it does first is to settle what the last one
left - and may be killed in that. Every so often recovery runs undisturbed, and everything that was
acknowledged must be there, nothing may be left over, and a second recovery must do nothing.

Prints planned and happened kills; exits 1 if a check failed or too few children were killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.recovery.breakages import BREAKAGES
from tests.recovery.invariants import list_violations
from tests.recovery.killing import Breakage, recover_twice, run_child
from tests.recovery.scenarios import attach, detach
from tests.recovery.world import World
from vgpumgr.errors import VgpumgrError

VMS = ("vm01", "vm02", "vm03")
#: longer than any operation here takes on an idle machine
LONGEST_S = 0.04


def work(root: Path, seed: int, breakage: Breakage | None) -> None:
    """Attaches and detaches for ever; says in a file what it begins and what is done."""
    choice = random.Random(seed)
    log = os.open(root / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if breakage is not None:
        breakage()
    world = World(root)
    while True:
        vm, verb = choice.choice(VMS), choice.choice((attach, detach))
        os.write(log, f"begin {vm}\n".encode())
        with suppress(VgpumgrError):
            verb(vm)(world)
        has = any(record.vm_name == vm for record in world.store.list_attachments())
        os.write(log, f"{'has' if has else 'lacks'} {vm}\n".encode())


def kill_one(root: Path, seed: int, after_s: float, breakage: Breakage | None) -> bool:
    """Starts a child and kills it; whether it lived until then."""
    pid = os.fork()
    if pid == 0:
        try:
            work(root, seed, breakage)
        finally:
            os._exit(1)
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def check(root: Path, breakage: Breakage | None = None) -> list[str]:
    """Recovers twice and looks."""
    outcome = run_child(root, recover_twice, None, breakage)
    if outcome.error:
        return [outcome.error]
    first, second = outcome.answer
    world = World(root)
    wrong = list_violations(world)
    wrong += [f"still different: {drift['text']}" for drift in first["drift"]]
    attached = {record.vm_name for record in world.store.list_attachments()}
    for vm, word in read_acknowledged(root).items():
        if word != "begin" and (vm in attached) is not (word == "has"):
            wrong.append(f"it was acknowledged that {vm} {word} a slice")
    if not second["unchanged"]:
        wrong.append(f"a second recovery does something: {second}")
    return wrong


def read_acknowledged(root: Path) -> dict[str, str]:
    """The last word about each VM; what is behind the last line's end was never said."""
    path = root / "acknowledged"
    text = path.read_text() if path.exists() else ""
    words = [line.split(" ") for line in text[: text.rfind("\n") + 1].splitlines()]
    return {vm: word for word, vm in words}


def kill_many(
    root: Path, seed: int, count: int, check_every: int, breakage: Breakage | None = None
) -> tuple[int, list[str]]:
    """How many were killed, and what was wrong at the first bad check."""
    choice = random.Random(seed)
    World(root).make(mig=False, running=False)
    killed = 0
    for number in range(1, count + 1):
        killed += kill_one(root, choice.randrange(1 << 30), choice.random() * LONGEST_S, breakage)
        if number % check_every == 0 or number == count:
            if wrong := check(root, breakage):
                return killed, [f"after kill {number}: {text}" for text in wrong]
            (root / "acknowledged").unlink(missing_ok=True)
    return killed, []


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--check-every", type=int, default=10)
    parser.add_argument("--break", dest="breakage", choices=sorted(BREAKAGES))
    options = parser.parse_args()
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    breakage = BREAKAGES[options.breakage] if options.breakage else None
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        killed, wrong = kill_many(
            Path(directory), options.seed, options.count, options.check_every, breakage
        )
    answer = {"seed": options.seed, "planned": options.count, "happened": killed, "wrong": wrong}
    print(json.dumps(answer, indent=1))
    return int(bool(wrong) or killed != options.count)


if __name__ == "__main__":
    sys.exit(main())
