"""``vgpumgr vf enable``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.pci_text import DryRun, FunctionArgument, Yes, change
from vgpumgr.cli.session import get_session
from vgpumgr.errors import UsageError


def command(
    context: Context,
    function: FunctionArgument,
    count: Annotated[
        int | None, Option("-n", "--count", metavar="N", help="How many; the default is all.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        Option(
            "--quota", metavar="NAME=N", help="A quota of each, where the driver has it (Intel)."
        ),
    ] = None,
    persist: Annotated[bool, Option("--persist", help="Again at every boot.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Make virtual functions of a device.

    The host's drivers do not get them. Another number than there is goes through none, and only while
    none is in use. On NVIDIA boards this is sriov-manage's work, which makes all of them.

    \b
    Examples:
      vgpumgr vf enable 3a:00.0 --count 4
      vgpumgr vf enable 3a:00.0 -n 2 --quota exec_quantum_ms=20 --persist
    """
    asked = {
        "selector": function,
        "count": count,
        "persist": persist,
        "quotas": _parse_quotas(quota or ()),
    }
    session = get_session(context)
    change(session, "enable_vfs", asked, dry_run=dry_run, output=output, yes=yes)


def _parse_quotas(words: Sequence[str]) -> dict[str, int]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value.isdecimal():
            raise UsageError(f'"{word}" is no quota', hint="--quota exec_quantum_ms=20")
        found[name] = int(value)
    return found
