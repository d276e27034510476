"""``vgpumgr sim``: the only commands that import the simulator."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    Column,
    find_row,
    print_list,
    print_row,
    print_single,
    value_column,
)
from vgpumgr.cli.session import DOCUMENTS, Session, get_format, get_session, number
from vgpumgr.errors import MachineNotFoundError

app = App()
_SCHEMA = "vgpumgr/v1"
Running = Annotated[str, Argument(metavar="NAME", help="A running machine.")]
MachineName = Annotated[str, Argument(metavar="NAME", help="Its name, or a unique beginning.")]
COLUMNS = (
    value_column("name"),
    Column("state", lambda r: "running" if r["running"] else "stopped"),
    value_column("description", wraps=True),
)


@contextmanager
def _open(context: Context, verb: str) -> Iterator[Session]:
    """The session, for a command about this host. Raises SimulatorPermissionError."""
    from vgpumgr.sim.machine import SimulatorPermissionError, sim_root

    session = get_session(context)
    session.check_here(f"vgpumgr sim {verb}")
    try:
        yield session
    except PermissionError as error:
        raise SimulatorPermissionError(
            "this user may not change simulated machines there",
            cause=str(error),
            why=f"they are kept in {sim_root()}",
            hint="the same command with sudo; or VGPUMGR_SIM_ROOT=DIRECTORY for machines of your own",
        ) from error


def _size(text: str) -> int:
    from vgpumgr.model.text import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise BadParameter(str(error)) from None


@app.single("start")
def start(
    context: Context,
    name: Annotated[str, Argument(metavar="NAME", help="A machine file's name; see sim list.")],
    libvirt: Annotated[
        str | None, Option("--libvirt", metavar="URI", help="The hypervisor that belongs to it.")
    ] = None,
    file: Annotated[
        Path | None, Option("--file", metavar="FILE", help="A machine file of your own (TOML).")
    ] = None,
    memory: Annotated[
        int | None,
        Option(
            "--memory",
            metavar="SIZE",
            parser=_size,
            help="GPU memory that all programs together may take.",
        ),
    ] = None,
    clock: Annotated[
        bool, Option("--clock", help="Kernels take device time, which processes share in slices.")
    ] = False,
) -> None:
    """Start a simulated machine.

    It keeps its state until `sim stop`.

    \b
    Examples:
      vgpumgr sim start dgx-a100
      vgpumgr --machine dgx-a100 gpu list
    """
    from vgpumgr.sim import lifecycle, machine

    with _open(context, "start") as session:
        directory, snapshot = lifecycle.start(name, libvirt, file, memory, clock=clock)
        document = {
            "schema": _SCHEMA, "name": name, "directory": str(directory), "behaves": snapshot is None
        }  # fmt: skip
        lines = [f"{name} runs: {machine.running_machine(name).data.description}"]
        print_single(context, document, lines)
    if snapshot is not None:
        session.streams.note(f"its /sys is a snapshot that ignores writes ({snapshot})")
    if get_format(context) not in DOCUMENTS:
        session.streams.note(f"try: vgpumgr --machine {name} gpu list")


@app.command("stop")
def stop(context: Context, running: Running) -> None:
    """Stop a simulated machine and delete its state.

    \b
    Examples:
      vgpumgr sim stop dgx-a100
    """
    from vgpumgr.sim import lifecycle

    with _open(context, "stop") as session:
        forgotten = lifecycle.stop(running)
    if forgotten:
        session.streams.note(
            f"{forgotten} attachment{'s' if forgotten > 1 else ''} forgotten; libvirt's VMs keep the"
            " devices until vgpumgr detach, on any machine, takes them away"
        )


@app.command("reboot")
def reboot(context: Context, running: Running) -> None:
    """Reboot a simulated machine.

    Its processes are killed and its MIG instances are gone; so is MIG mode if the GPU does not keep
    it. The state of vgpumgr on disk stays.

    \b
    Examples:
      vgpumgr sim reboot dgx-a100
      vgpumgr --machine dgx-a100 restore
    """
    from vgpumgr.sim import lifecycle

    with _open(context, "reboot"):
        lifecycle.reboot(running)


@app.listing("list")
def list_machines(context: Context) -> None:
    """List the machines, and which of them run.

    \b
    Examples:
      vgpumgr sim list
      vgpumgr sim list -o json
    """
    rows = _list_rows(context, "list")
    print_list(context, {"schema": _SCHEMA, "machines": rows}, rows, COLUMNS, "name")


@app.named("show")
def show(context: Context, name: MachineName) -> None:
    """Show one machine, and whether it runs.

    \b
    Examples:
      vgpumgr sim show dgx-a100
      vgpumgr sim show dgx-a100 -o json
    """
    rows = _list_rows(context, "show")
    row = find_row(
        rows, lambda row: [row["name"]], name, MachineNotFoundError, "machine", "vgpumgr sim list"
    )
    document = {"schema": _SCHEMA, "machine": row}
    print_row(context, document, f"machine {row['name']}", row, COLUMNS, row["name"])


def _list_rows(context: Context, verb: str) -> list[dict[str, Any]]:
    from vgpumgr.sim import machine

    with _open(context, verb):
        running = machine.list_machines()
        names = sorted({*machine.known_machines(), *running})
        return [
            {
                "name": name,
                "running": name in running,
                "description": machine.running_machine(name).data.description
                if name in running
                else machine.load_machine(name).data.description,
            }
            for name in names
        ]


@app.command("env")
def print_env(context: Context, running: Running) -> None:
    """Print the variables of a machine for other programs.

    A program's own variables change how its kernels run. VGPUMGR_SIM_CHECK=memory,race,sync (or all) finds their
    mistakes, and VGPUMGR_SIM_CHECK_EXIT=N is the exit code of a program that has some.
    VGPUMGR_SIM_SCHEDULE=random[:SEED] runs threads in a random order, VGPUMGR_SIM_ENGINE=lanes|baseline
    chooses the engine, VGPUMGR_SIM_APPROX=worst makes approximate instructions as wrong as they may be.

    \b
    Examples:
      eval "$(vgpumgr sim env dgx-a100)"; nvitop
      eval "$(vgpumgr sim env dgx-a100)"; VGPUMGR_SIM_CHECK=all ./program
    """
    from vgpumgr.sim import machine

    with _open(context, "env") as session:
        for key, value in machine.machine_env(running).items():
            session.streams.print(f"export {key}={shlex.quote(value)}")


# a driver's name may begin with a dash: words behind NAME are no options
@app.command("tell", context_settings={"allow_interspersed_args": False})
def tell(
    context: Context,
    running: Running,
    what: Annotated[
        str, Argument(metavar="WHAT", help="hold, release, sriov, gone, driver or fault.")
    ],
    words: Annotated[
        list[str] | None, Argument(metavar="[WORD]...", help="What WHAT needs.")
    ] = None,
) -> None:
    """Cause an event or a fault on a simulated machine.

    A VM takes a device, a device falls off the bus, writes to /sys fail. Options stand before NAME.

    \b
    Examples:
      vgpumgr sim tell vgpu-l40s hold 0000:3a:00.4 vm1
      vgpumgr sim tell vgpu-l40s release 0000:3a:00.4
      vgpumgr sim tell intel-flex driver -vfio-pci
      vgpumgr sim tell vgpu-l40s fault ignore '*/current_vgpu_type'
      vgpumgr sim tell vgpu-l40s fault clear
    """
    from vgpumgr.sim import lifecycle

    with _open(context, "tell"):
        lifecycle.send_request(running, what, " ".join(words or ()))


@app.command("fault")
def cause_fault(
    context: Context,
    running: Running,
    gpu: Annotated[str, Argument(metavar="GPU", help="Its index, PCI address or UUID.")],
    xid: Annotated[
        int | None,
        Option("--xid", metavar="N", parser=number(int, 1), help="The driver reports this Xid."),
    ] = None,
    instance: Annotated[
        int | None,
        Option(
            "--instance",
            metavar="ID",
            parser=number(int, 0),
            help="The GPU instance that the Xid is of.",
        ),
    ] = None,
    ecc_single: Annotated[
        int | None,
        Option(
            "--ecc-single", metavar="N", parser=number(int, 1), help="So many corrected errors."
        ),
    ] = None,
    ecc_double: Annotated[
        int | None,
        Option(
            "--ecc-double", metavar="N", parser=number(int, 1), help="So many uncorrectable errors."
        ),
    ] = None,
    temperature: Annotated[
        int | None,
        Option(
            "--temperature",
            metavar="CELSIUS",
            parser=number(int, 0, 150),
            help="0: as by its load.",
        ),
    ] = None,
    reset: Annotated[
        bool, Option("--reset", help="A reset first: no errors, no heat, not lost.")
    ] = False,
) -> None:
    """Cause a hardware fault of a GPU, as NVML reports it.

    The Xid and ECC errors are events, and the errors are counted. Nothing else of the GPU changes.

    \b
    Examples:
      vgpumgr sim fault dgx-a100 0 --xid 79
      vgpumgr sim fault dgx-a100 0 --ecc-double 1 --xid 48
      vgpumgr sim fault dgx-a100 0000:0f:00.0 --temperature 95
      vgpumgr sim fault dgx-a100 0 --reset
    """
    from vgpumgr.errors import UsageError
    from vgpumgr.sim import lifecycle

    events = {"ecc-single": ecc_single, "ecc-double": ecc_double, "xid": xid}
    caused = {kind: count for kind, count in events.items() if count is not None}
    fields = (
        dict.fromkeys(("ecc_single", "ecc_double", "temperature_c", "lost"), 0) if reset else {}
    )
    if temperature is not None:
        fields["temperature_c"] = temperature
    if not caused and not fields:
        raise UsageError("no fault is given", hint="vgpumgr sim fault --help")
    if instance is not None and xid is None:
        raise UsageError("--instance says whose an Xid is, and there is none", hint="--xid N")
    with _open(context, "fault"):
        own = () if instance is None else (instance, 0)
        lifecycle.cause_fault(running, gpu, caused, *own, fields=fields)


@app.command("generate")
def generate(
    context: Context,
    gpus: Annotated[int, Option("--gpus", metavar="N", parser=number(int, 1))] = 16,
    vfs: Annotated[int, Option("--vfs", metavar="N", parser=number(int, 0))] = 32,
    board: Annotated[str, Option("--board", metavar="BOARD")] = "RTX-PRO-6000-SE",
    vgpu: Annotated[str, Option("--vgpu", metavar="FRAMEWORK")] = "mdev",
) -> None:
    """Print a machine file for `sim start --file`.

    \b
    Examples:
      vgpumgr sim generate --gpus 16 --vfs 32 > large.toml
    """
    from vgpumgr.sim.machine import machine_text

    get_session(context).streams.out.write(machine_text(gpus, vfs, board, vgpu))


@app.command("serve", hidden=True)
def serve(context: Context, running: Running) -> None:
    """Serve the files of a machine; `sim start` runs it.

    \b
    Examples:
      vgpumgr sim serve dgx-a100
    """
    from vgpumgr.sim import lifecycle

    with _open(context, "serve"):
        lifecycle.serve(running)
