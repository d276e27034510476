"""``status``, ``diff`` and ``recover`` as typed: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.domains import UUID_PC
from tests.support.service import Bench, make_bench
from vgpumgr.app.operations.recovery import Policy, Recovery
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.model.request import AttachRequest


class Backend:
    """The recovery of a bench."""

    def __init__(self, bench: Bench) -> None:
        self.recovery = Recovery(bench.service.parts)

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "recover":
            params = {"policy": Policy(**params)}
        document = getattr(self.recovery, operation)(**params)
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
