"""Layouts and MIG mode beside virtual functions, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.vgpu_machine import vgpu_machine
from vgpumgr.cli.main import main

pytestmark = pytest.mark.native
LAYOUTS = """schema: vgpumgr/mig-layout/v1
layouts:
  cut:
    - gpus: 0
      instances: [1g.5gb]
  none:
    - gpus: all
      vgpus: {}
  zero:
    - gpus: 0
      vgpus: {A100-4C: 0}
  some:
    - gpus: 0
      vgpus: {A100-4C: 1}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """One command line: exit code, output, errors."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def layouts(tmp_path: Path) -> str:
    """The file."""
    path = tmp_path / "layouts.yaml"
    path.write_text(LAYOUTS)
    return str(path)


def test_mig_mode_beside_virtual_functions_names_these(
    tmp_path: Path, run: Run, layouts: str
) -> None:
    with vgpu_machine("vgpu-a100", tmp_path) as machine:
        machine.call("enable_vfs", selector="0")
        commands = (
            ("mig", "layout", "plan", layouts, "-c", "cut"),
            ("mig", "layout", "apply", layouts, "-c", "cut", "--yes"),
            ("mig", "enable", "0", "--yes"),
        )
        for words in commands:
            code, _, err = run("--machine", "vgpu-a100", *words)
            assert code == 6
            assert "cannot turn on MIG mode of GPU 0 (0000:41:00.0)" in err
            assert "held by: 16 virtual functions" in err
            assert "vf disable 0, then repeat" in err
            assert "reset" not in err
        # no request is left with the driver, and what is named helps
        gpu = machine.call("show_gpu", selector="0").gpu
        assert (gpu.mig.current, gpu.mig.pending) == (False, False)
        assert run("--machine", "vgpu-a100", "vf", "disable", "0")[0] == 0
        assert run("--machine", "vgpu-a100", *commands[1])[0] == 0
        assert [i.profile for i in machine.call("list_mig_instances").instances] == ["1g.5gb"]
        assert (
            run("--machine", "vgpu-a100", "mig", "layout", "assert", layouts, "-c", "cut")[0] == 0
        )


@pytest.mark.parametrize("name", ["vgpu-a100", "workstation"])
def test_no_vgpus_are_wanted_where_there_can_be_none(
    tmp_path: Path, run: Run, layouts: str, name: str
) -> None:
    asked = ("none", "zero") if name == "vgpu-a100" else ("none",)
    with vgpu_machine(name, tmp_path):
        for config in asked:
            for verb, more in (("plan", ()), ("apply", ("--yes",)), ("assert", ())):
                words = ("mig", "layout", verb, layouts, "-c", config, *more)
                code, out, err = run("--machine", name, *words)
                assert code == 0, err
                if verb == "plan":
                    assert "no vGPUs, as asked" in out
        assert run("--machine", name, "mig", "layout", "plan", layouts, "-c", "some")[0] == 7


def test_vgpus_that_are_there_differ_from_none(tmp_path: Path, run: Run, layouts: str) -> None:
    with vgpu_machine("vgpu-a100", tmp_path) as machine:
        machine.call("enable_vfs", selector="0")
        machine.call("create_vgpu", type="A100-4C")
        code, out, _ = run(
            "--machine", "vgpu-a100", "mig", "layout", "assert", layouts, "-c", "none"
        )
        assert code == 3
        assert "1 x vGPU NVIDIA A100-4C, expected 0" in out
        assert (
            run("--machine", "vgpu-a100", "mig", "layout", "apply", layouts, "-c", "none", "--yes")[
                0
            ]
            == 0
        )
        assert machine.call("list_vgpus").vgpus == []
