"""The commands on PCI functions: what they ask before they do anything, and what they print."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from tests.support.cli import FixedWidth, Result, Terminal
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session

ADDRESS = "0000:01:00.0"
USER = f"{ADDRESS} is the display that the host boots with"


class FakeBackend:
    """Answers as the application would, and remembers what it was asked."""

    def __init__(self, concerns: list[str]) -> None:
        self.concerns = concerns
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.physicals = [PHYSICAL]

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        self.calls.append((operation, params))
        if operation == "list_vfs":
            return {"schema": "vgpumgr/v1", "physicals": self.physicals, "notes": []}
        step = {"kind": "passthrough.bind", "target": {}, "description": f"give {ADDRESS} away"}
        return {
            "schema": "vgpumgr/v1",
            "change": "passthrough bind",
            "subject": ADDRESS,
            "dry_run": params["dry_run"],
            "steps": [step],
            "concerns": self.concerns,
            "result": {},
            "notes": [],
        }


PHYSICAL: dict[str, Any] = {
    "address": "0000:03:00.0",
    "model": "Intel Data Center GPU Flex 170",
    "driver": "xe",
    "total": 7,
    "count": 1,
    "method": "sriov_numvfs",
    "why_not": None,
    "persist": False,
    "vfs": [
        {
            "index": 0,
            "address": "0000:03:00.1",
            "driver": "vfio-pci",
            "iommu_group": 40,
            "users": ['vm "a"'],
            "configured": [],
            "quotas": {"exec_quantum_ms": "20"},
            "framebuffer_bytes": None,
        }
    ],
}


def run(backend: FakeBackend, *words: str, terminal: bool = False) -> Result:
    out, err = Terminal() if terminal else io.StringIO(), io.StringIO()

    @contextmanager
    def open_backend(_options: GlobalOptions) -> Iterator[FakeBackend]:
        yield backend

    options = GlobalOptions()
    streams = FixedWidth(options, out, err, {"NO_COLOR": "1"})
    code = main(words, Session(options, streams, open_backend))
    return Result(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("verb", ["bind", "unbind"])
def test_a_function_in_use_is_not_taken_unasked(verb: str) -> None:
    backend = FakeBackend([USER])
    refused = run(backend, "passthrough", verb, ADDRESS)
    assert refused.code == 2
    assert "VG214" in refused.err
    assert USER in refused.err
    assert [params["dry_run"] for _, params in backend.calls] == [True]


def test_yes_and_an_answer_are_passed_on() -> None:
    backend = FakeBackend([USER])
    assert run(backend, "passthrough", "bind", ADDRESS, "--yes").code == 0
    ((_, asked),) = backend.calls
    assert (asked["confirmed"], asked["dry_run"]) == (True, False)
    with mock.patch("typer.confirm", return_value=True) as confirm:
        done = run(backend, "passthrough", "bind", ADDRESS, terminal=True)
    assert confirm.called
    assert USER in done.err
    assert backend.calls[-1][1]["confirmed"]
    assert f"passthrough bind {ADDRESS}: done" in done.out


def test_what_nobody_uses_needs_no_answer_and_is_not_called_confirmed() -> None:
    backend = FakeBackend([])
    assert run(backend, "passthrough", "bind", ADDRESS, "--no-persist").code == 0
    last = backend.calls[-1][1]
    assert "confirmed" not in last, "whoever comes in between is not run over"
    assert last["persist"] is False
    run(backend, "passthrough", "bind", ADDRESS)
    assert backend.calls[-1][1]["persist"] is None


def test_a_dry_run_says_who_is_in_the_way() -> None:
    shown = run(FakeBackend([USER]), "passthrough", "bind", ADDRESS, "--dry-run")
    assert shown.out.splitlines() == [
        f"passthrough bind {ADDRESS}: would be done",
        f"  give {ADDRESS} away",
        f"  in use: {USER}",
    ]


def test_quotas_are_names_and_numbers_sizes_or_words() -> None:
    backend = FakeBackend([])
    words = ("vf", "enable", ADDRESS, "-n", "2", "--quota", "exec_quantum_ms=20")
    assert run(backend, *words).code == 0
    assert backend.calls[-1][1]["quotas"] == {"exec_quantum_ms": 20}
    words = ("--quota", "vram_quota=4GiB", "--quota", "sched_priority=high")
    assert run(backend, "vf", "enable", ADDRESS, *words).code == 0
    assert backend.calls[-1][1]["quotas"] == {"vram_quota": 4 << 30, "sched_priority": "high"}
    for wrong in ("exec_quantum_ms", "=5", "a=", "a=-1", "a=20ms", "a=4GB", "a=High", "=high"):
        assert run(backend, "vf", "enable", ADDRESS, "--quota", wrong).code == 2


def test_virtual_functions_stand_below_each_other() -> None:
    shown = run(FakeBackend([]), "vf", "list", "-o", "csv")
    assert shown.out.splitlines() == [
        "physical,count,vf,address,driver,group,used_by",
        '0000:03:00.0,1,0,0000:03:00.1,vfio-pci,40,"vm ""a"""',
    ]
    assert run(FakeBackend([]), "vf", "list", "-o", "name").out == "0000:03:00.1\n"


def test_nested_documents_are_filtered_and_sorted_as_their_rows() -> None:
    """A physical function without virtual ones has a row of its own; others have those of their virtual ones."""
    (vf,) = PHYSICAL["vfs"]
    second = {**vf, "index": 1, "address": "0000:03:00.2", "users": []}
    bare = {**PHYSICAL, "address": "0000:10:00.0", "vfs": [], "count": 0}
    backend = FakeBackend([])
    backend.physicals = [{**PHYSICAL, "vfs": [vf, second]}, bare]

    def read(*words: str) -> list[tuple[str, list[str]]]:
        shown = json.loads(run(backend, "vf", "list", "-o", "json", *words).out)["physicals"]
        return [(one["address"], [vf["address"] for vf in one["vfs"]]) for one in shown]

    both = ["0000:03:00.1", "0000:03:00.2"]
    assert read() == [("0000:03:00.0", both), ("0000:10:00.0", [])]
    assert read("--sort", "-address") == [("0000:03:00.0", both[::-1]), ("0000:10:00.0", [])]
    assert read("--sort", "-physical,-vf") == [("0000:10:00.0", []), ("0000:03:00.0", both[::-1])]
    assert read("--filter", "vf=1") == [("0000:03:00.0", both[1:])]
    assert read("--filter", "physical=*:10:*") == [("0000:10:00.0", [])]
    assert read("--filter", 'used_by=vm "a"', "--filter", "vf=1") == []


def test_one_virtual_function_with_its_quotas() -> None:
    backend = FakeBackend([])
    for name in ("0000:03:00.1", "03:00.1", "03:00.1 "):
        shown = run(backend, "vf", "show", name)
        assert (shown.code, shown.out.splitlines()[0]) == (0, "VF 0000:03:00.1")
        assert "used by" in shown.out
    # the physical function is asked for itself, which is when quotas are read
    assert backend.calls[-1] == ("list_vfs", {"selector": "0000:03:00.0"})
    document = json.loads(run(backend, "vf", "show", "03:00.1", "-o", "json").out)
    assert document["vf"]["quotas"] == {"exec_quantum_ms": "20"}
    for wrong in ("0000:03:00.0", "03:00.7", "x"):
        refused = run(backend, "vf", "show", wrong)
        assert (refused.code, "vgpumgr vf list" in refused.err) == (5, True)
