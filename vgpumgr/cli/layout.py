"""``vgpumgr mig layout``, also named ``vgpumgr gpu layout``, and what the other commands that change MIG instances
share with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from typer import Argument, Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import (
    FileErrors,
    format_document,
    print_notes,
    print_single,
    read_text_file,
    write_out,
)
from vgpumgr.cli.session import (
    DryRun,
    Format,
    OutFile,
    Output,
    Streams,
    Yes,
    call,
    confirm,
    get_format,
    get_session,
    get_streams,
)
from vgpumgr.cli.text import describe_placement
from vgpumgr.errors import (
    ConfirmationNeededError,
    Exit,
    LayoutFileError,
    LayoutFileMissingError,
    LayoutFilePermissionError,
    UsageError,
)

app = App()
#: the application's limit; a longer file is not read to its end
_ERRORS = FileErrors(
    LayoutFileMissingError,
    LayoutFilePermissionError,
    LayoutFileError,
    noun="layout file",
    max_bytes=1 << 20,
    why_too_large="more than 1 MiB; a layout for a large host takes a few kB",
)
_DESTROYED = (
    ("gi_destroys", "GPU instance"), ("ci_destroys", "compute instance"), ("vgpu_deletes", "vGPU")
)  # fmt: skip

LayoutFile = Annotated[str, Argument(metavar="FILE", help="A layout file; - is standard input.")]
Selected = Annotated[
    str | None, Option("-c", "--config", metavar="NAME", help="Which layout of the file.")
]
AllowDisruptive = Annotated[
    list[str] | None,
    Option(
        "--allow-disruptive",
        metavar="NAME",
        help="Slices in use that may be destroyed: VM, process id, MIG UUID, GPU/INSTANCE.",
    ),
]


@app.single("plan")
def plan_layout(
    context: Context,
    file: LayoutFile,
    config: Selected = None,
    allow_disruptive: AllowDisruptive = None,
    out: OutFile = None,
) -> int:
    """Show the least change that brings the GPUs to a layout.

    Reads our own format, nvidia-mig-parted's and vgpu-device-manager's. Changes nothing. Exit code 3:
    there is something to do; 0: there is not; else that of the refusal. --out saves the plan for
    apply.

    \b
    Examples:
      vgpumgr mig layout plan web.yaml
      vgpumgr mig layout plan config.yaml -c all-1g.10gb -o json
      vgpumgr mig layout plan web.yaml --out plan.json
      vgpumgr gpu layout plan vgpus.yaml
    """
    session = get_session(context)
    asked = {"name": config, "allow": list(allow_disruptive or ())}
    document = session.call("plan_layout", **read_file(file), **asked)
    if out is not None:
        write_out(session.streams, format_document(document, Format.JSON), out)
    if out != "-":
        show_plan(context, document)
    return int(Exit.DIFFERENT if document["steps"] else Exit.OK)


@app.single("apply")
def apply_layout(
    context: Context,
    file: LayoutFile,
    config: Selected = None,
    allow_disruptive: AllowDisruptive = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Bring the GPUs to a layout by the least change.

    FILE is a layout, or a plan of "plan --out": a plan is refused if the GPUs have changed since.
    Slices in use stay unless --allow-disruptive names them. Asks before it destroys anything. If it
    fails, it is undone.

    \b
    Examples:
      vgpumgr mig layout apply web.yaml
      vgpumgr mig layout apply config.yaml -c all-1g.10gb --yes
      vgpumgr mig layout apply plan.json
      vgpumgr gpu layout apply vgpus.yaml
    """
    asked = {**read_file(file), "name": config, "allow": list(allow_disruptive or ())}
    return change(context, "apply_layout", asked, yes=yes, dry_run=dry_run)


@app.single("assert")
def assert_layout(context: Context, file: LayoutFile, config: Selected = None) -> int:
    """Compare the GPUs with a layout.

    Exit code 0: they agree; 3: they differ.

    \b
    Examples:
      vgpumgr mig layout assert web.yaml
      vgpumgr mig layout assert config.yaml -c all-1g.10gb -o json
    """
    document = call(context, "assert_layout", **read_file(file), name=config)
    print_notes(context, document)
    lines = [f"GPU {one['gpu_index']}: {one['text']}" for one in document["differences"]]
    if document["matches"]:
        lines.append(f"as {document['layout']} says")
    print_single(context, document, lines)
    return int(Exit.OK if document["matches"] else Exit.DIFFERENT)


@app.command("export")
def export_layout(
    context: Context,
    label: Annotated[
        str, Option("-l", "--label", metavar="NAME", help="The name of the layout.")
    ] = "current",
    dialect: Annotated[
        Literal["vgpumgr", "mig-parted", "vgpu-device-manager"],
        Option("--format", help="Whose format."),
    ] = "vgpumgr",
    placements: Annotated[
        bool, Option(help="The place of each instance, not only their number.")
    ] = True,
    out: OutFile = None,
    output: Output = None,
) -> None:
    """Write the GPUs' present layout as a file.

    Applying it changes nothing. --no-placements makes a file that fits other hosts too.

    \b
    Examples:
      vgpumgr mig layout export --out now.yaml
      vgpumgr mig layout export --format mig-parted -l web-tier
      vgpumgr mig layout export -o json
    """
    if output not in (None, Format.JSON, Format.YAML):
        raise UsageError(f"export has no {output} output", hint="-o yaml")
    document = call(context, "export_layout", dialect=dialect, label=label, placements=placements)
    write_document(context, document, out, output or Format.YAML)


