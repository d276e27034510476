"""Users open many connections, stall requests and do not read answers: the daemon still serves root and the groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.api.conftest import ROOT, Daemon, make_daemon, needs_root
from tests.support.api_daemon import ADMIN_GID, VIEWER_GID
from tests.support.callers import Holder, hold_as, make_request, send_as
from tests.support.unprivileged import NOBODY, as_nobody
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.errors import TooManyRequestsError
from vgpumgr.server.audit import verify_audit

pytestmark = needs_root
#: as they are, but for the times: tests do not wait half a minute
SETTINGS = "[limits]\nhead_s = 2\nbody_s = 2\nanswer_s = 2\n"
PATIENCE_S = 240
#: a request that waits for nobody
BUDGET_S = 2.0
HALF = "GET /1.0/status HTTP/1.1\r\nHost: x\r\n"
WHOLE = make_request("GET", "/1.0")
STALLED = make_request(
    "POST", "/1.0/mig/mode", "", "Content-Type: application/json\r\nContent-Length: 99\r\n"
)


@pytest.fixture(scope="module")
def short() -> Iterator[Daemon]:
    """A daemon with short timeouts."""
    yield from make_daemon(settings=SETTINGS)


@pytest.fixture(scope="module")
def patient() -> Iterator[Daemon]:
    """A daemon with the default settings."""
    yield from make_daemon()


def await_that(happens: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


def count_descriptors(daemon: Daemon) -> int:
    assert daemon.process is not None
    return sum(1 for _ in Path(f"/proc/{daemon.process.pid}/fd").iterdir())


def count_descriptors_at_rest(daemon: Daemon) -> int:
    """When the connections of what came before are closed."""
    counts = []
    for _ in range(20):
        counts.append(count_descriptors(daemon))
        time.sleep(0.05)
    return min(counts)


def wait_until_idle(daemon: Daemon) -> None:
    await_that(lambda: daemon.get("/1.0")["running_operations"] == 0, "nothing is under way")


def run_status(daemon: Daemon) -> tuple[subprocess.CompletedProcess[str], float]:
    """``vgpumgr status`` of root, and how long it takes."""
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "vgpumgr", "status"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "VGPUMGR_RUN_DIR": str(daemon.directory), "VGPUMGR_MACHINE": ""}, timeout=PATIENCE_S,
    )  # fmt: skip
    return done, time.monotonic() - began_s


def time_request(daemon: Daemon, path: str = "/1.0/status") -> float:
    began_s = time.monotonic()
    daemon.get(path)
    return time.monotonic() - began_s


def test_root_is_served_while_another_user_holds_200_connections(patient: Daemon) -> None:
    calm, calm_s = run_status(patient)
    assert calm.returncode == 0, calm
    texts = [""] * 50 + [HALF] * 50 + ["drip:" + HALF * 100] * 50 + [STALLED] * 50
    with hold_as(patient.socket, NOBODY, [NOBODY], texts) as holder:
        assert time_request(patient) < BUDGET_S
        busy, busy_s = run_status(patient)
        assert (busy.returncode, busy.stdout) == (0, calm.stdout)
        assert busy_s < 3 * calm_s + BUDGET_S
        found = holder.count()
        # 128 of one user; what is over is told so, and what is asked of those that are held is refused
        assert found[429] >= 50
        assert found[429] + found[403] + found[0] == 200, found
        refused = next(reply for reply in holder.look() if reply.status == 429)
        error = json.loads(refused.body.partition("\r\n\r\n")[2])["error"]
        assert (error["id"], error["exit_code"]) == ("VG366", 6)
        assert f"user {NOBODY}" in error["error"]
        assert error["try"]
        assert "retry-after: 1" in refused.body


def test_connections_are_kept_for_viewers_administrators_and_root(
    patient: Daemon,
) -> None:
    """Of 512 connections 32 are kept for root, 64 for administrators, 64 for viewers."""
    ask = [WHOLE]
    with ExitStack() as stack:

        def fill(uid: int, gid: int, count: int) -> Holder:
            return stack.enter_context(hold_as(patient.socket, uid, [gid], [""] * count))

        for uid in (61001, 61002, 61003):
            fill(uid, uid, 128)
        assert [r.status for r in send_as(patient.socket, 61004, [61004], ask)] == [503]
        assert [r.status for r in send_as(patient.socket, 61005, [VIEWER_GID], ask)] == [200]
        viewers = fill(61006, VIEWER_GID, 128)
        await_that(lambda: viewers.count()[503] >= 60, "viewers have what they may")
        assert [r.status for r in send_as(patient.socket, 61005, [VIEWER_GID], ask)] == [503]
        assert [r.status for r in send_as(patient.socket, 61007, [ADMIN_GID], ask)] == [200]
        administrators = fill(61008, ADMIN_GID, 128)
        await_that(lambda: administrators.count()[503] >= 60, "administrators have what they may")
        (refused,) = send_as(patient.socket, 61007, [ADMIN_GID], ask)
        error = json.loads(refused.body)["error"]
        assert (refused.status, error["id"], error["try"]) == (503, "VG359", "try again later")
        assert time_request(patient) < BUDGET_S
        done, _ = run_status(patient)
        assert done.returncode == 0, done
    await_that(lambda: count_descriptors(patient) < 100, "all are let go of")
    assert [r.status for r in send_as(patient.socket, 61004, [61004], ask)] == [403]


def test_stalled_requests_time_out(short: Daemon) -> None:
    """Silence, half a head, one byte now and then, a missing body: each is answered, and its descriptor closed."""
    wait_until_idle(short)
    operations, before = short.get("/1.0/operations"), count_descriptors_at_rest(short)
    slow_body = make_request(
        "POST", "/1.0/attachments", "", "Content-Length: 200\r\nContent-Type: application/json\r\n"
    )
    chunked = (
        make_request(
            "POST", "/1.0/attachments", "", "Transfer-Encoding: chunked\r\nContent-Type: a/b\r\n"
        )
        + "5\r\nab"
    )
    kept = make_request("GET", "/1.0").replace("Connection: close\r\n", "")
    texts = [
        "",
        HALF,
        "drip:" + HALF * 100,
        slow_body + "{",
        chunked,
        "drip:" + slow_body + " " * 200,
        kept + HALF,
        STALLED,
    ]
    with hold_as(short.socket, 61010, [ADMIN_GID], texts) as holder:
        await_that(lambda: not holder.count()[0], "they are answered")
        await_that(lambda: count_descriptors(short) <= before + 1, "they are hung up on")
        replies = holder.look()
        assert [reply.status for reply in replies] == [-1, 408, 408, 408, 408, 408, 200, 408]
        for reply in replies:
            if reply.status == 408:
                error = json.loads(reply.body.partition("\r\n\r\n")[2])["error"]
                assert error["id"] == "VG367"
                assert "may take 2 s" in error["why"]
    assert short.get("/1.0/operations") == operations, "none of them began anything"


def test_unread_answers_time_out(short: Daemon) -> None:
    """The answers exceed the socket's buffer; all requests are on one connection."""
    wait_until_idle(short)
    before = count_descriptors_at_rest(short)
    ask = make_request("GET", "/1.0/openapi.json").replace("Connection: close\r\n", "")
    with hold_as(short.socket, 61011, [VIEWER_GID], [ask * 20] * 10):
        assert time_request(short) < BUDGET_S
        await_that(lambda: count_descriptors(short) >= before + 10, "they are open")
        await_that(lambda: count_descriptors(short) <= before + 1, "they are hung up on")


