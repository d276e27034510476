"""Guests with older and newer packages on the real worker: what both have alike works, the rest is refused by name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.calls_rig import NULL_DRIVER, PROGRAM_S, WORKER, start_python
from tests.unit.newer_package import VERSION, NewerPackage, build_newer_package
from tests.unit.transport_rig import Rig
from vgpumgr import __version__
from vgpumgr.virtio.channel_status import describe
from vgpumgr.virtio.codegen.__main__ import load

pytestmark = pytest.mark.native

#: allocates, fills, copies and compares; then what differs between the versions, twice
PROGRAM = """
context()
at = memory(4096)
ok(cu.cuMemsetD32_v2(at, 7, c_size_t(1024)))
back = (c_uint * 1024)()
ok(cu.cuMemcpyDtoH_v2(back, at, c_size_t(4096)))
assert set(back) == {7}
pitched, pitch = c_uint64(), c_size_t()
for _ in range(2):
    print(
        cu.cuMemAllocPitch_v2(byref(pitched), byref(pitch), c_size_t(100), c_size_t(3), 4),
        cu.cuMemsetD2D16_v2(at, c_size_t(64), 5, c_size_t(8), c_size_t(4)),
        cu.cuDeviceGetNvSciSyncAttributes(None, 0, 0),
    )
    ok(cu.cuMemsetD32_v2(at, 9, c_size_t(1024)))
    ok(cu.cuMemcpyDtoH_v2(back, at, c_size_t(4096)))
    assert set(back) == {9}
ok(cu.cuMemFree_v2(at))
"""
UNSUPPORTED = 801
REFUSED = "vgpumgr: {} is not supported: the host's worker does not have it as these guest libraries ({}) do"
ABSENT = "vgpumgr: {} is not supported over a forwarded GPU"
CHANGED, GONE, COME = (
    "memory_allocate_pitch",
    "cuMemsetD2D16Async",
    "cuDeviceGetNvSciSyncAttributes",
)
#: the function above what has gone
CALLED = "cuMemsetD2D16_v2"
COUNT = len(load().operations)


@pytest.fixture(scope="module")
def newer() -> Iterator[NewerPackage]:
    with tempfile.TemporaryDirectory(prefix="vgn") as directory:
        Path(directory).chmod(0o755)  # workers have a user of their own
        yield build_newer_package(Path(directory))


def _run(rig: Rig, library: Path | None) -> tuple[list[list[int]], set[str]]:
    """What the calls returned, and the lines on standard error."""
    with pytest.MonkeyPatch.context() as patch:
        if library:
            patch.setenv("VGPUMGR_TEST_LIB", str(library))
        process = start_python(rig, PROGRAM)
        out, errors = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 0, errors
    lines = errors.splitlines()
    assert len(lines) == len(set(lines)), "each is said once"
    return [[int(word) for word in line.split()] for line in out.splitlines()], set(lines)


def _worker(path: Path, transport: str) -> Rig:
    return Rig(transport, worker=path, worker_args=("--cuda", str(NULL_DRIVER)))


@pytest.mark.parametrize("transport", ["ring", "private", "serial"])
def test_an_older_guest_works_with_a_newer_worker(newer: NewerPackage, transport: str) -> None:
    with _worker(newer.worker, transport) as rig:
        results, said = _run(rig, None)
        assert results == [[UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]] * 2
        assert said == {
            REFUSED.format(CHANGED, __version__),
            REFUSED.format(GONE, __version__),
            ABSENT.format(COME),
        }
        status = rig.status()
        described = describe("x", status)
        assert f"older than the host's {VERSION}: 2 of its {COUNT} oper" in str(described.problem)
        assert described.refused == {CHANGED: 1, GONE: 1, COME: 2}
        assert status.violations.count == 0


@pytest.mark.parametrize("transport", ["ring", "private", "serial"])
def test_a_newer_guest_works_with_an_older_worker(newer: NewerPackage, transport: str) -> None:
    with _worker(WORKER, transport) as rig:
        results, said = _run(rig, newer.library)
        assert results == [[UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]] * 2
        assert said == {
            REFUSED.format(CHANGED, VERSION),
            ABSENT.format(CALLED),
            REFUSED.format("added", VERSION),
        }
        status = rig.status()
        described = describe("x", status)
        told = f"newer than the host's {__version__}: 2 of its {COUNT} oper"
        assert told in str(described.problem)
        assert described.refused == {CHANGED: 1, CALLED: 2, "added": 1}
        assert status.violations.count == 0


def test_sides_of_one_version_have_nothing_to_compare(newer: NewerPackage) -> None:
    with _worker(newer.worker, "ring") as rig:
        # the agent, the older one, is compared soon after its hello
        before = rig.wait_status(lambda s: s.guest.mismatches == 1, "compared").guest.mismatches
        assert _run(rig, newer.library) == ([[0, UNSUPPORTED, 0]] * 2, {ABSENT.format(CALLED)})
        assert rig.status().guest.mismatches == before
    with _worker(WORKER, "ring") as rig:
        assert _run(rig, None) == ([[0, 0, UNSUPPORTED]] * 2, {ABSENT.format(COME)})
        assert rig.status().guest.mismatches == 0
