"""Descriptors of tensors over the channel: as on the driver itself, and with few waits however many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import cuda_harness
from tests.unit.calls_rig import run_program, run_python, simulated_channel

pytestmark = [pytest.mark.native, pytest.mark.cuda]


def test_descriptors_of_tensors_on_a_device_that_has_them(tmp_path: Path) -> None:
    program = cuda_harness.compile_program("tensor_maps", tmp_path)
    with simulated_channel("ring", tmp_path, machine="hgx-h100") as rig:
        done = run_program(rig, str(program), "descriptors")
        assert (done.returncode, done.stderr) == (0, ""), (done.stderr, rig.status())
        assert rig.status().violations.count == 0


MANY = """
from ctypes import c_uint32
ctx = context(); p = memory(1 << 20).value; made = (c_uint64 * 32)(); at = (ctypes.addressof(made) + 63) // 64 * 64
sizes, strides, box, steps = (c_uint64 * 2)(64, 32), (c_uint64 * 1)(128), (c_uint32 * 2)(64, 8), (c_uint32 * 2)(1, 1)
def encode(address):
    ok(cu.cuTensorMapEncodeTiled(c_void_p(at), 6, 2, c_void_p(address), sizes, strides, box, steps, 0, 3, 0, 0))
    return ctypes.string_at(at, 128)
def replace(address):
    ok(cu.cuTensorMapReplaceAddress(c_void_p(at), c_void_p(address))); return ctypes.string_at(at, 128)
def waited(call):
    before = waits(); call(); return waits() - before
kernel = function(module(PTX[:-1] + b".visible .entry kernel() { ret; }\\n"))
def occupancy(threads):
    n = c_int(); ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(n), kernel, threads, c_size_t(0)))
count = 3000; alike = [encode(p + 16 * i) for i in range(count)]; assert len(set(alike)) == count
assert alike == [encode(p + 16 * i) for i in range(count)]             # also those that were made anew
assert [replace(p + 16 * i) for i in range(count)] == alike
# the latest are known, and so is what else is asked once
last = encode(p + 16 * (count - 1)); assert waited(lambda: encode(p + 16 * (count - 1))) == 0
replace(p); ctypes.memmove(at, last, 128); assert waited(lambda: replace(p)) == 0
for threads in range(32, 1024, 32): occupancy(threads)
assert waited(lambda: [occupancy(threads) for threads in range(32, 1024, 32)]) == 0
"""


def test_many_descriptors_keep_no_other_answer_from_being_known(tmp_path: Path) -> None:
    """A descriptor has an address in it: a program asks for any number of them."""
    with simulated_channel("ring", tmp_path, machine="hgx-h100") as rig:
        run_python(rig, MANY)
        assert rig.status().violations.count == 0
