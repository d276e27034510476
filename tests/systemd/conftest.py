"""What the tests in containers share: our packages, made once, and a container for each file of tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.container import ROOT, Container, boot, unavailable_reason


# before pytest-xdist, which writes the groups into the ids
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in one process, which makes the packages once."""
    for item in items:
        if "tests/systemd/" in item.nodeid:
            item.add_marker(pytest.mark.native)
            item.add_marker(pytest.mark.xdist_group("systemd"))


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our packages."""
    target = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "tools.package", str(target)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=900)
    return target


@pytest.fixture(scope="module")
def bare() -> Iterator[Container]:
    """A Debian without our packages."""
    if reason := unavailable_reason():
        pytest.skip(reason)
    with boot() as container:
        yield container


@pytest.fixture(scope="module")
def installed(bare: Container, dist: Path) -> Container:
    """The same with our packages, as dpkg leaves it."""
    for file in find_packages(dist):
        (bare.out / file.name).write_bytes(file.read_bytes())
    bare.check("dpkg -i /out/*.deb")
    return bare


def find_packages(dist: Path) -> list[Path]:
    """The two of a host."""
    return [next(dist.glob(f"{name}_*.deb")) for name in ("vgpumgr", "vgpumgr-host")]
