"""Libraries whose functions are all by hand (cuFFT, cuRAND): what of each the guest has, as its description says."""

from __future__ import annotations

from pathlib import Path

import yaml


def implemented(path: Path, prefix: str) -> set[str]:
    """The names that the guest has more than a refusal of."""
    hand: str = yaml.safe_load(path.read_text(encoding="utf-8"))["hand"]
    return {f"{prefix}{name}" for name in hand.split()}
