"""Errors: numbers, exit codes, and the page that documents them, which is generated from the classes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import vgpumgr
from vgpumgr import errors
from vgpumgr.errors import Exit, VgpumgrError

MEANINGS = {
    Exit.OK: "done, or nothing to do",
    Exit.ERROR: "any other error",
    Exit.USAGE: "wrong usage; or a confirmation is needed and there is no terminal",
    Exit.DIFFERENT: "differences found",
    Exit.NOT_PERMITTED: "not permitted",
    Exit.NOT_FOUND: "no such object",
    Exit.BUSY: "busy or in conflict; the holders are listed",
    Exit.NOT_SUPPORTED: "not supported by this GPU, driver, kernel or libvirt",
    Exit.PENDING: "accepted, but waits for a reset or reboot",
    Exit.ROLLED_BACK: "failed and rolled back",
    Exit.ROLLBACK_INCOMPLETE: "failed, and the roll-back is incomplete",
    Exit.NOT_EXECUTABLE: "`run`: the command cannot be executed",
    Exit.COMMAND_NOT_FOUND: "`run`: there is no such command",
    Exit.INTERRUPTED: "interrupted; the state is consistent",
}


def list_classes() -> list[type[VgpumgrError]]:
    """Every error class of the package, wherever it is defined, abstract ones without a number of their own apart."""
    for module in pkgutil.walk_packages(vgpumgr.__path__, "vgpumgr."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, open_ends = set[type[VgpumgrError]](), [VgpumgrError]
    while open_ends:
        kinds = open_ends.pop().__subclasses__()
        found.update(kinds)
        open_ends.extend(kinds)
    return sorted(
        (kind for kind in found if kind.__module__.startswith("vgpumgr.")), key=lambda kind: kind.id
    )


def test_every_error_has_a_number_of_its_own() -> None:
    classes = list_classes()
    assert len({kind.id for kind in classes} | {VgpumgrError.id}) == len(classes) + 1
    for kind in classes:
        assert kind.id[:2] == "VG"
        assert kind.id[2:].isdigit()
        assert 400 <= kind.http_status < 600
        assert kind.exit_code is not Exit.OK


def test_every_error_says_what_it_means() -> None:
    for kind in list_classes():
        assert "__doc__" in vars(kind), kind
        assert str(kind.__doc__).strip().endswith(".")


def test_the_page_is_what_the_classes_say(golden: Callable[[str, str], None]) -> None:
    """``pytest --regenerate`` writes docs/errors.md."""
    lines = [
        "# Errors and exit codes",
        "",
        "Generated from the error classes in `vgpumgr/` by `pytest --regenerate`.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {int(code)} | {MEANINGS[code]} |" for code in Exit),
        "",
        "| error | exit code | HTTP status | meaning |",
        "|---|---|---|---|",
    ]
    for kind in list_classes():
        meaning = " ".join(str(kind.__doc__).split())
        lines.append(f"| {kind.id} | {int(kind.exit_code)} | {kind.http_status} | {meaning} |")
    golden("../../docs/errors.md", "\n".join(lines) + "\n")


def test_all_parts_reach_the_document() -> None:
    error = errors.NvmlInUseError("e", cause="c", why="w", held_by=["h"], hint="t")
    assert error.as_dict() == {
        "id": "VG114",
        "error": "e",
        "cause": "c",
        "why": "w",
        "held_by": ["h"],
        "try": "t",
        "exit_code": 6,
    }
    assert str(error) == "e"
