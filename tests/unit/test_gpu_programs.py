"""The script for GPU hosts runs on a simulated driver, too, and says that it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guest.build_programs import build_programs
from vgpumgr.sim.machine import create_machine, machine_env

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.native, pytest.mark.cuda]


def test_programs_pass_directly_and_forwarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    create_machine("a30-pair")
    programs = build_programs(["vectoradd", "errors"]).values()
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, ROOT / "bench/gpu/programs.py", "--json", report,
         "--libcuda", ROOT / "vgpumgr/_lib/sim/libcuda.so.1", *programs],
        env=os.environ | machine_env("a30-pair"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(report.read_text())
    assert document["driver"]["simulated"] is True
    assert len(document["programs"]) == 2
    for ways in document["programs"].values():
        assert ways["direct"]["passed"]
        assert ways["forwarded"]["passed"]
