"""The page's types are those of the API's documents."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read_interfaces() -> dict[str, dict[str, bool]]:
    """Names of ``web/src/api.ts`` with their keys, and whether a key may be left out."""
    text = (ROOT / "web/src/api.ts").read_text()
    return {
        name: {
            key: bool(may) for key, may in re.findall(r"^  \"?([^\s\":?]+)\"?(\?)?:", body, re.M)
        }
        for name, body in re.findall(r"^export interface (\w+) {\n(.*?)^}", text, re.M | re.S)
    }


def test_types_of_the_page_are_those_of_the_api() -> None:
    schemas = json.loads((ROOT / "docs/openapi.json").read_text())["components"]["schemas"]
    expected = {
        name: {
            key: name.endswith("Body") and key not in schema.get("required", ())
            for key in schema["properties"]
        }
        for name, schema in schemas.items()
        if name.endswith(("Document", "Row", "Body")) and "properties" in schema
    }
    assert read_interfaces() == expected, "cd web && npm run types"