def test_concurrent_requests_of_one_user_are_limited(slow_daemon: Daemon) -> None:
    asked = {"vm": "vm01", "profile": "1g.10gb"}
    id_ = slow_daemon.post("/1.0/attachments", asked).document()["operation"]["id"]
    wait = make_request("GET", f"/1.0/operations/{id_}/wait?timeout_s=60")
    with hold_as(slow_daemon.socket, 61012, [VIEWER_GID], [wait] * 40) as holder:
        await_that(lambda: holder.count()[429] == 8, "eight are too many")
        assert slow_daemon.get(f"/1.0/operations/{id_}")["operation"]["status"] == "running"
        await_that(lambda: holder.count()[200] == 32, "the others are answered in the end")
    assert slow_daemon.client.wait_operation(id_)["status"] == "succeeded"


def test_a_refused_command_still_waits_for_its_operation(
    slow_daemon: Daemon,
) -> None:
    """An error would claim that the operation has ended, but it runs on."""
    asked = {"vm": "vm01", "profile": "1g.10gb"}
    running = slow_daemon.post("/1.0/attachments", asked).document()["operation"]["id"]
    wait = make_request("GET", f"/1.0/operations/{running}/wait?timeout_s=60")
    client = HttpBackend(partial(connect_unix, str(slow_daemon.socket)))

    def wait_as_admin() -> str:
        return str(client.wait_operation(running)["status"])

    with hold_as(slow_daemon.socket, NOBODY, [ADMIN_GID], [wait] * 32) as holder:
        await_that(lambda: slow_daemon.get("/1.0")["running_operations"] == 1, "it runs")
        assert as_nobody(wait_as_admin, [ADMIN_GID]) == "succeeded"
        await_that(lambda: holder.count() == {200: 32}, "so do the others")


