"""Thousands of guest processes, a third of them killed at chosen moments: nothing of them is left on the host."""

#: of one life; not in ``program``, for that loads the driver when it is imported
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
