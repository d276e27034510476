"""What a host knows by itself of what its pool's store says: its processes, and its GPUs that take nothing new."""

from __future__ import annotations

from collections.abc import Mapping

from vgpumgr.host.machine import Machine, read_boot_id
from vgpumgr.host.process import ProcessId, is_alive
from vgpumgr.pool.control.records import WantRecord
from vgpumgr.state.store import STATE_FILE
from vgpumgr.state.store import Store as StateStore


def has_ended(want: WantRecord, machine: Machine) -> bool:
    """Whether the process of this machine that wants a lease is gone."""
    process = ProcessId(want.pid or 0, want.start_ticks)
    return want.boot != read_boot_id(machine) or not is_alive(process)


def read_closed(machine: Machine) -> Mapping[str, str]:
    """The GPUs of a machine that take nothing new, by their UUIDs, and why: those that are recorded as drained or as
    unhealthy. Raises StoreError.
    """
    path = machine.state_dir / STATE_FILE
    if not path.exists():
        return {}
    drains = StateStore(path, read_boot_id(machine)).list_drains()
    return {drain.uuid: str(drain) for drain in drains if drain.uuid}
