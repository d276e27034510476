"""cuFFT: what of it the guest has, as ``spec/cufft.yaml`` says; nothing of it is generated."""

from __future__ import annotations

from pathlib import Path

import yaml


def implemented(path: Path) -> set[str]:
    """The names that the guest has more than a refusal of."""
    hand: str = yaml.safe_load(path.read_text(encoding="utf-8"))["hand"]
    return {f"cufft{name}" for name in hand.split()}
