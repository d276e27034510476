"""The time of a share against sessions that do not wait for its turns: what the driver says of them is compared."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.sim.test_run import daemon
from tests.support.overwrite import overwriting
from tests.support.run_host import (
    MACHINE,
    PATIENCE_S,
    Host,
    end_all,
    read_line,
    started_machine,
    wait_for,
)
from tests.support.shares_rig import TENANT, Load
from tests.unit.transport_rig import children
from vgpumgr.sim import machine as machines
from vgpumgr.virtio.share_time import WINDOW_S

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone can write as a session can"),
]

#: enum vg_turn
OPEN = (1).to_bytes(4, "little")
BUSY = Load(5_000_000)
#: of the GPU's time
PERCENT = 20
SHARE = (
    "run",
    "--name",
    "one",
    "--profile",
    f"share:2GiB,{PERCENT}%",
    "--compute-policy",
    "fixed",
    "--gpu",
    "0",
)


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    """A machine whose kernels take time, with a daemon."""
    with started_machine() as host:
        machines.start_clock(host.root / MACHINE)
        with daemon(host):
            yield host
        end_all(host)


def show(host: Host) -> dict[str, float]:
    share: dict[str, float] = host.read("virtio", "show", "one")["channel"]["share"]
    return share


def read_metric(host: Host, name: str) -> float:
    """The value of its only series."""
    (line,) = [
        line for line in host.call("metrics").stdout.splitlines() if line.startswith(f"{name}{{")
    ]
    return float(line.split()[-1])


def test_work_outside_of_turns_is_named_and_honest_work_is_not(machine: Host) -> None:
    process = machine.start(*SHARE, "--", str(TENANT), *BUSY.words)
    assert read_line(process) == "ready"
    wait_for(lambda: show(machine).get("driver_percent") is not None, "it is compared")
    time.sleep(WINDOW_S)
    honest = show(machine)
    assert (honest["unchecked"], honest["uncharged_s"], honest["uncharged_pid"]) == (None, 0, None)
    # without a busy machine both are 20
    assert honest["driver_percent"] < honest["charged_percent"] + 10
    assert "by the driver's word" in machine.call("virtio", "show", "one").stdout
    worker = machine.read("virtio", "show", "one")["channel"]["worker_pid"]
    with overwriting(worker, "vgpumgr-share", OPEN):
        wait_for(lambda: bool(show(machine)["uncharged_s"]), "it is found")
    found = show(machine)
    assert found["uncharged_s"] > 0
    # nothing is ended for a figure that may be wrong
    assert process.poll() is None
    text = machine.call("virtio", "show", "one").stdout
    assert f"process {found['uncharged_pid']} had most of it" in text
    assert "more than it was charged for" in machine.call("status", code=None).stdout
    audit = (machine.root / MACHINE / "host/state/audit.jsonl").read_text()
    assert '"key":"compute"' in audit.replace(" ", "")
    assert found["uncharged_pid"] in children(worker)
    # a collection is used for some seconds
    wait_for(
        lambda: read_metric(machine, "vgpumgr_channel_share_uncharged_seconds_total") > 0,
        "it counts",
    )
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_in_mig_mode_it_is_said_that_the_sessions_alone_hold_it(machine: Host) -> None:
    words = ("run", "--name", "one", "--profile", "share:2GiB,20%@1g.10gb", "--", str(TENANT))
    process = machine.start(*words, *BUSY.words)
    assert read_line(process) == "ready"
    wait_for(
        lambda: show(machine)["unchecked"] == "NVML has no time of each process here", "it is said"
    )
    assert "held by the sessions alone" in machine.call("virtio", "show", "one").stdout
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
