"""``vgpumgr doctor`` on simulated machines: real helpers, the machine's own files and libvirt's test driver."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sim.test_overviews import started
from tests.support.sim_machine import running
from vgpumgr.cli.backend import open_backend
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session, Streams
from vgpumgr.sim import fuse
from vgpumgr.sim.lifecycle import boot_file_system
from vgpumgr.virtio import trial

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
def test_the_output_on_a_workstation(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setattr(trial, "DEADLINE_S", 60.0)  # the host that runs the test may be loaded
    monkeypatch.setattr(trial, "_ANSWER_S", 60.0)
    # a channel's sockets have short paths
    with (
        tempfile.TemporaryDirectory(prefix="vgpumgr-") as short,
        booted("workstation", Path(short), monkeypatch),
    ):
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


KILLED = """
import os, signal, sys
from vgpumgr.__main__ import main
from vgpumgr.steps.vgpu import DefineVgpu
DefineVgpu.do = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main())
"""


def test_fix_recovers_what_a_killed_command_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path))
    with started("vgpu-t4", tmp_path, "test:///default") as host:
        words = ["--machine", "vgpu-t4", "mdev", "create", "GRID T4-2Q", "--define", "--gpu", "0"]
        killed = subprocess.run([sys.executable, "-c", KILLED, *words], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert "was interrupted" in host.run("doctor", "--check", "leftovers")
        planned = host.run("doctor", "--fix", "--dry-run", "--check", "leftovers")
        assert planned == "leftovers: planned\n  run vgpumgr --machine vgpu-t4 recover\n"
        assert host.run("doctor", "--check", "leftovers", "--strict", code=3)
        done = host.run("doctor", "--fix", "--yes", "--check", "leftovers", "--strict")
        assert done == "leftovers: done\n  run vgpumgr --machine vgpu-t4 recover\n"
        assert host.run("mdev", "list", "-o", "name") == ""
        # what is of the real host alone is not touched from a simulated machine
        host.run("sim", "fault", "vgpu-t4", "0", "--ecc-double", "1")
        told = host.run("doctor", "--fix", "--yes", code=3)
        assert "gpu-health: not done by --fix: no new slice on GPU 0: unhealthy" in told
        assert "done\n" not in told
