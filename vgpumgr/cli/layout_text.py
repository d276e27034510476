"""What the commands about layouts share: reading files, showing plans, asking first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from vgpumgr.cli.declarations import Argument, Option
from vgpumgr.cli.gpu_text import tell_placement
from vgpumgr.cli.output import Format, check_single, print_document, print_single, tell_notes
from vgpumgr.cli.question import confirm
from vgpumgr.cli.session import Session
from vgpumgr.errors import (
    ConfirmationNeededError,
    Exit,
    FileWriteError,
    LayoutFileError,
    LayoutFileMissingError,
    LayoutFilePermissionError,
    NotPermittedError,
    UsageError,
)

#: as the application has it; what is longer is not even read
_MAX_BYTES = 1 << 20
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
MigGpu = Annotated[str, Argument(metavar="GPU", help="Index, UUID or unique prefix, bus address.")]
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan, do nothing.")]
Yes = Annotated[bool, Option("-y", "--yes", help="Do not ask.")]


def read_file(name: str) -> dict[str, str]:
    """Text and name of a file, as the operations take them. Raises LayoutFileMissingError,
    LayoutFilePermissionError, LayoutFileError.
    """
    source = "standard input" if name == "-" else name
    if not name:
        raise UsageError("the file's name is empty")
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
    except PermissionError as error:
        raise LayoutFilePermissionError(f"cannot read {name}", cause=str(error)) from error
    except (OSError, ValueError) as error:
        raise LayoutFileMissingError(f"cannot read {name}", cause=str(error)) from error
    if len(data) > _MAX_BYTES:
        raise LayoutFileError(
            f"{source}: too large for a layout file",
            why="more than 1 MiB; a layout for a large host takes a few kB",
        )
    try:
        return {"text": data.decode("utf-8-sig"), "source": source}
    except UnicodeDecodeError as error:
        raise LayoutFileError(f"{source}: not UTF-8 text", cause=str(error)) from error


def write_file(name: str, text: str) -> None:
    """Writes the whole of a file or nothing of it. Raises FileWriteError, NotPermittedError."""
    try:
        path = Path(name).resolve()
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a terminal or a pipe
            return
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except PermissionError as error:
        raise NotPermittedError(f"cannot write {name}", cause=str(error)) from error
    except OSError as error:
        raise FileWriteError(f"cannot write {name}", cause=str(error)) from error


def show_plan(session: Session, document: dict[str, Any], output: Format | None) -> None:
    """A plan in any format."""
    tell_notes(session.streams, document, output)
    print_single(session.streams, document, output, render_plan(document))


def render_plan(document: dict[str, Any]) -> Iterator[str]:
    """Each GPU with its steps as ``+ ~ -``, then what it comes to."""
    for explanation in document["explanations"]:
        yield explanation["text"]
        for step in document["steps"]:
            if step["gpu"] == explanation["gpu"] and (line := _tell_step(step, document["steps"])):
                yield line
    yield _tell_sum(document)


def _tell_step(step: dict[str, Any], steps: Sequence[dict[str, Any]]) -> str | None:
    """A line; None for what goes without saying: the compute instances of a GPU instance that
    comes or goes.
    """
    kind = step["kind"]
    if kind.startswith("mig.mode"):
        return f"  ~ MIG mode {'on' if kind.endswith('enable') else 'off'}"
    if kind.startswith("mdev."):
        sign, name = ("-", f" ({step['vgpu']})") if kind.endswith("delete") else ("+", "")
        return f"  {sign} vGPU {step['vgpu_type']} on {step['parent']}{name}"
    place = tell_placement(step["placement"])
    lost = f"  (taken from {', '.join(step['disrupts'])})" if step["disrupts"] else ""
    if kind == "mig.gi.create":
        return f"  + {step['profile']} at {place}{_tell_inside(step, steps)}"
    if kind == "mig.gi.destroy":
        return f"  - {step['profile']} at {place}{lost}"
    if kind == "mig.ci.create" and step["key"] is not None:
        return None
    if kind == "mig.ci.destroy" and _goes(step["instance"], step["gpu"], steps):
        return None
    sign = "+" if kind.endswith("create") else "-"
    home = f"{step['parent_profile']} at {tell_placement(step['parent_placement'])}"
    return f"  ~ {home}: {sign} {step['profile']}{lost}"


def _goes(instance: int | None, gpu: str, steps: Sequence[dict[str, Any]]) -> bool:
    return any(
        s["kind"] == "mig.gi.destroy" and s["instance"] == instance and s["gpu"] == gpu
        for s in steps
    )


def _tell_inside(step: dict[str, Any], steps: Sequence[dict[str, Any]]) -> str:
    """Compute instances where they are not simply one of full size."""
    inside = [s["profile"] for s in steps if s["key"] == step["key"] and s is not step]
    if inside == [step["profile"]]:
        return ""
    return f" with {', '.join(inside) or 'no compute instance'}"


def _tell_sum(document: dict[str, Any]) -> str:
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
    session: Session,
    operation: str,
    asked: dict[str, Any],
    *,
    yes: bool,
    dry_run: bool,
    output: Format | None,
) -> int:
    """Plans, asks where something is destroyed, does exactly what was shown."""
    check_single(operation.replace("_", " "), output)
    with session.open_backend(session.options) as backend:
        plan = backend.call(operation, dry_run=True, **asked)
        if dry_run:
            show_plan(session, plan, output)
            return int(Exit.DIFFERENT if plan["steps"] else Exit.OK)
        if plan["destructive"] and not yes:
            _confirm(session, plan)
        done = backend.call(operation, expected=plan["digest"], **asked)
    show_plan(session, done, output)
    return int(Exit.OK)


def _confirm(session: Session, plan: dict[str, Any]) -> None:
    """Without a terminal there is nobody to ask: exit 2, nothing done."""
    cost = plan["cost"]
    what = [_count(cost[key], noun) for key, noun in _DESTROYED if cost[key]]
    told = f"the plan destroys {' and '.join(what)}" if what else "the plan turns MIG mode off"
    losers = list(dict.fromkeys(who for step in plan["steps"] for who in step["disrupts"]))
    if not session.streams.is_terminal:
        raise ConfirmationNeededError(
            f"{told}, and there is no terminal to ask on",
            held_by=losers,
            hint="the same with --yes, or with --dry-run to see it",
        )
    session.streams.err.write("\n".join(render_plan(plan)) + "\n")
    loss = f" {', '.join(losers)} will lose what they use." if losers else ""
    confirm(f"{told[0].upper()}{told[1:]}.{loss} Go on?")


def write_document(
    session: Session, document: dict[str, Any], target: str | None, format_: Format
) -> None:
    """A file's data as YAML or JSON, to standard output or where ``target`` says."""
    tell_notes(session.streams, document, None)
    data: dict[str, Any] = document["file"]
    if target in (None, "-"):
        print_document(session.streams, data, format_)
        return
    assert target is not None
    write_file(target, render_data(data, format_))


def render_data(data: dict[str, Any], format_: Format) -> str:
    """The text of a file."""
    if format_ is Format.YAML:
        import yaml

        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    import json

    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
