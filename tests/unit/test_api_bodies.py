"""Bodies of the API say what the operations take: a field that one has and the other lacks is refused by the daemon."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from vgpumgr.model.request import AttachRequest

DOCUMENT = Path(__file__).parents[2] / "docs/openapi.json"


def test_attach_over_http_takes_what_attach_takes() -> None:
    """By the committed document, which is what a daemon serves (``tests/api/test_contract.py``)."""
    body = json.loads(DOCUMENT.read_text())["components"]["schemas"]["AttachBody"]
    wanted = {field.name for field in fields(AttachRequest)} | {"dry_run"}
    assert set(body["properties"]) == wanted
    assert body["additionalProperties"] is False
