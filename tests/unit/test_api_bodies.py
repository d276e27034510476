"""Bodies of the API say what the operations take: a field that one has and the other lacks is refused by the daemon."""

from __future__ import annotations

from dataclasses import fields

from vgpumgr.app.application import find_operation
from vgpumgr.model.request import AttachRequest
from vgpumgr.server.routes import find_fields


def test_attach_over_http_takes_what_attach_takes() -> None:
    wanted = {field.name for field in fields(AttachRequest)} | {"dry_run"}
    assert set(find_fields("attach", find_operation("attach"))) == wanted
