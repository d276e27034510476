"""Long work: steps, waiting, cancelling, If-Match, a daemon that dies in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import ROOT, Daemon, make_daemon, needs_root
from tests.support.api_daemon import ADMIN_GID, VIEWER_GID
from tests.support.callers import make_request, send_as
from tests.support.cli import Terminal
from tests.support.commands import list_verbs
from tests.support.forked import run_vgpumgr
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.cli.op import COLUMNS
from vgpumgr.cli.session import GlobalOptions, Streams
from vgpumgr.errors import (
    AlreadyAttachedError,
    ChannelNotFoundError,
    DaemonBusyError,
    DaemonNotRunningError,
    GpuDrainedError,
    NoRoomError,
    NotAttachedError,
    NotCancellableError,
    OperationCancelledError,
    PreconditionError,
    RolledBackError,
    RouteNotFoundError,
    SeveralAttachmentsError,
    UsageError,
    VgpuNotFoundError,
    VmNotFoundError,
)
from vgpumgr.model.attachment import AttachmentRecord, AttachmentState
from vgpumgr.model.choices import Backend
from vgpumgr.server.audit import verify_audit
from vgpumgr.server.routes import read_wait_s
from vgpumgr.server.workers import MAX_WAITING
from vgpumgr.state.store import Store

ASK = {"vm": "vm01", "profile": "1g.10gb", "hello_timeout_s": 0}


def wait_until(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@needs_root
def test_a_drain_names_its_caller_is_audited_and_outlives_the_daemon() -> None:
    with contextlib.contextmanager(make_daemon)() as daemon:
        ask = [
            make_request("POST", f"/1.0/gpus/0/drain{query}", body)
            for query, body in (
                ("", '{"reason": "fan", "dry_run": true}'),
                ("", '{"reason": "' + "x" * 201 + '"}'),
                ("", '{"by": "root"}'),
                ("", '{"reason": "fan"}'),
            )
        ]
        assert {r.status for r in send_as(daemon.socket, 65533, [VIEWER_GID], ask)} == {403}
        answers = send_as(daemon.socket, 65532, [ADMIN_GID], ask)
        assert [r.status for r in answers] == [200, 400, 400, 202]
        wait_until(lambda: daemon.get("/1.0/status")["drained"], "drained")
        drained = daemon.get("/1.0/gpus/0")["gpu"]["drained"]
        assert (drained["by"], drained["reason"]) == ("user 65532", "fan")
        with pytest.raises(GpuDrainedError, match="drained"):
            daemon.client.call("attach", **ASK)
        log = (daemon.directory / "audit.jsonl").read_text().splitlines()
        (entry,) = [e for line in log if (e := json.loads(line)).get("operation") == "drain_gpu"]
        assert (entry["uid"], entry["params"]["reason"]) == (65532, "fan")
        daemon.end(signal.SIGKILL)
        daemon.start()
        assert daemon.get("/1.0/gpus")["gpus"][0]["drained"] == drained
        assert daemon.client.call("resume_gpu", selector="0")["drained"] is None
        assert daemon.client.call("attach", **ASK)["attachment"]["vm"] == "vm01"


def test_attach_and_detach_as_operations(daemon: Daemon) -> None:
    answer = daemon.post("/1.0/attachments", ASK)
    assert answer.status == 202
    started = answer.document()["operation"]
    assert answer.headers["location"] == f"/1.0/operations/{started['id']}"
    ended = daemon.client.wait_operation(started["id"])
    assert ended["status"] == "succeeded"
    assert ended["result"]["attachment"]["vm"] == "vm01"
    steps = [step["description"] for step in ended["progress"]]
    assert len(steps) == len(ended["result"]["plan"]["steps"])
    assert daemon.get("/1.0/vms/vm01")["vm"]["attachment"] is not None
    assert daemon.client.call("detach", vm="vm01")["plan"]["operation"] == "detach"
    assert daemon.get("/1.0/vms/vm01")["vm"]["attachment"] is None
    log = daemon.directory / "audit.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    mine = [e for e in entries if e["id"] == started["id"]]
    assert [e["event"] for e in mine] == ["operation", "end"]
    assert mine[0]["params"]["profile"] == "1g.10gb"
    assert verify_audit(log) is None


def test_who_prefers_to_wait_gets_the_end_at_once(daemon: Daemon) -> None:
    prefer = {"Prefer": "respond-async, wait=60"}
    answer = daemon.post("/1.0/attachments", ASK, **prefer)
    assert answer.status == 202
    assert answer.headers["preference-applied"] == "wait=60"
    ended = answer.document()["operation"]
    assert (ended["status"], ended["result"]["attachment"]["vm"]) == ("succeeded", "vm01")
    again = daemon.post("/1.0/attachments", ASK, **prefer).document()["operation"]
    assert (again["status"], again["error"]["id"]) == ("failed", AlreadyAttachedError.id)
    # no time at all: as it is when it begins
    begun = daemon.post("/1.0/attachments/vm01/detach", {}, Prefer="wait=0").document()
    assert daemon.client.wait_operation(begun["operation"]["id"])["status"] == "succeeded"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["wait=5"], 5), (["return=minimal; wait = 7"], 7), (['x', 'Wait="9"'], 9), (["wait=999999"], 60),
        ([], None), (["await=5"], None), (["wait=-1"], None), (["wait=1e9"], None), (["wait="], None),
    ],
)  # fmt: skip
def test_preferences_are_read_or_ignored(words: list[str], expected: float | None) -> None:
    assert read_wait_s(words) == expected


def test_several_at_once_all_or_none(daemon: Daemon) -> None:
    asked = {key: value for key, value in ASK.items() if key != "vm"}
    with pytest.raises(UsageError):
        daemon.client.call("attach", vm="vm01", count=0, **asked)
    with pytest.raises(NoRoomError):
        daemon.client.call("attach", vm="vm01", count=8, **asked)
    assert daemon.get("/1.0/vms/vm01")["vm"]["attachments"] == []
    planned = daemon.post("/1.0/attachments", ASK | {"count": 3, "dry_run": True}).document()
    assert len(planned["plan"]["result"]["seats"]) == 3
    done = daemon.client.call("attach", vm="vm01", count=3, **asked)
    ids = [attachment["id"] for attachment in done["attachments"]]
    vm = daemon.get("/1.0/vms/vm01")["vm"]
    assert [attachment["id"] for attachment in vm["attachments"]] == ids
    assert len(vm["channels"]) == len({a["placement"]["start"] for a in vm["attachments"]}) == 3
    assert daemon.get("/1.0/status")["attachments"] == 3
    with pytest.raises(SeveralAttachmentsError) as refused:
        daemon.client.call("detach", vm="vm01")
    assert len(refused.value.held_by) == 3
    daemon.client.call("detach", vm="vm01", attachment=ids[1])
    left = daemon.get("/1.0/vms/vm01")["vm"]["attachments"]
    assert [attachment["id"] for attachment in left] == [ids[0], ids[2]]
    daemon.client.call("detach", vm="vm01", every=True)
    assert daemon.get("/1.0/vms/vm01")["vm"]["attachments"] == []


def test_a_channel_gets_another_worker(daemon: Daemon) -> None:
    daemon.client.call("attach", **ASK)
    try:
        before = daemon.get("/1.0/channels/vm01")["channel"]
        assert before["worker_ready"]
        planned = daemon.post("/1.0/channels/vm01/restart", {"dry_run": True}).document()
        assert [step["kind"] for step in planned["plan"]["steps"]] == [
            "channel.stop", "channel.start",
        ]  # fmt: skip
        answer = daemon.post("/1.0/channels/vm01/restart", {})
        assert answer.status == 202
        ended = daemon.client.wait_operation(answer.document()["operation"]["id"])
        assert ended["status"] == "succeeded", ended
        after = daemon.get("/1.0/channels/vm01")["channel"]
        assert after["worker_ready"]
        assert after["device"] == before["device"]
        steps = [step["description"] for step in ended["progress"]]
        assert steps == [step["description"] for step in planned["plan"]["steps"]]
        with pytest.raises(ChannelNotFoundError):
            daemon.client.call("restart_channel", vm="vm02")
    finally:
        daemon.client.call("detach", vm="vm01")


def test_recovery_finishes_what_is_half_there(daemon: Daemon) -> None:
    """As a crash leaves it: recorded, and nothing of it is there."""
    assert daemon.client.call("recover") == {
        "schema": "vgpumgr/v1",
        "dry_run": False,
        "actions": [],
        "drift": [],
    }
    store = Store(daemon.directory / "state.sqlite")
    vm = daemon.get("/1.0/vms/vm02")["vm"]
    half = AttachmentRecord(
        id="a1b2c3d4", vm_name="vm02", vm_uuid=vm["uuid"], gpu=None, profile="passthrough",
        memory_bytes=0, backend=Backend.PASSTHROUGH, created_s=1.0,
        state=AttachmentState.DETACHING,
    )  # fmt: skip
    store.save_attachment(half)
    (drift,) = daemon.get("/1.0/diff")["drift"]
    assert (drift["subject"], drift["attachment"]) == ("vm02", half.id)
    with pytest.raises(UsageError):
        daemon.post("/1.0/recover", {"colour": "red"}).document()
    started = daemon.post("/1.0/recover", {"release": True}).document()["operation"]
    ended = daemon.client.wait_operation(started["id"])
    assert ended["status"] == "succeeded"
    (action,) = ended["result"]["actions"]
    assert (action["subject"], action["done"]) == ("vm02", True)
    assert ended["result"]["drift"] == []
    assert store.list_attachments() == ()
    assert daemon.get("/1.0/diff")["drift"] == []
    assert daemon.get("/1.0/vms/vm02")["vm"]["attachments"] == []


def test_a_dry_run_is_a_read(daemon: Daemon) -> None:
    before = len(daemon.get("/1.0/operations")["operations"])
    answer = daemon.post("/1.0/attachments", ASK | {"dry_run": True})
    assert answer.status == 200
    assert answer.document()["dry_run"] is True
    assert len(daemon.get("/1.0/operations")["operations"]) == before


def test_errors_arrive_as_they_were_raised(daemon: Daemon) -> None:
    with pytest.raises(VmNotFoundError) as caught:
        daemon.client.call("attach", vm="nobody", profile="1g.10gb")
    assert caught.value.error == 'no VM "nobody"'
    with pytest.raises(UsageError):
        daemon.post("/1.0/attachments", ASK | {"colour": "red"}).document()
    with pytest.raises(RouteNotFoundError):
        daemon.get("/1.0/nothing")
    with pytest.raises(VmNotFoundError):
        daemon.get("/1.0/vms/nobody")


def test_two_administrators_exactly_one_wins(daemon: Daemon) -> None:
    etag = daemon.client.request("GET", "/1.0/vms/vm02").headers["etag"]
    outcomes: list[str] = []

    def administrate(profile: str) -> None:
        try:
            body = ASK | {"vm": "vm02", "profile": profile}
            started = daemon.post("/1.0/attachments", body, If_Match=etag).document()
            ended = daemon.client.wait_operation(started["operation"]["id"])
            error = ended["error"]["id"] if ended["error"] else None
            outcomes.append(error or ended["status"])
        except PreconditionError as error:
            outcomes.append(error.id)

    threads = [threading.Thread(target=administrate, args=(p,)) for p in ("1g.10gb", "2g.20gb")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == [PreconditionError.id, "succeeded"]
    with pytest.raises(PreconditionError):  # and one who comes later is refused at once
        daemon.post("/1.0/attachments/vm02/detach", {}, If_Match=etag).document()
    now = daemon.client.request("GET", "/1.0/vms/vm02").headers["etag"]
    answer = daemon.post("/1.0/attachments/vm02/detach", {}, If_Match=now)
    assert daemon.client.wait_operation(answer.document()["operation"]["id"])["error"] is None


def test_two_administrators_without_an_etag_are_one_after_the_other(daemon: Daemon) -> None:
    """Whoever comes second meets what the first one did, never half of it."""
    ids = [
        daemon.post("/1.0/attachments", ASK | {"profile": profile}).document()["operation"]["id"]
        for profile in ("1g.10gb", "2g.20gb")
    ]
    first, second = map(daemon.client.wait_operation, ids)
    assert (first["status"], second["status"]) == ("succeeded", "failed")
    assert second["error"]["id"] == AlreadyAttachedError.id
    ids = [
        daemon.post("/1.0/attachments/vm01/detach", {}).document()["operation"]["id"]
        for _ in range(2)
    ]
    first, second = map(daemon.client.wait_operation, ids)
    assert (first["status"], second["error"]["id"]) == ("succeeded", NotAttachedError.id)


def test_events_tell_of_it_and_can_be_resumed(daemon: Daemon) -> None:
    heard: list[dict[str, object]] = []
    ready = threading.Event()

    def listen() -> None:
        ready.set()
        for event in daemon.client.listen("/1.0/events"):
            heard.append(event)
            if event["type"] == "attachment" and event["change"] == "detach":
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    ready.wait(10)
    while not heard:  # until the listener is there, nothing is told to it
        daemon.client.call("attach", **ASK)
        daemon.client.call("detach", vm="vm01")
        time.sleep(0.1)
    thread.join(60)
    assert [e["id"] for e in heard] == sorted(e["id"] for e in heard)  # type: ignore[type-var]
    assert {"operation", "attachment"} <= {e["type"] for e in heard}


def test_reads_answer_while_a_long_operation_runs_and_it_can_be_cancelled(
    slow_daemon: Daemon,
) -> None:
    before = slow_daemon.get("/1.0/gpus")
    id_ = slow_daemon.post("/1.0/attachments", ASK).document()["operation"]["id"]
    path = f"/1.0/operations/{id_}"
    wait_until(lambda: slow_daemon.get(path)["operation"]["progress"], "the first step")
    slow_daemon.get("/1.0/vms")
    assert slow_daemon.get(path)["operation"]["status"] == "running"
    slow_daemon.client.request("DELETE", path).document()
    ended = slow_daemon.client.wait_operation(id_)
    assert ended["status"] == "cancelled"
    assert ended["error"]["id"] in (OperationCancelledError.id, RolledBackError.id)
    assert slow_daemon.get("/1.0/gpus") == before
    with pytest.raises(NotCancellableError):
        slow_daemon.client.request("DELETE", path).document()


def test_a_daemon_with_too_much_to_do_says_when_to_come_back(slow_daemon: Daemon) -> None:
    """In our document, as every error; and it is none of the operation's."""
    slow = [
        slow_daemon.post(path, body).document()["operation"]["id"]
        for _ in range(8)
        for path, body in (("/1.0/attachments", ASK), ("/1.0/attachments/vm01/detach", {}))
    ]
    answers = [slow_daemon.post("/1.0/vgpus/none/start", {}) for _ in range(MAX_WAITING + 8)]
    for id_ in slow:
        with contextlib.suppress(NotCancellableError):
            slow_daemon.client.request("DELETE", f"/1.0/operations/{id_}").document()
    assert {answer.status for answer in answers} == {202, 503}
    busy = next(answer for answer in answers if answer.status == 503)
    assert busy.headers["retry-after"] == "1"
    with pytest.raises(DaemonBusyError, match="too many requests wait"):
        busy.document()
    last = next(answer for answer in reversed(answers) if answer.status == 202)
    ended = slow_daemon.client.wait_operation(last.document()["operation"]["id"])
    assert ended["error"]["id"] == VgpuNotFoundError.id
    assert slow_daemon.post("/1.0/vgpus/none/start", {}).status == 202


