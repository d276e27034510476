"""``vgpumgr doctor``: whether this host can give GPUs to VMs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from typer import Argument, Context, Option

from vgpumgr import __version__
from vgpumgr.cli.backend import write_support_bundle
from vgpumgr.cli.main import App, Listing
from vgpumgr.cli.output import Column, open_archive, print_list, print_single, value_column
from vgpumgr.cli.session import (
    DryRun,
    OutFile,
    Streams,
    Yes,
    call,
    confirm,
    get_layout,
    get_session,
    get_streams,
)
from vgpumgr.errors import ConfirmationNeededError, Exit, UsageError
from vgpumgr.model.checks import BY_ID, CHECKS, GROUPS

app = App()

_COLUMNS = (
    value_column("id"),
    value_column("group"),
    value_column("result"),
    value_column("text", wraps=True),
    value_column("hint", wraps=True),
    Column("evidence", lambda row: "; ".join(row["evidence"]), wide=True, wraps=True),
)
_COLORS = {"warning": "\033[33m", "problem": "\033[31m"}


class _Doctor(Listing):
    """The verb: repairs are made by its own process, even beside a daemon."""

    may_begin: ClassVar[bool] = False


@app.command("doctor", cls=_Doctor)
def doctor(
    context: Context,
    action: Annotated[
        Literal["explain"] | None, Argument(metavar="[explain]", help="Explain one check.")
    ] = None,
    check: Annotated[str | None, Argument(metavar="[ID]", help="Which check to explain.")] = None,
    checks: Annotated[
        list[str] | None, Option("--check", metavar="ID", help="Only this check; several times.")
    ] = None,
    strict: Annotated[bool, Option("--strict", help="Exit code 3 for warnings, too.")] = False,
    fix: Annotated[
        bool, Option("--fix", help="Do what can be done about it, after a plan.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Check whether this host can give GPUs to VMs.

    Shows what is wrong with evidence and what to do; -q leaves out what is well. Changes nothing
    without --fix, which asks first: it writes files of its own, runs the host's programs
    (update-grub, systemctl, modprobe), and checks again. Without root, what is root's alone is
    skipped. Exit code 3: there is a problem.

    \b
    Examples:
      vgpumgr doctor
      vgpumgr doctor --strict -o json
      vgpumgr doctor --check iommu --check kvm
      vgpumgr doctor --fix --dry-run
      vgpumgr doctor explain iommu
    """
    if action is not None:
        given = {
            "--check": checks,
            "--strict": strict,
            "--fix": fix,
            "--yes": yes,
            "--dry-run": dry_run,
        }
        if surplus := [name for name, value in given.items() if value]:
            raise UsageError(
                f"explain takes no {surplus[0]}",
                why="it explains one check, and makes none",
                hint=f"vgpumgr doctor explain {check or (checks or ['iommu'])[0]}",
            )
        return _explain(context, check)
    if (yes or dry_run) and not fix:
        raise UsageError(
            f"{'--yes' if yes else '--dry-run'} goes with --fix only",
            why="without it nothing is changed",
            hint="vgpumgr doctor --fix --dry-run",
        )
    if fix:
        get_session(context).check_here("vgpumgr doctor --fix")
    wanted = ",".join(checks) if checks else None
    document = call(context, "check_host", checks=wanted, client_version=__version__)
    found = document["checks"]
    if fix:
        return _fix(context, found, strict=strict, yes=yes, dry_run=dry_run)
    if not get_layout(context).is_default:
        print_list(context, document, found, _COLUMNS, "id")
    else:
        streams = get_streams(context)
        for line in _render(document, streams, quiet=streams.is_quiet):
            streams.print(streams.address(line))
    return _choose_code(found, strict=strict)


def _choose_code(found: Iterable[dict[str, Any]], *, strict: bool) -> int:
    bad = {"problem", "warning"} if strict else {"problem"}
    return int(Exit.DIFFERENT if any(row["result"] in bad for row in found) else Exit.OK)


def _fix(
    context: Context, found: list[dict[str, Any]], *, strict: bool, yes: bool, dry_run: bool
) -> int:
    """The plan, the question, the repairs, and the checks once more."""
    session, failing = get_session(context), [r for r in found if r["result"] in _COLORS]
    names = ",".join(row["id"] for row in failing)
    plan = session.call("repair_host", checks=names, dry_run=True) if names else {"repairs": []}
    actions = [action for row in plan["repairs"] for action in row["actions"]]
    left = [row for row in failing if row["id"] not in {one["check"] for one in plan["repairs"]}]
    if dry_run or not actions:
        document = {"schema": "vgpumgr/v1", "machine": None, **plan, "dry_run": dry_run}
        lines = list(_render_repairs(document, left)) or ["nothing to do"]
        print_single(context, document, map(session.streams.address, lines))
        return int(Exit.OK) if dry_run else _choose_code(found, strict=strict)
    if not yes:
        refusal = ConfirmationNeededError(
            "repairs change this host, and there is no terminal to ask on",
            hint="the same with --yes, or with --dry-run to see them",
        )
        confirm(session.streams, "Make them?", refusal, _render_repairs(plan, left))
    done = session.call("repair_host", checks=names, expected=actions)
    after = session.call("check_host", checks=names, client_version=__version__)["checks"]
    kept = [row for row in after if row["result"] in _COLORS]
    shown = {one["check"] for one in done["repairs"]}
    left = [row for row in kept if row["id"] not in shown]
    lines = [
        *_render_repairs(done, left, is_brief=session.streams.is_quiet),
        *_render_still(done, kept),
    ]
    print_single(context, done, map(session.streams.address, lines))
    has_failed = any(one["state"] == "failed" for one in done["repairs"])
    return int(Exit.ERROR) if has_failed else _choose_code(kept, strict=strict)


