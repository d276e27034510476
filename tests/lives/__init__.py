"""Thousands of guest processes, a third of them killed at chosen moments: nothing of them is left on the host."""

#: of one life; not in ``program``, which loads the driver into whoever imports it
PHASES = (
    "connect",
    "context",
    "memory",
    "upload",
    "module",
    "launch",
    "wait",
    "host",
    "download",
    "end",
)
