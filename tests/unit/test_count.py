"""``tools/count.py`` on a small package: sizes, importers, and the reasons of modules with a single importer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import count
from tools.modules import read_package

FILES = {
    "pyproject.toml": '[project.scripts]\nlittle = "little.start:main"\n',
    "little/__init__.py": "",
    "little/__main__.py": "from little.start import main\nmain()\n",
    "little/start.py": "def main() -> None:\n    from little.engine import run\n    run()\n",
    # what the package hands on is imported from where it is defined
    "little/engine/__init__.py": "from little.engine.running import run as run\n",
    "little/engine/running.py": "from little.engine import lone\ndef run() -> None: ...\n",
    "little/engine/lone.py": "HERE = 1\n",
    "little/engine/forgotten.py": "HERE = 1\n",
    "little/engine/interfaces.py": (
        "from typing import Protocol\n"
        "class Step(Protocol):\n    def do(self) -> None: ...\n    def undo(self) -> None: ...\n"
        "class Base:\n    def __init_subclass__(cls) -> None: ...\n"
    ),
    "little/steps/__init__.py": "",
    "little/steps/registry.py": (
        "import importlib\n"
        "from typing import TYPE_CHECKING\n"
        "from little.steps import derived, shaped, entered, half\n"
        "from little.engine.interfaces import Step\n"
        "if TYPE_CHECKING:\n    from . import typed\n"
        "for name in ('named', 'other'):\n    importlib.import_module(f'little.steps.{name}')\n"
        "WHOLE = 'little.steps.whole:command'\n"
    ),
    "little/steps/derived.py": "from little.engine import interfaces\nclass A(interfaces.Step): ...\n",
    "little/steps/entered.py": "from little.engine.interfaces import Base as B\nclass C(B): ...\n",
    "little/steps/shaped.py": "class D:\n    def do(self): ...\n    def undo(self): ...\n",
    "little/steps/half.py": "class E:\n    def do(self): ...\n",
    "little/steps/typed.py": "X = 1\n" * 160,
    "little/steps/named.py": "X = 1\n",
    "little/steps/whole.py": "from little.steps import named\n",
}  # fmt: skip


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "little"


def test_importers_are_counted_lazy_ones_and_those_for_types(package: Path) -> None:
    found = count.map_importers(read_package(package))
    assert found["little.start"] == {"little.__main__"}
    assert found["little.engine.running"] == {"little.start", "little.engine"}
    assert found["little.steps.typed"] == {"little.steps.registry"}
    assert found["little.steps.named"] == {"little.steps.whole"}
    assert found["little.engine.interfaces"] == {
        "little.steps.registry", "little.steps.derived", "little.steps.entered"
    }  # fmt: skip
    assert found["little.engine.forgotten"] == set()


def test_each_module_with_a_single_importer_has_its_reason(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count.main([str(package)]) == 0
    out = capsys.readouterr().out
    head, _, rows = out.partition("modules with a single importer: ")
    assert head.splitlines()[-2].split() == ["steps", "9", "180"]
    assert head.splitlines()[-1].split()[:3] == ["all", "17", "196"]
    assert rows.splitlines() == [
        "8, of these without a reason: 2",
        "  no reason: little.engine.lone (1 lines; imported by little.engine.running)",
        "  no reason: little.steps.half (2 lines; imported by little.steps.registry)",
        "  entry point: little.start (3 lines; imported by little.__main__)",
        "  implements Step: little.steps.derived (2 lines; imported by little.steps.registry)",
        "  implements Base: little.steps.entered (2 lines; imported by little.steps.registry)",
        "  loaded by name: little.steps.named (1 lines; imported by little.steps.whole)",
        "  implements Step: little.steps.shaped (3 lines; imported by little.steps.registry)",
        "  large: little.steps.typed (160 lines; imported by little.steps.registry)",
        "modules without an importer: little.engine.forgotten, little.steps.registry",
    ]


@pytest.mark.parametrize(
    ("bound", "limit", "said"),
    [
        ("MAX_LINES", 100, "lines of Python, at most 100"),
        ("MAX_FILES", 16, "17 Python files, at most 16"),
        ("MAX_FILES_IN_FOLDER", 7, "9 Python files in steps, at most 7"),
    ],
)
def test_a_bound_that_is_exceeded_is_said_and_fails_a_check_only(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    bound: str, limit: int, said: str,
) -> None:  # fmt: skip
    assert count.main(["--check", str(package)]) == 0
    assert "exceeded" not in capsys.readouterr().out
    monkeypatch.setattr(count, bound, limit)
    assert count.main([str(package)]) == 0
    assert f"{said}\n" in capsys.readouterr().out
    assert count.main(["--check", str(package)]) == 1


def test_a_simulator_may_be_wide(package: Path) -> None:
    (package / "sim").mkdir()
    for number in range(count.MAX_FILES_IN_FOLDER + 1):
        (package / "sim" / f"part{number}.py").touch()
    assert count.list_exceeded(read_package(package)) == []
    (package / "sim").rename(package / "others")
    assert count.list_exceeded(read_package(package)) == ["26 Python files in others, at most 25"]