def _render_repairs(
    plan: dict[str, Any], left: Iterable[dict[str, Any]], *, is_brief: bool = False
) -> Iterator[str]:
    """The repairs with their actions, and what is an administrator's."""
    for one in plan["repairs"]:
        reboot = "; takes effect with a reboot" if one["needs_reboot"] else ""
        yield f"{one['check']}: {one['state']}{reboot}"
        yield from (f"  {action}" for action in one["actions"] if not is_brief)
        yield from (f"  error: {error}" for error in [one["error"]] if error)
    for row in left:
        yield f"{row['id']}: not done by --fix: {row['text']}"
        yield from (f"  try: {hint}" for hint in [row["hint"]] if hint)


def _render_still(done: dict[str, Any], kept: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What a repair did not mend, though its programs succeeded."""
    made = {one["check"] for one in done["repairs"] if one["state"] == "done"}
    for row in kept:
        if row["id"] in made:
            yield f"{row['id']}: still a {row['result']}: {row['text']}"
            yield from (f"  try: {hint}" for hint in [row["hint"]] if hint)


@app.single("support-bundle")
def support_bundle(
    context: Context,
    out: OutFile = "vgpumgr-support.tar.gz",
    serials: Annotated[
        bool, Option("--serials", help="Keep serial numbers of boards and devices.")
    ] = False,
) -> None:
    """Write what others need to help, without secrets.

    An archive of what doctor, status, config and the lists say, of the daemon's operations and logs,
    the system's journal, packages and versions. Passwords, tokens and keys are removed, serial
    numbers, too; read it before you send it. Works without a daemon and with a damaged state, and
    changes nothing.

    \b
    Examples:
      vgpumgr support-bundle
      vgpumgr support-bundle --out /tmp/gpu1.tar.gz --serials
      vgpumgr support-bundle --out - | ssh admin@desk 'cat > gpu1.tar.gz'
    """
    session = get_session(context)
    session.check_here("vgpumgr support-bundle")
    streams = session.streams
    with open_archive(streams, out or "") as target:
        parts = write_support_bundle(session.options, target, serials=serials)
    lacking = sum(part["problem"] is not None for part in parts)
    streams.note(f"{len(parts)} files, {lacking} of them not whole: MANIFEST says why")
    if out != "-":
        document = {"schema": "vgpumgr/v1", "path": str(target), "files": parts}
        print_single(context, document, [str(target)])


def _explain(context: Context, check: str | None) -> int:
    if check is None:
        raise UsageError(
            "which check?",
            why=f"there are {len(BY_ID)}, from {CHECKS[0].id} to {CHECKS[-1].id}; doctor.md has all",
            hint="vgpumgr doctor explain iommu",
        )
    document = call(context, "explain_check", selector=check)
    row = document["check"]
    lines = [
        f"{row['id']} ({GROUPS[row['group']]})",
        f"  {row['title']}",
        f"  checked   {row['how']}",
        f"  mend      {row['mend']}",
        f"  source    {row['source']}",
    ]
    print_single(context, document, lines, lambda: row["id"])
    return 0


def _render(document: dict[str, Any], streams: Streams, *, quiet: bool) -> Iterator[str]:
    """By groups: a line for each check, and evidence and hint of those that are not well."""
    rows = document["checks"]
    width = max((len(row["id"]) for row in rows), default=0)
    for group, heading in GROUPS.items():
        shown = [row for row in rows if row["group"] == group]
        if quiet:
            shown = [row for row in shown if row["result"] in _COLORS]
        if shown:
            yield heading
        for row in shown:
            word = f"{row['result']:8}"
            if (color := _COLORS.get(row["result"])) and streams.has_color(streams.out):
                word = f"{color}{word}\033[0m"
            yield f"  {word} {row['id']:{width}}  {row['text']}"
            if row["result"] in _COLORS:
                yield from (f"{'':11} evidence: {one}" for one in row["evidence"])
                yield from (f"{'':11} try: {hint}" for hint in [row["hint"]] if hint)
    if not quiet:
        counts = Counter(row["result"] for row in rows)
        yield ", ".join(
            f"{counts[name]} {name}{'s' if counts[name] != 1 and name in _COLORS else ''}"
            for name in ("ok", "warning", "problem", "skipped")
        )
    if fixable := sum(row["fixable"] for row in rows):
        yield f"vgpumgr doctor --fix does something about {fixable} of them, after a plan"
