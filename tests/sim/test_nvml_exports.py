# SPDX-License-Identifier: Apache-2.0
"""The simulated library has every function of NVIDIA's header, and each answers something defined."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from tests.sim import nvml_support as support

pytestmark = pytest.mark.native

_CALL_ALL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
def answers():
    for name in sys.argv[2:]:
        yield name, getattr(library, name)(*[None] * 8)
before = dict(answers())
assert library.nvmlInit_v2() == 0
after = dict(answers())
for name in sys.argv[2:]:
    print(name, before[name], after[name])
"""
# Work without nvmlInit, as NVIDIA documents it
_WITHOUT_INIT = {"nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"}
_LIFE = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString"}


def _exports() -> set[str]:
    output = subprocess.run(
        ["nm", "-D", "--defined-only", support.LIBRARY], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1] for line in output.splitlines()}


def _declared() -> set[str]:
    """By the compiler's own reading of the header, independent of the generator's."""
    text = subprocess.run(
        ["cc", "-E", "-P", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", str(support.nvml_header())],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return set(re.findall(r"\b(nvml[A-Z]\w*)\s*\([^()]*\)\s*;", text))


def test_exports_are_exactly_the_headers_functions() -> None:
    declared = _declared()
    assert len(declared) > 400
    assert _exports() == declared


def test_has_everything_that_nvidia_ml_py_asks_for() -> None:
    source = Path(pynvml.__file__).read_text()
    wanted = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source))
    assert len(wanted) > 300
    assert wanted <= _exports()


def test_soname() -> None:
    dynamic = subprocess.run(
        ["readelf", "-d", support.LIBRARY], check=True, capture_output=True, text=True
    ).stdout
    assert "Library soname: [libnvidia-ml.so.1]" in dynamic


def test_every_function_survives_null_and_knows_about_initialisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = sorted(_exports() - _LIFE)
    with support.running("a30-pair", tmp_path, monkeypatch):
        output = subprocess.run(
            [sys.executable, "-c", _CALL_ALL, str(support.LIBRARY), *functions],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    answers = {name: (int(a), int(b)) for name, a, b in map(str.split, output.splitlines())}
    assert answers.keys() == set(functions)
    for name, (before, after) in answers.items():
        if name not in _WITHOUT_INIT:
            assert before == pynvml.NVML_ERROR_UNINITIALIZED, name
        assert after in {pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED}, name


def test_driver_not_loaded_without_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUMGR_SIM", "/nowhere")
    with support.refused(pynvml.NVML_ERROR_DRIVER_NOT_LOADED), support.nvml():
        pass


def test_initialisation_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with support.running("a30-pair", tmp_path, monkeypatch), support.nvml() as nvml:
        nvml.nvmlInit()
        nvml.nvmlShutdown()
        assert nvml.nvmlDeviceGetCount() == 2
        nvml.nvmlShutdown()
        with support.refused(nvml.NVML_ERROR_UNINITIALIZED):
            nvml.nvmlDeviceGetCount()
        nvml.nvmlInit()
