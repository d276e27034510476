"""The committed OpenAPI document, and thousands of requests made from it: none may be a server error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import one_of

from tests.api.conftest import Daemon
from vgpumgr.app.application import find_operation
from vgpumgr.errors import DaemonBusyError
from vgpumgr.model.routes import ROUTES, SYSTEM_ROUTES
from vgpumgr.server.descriptions import FIELDS
from vgpumgr.server.routes import describe_api
from vgpumgr.server.system_routes import EXTENSIONS

ROOT = Path(__file__).parents[2]
CASES = 100
PATIENCE_S = 240
#: one process sends them all, so that they can be counted
pytestmark = pytest.mark.xdist_group("contract")
SENT: list[int] = []
OPERATIONS = [
    r.operation for r in (*ROUTES, *SYSTEM_ROUTES)
    if r.operation not in ("stream_events", "show_openapi")
]  # fmt: skip


def test_the_committed_document_is_what_is_served(golden: Callable[[str, str], None]) -> None:
    """``pytest --regenerate`` writes docs/openapi.json."""
    text = json.dumps(read_api(), indent=1, sort_keys=True) + "\n"
    golden("../../docs/openapi.json", text)


def test_every_field_and_parameter_is_described() -> None:
    api = read_api()
    fields = {
        f"{name}.{key}": field
        for name, schema in api["components"]["schemas"].items()
        for key, field in schema.get("properties", {}).items()
    }
    parameters = {
        f"{route['operationId']}.{parameter['name']}": parameter
        for methods in api["paths"].values()
        for route in methods.values()
        for parameter in route.get("parameters", ())
    }
    assert len(fields) > 500
    bare = [name for name, one in (fields | parameters).items() if not one.get("description")]
    assert not bare, "a description in the document's declaration, or in server/descriptions.py"


def test_no_description_is_for_nothing() -> None:
    """Each row of the table is in the document."""
    text = json.dumps(read_api())
    assert [name for name, words in FIELDS.items() if json.dumps(words)[1:-1] not in text] == []


def test_every_extension_has_its_paragraph() -> None:
    page = (ROOT / "docs/api-extensions.md").read_text()
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == list(EXTENSIONS)


def test_every_route_is_a_method() -> None:
    assert all(callable(find_operation(route.operation)) for route in ROUTES)
    assert len({route.operation for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_is_a_server_error(daemon: Daemon, operation: str) -> None:
    found: Any = load_schema().find_operation_by_id(operation)
    modes = [schemathesis.GenerationMode.POSITIVE]
    if describe_parameters(operation):
        modes.append(schemathesis.GenerationMode.NEGATIVE)
    strategy = one_of([found.as_strategy(generation_mode=mode) for mode in modes])
    statuses: list[int] = []

    @settings(
        max_examples=CASES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), derandomize=True,
    )  # fmt: skip
    @given(case=strategy)
    def send_one(case: Any) -> None:
        statuses.append(send_case(daemon, case))

    send_one()
    SENT.extend(statuses)
    assert len(statuses) >= (CASES if len(modes) == 2 else 1)
    assert max(statuses) < 500


def test_these_were_thousands() -> None:
    """Runs behind the others, in their process."""
    assert len(SENT) == 0 or len(SENT) >= 2000


@cache
def read_api() -> dict[str, Any]:
    """As it is served; to make it takes as long as a dozen requests."""
    return describe_api()


@cache
def load_schema() -> Any:
    return schemathesis.openapi.from_dict(read_api())


def describe_parameters(operation: str) -> bool:
    """Whether a request of this operation has anything to get wrong."""
    for methods in read_api()["paths"].values():
        for found in methods.values():
            if found["operationId"] == operation:
                return bool(found.get("parameters") or found.get("requestBody"))
    raise AssertionError(operation)


def send_case(daemon: Daemon, case: Any) -> int:
    """One generated request over the socket, as it is."""
    path = case.path
    for name, value in (case.path_parameters or {}).items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    query = {k: v for k, v in (case.query or {}).items() if v is not None}
    if operation_waits(path):
        query["timeout_s"] = 0
    if query:
        path += "?" + urlencode(query, doseq=True, errors="replace")
    body = None
    if isinstance(case.body, dict | list | str | int | float | bool) or case.body is None:
        body = json.dumps(case.body).encode() if case.method != "GET" else None
    return send(daemon, case.method, path, body)


def send(daemon: Daemon, method: str, path: str, body: bytes | None) -> int:
    """The status. A daemon that has too much to do says so, and when to ask again: then this does."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        answer = daemon.client.request(method, path, body)
        if answer.status != 503 or "retry-after" not in answer.headers:
            return answer.status
        assert json.loads(answer.body)["error"]["id"] == DaemonBusyError.id
        assert time.monotonic() < deadline_s, "it stays busy"
        time.sleep(float(answer.headers["retry-after"]))


def operation_waits(path: str) -> bool:
    return path.endswith("/wait")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"vm": "\\ud800", "profile": "1g.10gb"}',
     b'{"vm": "a\\u0000b", "profile": "x"}', b'{"vm": 1, "profile": {}}', b"[" * 5000,
     b'{"vm": "vm01", "profile": "1g.10gb", "hello_timeout_s": NaN}',
     b'{"vm": "vm01", "profile": "1g.10gb", "hello_timeout_s": 1e999}', b"1" * 10000],
)  # fmt: skip
def test_broken_bodies_are_the_callers_mistake(daemon: Daemon, body: bytes) -> None:
    answer = daemon.client.request("POST", "/1.0/attachments", body)
    assert answer.status in (400, 413)
    assert json.loads(answer.body)["error"]["id"] in ("VG100", "VG358")
