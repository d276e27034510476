"""VGPUMGR_TRACE in the guest: which calls of a program wait for the host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.unit.calls_rig import PROGRAM_S, null_channel, start_python
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: posted work, waits of both kinds, a cached answer that is asked for twice, copies in both directions
PROGRAM = """
context()
at, data = memory(1 << 20), ctypes.create_string_buffer(1 << 20)
before = waits()
for _ in range(2):
    f = function(module())
launch(f)
ok(cu.cuMemcpyHtoD_v2(at, data, c_size_t(1 << 20)))
ok(cu.cuMemcpyDtoH_v2(data, at, c_size_t(1 << 20)))
ok(cu.cuCtxSynchronize())
free, total = c_size_t(), c_size_t()
ok(cu.cuMemGetInfo_v2(byref(free), byref(total)))
ok(cu.cuMemFree_v2(at))
print(before, waits())
"""


@pytest.fixture(scope="module", params=["ring", "private", "serial"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with null_channel(request.param) as found:
        yield found


def run(rig: Rig, trace: str | None) -> tuple[list[int], str]:
    """Waits before and after the program's middle, by the counter; standard error."""
    with pytest.MonkeyPatch.context() as patch:
        if trace is not None:
            patch.setenv("VGPUMGR_TRACE", trace)
        program = start_python(rig, PROGRAM)
        out, errors = program.communicate(timeout=PROGRAM_S)
    assert program.returncode == 0, errors
    return [int(word) for word in out.split()], errors


def test_each_wait_is_named_once_and_none_is_left_out(rig: Rig) -> None:
    counted, errors = run(rig, "waits")
    lines = errors.splitlines()
    found = [re.fullmatch(r"vgpumgr: wait (\d+): (\w+), \d+\.\d{3} ms", line) for line in lines]
    assert all(found), errors
    assert [int(m[1]) for m in found if m] == list(range(1, len(lines) + 1))
    names = [m[2] for m in found if m]
    # what ends the process may wait, too
    middle = Counter(names[counted[0] : counted[1]])
    assert sum(middle.values()) == counted[1] - counted[0]
    assert middle["module_load"] == 2
    assert middle["copy_to_host"] >= 1  # in pieces
    assert not middle["launch"]
    assert not middle["copy_to_device"]


@pytest.mark.parametrize("trace", [None, ""])
def test_without_it_nothing_is_written(rig: Rig, trace: str | None) -> None:
    assert run(rig, trace)[1] == ""


def test_what_it_cannot_be_is_said(rig: Rig) -> None:
    assert run(rig, "calls")[1] == 'vgpumgr: VGPUMGR_TRACE is "calls": it can be waits\n'
