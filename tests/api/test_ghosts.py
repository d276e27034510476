"""The daemon of a simulated machine: vGPUs that are gone and still held, and recovery, over the API."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import ROOT
from tests.support.vgpu_machine import MDEVS, VgpuMachine, vgpu_machine
from vgpumgr.cli.http import HttpBackend, connect_unix
from vgpumgr.errors import VgpuBusyError, VgpumgrError, VgpuTakenError

pytestmark = pytest.mark.native
TYPE = "GRID T4-2A"
PATIENCE_S = 240


@contextmanager
def serving(machine: VgpuMachine) -> Iterator[HttpBackend]:
    """The genuine daemon, until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vgpumgr", "--machine", machine.name, "daemon"],
        cwd=ROOT,
        env={**os.environ, "VGPUMGR_SIM_ROOT": str(machine.directory.parent)},
        stdin=subprocess.DEVNULL,
    )
    client = HttpBackend(partial(connect_unix, str(machine.directory / "host/run/vgpumgr.sock")))
    try:
        await_that(lambda: answers(client, process), "the daemon answers")
        yield client
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)


def answers(client: HttpBackend, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the daemon ended"
    with suppress(VgpumgrError):
        return bool(client.request("GET", "/1.0").document())
    return False


def await_that(happens: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


@pytest.fixture
def t4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VgpuMachine]:
    """Mediated devices on the GPUs themselves. Paths of sockets are short."""
    directory = Path(tmp_path_factory.mktemp("g"))
    with vgpu_machine("vgpu-t4", directory) as machine:
        yield machine


def count_free(client: HttpBackend) -> int:
    rows: list[dict[str, Any]] = client.call("list_vgpu_types", selector="0")["types"]
    return next(int(row["free"]) for row in rows if row["name"] == TYPE)


def test_a_ghost_over_the_api(t4: VgpuMachine) -> None:
    with serving(t4) as client:
        before = count_free(client)
        made = client.call("create_vgpu", type=TYPE, gpu="0", define=True)["vgpu"]["uuid"]
        t4.write(".sim/hold", f"{made} vm7")
        with pytest.raises(VgpuBusyError) as held:
            client.call("delete_vgpu", vgpu=made)
        assert any("vm7" in who for who in held.value.held_by)
        # somebody else removes it all the same, and sleeps in the kernel
        remove = threading.Thread(target=t4.write, args=(f"{MDEVS}/{made}/remove", "1"))
        remove.start()
        try:
            await_that(lambda: made not in t4.list_uuids(), "the kernel shows it no more")
            (ghost,) = client.call("list_vgpus")["vgpus"]
            assert (ghost["uuid"], ghost["state"]) == (made, "missing")
            assert count_free(client) == before - 1, "its room is not given away"
            with pytest.raises(VgpumgrError) as refused:
                client.call("create_vgpu", type=TYPE, gpu="0", uuid=made)
            assert isinstance(refused.value, VgpuTakenError)
            for told in (client.call("status"), client.call("recover")):
                (drift,) = told["drift"]
                assert (drift["kind"], drift["subject"]) == ("vgpu-gone", made)
                assert f"vgpumgr mdev start {made}" in drift["hint"]
        finally:
            t4.write(".sim/release", made)
            remove.join(PATIENCE_S)
        assert not remove.is_alive()
        client.call("start_vgpu", vgpu=made)
        assert t4.list_uuids() == [made]
        assert client.call("recover") == {
            "schema": "vgpumgr/v1", "dry_run": False, "actions": [], "drift": [],
        }  # fmt: skip
        client.call("delete_vgpu", vgpu=made)
        assert client.call("list_vgpus")["vgpus"] == []
        assert count_free(client) == before
