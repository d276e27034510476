"""Commands that hints, help and documentation name: they exist, with the options that are named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from tests.support.commands import find_command

ROOT = Path(__file__).parents[2]
VALUED = ("--machine", "--host", "--hosts", "--color")
PROGRAM = r"(?<![\w/.@:-])(?:sudo )?vgpumgr "
IN_HINT = r"(?:^|[;:,] |then |or |sudo )vgpumgr "
#: where prose ends and the next command begins
END = re.compile(r"[;&`\n#()]|, |, or | \| |: | > |'$")


def list_hints() -> Iterator[tuple[str, str]]:
    """Every hint of an error that begins as a command does, with a letter where a value is put in."""
    for path in sorted((ROOT / "vgpumgr").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                for text in list_texts(node.value):
                    for line in re.split(IN_HINT, text)[1:]:
                        yield f"{path.relative_to(ROOT)}:{node.value.lineno}", line


def list_texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
        yield "".join(parts)
    elif isinstance(node, ast.IfExp):
        yield from list_texts(node.body)
        yield from list_texts(node.orelse)


def list_documented() -> Iterator[tuple[str, str]]:
    """Commands in backticks, in code blocks, and in the examples of the verbs' own help."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        text = path.read_text()
        quoted = re.findall(rf"`{PROGRAM}([^`]+)`", text)
        shown = re.findall(rf"^(?:    (?:\$ )?|\$ ){PROGRAM}(.+)$", text, re.MULTILINE)
        yield from (
            (str(path.relative_to(ROOT)), " ".join(line.split())) for line in (*quoted, *shown)
        )
    for path in sorted((ROOT / "vgpumgr").rglob("*.py")):
        text = path.read_text()
        found = re.findall(rf"``{PROGRAM}([^`]+)``|^      {PROGRAM}(.+)$", text, re.MULTILINE)
        yield from ((str(path.relative_to(ROOT)), " ".join((a or b).split())) for a, b in found)


def name_options(command: Any) -> set[str]:
    names = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return {"--help", "-h", *names}


def find_mistake(line: str) -> str | None:
    """What a command line names that there is not."""
    words = END.split(line, maxsplit=1)[0].replace("[", " ").replace("]", " ").split()
    while words and words[0].startswith("-"):
        valued = words[0] in VALUED
        words = words[2:] if valued else words[1:]
    if words[:1] == ["help"]:
        words = words[1:]
    command, rest = find_command(words)
    known = name_options(command)
    if isinstance(command, TyperGroup):
        if not rest or not re.fullmatch(r"[a-z|-]+", rest[0]):
            return None  # a noun alone, or a placeholder
        for name in rest[0].split("|") if not rest[0].startswith("-") else ():
            if name not in command.commands:
                return f"there is no {name}"
            known |= name_options(command.commands[name])
    if "--" in rest:  # what follows is another program's
        rest = rest[: rest.index("--")]
    options = [o for word in rest for o in re.split(r"[|/]", word) if o.startswith("--")]
    unknown = [o for o in options if o.partition("=")[0].rstrip(".") not in known and o != "--"]
    return f"it has no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("physician", "there is no physician"),
        ("gpu lst", "there is no lst"),
        ("mig layout plan web.yaml --out plan.json", None),
        ("--machine x gpu list --colums a", "it has no --colums"),
        ("attach X --profile X --add, or vgpumgr detach X", None),
        ("help COMMAND", None),
        ("help gpu lst", "there is no lst"),
        ("mdev list|create|undo", "there is no undo"),
    ],
)
def test_mistakes_are_found(line: str, mistake: str | None) -> None:
    assert find_mistake(line) == mistake


def test_hints_name_commands_that_there_are() -> None:
    hints = list(list_hints())
    assert len(hints) > 100
    assert [(where, line, wrong) for where, line in hints if (wrong := find_mistake(line))] == []


def test_the_documentation_names_commands_that_there_are() -> None:
    named = list(list_documented())
    assert len(named) > 280
    assert [(where, line, wrong) for where, line in named if (wrong := find_mistake(line))] == []
