"""``vgpumgr status``, ``diff``, ``recover`` and ``restore``: recorded and actual state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from typer import Context, Option

from vgpumgr.cli.main import App
from vgpumgr.cli.output import or_absent, print_single
from vgpumgr.cli.session import DryRun, call, get_streams, get_verbosity, number
from vgpumgr.errors import Exit

app = App()


@app.single("status")
def status(context: Context) -> None:
    """Show whether actual and recorded state agree.

    Lists what should exist but does not, interrupted operations, and pending ones.

    \b
    Examples:
      vgpumgr status
      vgpumgr status -o json
    """
    document = call(context, "status")
    lines = map(get_streams(context).address, _render_status(document))
    print_single(context, document, lines)


def _render_status(document: dict[str, Any]) -> Iterator[str]:
    """Counts, then everything that is not as it should be."""
    yield f"attachments  {or_absent(document['attachments'])}"
    yield f"GPUs         {or_absent(document['gpus'])}"
    yield f"VMs          {or_absent(document['vms'])}"
    yield f"journal      {document['journal'] or 'not known'}"
    if pool := document.get("pool"):  # an older daemon does not say
        server = "" if pool["server"] else "; nothing serves for it now: vgpumgr pool serve"
        yield f"pool         host {pool['host']} {pool['text']}{server}"
        if listens := pool.get("listens"):
            yield f"links        this host's GPUs are offered at {', '.join(listens)}"
    yield from (f"late         {helper}" for helper in document["late"])
    yield from (f"problem      {problem}" for problem in document["problems"])
    yield from (f"note         {drained}" for drained in document.get("drained", ()))
    yield from (f"warning      {warning}" for warning in document.get("warnings", ()))
    yield from _render_interrupted(document["interrupted"])
    if document["drift"] is None:
        yield "differences  not known"
    elif not document["drift"]:
        yield "differences  none"
    else:
        yield "differences"
        yield from _render_drift(document["drift"])


@app.single("diff")
def diff(context: Context) -> int:
    """Compare actual with recorded state.

    Exit code 3: they differ.

    \b
    Examples:
      vgpumgr diff
      vgpumgr diff -o json
    """
    document = call(context, "diff")
    found = [*_render_interrupted(document["interrupted"]), *_render_drift(document["drift"])]
    lines = map(get_streams(context).address, found or ["no differences"])
    print_single(context, document, lines)
    return int(Exit.DIFFERENT if found else Exit.OK)


@app.single("recover")
def recover(
    context: Context,
    release: Annotated[
        bool, Option("--release", help="Free the slices of VMs that are gone.")
    ] = False,
    readd: Annotated[
        bool, Option("--readd", help="Give VMs the devices again that they have lost.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Recover interrupted operations, repair drift.

    Undoes interrupted attaches, completes interrupted detaches, starts dead keepers again, and reads
    lost records from the domain metadata. A repair that would remove something or change a VM's
    devices is only reported without its option. Exit code 3: some drift is left.

    \b
    Examples:
      vgpumgr recover
      vgpumgr recover --release
      vgpumgr recover --release --dry-run
    """
    document = call(context, "recover", release=release, readd=readd, dry_run=dry_run)
    is_brief = get_verbosity(context, dry_run=dry_run) < 0
    lines = map(get_streams(context).address, _render_recovery(document, is_brief=is_brief))
    print_single(context, document, lines)
    if dry_run:
        return int(Exit.OK)
    left = document["drift"] or not all(action["done"] for action in document["actions"])
    return int(Exit.DIFFERENT if left else Exit.OK)


def _render_recovery(document: dict[str, Any], *, is_brief: bool) -> Iterator[str]:
    """What was or would be done, only how much where it is brief; then what still differs."""
    done = sum(action["done"] for action in document["actions"])
    if document["dry_run"] and document["actions"]:
        yield "would be done:"
    elif is_brief and done:
        yield f"recovered: {done}"
    for action in document["actions"]:
        if is_brief and action["done"]:
            continue
        yield f"  {'+' if action['done'] else '!'} {action['subject']}: {action['text']}"
    if document["drift"]:
        yield "would still differ:" if document["dry_run"] else "still different:"
        yield from _render_drift(document["drift"])
    elif not document["actions"]:
        yield "nothing to recover"


@app.single("restore")
def restore(
    context: Context,
    timeout: Annotated[
        float,
        Option(
            "--timeout",
            metavar="SECONDS",
            parser=number(float, 1),
            help="No step starts after this time.",
        ),
    ] = 240.0,
    early: Annotated[
        bool, Option("--early", help="Only functions that are bound at every boot; without NVML.")
    ] = False,
    boot: Annotated[
        bool, Option("--boot", help="libvirt does not run yet: do not ask it.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Restore layouts and channels after a boot.

    Restores MIG mode, layouts, the slices of VMs and bound functions at their old places, and starts
    the channels of attached VMs. Destroys nothing; reports obstacles, with exit code 3.
    vgpumgr-passthrough.service runs it with --early before the GPUs are in use,
    vgpumgr-restore.service with --boot before libvirt starts VMs.

    \b
    Examples:
      vgpumgr restore
      vgpumgr restore --dry-run
      vgpumgr restore --timeout 60 -o json
    """
    asked = {"timeout_s": timeout, "early": early, "boot": boot, "dry_run": dry_run}
    document = call(context, "restore", **asked)
    done = [f"  + {text}" for text in document["done"]]
    if done and get_verbosity(context, dry_run=dry_run) < 0:
        done = [f"restored: {len(done)}"]
    lines = ["would be done:", *done] if dry_run and done else done
    lines += [f"  ! {get_streams(context).address(text)}" for text in document["problems"]]
    lines += [f"  note: {text}" for text in document["notes"]]
    print_single(context, document, lines or ["nothing is missing"])
    if dry_run:
        return int(Exit.OK)
    return int(Exit.DIFFERENT if document["problems"] else Exit.OK)


def _render_drift(found: list[dict[str, Any]]) -> Iterator[str]:
    """One line each, with the command that repairs it."""
    for drift in found:
        hint = f"  (try: {drift['hint']})" if drift["hint"] else ""
        yield f"  ~ {drift['subject']}: {drift['text']}{hint}"


def _render_interrupted(found: list[dict[str, Any]]) -> Iterator[str]:
    """Operations that a crash interrupted."""
    for operation in found:
        what = "was interrupted  (try: vgpumgr recover)"
        if operation["waits"]:
            what = "waits for a helper process; the next command after its end recovers it"
        yield f"  ! {operation['subject']}: {operation['operation']} {what}"
