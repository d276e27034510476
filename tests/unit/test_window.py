"""Copies to the host go to the window that is registered with the driver; short waits take no thread of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.calls_rig import PROGRAM_S, simulated_channel, start_python
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: a guest that does one thing for each line that it gets
STEPS = """
import sys, time
ctx = c_void_p(); ok(cu.cuInit(0)); ok(cu.cuCtxCreate_v2(byref(ctx), 0, 0))
stream = c_void_p(); ok(cu.cuStreamCreate(byref(stream), 1))
p = memory(1 << 20); event = c_void_p(); ok(cu.cuEventCreate(byref(event), 0))
def back(n, value):
    host = ctypes.create_string_buffer(n)
    ok(cu.cuMemsetD8Async(p, value, c_size_t(n), stream)); ok(cu.cuMemcpyDtoHAsync_v2(host, p, c_size_t(n), stream))
    assert host.raw == bytes([value]) * n
def copies():
    for n in (1, 4, 4095, 1 << 16, 1 << 20, 7): back(n, 1 + n % 200)
def work():
    ok(cu.cuMemsetD8Async(p, 1, c_size_t(4), stream)); ok(cu.cuEventRecord(event, stream)); time.sleep(0.5)
def waits():
    for _ in range(50): ok(cu.cuStreamSynchronize(stream)); ok(cu.cuEventSynchronize(event))
def again():
    global p, stream
    ok(cu.cuCtxDestroy_v2(ctx)); ok(cu.cuCtxCreate_v2(byref(ctx), 0, 0))
    ok(cu.cuStreamCreate(byref(stream), 1)); p = memory(1 << 20)
print('ready', flush=True)
for line in sys.stdin:
    globals()[line.strip()](); print('done', flush=True)
"""


class Guest:
    """The process, and what the host sees of its session."""

    def __init__(self, rig: Rig, process: subprocess.Popen[str]) -> None:
        self.rig, self.process = rig, process

    def do(self, step: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(step + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    @property
    def session(self) -> Path:
        (pid,) = (lane.session_pid for lane in self.rig.status().lanes if lane.session_pid)
        return Path(f"/proc/{pid}")

    def count_mappings(self) -> int:
        """How often the channel's memory, or a part of it, is mapped."""
        return sum("/memfd:vgpumgr" in line for line in (self.session / "maps").open())

    def count_threads(self) -> int:
        return len(list((self.session / "task").iterdir()))


@contextmanager
def guest(transport: str, root: Path) -> Iterator[Guest]:
    with simulated_channel(transport, root) as rig:
        process = start_python(rig, STEPS)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        yield Guest(rig, process)
        out, errors = process.communicate(timeout=PROGRAM_S)
        assert (process.returncode, out, errors) == (0, "", "")
        assert rig.status().violations.count == 0


@pytest.mark.parametrize("transport", ["ring", "private"])
def test_the_window_is_registered_and_again_in_another_context(
    transport: str, tmp_path: Path
) -> None:
    with guest(transport, tmp_path) as one:
        before = one.count_mappings()
        one.do("copies")
        assert one.count_mappings() == before + 1
        one.do("again")  # the registration has gone with the context
        one.do("copies")
        one.do("copies")
        assert one.count_mappings() == before + 1


def test_there_is_no_window_over_the_serial_stream(tmp_path: Path) -> None:
    with guest("serial", tmp_path) as one:
        before = one.count_mappings()
        one.do("copies")
        assert one.count_mappings() == before


def test_what_has_come_is_waited_for_by_no_other_thread(tmp_path: Path) -> None:
    with guest("ring", tmp_path) as one:
        one.do("work")  # the driver has its threads by now, and nothing is left to do
        before = one.count_threads()
        one.do("waits")
        assert one.count_threads() == before
