"""``vgpumgr virtio list``."""

from __future__ import annotations

from vgpumgr.cli.declarations import Context
from vgpumgr.cli.gpu_text import or_absent
from vgpumgr.cli.options import Columns, NoHeader, Output
from vgpumgr.cli.output import Column, Layout, print_list
from vgpumgr.cli.session import Session, get_session
from vgpumgr.cli.vm_text import note_hidden, tell_lane_users, tell_worker
from vgpumgr.model.sizes import format_size


def _size(name: str, key: str) -> Column:
    return Column(name, lambda c: format_size(c[key]), lambda c: c[key], right=True, spare=True)


COLUMNS = (
    Column("vm", lambda c: str(c["vm"])),
    Column("id", lambda c: str(c["id"]), wide=True),
    Column("profile", lambda c: str(c["profile"]), spare=True),
    Column("device", lambda c: or_absent(c["device"]), wide=True),
    Column("transport", lambda c: or_absent(c["transport"])),
    Column("worker", tell_worker),
    Column("pid", lambda c: or_absent(c["worker_pid"]), lambda c: c["worker_pid"], right=True),
    Column("lanes", lambda c: str(len(c["lanes"])), right=True),
    Column("used_by", tell_lane_users, wraps=True),
    _size("memory", "memory_bytes"),
    Column("calls", lambda c: str(c["calls"]), right=True, spare=True),
    _size("in", "bytes_in"),
    _size("out", "bytes_out"),
    Column("restarts", lambda c: str(c["worker_restarts"]), wide=True, right=True),
)


def command(
    context: Context,
    output: Output = None,
    columns: Columns = None,
    no_header: NoHeader = False,
) -> None:
    """List the channels: worker, transport, and the guest's processes on it.

    \b
    Examples:
      vgpumgr virtio list
      vgpumgr virtio list -o csv --columns vm,calls,in,out
    """
    run(get_session(context), Layout(output, columns, no_header))


def run(session: Session, layout: Layout) -> None:
    """Asks for the channels and prints them."""
    document = session.call("list_channels")
    rows = document["channels"]
    print_list(session.streams, document, rows, COLUMNS, layout, name=lambda c: str(c["vm"]))
    note_hidden(session.streams, rows, "virtio list")
