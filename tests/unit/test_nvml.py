"""What surrounds NVML: names where it gives none, errors that keep its code, and a driver that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.support.boards import make_uuid
from vgpumgr import errors
from vgpumgr.host.helper import Helper, HelperOnDemand, LateRecords
from vgpumgr.host.holders import end_monitors
from vgpumgr.host.machine import Machine
from vgpumgr.host.process import is_alive
from vgpumgr.nvml.calls import derive_name
from vgpumgr.nvml.client import NvmlClient, make_error

MIB = 1 << 20
ROOT = Path(__file__).parents[2]
PATHS = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
#: a helper that is asked nothing
WAITS = "import socket, sys; socket.socket(fileno=int(sys.argv[-1])).recv(1)"


@pytest.mark.parametrize(
    ("enum", "slices", "memory_mib", "device_mib", "name"),
    [
        # memory of each profile and device: transcripts of nvidia-smi mig -lgip
        (0, 1, 4864, 40536, "1g.5gb"),
        (2, 3, 19968, 40536, "3g.20gb"),
        (4, 7, 40192, 40536, "7g.40gb"),
        (0, 1, 9728, 81920, "1g.10gb"),
        (7, 1, 9728, 81920, "1g.10gb+me"),
        (9, 1, 19968, 81920, "1g.20gb"),
        (0, 1, 5952, 24576, "1g.6gb"),
        (8, 2, 11968, 24576, "2g.12gb+me"),
        (14, 2, 48512, 97887, "2g.48gb-me"),
        (15, 1, 24192, 97887, "1g.24gb+me.all"),
        (12, 4, 97280, 97887, "4g.96gb+gfx"),
    ],
)
def test_names_are_derived_as_the_field_does(
    enum: int, slices: int, memory_mib: int, device_mib: int, name: str
) -> None:
    assert str(derive_name(enum, slices, memory_mib * MIB, device_mib * MIB)) == name


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        (3, errors.NvmlNotSupportedError, 7),
        (4, errors.NvmlPermissionError, 4),
        (6, errors.NvmlNotFoundError, 5),
        (9, errors.NvmlMissingError, 7),
        (12, errors.NvmlMissingError, 7),
        (15, errors.GpuLostError, 1),
        (19, errors.NvmlInUseError, 6),
        (23, errors.NvmlInsufficientResourcesError, 6),
        (999, errors.NvmlError, 1),
    ],
)
def test_codes_become_errors_that_keep_them(
    code: int, kind: type[errors.NvmlError], exit_code: int
) -> None:
    error = make_error("cannot do it", {"code": code, "text": "Words", "call": "nvmlX"}, ["p"])
    assert type(error) is kind
    assert error.exit_code == exit_code
    assert error.cause == f"nvmlX: Words (NVML {code})"
    assert error.held_by == ("p",)


def make_machine(tmp_path: Path, libraries: Path) -> Machine:
    variables = {"LD_LIBRARY_PATH": str(libraries)}
    return Machine("x", tmp_path, tmp_path, tmp_path / "run", "test:///default", variables)


def test_a_broken_library_is_as_none(tmp_path: Path) -> None:
    """A file of that name in front of any real one: the test means the same on a host with a driver."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    with (
        NvmlClient(make_machine(tmp_path, tmp_path)) as nvml,
        pytest.raises(errors.NvmlMissingError) as caught,
    ):
        nvml.read_inventory()
    assert caught.value.id == "VG111"
    assert "nvmlInit" in str(caught.value.cause)
    assert "(NVML 12)" in str(caught.value.cause)
    assert "libnvidia-ml.so.1: " in str(caught.value.cause), "what the loader says"
    assert "not installed" not in str(caught.value.why)
    assert "cannot be loaded" in str(caught.value.why)
    assert caught.value.hint


HANGING = """
#include <unistd.h>
int nvmlInitWithFlags(unsigned int flags)
{
	while (access(RELEASE, F_OK))
		usleep(10000);
	return 999;
}
const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "?"; }
"""


@pytest.mark.native
def test_a_hanging_nvml_is_left_behind(tmp_path: Path) -> None:
    """A library whose first call does not return, as when the driver holds a lock for ever."""
    release = tmp_path / "release"
    (tmp_path / "hang.c").write_text(HANGING)
    library = tmp_path / "libnvidia-ml.so.1"
    define = f'-DRELEASE="{release}"'
    source = tmp_path / "hang.c"
    subprocess.run(["gcc", "-shared", "-fPIC", define, "-o", library, source], check=True)
    machine = make_machine(tmp_path, tmp_path)
    with NvmlClient(machine, read_timeout_s=3) as nvml:
        with pytest.raises(errors.HelperLateError) as caught:
            nvml.read_inventory()
        (late,) = LateRecords(machine.run_dir).list_late()
        assert f"process {late.process.pid}" in str(caught.value.cause)
        assert late.what == "read_inventory"
    assert is_alive(late.process)
    release.touch()
    # the next call has a helper of its own
    with NvmlClient(machine) as nvml, pytest.raises(errors.NvmlError) as unknown:
        nvml.read_inventory()
    assert unknown.value.cause == "nvmlInit: Unknown Error (NVML 999)"


def test_a_reader_that_was_ended_for_a_change_of_driver_asks_again(tmp_path: Path) -> None:
    machine = Machine("test", tmp_path, tmp_path / "state", tmp_path / "run", "test:///default")
    argv = [sys.executable, "-m", "tests.support.short_lived", str(tmp_path / "asked")]
    records = LateRecords(machine.run_dir)
    with (
        NvmlClient(machine) as client,
        mock.patch.object(
            HelperOnDemand, "_start", side_effect=lambda: Helper(argv, PATHS, records)
        ),
    ):
        assert client.list_gpu_instances(make_uuid(0)) == ()
    assert (tmp_path / "asked").read_text() == "12"


def test_only_idle_readers_of_ours_are_ended(tmp_path: Path) -> None:
    records = LateRecords(tmp_path)
    reader = [sys.executable, "-c", WAITS, "-m", "vgpumgr.nvml.helper"]
    other = [sys.executable, "-c", WAITS, "-m", "vgpumgr.host.pci_helper"]
    with Helper(reader, PATHS, records) as mine, Helper(other, PATHS, records) as theirs:
        assert mine.is_usable
        end_monitors(records)
        assert not mine.is_usable
        assert theirs.is_usable
