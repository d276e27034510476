"""Commands in hints are for a shell: a VM's name is one word of them, whatever it contains."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpumgr.model.text import format_vm

ROOT = Path(__file__).parents[2]
#: names of VMs, as expressions of the program
BARE = re.compile(r"(\w+\.)*(vm_name|vm\.name|request\.vm|vm|selector|subject)")
#: where the name was made a word before
QUOTED = {("passthrough.py", "vm")}


@pytest.mark.parametrize(
    "name", ["vm01", "$(id)", "a b", "x; rm -rf /", "`id`", "it's", "a\nb", "--all"]
)
def test_a_name_is_one_word(name: str) -> None:
    assert shlex.split(f"vgpumgr detach {format_vm(name)} --all") == [
        "vgpumgr",
        "detach",
        name,
        "--all",
    ]
    uuid = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"
    (word,) = shlex.split(format_vm(name, uuid))
    assert word == (uuid if name.startswith("-") else name)


def list_bare_names(tree: ast.AST) -> Iterator[str]:
    """Names of VMs that stand in a command as they are."""
    for text in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
        first, *rest = text.values
        is_command = isinstance(first, ast.Constant) and re.match(
            "(vgpumgr (attach|detach|virtio|vm)|virsh) ", str(first.value)
        )
        for part in rest if is_command else ():
            if isinstance(part, ast.FormattedValue):
                name = ast.unparse(part.value)
                if BARE.fullmatch(name):
                    yield name


def test_no_hint_has_a_bare_name_of_a_vm() -> None:
    assert list(list_bare_names(ast.parse('f"vgpumgr detach {record.vm_name} --all"')))
    found = {
        (path.name, name)
        for path in (ROOT / "vgpumgr").rglob("*.py")
        for name in list_bare_names(ast.parse(path.read_text()))
    }
    assert found <= QUOTED