def test_a_killed_daemon_leaves_a_report_for_the_next(slow_daemon: Daemon) -> None:
    id_ = slow_daemon.post("/1.0/attachments", ASK).document()["operation"]["id"]
    path = f"/1.0/operations/{id_}"
    wait_until(lambda: slow_daemon.get(path)["operation"]["progress"], "the first step")
    slow_daemon.end(signal.SIGKILL)
    slow_daemon.start()
    operation = slow_daemon.get(path)["operation"]
    assert (operation["status"], operation["error"]["id"]) == ("interrupted", "VG362")
    assert verify_audit(slow_daemon.directory / "audit.jsonl") is None


def test_sigterm_lets_the_operation_that_runs_finish(slow_daemon: Daemon) -> None:
    id_ = slow_daemon.post("/1.0/attachments", ASK).document()["operation"]["id"]
    path = f"/1.0/operations/{id_}"
    wait_until(lambda: slow_daemon.get(path)["operation"]["progress"], "the first step")
    assert slow_daemon.end() == 0
    assert not slow_daemon.socket.exists()
    kept = json.loads((slow_daemon.directory / f"operations/{id_}.json").read_text())
    assert kept["status"] == "succeeded"


def test_a_second_daemon_is_refused_and_told_of_the_first(daemon: Daemon) -> None:
    assert daemon.process is not None
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.api_daemon", str(daemon.directory)],
        cwd=Path(ROOT), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "DaemonRunningError" in done.stderr
    assert daemon.get("/1.0")["pid"] == daemon.process.pid


