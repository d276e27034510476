"""What commands load: most of the time of a short command is imports, and each one needs a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sim_machine import running

NAME = "dgx-a100"
HEAVY = (
    "pydantic", "lxml", "libvirt", "rich", "yaml", "fastapi", "asyncio", "pynvml", "jinja2", "paramiko",
    "prometheus_client", "textual", "sqlite3",
)  # fmt: skip
LAYOUT = """
version: v1
mig-configs:
  one:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2}
"""
TELL = """
import json, sys
from vgpumgr.cli.main import main
code = main(json.loads(sys.argv[1]))
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def list_loaded(*words: str, accepted: tuple[int, ...] = (0,)) -> tuple[list[str], set[str]]:
    """Modules of ours, and the packages of others, that a command has loaded when it ends."""
    result = subprocess.run(
        [sys.executable, "-c", TELL, json.dumps(words)],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert result.returncode in accepted, result.stderr
    loaded: list[str] = json.loads(result.stderr.splitlines()[-1])
    ours = [name for name in loaded if name.split(".")[0] == "vgpumgr"]
    return ours, {name.split(".")[0] for name in loaded}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file with a layout, and a machine to apply it to."""
    path = tmp_path / "layout.yaml"
    path.write_text(LAYOUT)
    with running(NAME, tmp_path / "sim", monkeypatch):
        yield str(path)


def test_help_loads_the_command_line_alone() -> None:
    ours, packages = list_loaded("--help")
    assert packages.isdisjoint(HEAVY)
    assert len(ours) <= 30, ours


@pytest.mark.native
def test_a_listing_loads_what_it_reads_by(layout: str) -> None:  # noqa: ARG001
    ours, packages = list_loaded("--machine", NAME, "gpu", "list")
    assert packages & set(HEAVY) <= {"sqlite3"}
    assert len(ours) <= 80, ours


@pytest.mark.native
def test_a_plan_loads_the_planner_and_no_operation(layout: str) -> None:
    ours, packages = list_loaded(
        "--machine", NAME, "mig", "layout", "plan", layout, accepted=(0, 3)
    )
    assert packages & set(HEAVY) <= {"sqlite3", "yaml"}
    assert len(ours) <= 105, ours
    assert not [name for name in ours if name.startswith(("vgpumgr.steps.", "vgpumgr.engine."))]


@pytest.mark.native
def test_a_layout_change_loads_no_other_family(layout: str) -> None:
    """Neither libvirt nor channels, host devices or vGPUs: none of them has a part in it."""
    ours, packages = list_loaded("--machine", NAME, "mig", "layout", "apply", layout, "--yes")
    assert packages & set(HEAVY) <= {"sqlite3", "yaml"}
    assert len(ours) <= 140, ours
    families = ("domain", "mdev", "passthrough", "virtio")
    assert not [name for name in ours if name.split(".")[1:2] and name.split(".")[1] in families]
    assert [n for n in ours if n.startswith("vgpumgr.steps.")] == [
        "vgpumgr.steps.layouts", "vgpumgr.steps.mig",
    ]  # fmt: skip


def test_a_helper_loads_no_more_of_python_than_it_calls() -> None:
    """It starts with every command that asks NVML."""
    code = (
        "import sys\n"
        "from vgpumgr.nvml.helper import defer_ctypes_util\n"
        "defer_ctypes_util()\n"
        "import vgpumgr.nvml.adapter\n"
        "print([n for n in ('subprocess', 'tempfile', 'vgpumgr.model.vgpu') if n in sys.modules])\n"
        "from ctypes.util import find_library\n"
        "print(find_library('c'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == ["[]", "libc.so.6"]
