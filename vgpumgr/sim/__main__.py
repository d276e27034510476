"""``python -m vgpumgr.sim``: what ``vgpumgr sim`` runs, in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from vgpumgr.cli.report import format_error
from vgpumgr.errors import Exit, UsageError, VgpumgrError, explain_unexpected
from vgpumgr.sim import lifecycle, machine
from vgpumgr.sim.generate import machine_text

SCHEMA = "vgpumgr/v1"


def start(options: argparse.Namespace) -> None:
    """``sim start``."""
    directory, snapshot = lifecycle.start(options.name, options.libvirt, options.file)
    if options.output == "json":
        document = {"schema": SCHEMA, "name": options.name, "directory": str(directory)}
        print(json.dumps(document | {"behaves": snapshot is None}, indent=2))
        return
    print(f"{options.name} runs: {machine.running_machine(options.name).data.description}")
    if snapshot is not None:
        print(f"its /sys is a snapshot that ignores writes ({snapshot})", file=sys.stderr)
    if not options.quiet:
        print(f"try: vgpumgr --machine {options.name} gpu list", file=sys.stderr)


def stop(options: argparse.Namespace) -> None:
    """``sim stop``."""
    forgotten = lifecycle.stop(options.name)
    if forgotten:
        print(
            f"{forgotten} attachment{'s' if forgotten > 1 else ''} forgotten; libvirt's VMs keep the devices"
            " until vgpumgr detach, on any machine, takes them away",
            file=sys.stderr,
        )


def reboot(options: argparse.Namespace) -> None:
    """``sim reboot``."""
    lifecycle.reboot(options.name)


def show_list(options: argparse.Namespace) -> None:
    """``sim list``."""
    running = machine.list_machines()
    names = sorted({*machine.known_machines(), *running})
    rows = [
        {
            "name": name,
            "running": name in running,
            "description": machine.running_machine(name).data.description
            if name in running
            else machine.load_machine(name).data.description,
        }
        for name in names
    ]
    if options.output == "json":
        print(json.dumps({"schema": SCHEMA, "machines": rows}, indent=2))
        return
    for row in rows:
        print(
            f"{row['name']:16} {'running' if row['running'] else 'stopped':8} {row['description']}"
        )


def env(options: argparse.Namespace) -> None:
    """``sim env``: lines for a shell's eval."""
    for key, value in machine.machine_env(options.name).items():
        print(f"export {key}={shlex.quote(value)}")


def tell(options: argparse.Namespace) -> None:
    """``sim tell``: a line for the machine's ``/.sim``."""
    lifecycle.tell(options.name, options.what, " ".join(options.words))


def generate(options: argparse.Namespace) -> None:
    """A data file for ``sim start --file``."""
    print(machine_text(options.gpus, options.vfs, options.board, options.vgpu), end="")


def serve(options: argparse.Namespace) -> None:
    """The process behind a machine's ``/sys``."""
    lifecycle.serve(options.name)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a line in the form of every error."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(message, hint=f"{self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """The program's own arguments; people meet those of ``vgpumgr sim``."""
    parser = _Parser(prog="vgpumgr sim")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    verbs = parser.add_subparsers(required=True)
    for function, name in (
        (start, "start"),
        (stop, "stop"),
        (reboot, "reboot"),
        (env, "env"),
        (serve, "serve"),
    ):
        verb = verbs.add_parser(name)
        verb.add_argument("name")
        verb.set_defaults(run=function)
        if function is start:
            verb.add_argument("--libvirt")
            verb.add_argument("--file", type=Path)
            verb.add_argument("-o", dest="output")
    telling = verbs.add_parser("tell")
    telling.add_argument("name")
    telling.add_argument("what")
    telling.add_argument("words", nargs=argparse.REMAINDER)
    telling.set_defaults(run=tell)
    generating = verbs.add_parser("generate")
    generating.add_argument("--gpus", type=int, default=16)
    generating.add_argument("--vfs", type=int, default=32)
    generating.add_argument("--board", default="RTX-PRO-6000-SE")
    generating.add_argument("--vgpu", default="mdev")
    generating.set_defaults(run=generate)
    listing = verbs.add_parser("list")
    listing.add_argument("-o", dest="output")
    listing.set_defaults(run=show_list)
    return parser


def report(error: VgpumgrError, output: str | None) -> int:
    """The error in the form of every vgpumgr command."""
    text = format_error(error)
    if output == "json":
        text = json.dumps({"schema": SCHEMA, "error": error.as_dict()}, ensure_ascii=False)
    print(text, file=sys.stderr)
    return int(error.exit_code)


def main(arguments: list[str] | None = None) -> int:
    """Run one verb."""
    try:
        options = build_parser().parse_args(arguments)
    except UsageError as error:
        return report(error, None)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has enough; what is still buffered must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except (VgpumgrError, OSError) as error:
        if options.debug:
            raise
        return report(explain(error), getattr(options, "output", None))
    return 0


def explain(error: VgpumgrError | OSError) -> VgpumgrError:
    """What the place of the machines does not let us do, in the form of every error."""
    if isinstance(error, PermissionError):
        return machine.SimulatorPermissionError(
            "this user may not change simulated machines there",
            cause=str(error),
            why=f"they are kept in {machine.sim_root()}",
            hint="the same command with sudo; or VGPUMGR_SIM_ROOT=DIRECTORY for machines of your own",
        )
    return explain_unexpected(error, "vgpumgr sim")


if __name__ == "__main__":
    sys.exit(main())
