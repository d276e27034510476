"""``vgpumgr pool``: hosts that share their GPUs, and which of them gets a task, tried on files of hosts and tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from vgpumgr.cli import classes, pool_views
from vgpumgr.cli.backend import find_pool_host, init_pool, join_pool, leave_pool, open_pool
from vgpumgr.cli.classes import POLICIES, format_free, read_policy
from vgpumgr.cli.identity import identity
from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    ABSENT,
    Column,
    FileErrors,
    Row,
    print_list,
    print_single,
    read_text_file,
    value_column,
    write_file,
)
from vgpumgr.cli.session import confirm, get_session_here, number
from vgpumgr.errors import (
    ConfirmationNeededError,
    FileWriteError,
    NotPermittedError,
    PoolFileError,
    PoolFileMissingError,
    PoolTaskNotFoundError,
    UsageError,
)

if TYPE_CHECKING:
    from vgpumgr.pool.simulation import Trace
    from vgpumgr.pool.store.gateway import Endpoints

app = App()
app.single("identity")(identity)
app.add_typer(classes.app, name="class", help="How GPUs are provided, and by which policy.")
pool_views.register(app)
_SCHEMA = "vgpumgr/v1"
_ERRORS = FileErrors(
    PoolFileMissingError,
    NotPermittedError,
    PoolFileError,
    noun="file of hosts or tasks",
    max_bytes=1 << 28,
    why_too_large="more than 256 MiB",
)
#: impossible tasks that are named; the document has all
_NAMED = 3


Nodes = Annotated[
    str,
    Option(
        "--nodes", metavar="FILE", help="The hosts, a CSV file: sn,cpu_milli,memory_mib,gpu,model."
    ),
]
Tasks = Annotated[
    str,
    Option(
        "--tasks", metavar="FILE", help="The tasks: name,cpu_milli,memory_mib,num_gpu,gpu_milli,..."
    ),
]


@app.listing("simulate")
def simulate(
    context: Context,
    nodes: Nodes,
    tasks: Tasks,
    policies: Annotated[
        list[str] | None,
        Option("--policy", metavar="POLICY", parser=read_policy, help=f"{POLICIES}; several."),
    ] = None,
    moves: Annotated[
        float,
        Option(
            "--moves",
            metavar="PERCENT",
            parser=number(float, 0, 100),
            help="Then move at most so many percent of the placed tasks, so that waiting ones fit.",
        ),
    ] = 0,
    inflate: Annotated[
        float,
        Option(
            "--inflate",
            metavar="FACTOR",
            parser=number(float, 0, 10),
            help="Copy tasks at random until they ask for so many times the GPUs of all hosts.",
        ),
    ] = 1.3,
    seeds: Annotated[
        int,
        Option("--seeds", metavar="N", parser=number(int, 1, 1000), help="Orders of tasks to try."),
    ] = 10,
) -> None:
    """Try scheduling policies on a trace.

    Each task is offered once, in a random order; what fits nowhere waits. A row has the means over
    the seeds: the GPU that is allocated, and the free GPU that the mix of tasks cannot use. Tasks
    that no host can ever hold are counted apart.

    \b
    Examples:
      vgpumgr pool simulate --nodes nodes.csv --tasks tasks.csv
      vgpumgr pool simulate --nodes nodes.csv --tasks tasks.csv --policy fgd --policy random
      vgpumgr pool simulate --nodes nodes.csv --tasks tasks.csv --moves 2 --seeds 3 -o json
    """
    from vgpumgr.host.clock import SystemClock
    from vgpumgr.pool.simulation import Result

    session = get_session_here(context, "pool simulate")
    trace = _read_trace(nodes, tasks)
    clock, rows = SystemClock(), []
    for policy in dict.fromkeys(policies or ["fgd"]):
        runs = []
        for seed in range(seeds):
            session.streams.show_progress(f"{policy}, seed {seed + 1} of {seeds}")
            runs.append(trace.run(policy, inflate, seed, moves, clock.monotonic_s))
        rows.append(Result(policy, tuple(runs)).as_dict())
    session.streams.show_progress("")
    document = {
        "schema": _SCHEMA,
        "hosts": len(trace.hosts),
        "gpus": trace.capacity_milli // 1000,
        "tasks": len(trace.all_tasks),
        "inflate": inflate,
        "seeds": seeds,
        "moves_percent": moves,
        "policies": rows,
        "impossible": [{"task": task, "why": why} for task, why in trace.impossible.items()],
    }
    print_list(context, document, rows, _RESULTS, "policy")
    for task, why in list(trace.impossible.items())[:_NAMED]:
        session.streams.note(f"no host can hold {task}: {why}")
    if len(trace.impossible) > _NAMED:
        more = len(trace.impossible) - _NAMED
        session.streams.note(f"and {more} more that no host can hold; -o json has all")


def _figure(name: str, key: str, digits: int, **settings: bool) -> Column:
    return Column(
        name, lambda row: f"{row[key]:.{digits}f}", lambda row: row[key], right=True, **settings
    )


_RESULTS = (
    value_column("policy"),
    _figure("allocated_%", "gpu_allocated_percent", 2),
    _figure("stddev", "stddev", 2),
    _figure("fragments_%", "unallocated_fragment_percent", 2),
    _figure("moves", "moves", 0),
    _figure("placed", "tasks_placed", 0),
    _figure("waiting", "tasks_waiting", 0),
    _figure("seconds", "seconds", 1),
)


@app.listing("explain")
def explain_task(
    context: Context,
    task: Annotated[str, Argument(metavar="TASK", help="Its name in the file of tasks.")],
    nodes: Nodes,
    tasks: Tasks,
    policy: Annotated[
        str, Option("--policy", metavar="POLICY", parser=read_policy, help=f"{POLICIES}.")
    ] = "fgd",
) -> None:
    """Explain which host a task gets, and why not another.

    The tasks before it in the file are placed first. Every host has its score, of which the least
    wins, or the reason why it cannot hold the task.

    \b
    Examples:
      vgpumgr pool explain task-0042 --nodes nodes.csv --tasks tasks.csv
      vgpumgr pool explain task-0042 --nodes nodes.csv --tasks tasks.csv --policy best-fit -o json
    """
    from vgpumgr.model.text import list_near
    from vgpumgr.pool.simulation import explain

    get_session_here(context, "pool explain")
    trace = _read_trace(nodes, tasks)
    names = [one.name for one in trace.all_tasks]
    if task not in names:
        near = list_near(task, names, n=2)
        raise PoolTaskNotFoundError(
            f'no task is "{task}"', why=f"did you mean {' or '.join(near)}?" if near else None
        )
    at = names.index(task)
    found = explain(trace, policy, trace.all_tasks[:at], trace.all_tasks[at])
    rows: list[Row] = [
        {
            "name": one.name,
            "model": one.model or None,
            "cpu_milli_free": one.cpu_milli,
            "memory_mib_free": one.memory_mib,
            "gpu_milli_free": list(one.gpus),
            "chosen": one.chosen,
            "score": None if one.score is None else list(one.score),
            "text": one.text,
        }
        for one in found
    ]
    document = {"schema": _SCHEMA, "task": task, "policy": policy, "hosts": rows}
    print_list(context, document, rows, _CANDIDATES, "name")


_CANDIDATES = (
    value_column("name"),
    value_column("model"),
    value_column("cpu", "cpu_milli_free", right=True),
    value_column("memory_mib", "memory_mib_free", right=True, spare=True),
    Column("gpus", lambda row: format_free(row["gpu_milli_free"])),
    Column("chosen", lambda row: "yes" if row["chosen"] else ABSENT),
    Column("why", lambda row: str(row["text"]), wraps=True),
)


@app.single("generate")
def generate(
    context: Context,
    out: Annotated[str, Option("--out", metavar="DIR", help="Where nodes.csv and tasks.csv go.")],
    seed: Annotated[
        int, Option("--seed", metavar="N", parser=number(int, 0), help="The order of the tasks.")
    ] = 0,
    scale: Annotated[
        float,
        Option(
            "--scale", metavar="F", parser=number(float, 0.001, 100), help="So many times the size."
        ),
    ] = 1,
    cpu_hosts: Annotated[
        int,
        Option(
            "--cpu-hosts",
            metavar="N",
            parser=number(int, 0, 100_000),
            help="Hosts without GPUs, too; the published cluster has 310.",
        ),
    ] = 0,
    constrained: Annotated[
        float,
        Option(
            "--constrained",
            metavar="PERCENT",
            parser=number(float, 0, 100),
            help="So many of the GPU tasks accept certain models only; a third does in the published cluster.",
        ),
    ] = 0,
) -> None:
    """Write a synthetic trace.

    It has the character of the published Alibaba trace of 2023: 1,213 hosts with 6,212 GPUs, and
    8,152 tasks that ask for 6,087 GPUs, 38 % of them for a part of one.

    \b
    Examples:
      vgpumgr pool generate --out trace
      vgpumgr pool generate --out small --scale 0.1 --seed 7
    """
    from vgpumgr.pool.files import format_hosts, format_tasks
    from vgpumgr.pool.synthetic import make_hosts, make_tasks

    get_session_here(context, "pool generate")
    hosts, tasks = make_hosts(scale, cpu_hosts), make_tasks(seed, scale, constrained)
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        kind = NotPermittedError if isinstance(error, PermissionError) else FileWriteError
        raise kind(f"cannot make the directory {out}", cause=str(error)) from error
    files = {"nodes.csv": format_hosts(hosts), "tasks.csv": format_tasks(tasks)}
    for name, text in files.items():
        write_file(directory / name, text)
    gpus, asked = sum(host.gpus for host in hosts), sum(t.demand.total_milli for t in tasks) / 1000
    document = {
        "schema": _SCHEMA,
        "hosts": len(hosts),
        "gpus": gpus,
        "tasks": len(tasks),
        "gpus_asked": asked,
        "files": [str(directory / name) for name in files],
    }
    print_single(
        context,
        document,
        [
            f"{directory / 'nodes.csv'}: {len(hosts)} hosts, {gpus} GPUs",
            f"{directory / 'tasks.csv'}: {len(tasks)} tasks, which ask for {asked:.0f} GPUs",
        ],
    )


Etcd = Annotated[
    str | None,
    Option("--etcd", metavar="URL,...", help="The members of an etcd, as https://10.0.0.1:2379."),
]
EtcdCa = Annotated[
    str | None, Option("--etcd-ca", metavar="FILE", help="Who signs etcd's certificates.")
]
EtcdCert = Annotated[
    str | None, Option("--etcd-cert", metavar="FILE", help="This host's certificate for etcd.")
]
EtcdKey = Annotated[str | None, Option("--etcd-key", metavar="FILE", help="Its key.")]


def _read_endpoints(
    etcd: str | None, ca: str | None, certificate: str | None, key: str | None
) -> Endpoints | None:
    """Raises UsageError for files of TLS without an etcd."""
    from vgpumgr.pool.store.gateway import Endpoints

    names = (ca, certificate, key)
    ca, certificate, key = (str(Path(name).absolute()) if name else None for name in names)
    if etcd is None:
        if any(names):
            raise UsageError("files of TLS are given, and no etcd", hint="--etcd https://HOST:2379")
        return None
    urls = tuple(url.strip().rstrip("/") for url in etcd.split(",") if url.strip())
    return Endpoints(urls, ca, certificate, key)


@app.single("init")
def init(
    context: Context,
    etcd: Etcd = None,
    etcd_ca: EtcdCa = None,
    etcd_cert: EtcdCert = None,
    etcd_key: EtcdKey = None,
    policy: Annotated[
        str, Option("--policy", metavar="POLICY", parser=read_policy, help=f"{POLICIES}.")
    ] = "fgd",
) -> None:
    """Make a pool: of this host, or of all that use an etcd.

    The policy is that of the class default; others are spread, and whole for whole GPUs.

    \b
    Examples:
      vgpumgr pool init
      vgpumgr pool init --etcd http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379
      vgpumgr pool init --etcd https://10.0.0.1:2379 --etcd-ca ca.crt --etcd-cert a.crt --etcd-key a.key
    """
    options = get_session_here(context, "pool init").options
    made = init_pool(options, _read_endpoints(etcd, etcd_ca, etcd_cert, etcd_key), policy)
    lines = [f"a new pool in {made['store']}", "next: vgpumgr pool join"]
    print_single(context, {"schema": _SCHEMA, "pool": made}, lines)


@app.single("join")
def join(
    context: Context,
    name: Annotated[
        str | None,
        Option("--name", metavar="HOST", help="This host's name there; by default that it has."),
    ] = None,
    etcd: Etcd = None,
    etcd_ca: EtcdCa = None,
    etcd_cert: EtcdCert = None,
    etcd_key: EtcdKey = None,
) -> None:
    """Make this host and its GPUs part of a pool.

    Again, it brings the pool up to date about them. What is granted there needs the daemon, or
    vgpumgr pool serve.

    \b
    Examples:
      vgpumgr pool join
      vgpumgr pool join --etcd http://10.0.0.1:2379,http://10.0.0.2:2379 --name gpu-a
    """
    import socket

    from vgpumgr.pool.control.records import GpuRecord, check_name

    session = get_session_here(context, "pool join")
    known = find_pool_host(session.options)
    host = name or known or socket.gethostname().partition(".")[0].lower()
    check_name(host, "host")
    endpoints = _read_endpoints(etcd, etcd_ca, etcd_cert, etcd_key)
    gpus = [
        GpuRecord(host, gpu["index"], gpu["uuid"], gpu["model"], gpu["memory_total_bytes"])
        for gpu in session.call("list_gpus")["gpus"]
        if gpu["memory_total_bytes"]
    ]
    where = join_pool(session.options, endpoints, host, gpus)
    document = {"schema": _SCHEMA, "host": host, "gpus": len(gpus), "store": where}
    count = "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    lines = [f"host {host} is in the pool with {count}", "next: the daemon, or vgpumgr pool serve"]
    print_single(context, document, lines)


@app.listing("status")
def status(context: Context) -> None:
    """Show a pool's hosts, what is free, and who leads.

    A GPU that is drained or unhealthy is closed: nothing of it is free. One that is reserved says for
    whom and when. Where the store does not answer, the error says so; what runs goes on.

    \b
    Examples:
      vgpumgr pool status
      vgpumgr pool status -o json
    """
    session = get_session_here(context, "pool status")
    with open_pool(session.options) as pool:
        found = pool.describe()
    print_list(context, {"schema": _SCHEMA, **found}, found["hosts"], _HOSTS, "name")
    counts = ", ".join(f"{count} {state}" for state, count in found["claims"].items() if count)
    free, leader = found["gpu_free_milli"] / 1000, found["leader"] or "none"
    session.streams.note(
        f"{free:g} of {found['gpus']} GPUs free; claims: {counts or 'none'}; leader: {leader}"
    )
    gpus = [(host["name"], gpu) for host in found["hosts"] for gpu in host["gpus"]]
    for host, gpu in gpus:
        for text in gpu["reserved"]:
            session.streams.note(f"GPU {gpu['index']} of host {host} is {text}")


def _list_closed(row: Row) -> str:
    return ", ".join(str(gpu["index"]) for gpu in row["gpus"] if gpu["closed"]) or ABSENT


def _list_reserved(row: Row) -> str:
    return ", ".join(str(gpu["index"]) for gpu in row["gpus"] if gpu["reserved"]) or ABSENT


_HOSTS = (
    value_column("name"),
    value_column("state"),
    Column(
        "models", lambda row: ", ".join(sorted({gpu["model"] for gpu in row["gpus"]})) or ABSENT
    ),
    Column("gpus", lambda row: str(len(row["gpus"])), right=True),
    Column("free", lambda row: format_free([gpu["free_milli"] for gpu in row["gpus"]])),
    value_column("leases", right=True),
    Column("closed", _list_closed),
    Column("reserved", _list_reserved),
    Column("link", lambda row: ", ".join(row["links"]) or ABSENT, spare=True),
)


@app.command("serve")
def serve(context: Context) -> None:
    """Be a host of the pool until Ctrl-C or SIGTERM.

    It is for a host without the daemon. The host is heard, and its GPUs are granted. One of the hosts
    that serve leads: it grants. When it ends, another does. Leases stay.

    \b
    Examples:
      vgpumgr pool serve
    """
    from vgpumgr.host.foreground import ending_at_once

    session = get_session_here(context, "pool serve")
    with ending_at_once(), open_pool(session.options) as pool:
        pool.serve(session.streams.note)


@app.single("upgrade")
def upgrade(context: Context) -> None:
    """Let a pool have what this vgpumgr's version added.

    Hosts with this vgpumgr and with the version before serve one pool together, as it was before.
    Once each host has this one, upgrade it: older programs are refused then. It is refused while a
    host that is heard has an older one. There is no way back.

    \b
    Examples:
      vgpumgr pool upgrade
    """
    session = get_session_here(context, "pool upgrade")
    with open_pool(session.options) as pool:
        before, now, unheard = pool.upgrade()
    document = {"schema": _SCHEMA, "before": before, "version": now, "not_heard": unheard}
    text = f"the pool has version {now}" + (
        ", as before" if before == now else f"; before: {before}"
    )
    print_single(context, document, [text])
    for host in unheard:
        session.streams.note(f"host {host} is not heard: it needs this vgpumgr when it comes back")


@app.single("leave")
def leave(context: Context) -> None:
    """Take this host out of its pool.

    It is refused while leases are on it, and while vgpumgr pool serve runs; the daemon ends serving by
    itself. A pool in a file of this host stays there.

    \b
    Examples:
      vgpumgr pool leave
    """
    host = leave_pool(get_session_here(context, "pool leave").options)
    text = f"host {host} has left the pool" if host else "this host is in no pool any more"
    print_single(context, {"schema": _SCHEMA, "host": host}, [text])


@app.single("remove")
def remove(
    context: Context,
    name: Annotated[str, Argument(metavar="HOST", help="Its name in the pool.")],
    confirm_dead: Annotated[
        bool, Option("--confirm-dead", help="Do not ask: nothing runs there any more.")
    ] = False,
) -> None:
    """Remove a host that is dead, and end its leases.

    Claims of it wait for other GPUs. Nothing proves to the pool that nothing runs there: you say so. A
    host that is heard is refused.

    \b
    Examples:
      vgpumgr pool remove gpu-b --confirm-dead
    """
    session = get_session_here(context, "pool remove")
    with open_pool(session.options) as pool:
        claims = pool.list_lost(name)
        if not confirm_dead:
            names = ", ".join(claims) or "none"
            refusal = ConfirmationNeededError(
                f"only you can say that host {name} is dead",
                why="what still runs there would go on beside the new holders of its claims",
                held_by=[f"claim {claim}" for claim in claims],
                hint=f"vgpumgr pool remove {name} --confirm-dead",
            )
            confirm(
                session.streams,
                f"Does nothing run on host {name} any more (its claims: {names})?",
                refusal,
            )
        claims = pool.remove_host(name)
    document = {"schema": _SCHEMA, "host": name, "claims": claims}
    what = f"; its claims wait again: {', '.join(claims)}" if claims else ""
    print_single(context, document, [f"host {name} is removed{what}"])


def _read_trace(nodes: str, tasks: str) -> Trace:
    """Raises the errors of both files."""
    from vgpumgr.pool.files import parse_hosts, parse_tasks
    from vgpumgr.pool.simulation import Trace

    if nodes == tasks == "-":
        raise UsageError("--nodes and --tasks are both standard input", hint="a file for one")
    hosts = parse_hosts(**read_text_file(nodes, _ERRORS))
    return Trace(hosts, parse_tasks(**read_text_file(tasks, _ERRORS)))
