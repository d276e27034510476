"""``status``, ``diff`` and ``recover`` as typed: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.domains import UUID_PC
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.recovery import Recovery, recover
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.model.request import AttachRequest


class Backend:
    """The recovery of a bench."""

    def __init__(self, bench: Bench) -> None:
        self.parts = bench.service.parts

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "recover":
            document: Any = recover(self.parts, **params)
        else:
            document = getattr(Recovery(self.parts), operation)(**params)
        return document.as_data()  # type: ignore[no-any-return]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = make_bench(tmp_path)
    bench.service.attach(AttachRequest("vm01", "1g.10gb"))
    return bench


def run(bench: Bench, *words: str) -> tuple[int, str]:
    options, out = GlobalOptions(), io.StringIO()

    @contextmanager
    def backend(_options: GlobalOptions) -> Iterator[Backend]:
        yield Backend(bench)

    streams = Streams(options, out, io.StringIO())
    return main(list(words), Session(options, streams, backend)), out.getvalue()


def test_all_is_well(bench: Bench) -> None:
    assert run(bench, "diff") == (0, "no differences\n")
    assert run(bench, "recover") == (0, "nothing to recover\n")
    code, text = run(bench, "status")
    assert code == 0
    assert "attachments  1" in text
    assert "differences  none" in text


def test_differences_are_exit_3(bench: Bench) -> None:
    del bench.hypervisor.machines[UUID_PC]
    code, text = run(bench, "diff")
    assert code == 3
    assert "vm01: the VM is no longer defined" in text
    assert "vgpumgr recover --release" in text
    code, text = run(bench, "diff", "-o", "json")
    assert code == 3
    assert json.loads(text)["drift"][0]["kind"] == "vm-gone"
    code, text = run(bench, "recover")
    assert code == 3
    assert "still different:" in text
    code, text = run(bench, "recover", "--release")
    assert code == 0
    assert "+ vm01: freed 1g.10gb" in text
    assert run(bench, "diff")[0] == 0


def test_a_repair_is_told(bench: Bench) -> None:
    bench.channels.running.clear()
    assert "its keeper does not run" in run(bench, "status")[1]
    assert run(bench, "recover") == (0, "  + vm01: started its keeper again\n")


@pytest.mark.parametrize("verb", ["status", "diff", "recover"])
def test_no_tables(bench: Bench, verb: str) -> None:
    assert run(bench, verb, "-o", "csv")[0] == 2


def list_state(bench: Bench) -> dict[Path, bytes]:
    """All files of the state, as they are."""
    directory = bench.service.parts.state_dir
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_dry_run_says_what_recover_then_does_and_changes_nothing(bench: Bench) -> None:
    parts = bench.service.parts
    (record,) = parts.store.list_attachments()
    machine = bench.hypervisor.machines.pop(UUID_PC)
    before = list_state(bench)
    code, text = run(bench, "recover", "--dry-run")
    assert (code, "would still differ:" in text) == (0, True)
    assert "would be done" not in text
    code, text = run(bench, "recover", "--release", "--dry-run")
    assert (code, text.splitlines()[0]) == (0, "would be done:")
    planned = text.splitlines()[1:]
    assert planned[0].startswith("  + vm01: freed 1g.10gb")
    code, text = run(bench, "recover", "--release", "--dry-run", "-o", "json")
    assert (code, json.loads(text)["dry_run"]) == (0, True)
    assert list_state(bench) == before
    assert parts.store.list_attachments() == (record,)
    # exactly that is then done
    code, text = run(bench, "recover", "--release")
    assert (code, text.splitlines()) == (0, planned)
    assert parts.store.list_attachments() == ()
    assert machine is not None


def test_a_dry_run_of_a_stopped_keeper_starts_none(bench: Bench) -> None:
    (record,) = bench.service.parts.store.list_attachments()
    bench.channels.stop(record.id)
    code, text = run(bench, "recover", "--dry-run")
    assert (code, "started its keeper again" in text) == (0, True)
    assert bench.channels.read_status(record.id) is None
    assert "started its keeper again" in run(bench, "recover")[1]
    assert bench.channels.read_status(record.id) is not None


def test_a_dry_run_names_interrupted_operations_and_leaves_them(bench: Bench) -> None:
    parts = bench.service.parts
    begun = {"operation": "attach", "subject": "vm02", "steps": [], "result": {"attachment": "d1"}}
    with closing(parts.open_journal()) as journal:
        journal.append("op9", "begin", begun)
    before = list_state(bench)
    code, text = run(bench, "recover", "--dry-run")
    assert (code, "attach was interrupted, and is recovered" in text) == (0, True)
    assert list_state(bench) == before
