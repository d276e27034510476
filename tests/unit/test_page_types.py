"""The page's types are those of the API's documents, and its words for plans and workers those of the command line."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from vgpumgr.cli import text

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


def test_types_of_values_are_those_of_the_api(tmp_path: Path) -> None:
    """The generator itself compares, where there is a Node.js; a build of the page does the same."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js")
    for name in ("web/tools/types.mjs", "web/src/api.ts", "docs/openapi.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def check() -> int:
        words = [node, str(tmp_path / "web/tools/types.mjs"), "--check"]
        return subprocess.run(words, capture_output=True, check=False).returncode

    assert check() == 0, "cd web && npm run types"
    types = tmp_path / "web/src/api.ts"
    text = types.read_text()
    types.write_text(text.replace("pid: number;", "pid: string;", 1))
    assert types.read_text() != text
    assert check() == 1


def test_signs_of_steps_are_those_of_the_command_line() -> None:
    source = (ROOT / "web/src/plan.ts").read_text()
    for name, verbs in (("ADDING", text._ADDING), ("REMOVING", text._REMOVING)):
        (listed,) = re.findall(rf"^const {name} = new Set\(\[(.*)\]\);$", source, re.M)
        assert set(json.loads(f"[{listed}]")) == verbs
    (records,) = re.findall(r"^const RECORDS = /\^\((.*)\)/;$", source, re.M)
    assert records.split("|") == [kind.replace(".", r"\.") for kind in text._RECORDS]


def test_words_for_a_worker_are_those_of_the_command_line() -> None:
    (words,) = re.findall(r"workerWords: \{\n(.*)\n  \}", (ROOT / "web/src/texts.ts").read_text())
    states = ("hidden", "running", "worker_ready", "hello")
    said = {
        text.describe_worker(dict(zip(states, which, strict=True)))
        for which in itertools.product((False, True), repeat=len(states))
    }
    assert set(re.findall(r': "([^"]+)"', words)) == said