def test_too_large_is_refused(daemon: Daemon) -> None:
    answer = daemon.client.request("POST", "/1.0/attachments", b" " * ((1 << 20) + 1))
    assert answer.status == 413
    assert daemon.client.request("GET", "/1.0/gpus?x=" + "y" * 9000).status == 413


def test_a_list_says_when_how_long_and_whose(daemon: Daemon) -> None:
    id_ = daemon.post("/1.0/attachments", {"vm": "nobody", "profile": "1g.10gb"}).document()
    daemon.client.wait_operation(id_["operation"]["id"])
    row = daemon.get("/1.0/operations")["operations"][-1]
    cells = {column.name: column.text(row) for column in COLUMNS}
    assert cells["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", cells["begun"])
    assert cells["took"].endswith(" s")
    assert "nobody" in cells["error"]


def test_a_wrong_method_is_told_the_right_ones(daemon: Daemon) -> None:
    answer = daemon.client.request("DELETE", "/1.0/gpus")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert daemon.client.request("GET", "/1.0/recover").headers["allow"] == "POST"
    assert daemon.client.request("HEAD", "/1.0/events").headers["allow"] == "GET"


def test_head_is_get_without_the_body(daemon: Daemon) -> None:
    """Cached or not."""
    for path in ("/1.0/gpus", "/1.0/gpus/0", "/1.0"):
        with contextlib.closing(connect_unix(str(daemon.socket))) as stream:
            stream.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            head, _, body = stream.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"content-length: " in head.lower()
        assert body == b""


