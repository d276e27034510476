"""``vgpumgr vf enable``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.options import Output
from vgpumgr.cli.pci_text import DryRun, FunctionArgument, Yes, change
from vgpumgr.cli.session import get_session
from vgpumgr.errors import UsageError
from vgpumgr.model.sizes import parse_size


def command(
    context: Context,
    function: FunctionArgument,
    count: Annotated[
        int | None, Option("-n", "--count", metavar="N", help="How many; the default is all.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        Option(
            "--quota",
            metavar="NAME=VALUE",
            help="A quota of each, where the driver has it (Intel): a number, a size, or a word.",
        ),
    ] = None,
    persist: Annotated[bool, Option("--persist", help="Again at every boot.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Make virtual functions of a device.

    The host's drivers do not get them. Another number than there is goes through none, and only while
    none is in use. On NVIDIA boards this is sriov-manage's work, which makes all of them; GPUs that
    AMD's GIM driver has go from one number to another by AMD's host library.

    \b
    Examples:
      vgpumgr vf enable 3a:00.0 --count 4
      vgpumgr vf enable 3a:00.0 -n 2 --quota exec_quantum_ms=20 --persist
      vgpumgr vf enable 3a:00.0 -n 2 --quota vram_quota=4GiB --quota sched_priority=high
    """
    asked = {
        "selector": function,
        "count": count,
        "persist": persist,
        "quotas": _parse_quotas(quota or ()),
    }
    session = get_session(context)
    change(session, "enable_vfs", asked, dry_run=dry_run, output=output, yes=yes)


def _parse_quotas(words: Sequence[str]) -> dict[str, int | str]:
    return dict(_parse_quota(word) for word in words)


def _parse_quota(text: str) -> tuple[str, int | str]:
    """``NAME=N``, a size such as ``4GiB``, or a word such as ``high``."""
    name, _, value = text.partition("=")
    if name and value.isdecimal():
        return name, int(value)
    if name and value.isascii() and value.isalpha() and value.islower():
        return name, value
    with contextlib.suppress(ValueError):
        if name and value:
            return name, parse_size(value)
    raise UsageError(
        f'"{text}" is no quota', hint="--quota exec_quantum_ms=20 --quota vram_quota=4GiB"
    )
