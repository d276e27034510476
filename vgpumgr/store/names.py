"""What the files in the state directory are called."""

from __future__ import annotations

STATE_FILE = "state.sqlite"
VGPUS_FILE = "vgpus.json"