def test_a_terminal_shows_the_step_that_runs(slow_daemon: Daemon) -> None:
    options, err = GlobalOptions(), Terminal()
    connect = partial(connect_unix, str(slow_daemon.socket))
    client = HttpBackend(connect, Streams(options, err=err, environ={}))
    client.call("attach", **ASK)
    shown = err.getvalue()
    assert "\r\x1b[Kstart " in shown, shown
    assert shown.endswith("\r\x1b[K"), "the line is cleared"
    options.verbosity, quiet = -1, Terminal()
    HttpBackend(connect, Streams(options, err=quiet, environ={})).call("detach", vm=ASK["vm"])
    assert quiet.getvalue() == ""


def run_cli(daemon: Daemon, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "VGPUMGR_RUN_DIR": str(daemon.directory), **environment}
    return run_vgpumgr(*words, env=env)


def test_ctrl_c_returns_when_what_was_done_is_undone(slow_daemon: Daemon) -> None:
    before = slow_daemon.get("/1.0/gpus")
    words = ("attach", ASK["vm"], "--profile", ASK["profile"])
    process = subprocess.Popen(
        [sys.executable, "-m", "vgpumgr", *words], cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "VGPUMGR_RUN_DIR": str(slow_daemon.directory)},
    )  # fmt: skip

    def find() -> list[dict[str, Any]]:
        found = slow_daemon.get("/1.0/operations")["operations"]
        return [one for one in found if one["operation"] == "attach" and one["progress"]]

    wait_until(find, "the first step")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    # at the very moment of its end
    (operation,) = find()
    assert operation["status"] == "cancelled", operation
    assert slow_daemon.get("/1.0/gpus") == before
    assert (process.returncode, out) == (130, "")
    assert "stopping: waits until what was done is undone" in err