def test_event_streams_are_limited_per_user_and_kept_for_root(patient: Daemon) -> None:
    listen = make_request("GET", "/1.0/events")
    with ExitStack() as stack:
        mine = stack.enter_context(hold_as(patient.socket, 61013, [VIEWER_GID], [listen] * 20))
        await_that(lambda: mine.count() == {200: 16, 429: 4}, "sixteen of one user")
        for uid in (61014, 61015, 61016):
            last = stack.enter_context(hold_as(patient.socket, uid, [VIEWER_GID], [listen] * 16))
        await_that(lambda: last.count() == {503: 16}, "of viewers not more than 48")
        of_admin = stack.enter_context(hold_as(patient.socket, 61017, [ADMIN_GID], [listen] * 16))
        await_that(lambda: of_admin.count() == {200: 8, 503: 8}, "of administrators some more")
        of_root = stack.enter_context(hold_as(patient.socket, 0, [0], [listen] * 8))
        await_that(lambda: of_root.count() == {200: 8}, "and root's are kept")
    await_that(lambda: count_descriptors(patient) < 100, "all are let go of")
    with hold_as(patient.socket, 61014, [VIEWER_GID], [listen] * 16) as again:
        await_that(lambda: again.count() == {200: 16}, "there is room again")


def test_reads_of_viewers_do_not_delay_root(patient: Daemon) -> None:
    """One thread answers two hundred concurrent requests for the status; the request of root runs first."""
    ask = make_request("GET", "/1.0/status")
    with ExitStack() as stack:
        holders = [
            stack.enter_context(hold_as(patient.socket, uid, [VIEWER_GID], [ask] * 100))
            for uid in (61020, 61021)
        ]
        for _ in range(5):
            assert time_request(patient) < BUDGET_S
        await_that(lambda: all(holder.count()[0] == 0 for holder in holders), "all are answered")
        for holder in holders:
            assert set(holder.count()) <= {200, 429, 503}


def test_the_command_line_shows_a_limit_as_one_error(patient: Daemon) -> None:
    client = HttpBackend(partial(connect_unix, str(patient.socket)))
    with hold_as(patient.socket, NOBODY, [NOBODY], [""] * 128):
        with pytest.raises(TooManyRequestsError) as refused:
            as_nobody(lambda: client.call("status"))
        assert refused.value.error == f"user {NOBODY} has too many connections"
        assert refused.value.why == "a user other than root may have 128"
        assert refused.value.hint


def test_the_audit_log_has_refused_attempts_with_their_user(slow_daemon: Daemon) -> None:
    asked = [
        make_request("POST", path, "{}")
        for path in ("/1.0/mig/mode", "/1.0/recover", "/1.0/mig/mode%0A")
    ]
    assert [r.status for r in send_as(slow_daemon.socket, 61030, [VIEWER_GID], asked)] == [
        403,
        403,
        404,
    ]
    assert [r.status for r in send_as(slow_daemon.socket, 61031, [61031], asked)] == [403, 403, 403]
    assert slow_daemon.end() == 0
    log = slow_daemon.directory / "audit.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    mine = [entry for entry in entries if entry.get("uid") == 61030]
    assert [(e["event"], e.get("attempt"), e.get("attempts")) for e in mine] == [
        ("refused", "POST /1.0/mig/mode", None), ("refused", None, ["POST /1.0/recover"]),
    ]  # fmt: skip
    other = [entry for entry in entries if entry.get("uid") == 61031]
    assert other[1]["more"] == 2
    assert "POST /1.0/mig/mode%0A" in other[1]["attempts"]
    assert verify_audit(log) is None
