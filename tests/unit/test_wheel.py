"""The wheel: what is in it, and that it works where there is no source tree."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpumgr import __version__

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.native, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a user's pip does, in an environment of its own (from PyPI)."""
    target = tmp_path_factory.mktemp("wheel")
    # compiled in half of the time: what is fast, hardened and without a warning is seen in the usual build
    words = ("build-type=Debug", "define.CMAKE_C_FLAGS_DEBUG=-O0 -w")
    plain = [f"-Ccmake.{word}" for word in words]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *plain]
    command += ["-w", str(target), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (path,) = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in a fresh environment; what it depends on comes from ours."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=True)
    install = [place / "bin/python", "-m", "pip", "install", "-q", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return place / "bin" / "vgpumgr"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of ours leads back to the source tree."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    return env | {"VGPUMGR_SIM_ROOT": str(tmp_path / "sim")}


@pytest.fixture
def machine(installed: Path, environment: dict[str, str]) -> Iterator[str]:
    run(installed, environment, "sim", "start", "a30-pair")
    yield "a30-pair"
    run(installed, environment, "sim", "stop", "a30-pair")


def run(command: Path, environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [command, *words], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_tests_sources_or_headers_of_others_are_in_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    unwanted = (
        "/test/",
        "/bench/",
        "/bin/null",
        "ptxrun",
        "/native/",
        "CMakeLists",
        "cuda.h",
        "nvml.h",
    )
    assert [name for name in names if any(word in name for word in unwanted)] == []
    assert "vgpumgr/_lib/bin/vgpumgr-worker" in names
    assert (
        zipfile.ZipFile(wheel).read("vgpumgr/_lib/channels.version") == f"{__version__}\n".encode()
    )
    assert "vgpumgr/_lib/guest/libcudart.so.13" in names
    page = "vgpumgr/_web/index.html"
    assert (page in names) == (ROOT / page).exists()


def test_a_simulated_machine_without_the_source_tree(
    installed: Path, environment: dict[str, str], machine: str, tmp_path: Path
) -> None:
    where = "import vgpumgr; print(vgpumgr.__file__)"
    python = installed.with_name("python")
    found = subprocess.check_output([python, "-c", where], env=environment, cwd="/", text=True)
    assert str(ROOT) not in found
    gpus = json.loads(
        run(installed, environment, "--machine", machine, "gpu", "list", "-o", "json")
    )
    assert [gpu["model"] for gpu in gpus["gpus"]] == ["NVIDIA A30"] * 2
    archive = tmp_path / "guest.tar.gz"
    run(installed, environment, "virtio", "guest-package", "--out", str(archive))
    with tarfile.open(archive) as package:
        assert "vgpumgr-guest/usr/sbin/vgpumgr-guestd" in package.getnames()