def test_no_wait_prints_the_operation_while_it_runs(slow_daemon: Daemon) -> None:
    (slow_daemon.directory / "hold").touch()
    begun = run_cli(slow_daemon, "attach", ASK["vm"], "--profile", ASK["profile"], "--no-wait")
    id_ = begun.stdout.strip()
    assert (begun.returncode, begun.stderr) == (0, f"its end: vgpumgr op wait {id_}\n")
    path = f"/1.0/operations/{id_}"
    # the answer comes before it has begun
    wait_until(lambda: slow_daemon.get(path)["operation"]["status"] != "waiting", "it begins")
    assert slow_daemon.get(path)["operation"]["status"] == "running"
    (slow_daemon.directory / "hold").unlink()
    assert run_cli(slow_daemon, "op", "wait", id_).returncode == 0
    assert slow_daemon.get("/1.0/vms/vm01")["vm"]["attachment"] is not None
    second = run_cli(slow_daemon, "detach", ASK["vm"], "--no-wait", "-q", "-o", "json")
    operation = json.loads(second.stdout)["operation"]
    assert (second.stderr, operation["operation"]) == ("", "detach")
    assert run_cli(slow_daemon, "op", "wait", operation["id"]).returncode == 0
    assert slow_daemon.get("/1.0/vms/vm01")["vm"]["attachment"] is None


