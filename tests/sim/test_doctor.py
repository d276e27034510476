"""``vgpumgr doctor`` on simulated machines: real helpers, the machine's own files and libvirt's test driver."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.sim_machine import running
from vgpumgr.cli.backend import open_backend
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.sim import fuse
from vgpumgr.sim.lifecycle import boot_file_system

Golden = Callable[[str, str], None]
pytestmark = pytest.mark.native


@contextmanager
def booted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose files are a snapshot, which is all that checks need."""
    monkeypatch.setattr(fuse, "available", lambda: "a snapshot is enough")
    with running(name, tmp_path / "sim", monkeypatch) as directory:
        boot_file_system(name, directory)
        yield


def run(*words: str) -> tuple[int, str]:
    """One command on the machine of the environment."""
    out, err, options = io.StringIO(), io.StringIO(), GlobalOptions()
    streams = Streams(options, out, err, {})
    session = Session(options, streams, lambda opts: open_backend(opts, lambda _: None))
    code = main(["doctor", *words], session)
    assert err.getvalue() == ""
    return code, out.getvalue()


@pytest.fixture
def libvirt(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("libvirt")
    monkeypatch.setenv("VGPUMGR_LIBVIRT_URI", "test:///default")


def read_results(out: str) -> dict[str, Any]:
    return {row["id"]: row for row in json.loads(out)["checks"]}


@pytest.mark.usefixtures("libvirt")
def test_the_output_on_a_workstation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    with booted("workstation", tmp_path, monkeypatch):
        code, out = run()
    assert code == 0, out
    # versions and limits are those of the host that runs the test
    out = re.sub(r"(libvirt|hypervisor) \d+\.\d+\.\d+", r"\1 VERSION", out)
    out = re.sub(r"(descriptors +)\d+", r"\1NUMBER", out)
    golden("doctor-workstation.txt", out)


@pytest.mark.usefixtures("libvirt")
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vgpu-t4", {"vgpu-framework": "ok", "nvidia-driver": "ok"}),
        ("vgpu-a100", {"vgpu-framework": "warning", "nvidia-driver": "ok", "mig": "ok"}),
        ("intel-flex", {"sriov": "ok", "nvml": "skipped", "gpus": "ok"}),
        ("workstation", {"iommu-groups": "warning", "gpu-users": "warning", "mig": "skipped"}),
        ("dgx-a100", {"sriov": "ok", "mig": "ok", "driver-version": "ok", "iommu": "ok"}),
    ],
)
def test_each_kind_of_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: dict[str, str]
) -> None:
    with booted(name, tmp_path, monkeypatch):
        _, out = run("-o", "json")
    results = read_results(out)
    assert {id_: results[id_]["result"] for id_ in found} == found, results


def test_a_libvirt_that_does_not_answer_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = f"qemu:///system?socket={tmp_path}/nothing"
    monkeypatch.setenv("VGPUMGR_LIBVIRT_URI", nowhere)
    with booted("a30-pair", tmp_path, monkeypatch):
        code, out = run("-o", "json")
    results = read_results(out)
    assert code == 3
    assert results["libvirt"]["result"] == "problem"
    assert results["libvirt"]["evidence"]
    assert results["nvml"]["result"] == "ok"
