"""Clients of another version: what both know works, and what only one knows is one clear error."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.api.conftest import Daemon
from vgpumgr import __version__
from vgpumgr.cli import http
from vgpumgr.errors import DaemonAnswerError, RouteNotFoundError, UsageError
from vgpumgr.model.routes import BY_OPERATION, Kind, Role, Route

NEWER = Route("GET", "/1.0/moonbeams", "list_moonbeams", Kind.READ, Role.VIEWER, "Of the future.")


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> str:
    """This process is a client of the next version."""
    monkeypatch.setattr(http, "__version__", "99.0")
    monkeypatch.setitem(BY_OPERATION, "list_moonbeams", NEWER)
    return "99.0"


@pytest.mark.parametrize(
    ("operation", "asked"),
    [("list_moonbeams", {}), ("attach", {"vm": "vm01", "profile": "1g.10gb", "moonbeam": True})],
)
def test_an_older_daemon_is_named(
    daemon: Daemon, newer: str, operation: str, asked: dict[str, object]
) -> None:
    with pytest.raises((RouteNotFoundError, UsageError)) as refused:
        daemon.client.call(operation, **asked)
    assert f"version {__version__}" in (refused.value.why or "")
    assert newer in (refused.value.why or "")
    assert "restart" in (refused.value.hint or "")


def test_what_both_know_works(daemon: Daemon, newer: str) -> None:
    assert daemon.client.call("list_gpus")["gpus"]
    assert newer not in str(daemon.client.call("status"))


def test_within_one_version_nothing_is_said_of_versions(daemon: Daemon) -> None:
    with pytest.raises(UsageError) as refused:
        daemon.client.call("attach", vm="vm01", profile="1g.10gb", moonbeam=True)
    assert "version" not in (refused.value.why or "")


def test_errors_of_the_future_keep_their_words() -> None:
    parts = {"id": "VG999", "error": "the moon is down", "why": "it is day", "try": "wait"}
    error = http.rebuild_error(parts)
    assert isinstance(error, DaemonAnswerError)
    assert (error.error, error.why, error.hint) == ("the moon is down", "it is day", "wait")


def test_fields_of_the_future_are_no_error(daemon: Daemon) -> None:
    """An older client reads what it knows of a newer daemon's answer."""
    request = http.HttpBackend.request

    def add(self: http.HttpBackend, *words: str, **more: str) -> http.HttpAnswer:
        answer = request(self, *words, **more)  # type: ignore[arg-type]
        body = answer.body.replace(b"{", b'{"moonbeams": [1], ', 1)
        return http.HttpAnswer(answer.status, answer.headers, body)

    with mock.patch.object(http.HttpBackend, "request", add):
        assert daemon.client.call("list_vms")["vms"]
