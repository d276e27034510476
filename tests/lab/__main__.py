"""``python -m tests.lab shell|run``: a lab host to look at.

python -m tests.lab shell              boots a lab host and reads commands for it; Ctrl-D ends it
python -m tests.lab run COMMAND...     boots one, runs a command in it, ends it
python -m tests.lab power|kills        power failures on a recorded disk; libvirtd killed in mid-attach and mid-detach
python -m tests.lab keep               boots one and keeps it until Ctrl-C; prints what to set for pytest to use it
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from tests.lab import kills
from tests.lab.host import KEPT, LabHost, boot, unprivileged_reason
from tests.lab.power import play


def main() -> int:
    """Parse and act."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=("shell", "run", "keep", "power", "kills"))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.add_argument("--states", type=int, default=100, help="of power, kills: how many")
    parser.add_argument("--seed", type=int, default=1, help="of power, kills")
    parser.add_argument(
        "--systemd", action="store_true", help="of shell, run, keep: systemd is its first process"
    )
    parser.add_argument("--break", dest="breakage", help="of power: a fault put in on purpose")
    options = parser.parse_args()
    if options.command and options.what != "run":
        parser.error(f"{options.what} has no arguments; options stand before it: {options.command}")
    if reason := unprivileged_reason():
        parser.error(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with boot(systemd=options.systemd) as host:
        if options.what == "run":
            result = host.run(" ".join(options.command))
            print(result.output, end="")
            return result.status
        if options.what == "keep":
            print(f"export {KEPT}={host.directory}", flush=True)
            host.hang_up()
            signal.pause()
        if options.what in ("power", "kills"):
            done = (
                kills.boot_and_play(host, options.states, options.seed)
                if options.what == "kills"
                else play(host, states=options.states, seed=options.seed, breakage=options.breakage)
            )
            print(json.dumps(done, indent=1))
            return int(bool(done["wrong"]))
        return converse(host)


def converse(host: LabHost) -> int:
    """Commands from standard input, one line each; each runs in a shell of its own."""
    print(f"Lab host in {host.directory}; files of this machine are below /, /out is {host.out}.")
    print("vgpumgr ARG... runs vgpumgr at once; everything else goes to bash. Ctrl-D ends.")
    while True:
        try:
            line = input("lab# ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        words = line.split()
        if words[:1] == ["vgpumgr"]:
            done = host.vgpumgr(*words[1:])
            print(done.stdout + done.stderr, end="")
        elif line:
            print(host.run(line, timeout_s=3600).output, end="")


if __name__ == "__main__":
    sys.exit(main())
