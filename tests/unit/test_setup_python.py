"""Set-up of the Python environment: pins that cannot be had are named, and the requirements' ranges are used."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"
PYTHON = ".".join(map(str, sys.version_info[:3]))


UNBUILDABLE = """
from pathlib import Path

def prepare_metadata_for_build_wheel(directory, settings=None):
    info = Path(directory, "{name}-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info.name

def build_wheel(*_):
    raise SystemExit("the library is newer")
"""


class Environment:
    """A new virtual environment, and the only index it knows: a folder of wheels."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.wheels = directory / "wheels"
        self.wheels.mkdir()
        self.python = directory / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)

    def publish(self, name: str, version: str, *metadata: str) -> None:
        """One version of a distribution."""
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(self.wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata]
            wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")

    def publish_unbuildable(self, name: str, version: str) -> None:
        """A version that is source only, and does not build here."""
        backend = UNBUILDABLE.format(name=name, version=version)
        build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        files = {"backend.py": backend, "pyproject.toml": build, "PKG-INFO": f"Name: {name}\n"}
        with tarfile.open(self.wheels / f"{name}-{version}.tar.gz", "w:gz") as source:
            for path, text in files.items():
                member = tarfile.TarInfo(f"{name}-{version}/{path}")
                member.size = len(text)
                source.addfile(member, io.BytesIO(text.encode()))

    def install(self, requirements: str, constraints: str) -> subprocess.CompletedProcess[str]:
        """``tools/install_python.py`` as set-up calls it."""
        wanted, pins = self.directory / "requirements.txt", self.directory / "constraints.txt"
        wanted.write_text(requirements)
        pins.write_text(constraints)
        offline = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
        }
        return subprocess.run(
            [self.python, TOOLS / "install_python.py", "-r", wanted, "-c", pins],
            env=os.environ | offline, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def installed(self) -> dict[str, str]:
        """Versions by name, without pip's own."""
        stems = [
            path.stem for path in self.directory.glob("venv/lib/python3*/site-packages/*.dist-info")
        ]
        found = dict(stem.split("-") for stem in stems)
        return {name: found[name] for name in sorted(found.keys() - {"pip", "setuptools"})}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("env"))
    environment.publish("main_part", "1.0", "Requires-Dist: side_part>=1")
    environment.publish("main_part", "1.1", "Requires-Dist: side_part>=1")
    environment.publish("side_part", "1.0")
    environment.publish("side_part", "2.0", "Requires-Python: >=3.99")
    environment.publish("strict_part", "1.0", "Requires-Dist: side_part>=3")
    environment.publish("strict_part", "0.9")
    environment.publish_unbuildable("side_part", "0.5")
    return environment


@pytest.fixture
def environment(made: Environment) -> Environment:
    if names := list(made.installed()):
        subprocess.run([made.python, "-m", "pip", "uninstall", "-q", "-y", *names], check=True)
    return made


def test_pins_that_can_be_had_are_kept_in_silence(environment: Environment) -> None:
    done = environment.install("main_part>=1\n", "# pins\nmain_part==1.0\nside_part==1.0\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert environment.installed() == {"main_part": "1.0", "side_part": "1.0"}


@pytest.mark.parametrize(
    "version", ["2.0", "5.0", "0.5"], ids=["for another Python", "not on the index", "unbuildable"]
)
def test_a_pin_that_cannot_be_had_is_named_and_the_others_hold(
    environment: Environment, version: str
) -> None:
    done = environment.install("main_part>=1\n", f"main_part==1.0\nside-part=={version}\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"setup: side-part=={version} cannot be had here (Python {PYTHON}); using 1.0\n"
    )
    assert environment.installed() == {"main_part": "1.0", "side_part": "1.0"}


def test_what_was_pinned_to_a_missing_version_gives_way_to_the_ranges(
    environment: Environment,
) -> None:
    done = environment.install("strict_part\n", "strict_part==1.0\nside_part==3.0\n")
    assert done.returncode == 0, done.stderr
    named, loose = done.stderr.splitlines()
    assert named == f"setup: side_part==3.0 cannot be had here (Python {PYTHON}); using none"
    assert loose.endswith("the requirements' ranges decide for all")
    assert environment.installed() == {"strict_part": "0.9"}


def test_requirements_that_cannot_be_met_fail_with_pips_own_words(environment: Environment) -> None:
    done = environment.install("nowhere>=1\n", "main_part==1.0\n")
    assert done.returncode == 1
    assert "No matching distribution found for nowhere" in done.stderr


def test_running_needs_nothing_that_only_tests_need() -> None:
    ours, tests = (
        set(re.findall(r"^[\w-]+", (TOOLS / name).read_text(), re.MULTILINE))
        for name in ("requirements.txt", "requirements-tests.txt")
    )
    project = (ROOT / "pyproject.toml").read_text()
    declared = set(re.findall(r'"([\w-]+)>=[^"]*"', project.partition("[project.scripts]")[0]))
    assert ours == declared - {"scikit-build-core"}
    assert not ours & tests
    for wanted, name in ((ours, "constraints.txt"), (tests, "constraints-tests.txt")):
        pinned = re.findall(r"^([\w.-]+)==", (TOOLS / name).read_text(), re.MULTILINE)
        assert set(map(normalize, wanted)) <= set(map(normalize, pinned))


def normalize(name: str) -> str:
    return name.lower().replace("_", "-")
