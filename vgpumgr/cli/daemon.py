"""``vgpumgr daemon``, what only a daemon can answer (``vgpumgr api``, ``vgpumgr events``), and ``vgpumgr metrics``."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from vgpumgr.cli.backend import (
    find_daemon,
    format_defaults,
    open_daemon,
    read_config,
    run_daemon,
    verify_audit,
)
from vgpumgr.cli.main import App
from vgpumgr.cli.output import print_list, print_single, value_column, write_out
from vgpumgr.cli.session import (
    Format,
    OutFile,
    Output,
    Session,
    call,
    get_layout,
    get_session,
    get_streams,
    number,
    set_layout,
)
from vgpumgr.errors import Exit, SettingsError, UsageError
from vgpumgr.model.routes import CONFIG, EVENTS
from vgpumgr.model.text import format_size

app = App()
config = App()
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@app.command("daemon")
def serve(
    context: Context,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="KEY=VALUE", help="A key of the configuration; precedes its files."
        ),
    ] = None,
) -> None:
    """Serve this machine's API.

    Serves on its unix socket until SIGTERM. The daemon is the only one that changes the machine. It
    takes systemd's socket if it is started through one.

    \b
    Examples:
      vgpumgr daemon
      vgpumgr --machine dgx-a100 daemon
      vgpumgr daemon --set release.stopped=true
    """
    session = get_session(context)
    session.check_here("vgpumgr daemon")
    run_daemon(session.options, settings or ())


@app.command("api")
def send_request(
    context: Context,
    method: Annotated[str, Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, Argument(help="Such as /1.0/gpus.")],
    data: Annotated[
        str | None, Option("--data", metavar="JSON", help="The body; @FILE reads it from there.")
    ] = None,
    if_match: Annotated[
        str | None, Option("--if-match", metavar="ETAG", help="Only if it is unchanged.")
    ] = None,
) -> None:
    """Send a request to the daemon's API.

    Prints the body of the answer.

    \b
    Examples:
      vgpumgr api GET /1.0
      vgpumgr api GET /1.0/gpus
      vgpumgr api POST /1.0/attachments --data '{"vm": "vm01", "profile": "1g.10gb"}'
    """
    session = get_session(context)
    verb = method.upper()
    if verb not in _METHODS or not path.startswith("/") or any(c.isspace() for c in path):
        raise UsageError(f"no request: {method} {path}", hint="vgpumgr api GET /1.0/gpus")
    body = None if data is None else _read_body(data)
    headers = {"If_Match": if_match} if if_match else {}
    answer = open_daemon(session.options).request(verb, path, body, **headers)
    if answer.status >= 400:
        answer.document()
    session.streams.print(answer.body.decode(errors="replace"))


def _read_body(data: str) -> bytes:
    if not data.startswith("@"):
        return data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {data[1:] or 'a file without a name'}", cause=str(error)
        ) from error


@app.command("events")
def follow_events(
    context: Context,
    count: Annotated[
        int | None,
        Option("--count", metavar="N", parser=number(int, 1), help="End after so many events."),
    ] = None,
    output: Output = None,
) -> None:
    """Follow operations, attachments, VMs, devices, claims.

    With -o json each event is a line.

    \b
    Examples:
      vgpumgr events
      vgpumgr events -o json
    """
    session = get_session(context)
    if output not in (None, Format.JSON, Format.TABLE):
        raise UsageError(f"events has no {output} output", hint="-o json")
    for place, event in enumerate(open_daemon(session.options).listen(EVENTS), 1):
        as_json = output is Format.JSON
        session.streams.print(json.dumps(event) if as_json else describe(event))
        session.streams.out.flush()
        if place == count:
            return


@app.single("audit")
def check_audit(
    context: Context,
    file: Annotated[
        str | None, Argument(metavar="FILE", help="A log; the default is this machine's.")
    ] = None,
) -> int:
    """Check that the daemon's audit log is unchanged.

    Each entry has the hash of the one before. Exit code 3: a line was changed or removed.
    Before the daemon's first start there is no log.

    \b
    Examples:
      vgpumgr audit
      vgpumgr audit /var/lib/vgpumgr/audit.jsonl -o json
    """
    session = get_session(context)
    session.check_here("vgpumgr audit")
    path, problem, exists = verify_audit(session.options, file)
    document = {"schema": "vgpumgr/v1", "file": path, "problem": problem, "exists": exists}
    print_single(context, document, [f"{path}: {problem or ('whole' if exists else 'no log yet')}"])
    return int(Exit.DIFFERENT if problem else Exit.OK)


SETTINGS = (
    value_column("key"),
    value_column("value", wraps=True),
    value_column("origin", wraps=True),
    value_column("default", wide=True),
    value_column("meaning", wide=True, wraps=True),
)


@config.listing("show")
def show_config(
    context: Context,
    origin: Annotated[
        bool, Option("--origin", help="Where each was set, also beside --columns without origin.")
    ] = False,
) -> None:
    """Show every key with its value, and where it was set.

    Of the running daemon; without one, what the next one would use. The files are
    /etc/vgpumgr/vgpumgr.toml and conf.d/*.toml beside it; later ones win, "daemon --set" over all.

    \b
    Examples:
      vgpumgr config show
      vgpumgr config show --origin --columns key
      vgpumgr config show -o wide
      vgpumgr config show -o json
    """
    session = get_session(context)
    daemon = open_daemon(session.options) if session.options.host else find_daemon(session.options)
    document = daemon.request("GET", CONFIG).document() if daemon else read_config(session.options)
    layout = get_layout(context)
    if origin and layout.columns is not None and "origin" not in layout.columns:
        set_layout(context, layout._replace(columns=f"{layout.columns},origin"))
    print_list(context, document, document["settings"], SETTINGS, "key")
    if daemon and not session.options.host:
        _note_changes(session, document)


def _note_changes(session: Session, used: dict[str, Any]) -> None:
    """What a daemon that started now would do differently."""
    try:
        now = {row["key"]: row["value"] for row in read_config(session.options)["settings"]}
    except SettingsError:
        session.streams.note("note: the files cannot be used any more: vgpumgr config check")
        return
    changed = [
        row["key"]
        for row in used["settings"]
        if row["value"] != now.get(row["key"]) and row["origin"] not in ("--set", "environment")
    ]
    changed = [key for key in changed if not key.startswith("VGPUMGR_")]
    if changed:
        session.streams.note(
            f"note: the files have changed since the daemon started ({', '.join(changed)}): "
            "systemctl restart vgpumgr"
        )


@config.single("check")
def check_config(
    context: Context,
    file: Annotated[
        str | None, Argument(metavar="[FILE]", help="Another first file than this machine's.")
    ] = None,
) -> None:
    """Check the files of the configuration.

    Names file, line and key of everything that cannot be, and the nearest key that there is. Exit
    code 2: the daemon would not start with them.

    \b
    Examples:
      vgpumgr config check
      vgpumgr config check ./vgpumgr.toml
    """
    session = get_session(context)
    session.check_here("vgpumgr config check")
    document = read_config(session.options, file)
    files = document["files"]
    print_single(
        context, document, [f"{name}: well" for name in files] or ["no files: all defaults"]
    )


@config.command("defaults")
def print_defaults(context: Context, out: OutFile = None) -> None:
    """Print a file with every key, its default and its meaning.

    \b
    Examples:
      vgpumgr config defaults
      vgpumgr config defaults --out /etc/vgpumgr/vgpumgr.toml
    """
    write_out(get_streams(context), format_defaults(), out)


def describe(event: dict[str, Any]) -> str:
    """One line: when, what, to whom."""
    when = datetime.fromtimestamp(event["time_s"], UTC).astimezone().strftime("%H:%M:%S")
    describe_event = _DESCRIPTIONS.get(event["type"], _describe_any)
    return f"{when}  {describe_event(event)}"


def _describe_operation(event: dict[str, Any]) -> str:
    step = event["step"]
    last = f"  {step['word']}: {step['description']}" if step else ""
    what = f"{event['name']} {event['subject'] or ''}  {event['status']}{last}"
    return f"{event['operation']}  {what}"


def _describe_vm(event: dict[str, Any]) -> str:
    device = f" {event['device']}" if event["device"] else ""
    has = f"  attachments: {', '.join(event['attachments'])}" if event["attachments"] else ""
    return f"vm {event['vm']}  {event['change']}{device}{has}"


def _describe_libvirt(event: dict[str, Any]) -> str:
    return f"libvirt  {event['state']}" + (f": {event['problem']}" if event["problem"] else "")


def _describe_health(event: dict[str, Any]) -> str:
    unhealthy = "; it takes no new slice" if event["unhealthy"] else ""
    return f"health  GPU {event['pci']}: {event['text']}{unhealthy}"


def _describe_limit(event: dict[str, Any]) -> str:
    if event["key"] == "compute":
        had = f"{event['percent']} % of the GPU in {event['elapsed_s']:.0f} s, {event['charged_percent']} % charged"
        return f"limit  {event['vm']}: by the driver's word its processes had {had}, most of it {event['pid']}"
    had = f"{format_size(event['bytes'])} of {format_size(event['all_bytes'])}"
    return f"limit  {event['vm']}: session {event['pid']} ended: {had} of {event['key']}, which it did not count"


def _describe_reconcile(event: dict[str, Any]) -> str:
    if event["error"] is not None:
        return f"reconcile  failed: {event['error']['error']}"
    actions = [f"{action['subject']}: {action['text']}" for action in event["actions"]]
    drift = [f"{found['subject']}: {found['text']}" for found in event["drift"]]
    parts = (*actions, *(f"differs: {text}" for text in drift))
    return f"reconcile  {'; '.join(parts) or 'all is as recorded'}"


def _describe_claim(event: dict[str, Any]) -> str:
    if event["claim"] is None:
        return f"claim  {event['why']}"
    where = f" on host {event['host']}" if event["host"] else ""
    place = f", place {event['place']}" if event["place"] else ""
    why = f": {event['why']}" if event["why"] else ""
    return f"claim {event['claim']}  {event['state']}{where}{place}{why}"


def _describe_any(event: dict[str, Any]) -> str:
    rest = {k: v for k, v in event.items() if k not in ("id", "type", "time_s") and v is not None}
    return f"{event['type']}  " + "  ".join(f"{k}={v}" for k, v in rest.items())


_DESCRIPTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "operation": _describe_operation,
    "vm": _describe_vm,
    "libvirt": _describe_libvirt,
    "reconcile": _describe_reconcile,
    "health": _describe_health,
    "limit": _describe_limit,
    "claim": _describe_claim,
}


#: longer than NVML may take: without a daemon there is no cache
_WAIT_S = 40.0


@app.command("metrics")
def print_metrics(
    context: Context,
    openmetrics: Annotated[
        bool, Option("--openmetrics", help="As OpenMetrics instead of Prometheus' text.")
    ] = False,
    out: OutFile = None,
) -> None:
    """Print the metrics for Prometheus.

    docs/metrics.md lists them. --out replaces the file at once, as the textfile collector needs it.

    \b
    Examples:
      vgpumgr metrics
      vgpumgr metrics --out /var/lib/prometheus/node-exporter/vgpumgr.prom
    """
    document = call(context, "read_metrics", openmetrics=openmetrics, wait_s=_WAIT_S)
    write_out(get_streams(context), document["text"], out)
