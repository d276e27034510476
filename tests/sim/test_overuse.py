"""The limit device-memory against sessions that skip their charges: what the driver says of them is compared."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import AbstractContextManager

import pytest

from tests.sim.test_run import PYTHON, RUN, daemon
from tests.support.overwrite import overwriting
from tests.support.run_host import PATIENCE_S, Host, read_line, wait_for

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone can write as a session can"),
]

#: struct vg_limit_table begins with the limit, which `virtio set` changes
LIMIT_BYTES = 8
#: docs/limits.md
WITHIN_S = 10.0
LIMITED = (*RUN, "--limit", "device-memory=256MiB")
#: takes 32 MiB for each line that it reads, and says what the driver answered; 128 MiB are the context's
HOARD = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cu.cuInit(0) == 0
assert cu.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
print("ready", flush=True)
for _ in sys.stdin:
    print(cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(32 << 20)), flush=True)
"""


def take(process: subprocess.Popen[str]) -> int:
    """What the driver answers to 32 MiB more."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return int(read_line(process))


def forgetting(worker: int) -> AbstractContextManager[None]:
    """Writes zeros over all charges, and a larger limit, again and again, as a session can."""
    return overwriting(worker, "vgpumgr-limits", (1 << 62).to_bytes(LIMIT_BYTES, "little"))


def show(host: Host) -> dict[str, object]:
    channel: dict[str, object] = host.read("virtio", "list")["channels"][0]
    return channel


def read_limit(host: Host) -> dict[str, object]:
    limits = show(host)["limits"]
    assert isinstance(limits, list)
    found: dict[str, object] = next(x for x in limits if x["key"] == "device-memory")
    return found


def test_a_session_that_skips_its_charges_is_ended_and_named(host: Host) -> None:
    with daemon(host):
        process = host.start(*LIMITED, *PYTHON, HOARD)
        assert read_line(process) == "ready"
        worker = show(host)["worker_pid"]
        assert isinstance(worker, int)
        with forgetting(worker):
            # 2 GiB: the limit is 256 MiB, and 1 GiB is a driver's own
            taken, answer, end_s = 0, 0, time.monotonic() + PATIENCE_S
            # 2: a charge that was not forgotten in time; another answer: it is ended already
            while taken < 64 and answer in (0, 2):
                answer = take(process)
                taken += answer == 0
                assert time.monotonic() < end_s, (taken, answer)
            begin_s = time.monotonic()
            wait_for(lambda: show(host)["sessions"]["memory"], "it is ended")  # type: ignore[index]
            took_s = time.monotonic() - begin_s
        assert took_s < WITHIN_S
        assert take(process) != 0
        text = host.call("virtio", "show", str(show(host)["id"])).stdout
        assert "ended for device memory that they did not count" in text
        assert "256 MiB is the limit" in text
        assert "were they taken over?" in host.call("status", code=None).stdout
        metrics = host.call("metrics").stdout
        assert 'cause="device-memory"' in metrics
        assert "device-memory" in (host.root / "dgx-a100/host/state/audit.jsonl").read_text()
        process.communicate(timeout=PATIENCE_S)


def test_a_session_within_its_limit_is_never_ended(host: Host) -> None:
    with daemon(host):
        first, second = (host.start(*LIMITED, *PYTHON, HOARD) for _ in range(2))
        for process in (first, second):
            assert read_line(process) == "ready"
            assert [take(process) for _ in range(6)] == [0, 0, 0, 0, 2, 2]
        wait_for(lambda: read_limit(host)["driver_used"] is not None, "it is compared")
        time.sleep(WITHIN_S)
        assert read_limit(host)["unchecked"] is None
        for process in (first, second):
            assert take(process) == 2
            out, errors = process.communicate(timeout=PATIENCE_S)
            assert (out, errors, process.returncode) == ("", "", 0)


def test_without_a_daemon_it_is_said_that_the_sessions_alone_hold_it(host: Host) -> None:
    process = host.start(*LIMITED, *PYTHON, HOARD)
    assert read_line(process) == "ready"
    assert read_limit(host)["unchecked"] == "no daemon compares it with the driver's figures"
    text = host.call("virtio", "show", str(show(host)["id"])).stdout
    assert "held by the sessions alone: no daemon" in text
    process.communicate(timeout=PATIENCE_S)