def test_the_failure_of_what_was_not_waited_for_is_the_operations(daemon: Daemon) -> None:
    begun = run_cli(daemon, "attach", "nobody", "--profile", "1g.10gb", "--no-wait", "-o", "name")
    assert begun.returncode == 0
    waited = run_cli(daemon, "op", "wait", begun.stdout.strip())
    assert waited.returncode == int(VmNotFoundError.exit_code)
    assert 'no VM "nobody"' in waited.stderr


def test_no_wait_beside_a_dry_run_or_without_a_daemon_changes_nothing(
    daemon: Daemon, tmp_path: Path
) -> None:
    before = len(daemon.get("/1.0/operations")["operations"])
    words = ("attach", ASK["vm"], "--profile", ASK["profile"], "--no-wait")
    both = run_cli(daemon, *words, "--dry-run")
    assert (both.returncode, both.stdout) == (2, "")
    assert "--no-wait and --dry-run contradict each other" in both.stderr
    assert len(daemon.get("/1.0/operations")["operations"]) == before
    daemon_less = Daemon(tmp_path)
    for line in (words, ("recover", "--no-wait"), ("mig", "disable", "0", "--no-wait")):
        alone = run_cli(daemon_less, *line)
        assert (alone.returncode, alone.stdout) == (int(DaemonNotRunningError.exit_code), "")
        assert "--no-wait needs a daemon" in alone.stderr
    assert list(tmp_path.iterdir()) == []


def test_run_and_doctor_are_the_commands_that_always_wait(daemon: Daemon) -> None:
    before = len(daemon.get("/1.0/operations")["operations"])
    for words in (("--no-wait", "--profile", "1g.10gb"), ("--profile", "1g.10gb", "--no-wait")):
        done = run_cli(daemon, "run", *words, "--", "true")
        assert (done.returncode, done.stdout) == (2, "")
        assert "run waits for its command: there is no --no-wait" in done.stderr
    assert len(daemon.get("/1.0/operations")["operations"]) == before
    said = run_cli(daemon, "run", "--profile", "1g.10gb", "--dry-run", "--", "true", "--no-wait")
    assert "--no-wait" not in said.stderr, "a word of the command's"
    takers, changers = (
        {words for words, verb in list_verbs() if any(one.name == name for one in verb.params)}
        for name in ("no_wait", "dry_run")
    )
    assert changers - takers == {"run", "doctor"}
    assert run_cli(daemon, "doctor", "--fix", "--no-wait").returncode == 2


def test_a_daemon_says_what_it_was_configured_to() -> None:
    for daemon in make_daemon(settings="[release]\n\nstopped = true\n"):
        document = daemon.get("/1.0/config")
        path = daemon.directory / "vgpumgr.toml"
        assert (document["source"], document["files"]) == ("daemon", [str(path)])
        found = {row["key"]: row for row in document["settings"]}
        assert found["release.stopped"]["origin"] == f"{path}:3"
        environment = {"VGPUMGR_CONFIG": str(path)}
        shown = run_cli(daemon, "config", "show", **environment)
        assert f"release.stopped\ttrue\t{path}:3\n" in shown.stdout
        assert shown.stderr == ""
        # another daemon would read this
        path.write_text("[release]\ndelay_s = 1\n")
        shown = run_cli(daemon, "config", "show", **environment)
        assert f"release.stopped\ttrue\t{path}:3\n" in shown.stdout
        assert "changed since the daemon started (release.stopped, release.delay_s)" in shown.stderr
        path.write_text("[release\n")
        shown = run_cli(daemon, "config", "show", **environment)
        assert (shown.returncode, "cannot be used any more" in shown.stderr) == (0, True)