def read_file(name: str) -> dict[str, str]:
    """Text and name of a file, as the operations take them. Raises LayoutFileMissingError,
    LayoutFilePermissionError, LayoutFileError.
    """
    return read_text_file(name, _ERRORS)


def show_plan(context: Context, document: dict[str, Any]) -> None:
    """A plan in any format."""
    print_notes(context, document)
    print_single(context, document, render_plan(document))


def render_plan(document: dict[str, Any]) -> Iterator[str]:
    """Each GPU with its steps as ``+ ~ -``, then what it comes to."""
    for explanation in document["explanations"]:
        yield explanation["text"]
        for step in document["steps"]:
            if step["gpu"] == explanation["gpu"] and (
                line := _describe_step(step, document["steps"])
            ):
                yield line
    yield _describe_sum(document)


def _describe_step(step: dict[str, Any], steps: Sequence[dict[str, Any]]) -> str | None:
    """A line; None for the compute instances of a GPU instance that is created or destroyed itself."""
    kind = step["kind"]
    if kind.startswith("mig.mode"):
        return f"  ~ MIG mode {'on' if kind.endswith('enable') else 'off'}"
    if kind.startswith("mdev."):
        sign, name = ("-", f" ({step['vgpu']})") if kind.endswith("delete") else ("+", "")
        return f"  {sign} vGPU {step['vgpu_type']} on {step['parent']}{name}"
    place = describe_placement(step["placement"])
    lost = f"  (taken from {', '.join(step['disrupts'])})" if step["disrupts"] else ""
    if kind == "mig.gi.create":
        return f"  + {step['profile']} at {place}{_describe_inside(step, steps)}"
    if kind == "mig.gi.destroy":
        return f"  - {step['profile']} at {place}{lost}"
    if kind == "mig.ci.create" and step["key"] is not None:
        return None
    if kind == "mig.ci.destroy" and _goes(step["instance"], step["gpu"], steps):
        return None
    sign = "+" if kind.endswith("create") else "-"
    home = f"{step['parent_profile']} at {describe_placement(step['parent_placement'])}"
    return f"  ~ {home}: {sign} {step['profile']}{lost}"


def _goes(instance: int | None, gpu: str, steps: Sequence[dict[str, Any]]) -> bool:
    return any(
        s["kind"] == "mig.gi.destroy" and s["instance"] == instance and s["gpu"] == gpu
        for s in steps
    )


def _describe_inside(step: dict[str, Any], steps: Sequence[dict[str, Any]]) -> str:
    """Compute instances where they are not simply one of full size."""
    inside = [s["profile"] for s in steps if s["key"] == step["key"] and s is not step]
    if inside == [step["profile"]]:
        return ""
    return f" with {', '.join(inside) or 'no compute instance'}"


def _describe_sum(document: dict[str, Any]) -> str:
    cost = document["cost"]
    if not document["steps"]:
        return "nothing to do"
    changes = cost["mode_changes"]
    modes = f", MIG mode of {_count(changes, 'GPU')} changed" if changes else ""
    word, to = ("done:", "") if document["applied"] else ("plan:", "to be ")
    compute = cost["ci_creates"] + cost["ci_destroys"]
    vgpus = ""
    if cost["vgpu_creates"] or cost["vgpu_deletes"]:
        vgpus = f"; vGPUs: {cost['vgpu_creates']} {to}created, {cost['vgpu_deletes']} {to}deleted"
    return (
        f"{word} {cost['gi_creates']} {to}created, {cost['gi_destroys']} {to}destroyed, "
        f"{cost['kept']} kept{modes}; {_count(compute, 'compute instance')} touched{vgpus}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def change(
    context: Context, operation: str, asked: dict[str, Any], *, yes: bool, dry_run: bool
) -> int:
    """Plans, asks if something is destroyed, does exactly what was shown."""
    session = get_session(context)
    with session.open_backend(session.options) as backend:
        plan = backend.call(operation, dry_run=True, **asked)
        if dry_run:
            show_plan(context, plan)
            return int(Exit.OK)
        if plan["destructive"] and not yes:
            _confirm(session.streams, plan)
        done = backend.call(operation, expected=plan["digest"], **asked)
    if session.options.verbosity < 0 and get_format(context) is None:
        session.streams.print(_describe_sum(done))
    else:
        show_plan(context, done)
    return int(Exit.OK)


def _confirm(streams: Streams, plan: dict[str, Any]) -> None:
    cost = plan["cost"]
    what = [_count(cost[key], noun) for key, noun in _DESTROYED if cost[key]]
    told = f"the plan destroys {' and '.join(what)}" if what else "the plan turns MIG mode off"
    losers = list(dict.fromkeys(who for step in plan["steps"] for who in step["disrupts"]))
    refusal = ConfirmationNeededError(
        f"{told}, and there is no terminal to ask on",
        held_by=losers,
        hint="the same with --yes, or with --dry-run to see it",
    )
    loss = f" {', '.join(losers)} will lose what they use." if losers else ""
    question = f"{told[0].upper()}{told[1:]}.{loss} Go on?"
    confirm(streams, question, refusal, render_plan(plan))


def write_document(
    context: Context, document: dict[str, Any], target: str | None, format_: Format
) -> None:
    """A file's data as YAML or JSON, to standard output or where ``target`` says."""
    streams = get_streams(context)
    for note in document["notes"]:
        streams.note(f"note: {note}")
    write_out(streams, format_document(document["file"], format_), target)
