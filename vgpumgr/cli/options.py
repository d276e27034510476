"""Options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from vgpumgr.cli.declarations import Option
from vgpumgr.cli.output import Format

Output = Annotated[
    Format | None,
    Option("-o", "--output", help="How to print; the default depends on the terminal."),
]
Columns = Annotated[
    str | None, Option("--columns", metavar="A,B", help="Which columns, in which order.")
]
NoHeader = Annotated[bool, Option("--no-header", help="No line with the columns' names.")]
GpuOption = Annotated[
    str | None,
    Option("--gpu", metavar="GPU", help="Index, UUID or unique prefix, bus address, MIG UUID."),
]


class Way(StrEnum):
    """``--backend``."""

    AUTO = "auto"
    FORWARD = "forward"
    PASSTHROUGH = "passthrough"
    VF = "vf"
    MDEV = "mdev"


class Screen(StrEnum):
    """``--display``."""

    OFF = "off"
    ON = "on"
    BOOT = "boot"


PROFILE_HELP = (
    "What it gets: a MIG profile (1g.10gb), a vGPU type by name or id (A100-4C, nvidia-471), "
    "passthrough (a whole GPU), vf or vf:N (a virtual function; one of N where none is made yet)."
)
BackendOption = Annotated[
    Way,
    Option(
        "--backend",
        help="How it reaches the VM; auto says why: forward for MIG profiles, "
        "else what the profile needs.",
    ),
]
DisplayOption = Annotated[
    Screen,
    Option(
        "--display",
        help="Of a mediated device: none, a screen, or the screen from the firmware on (ramfb).",
    ),
]
