"""What the kernel's free text says of a vGPU type.

Sources: NVIDIA's vGPU manager (``num_heads=4, frl_config=60, framebuffer=2048M, ...``), i915's GVT-g
(a line for each fact), and the kernel's sample drivers mbochs and mdpy (a sentence).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: longer ones are no sizes, and Python converts only so many digits
_SIZE = re.compile(r"(\d{1,15})\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_PAIR = re.compile(r"([a-z_]+)\s*[=:]\s*([^,\n]+)", re.IGNORECASE)
_PIXELS = re.compile(r"\b(\d{1,6})\s*x\s*(\d{1,6})\b", re.IGNORECASE)
_VIDEO_MEMORY = re.compile(r"(\d{1,15}\s*[KMG]?B)\s+video memory", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Described:
    """What was found; None where nothing is said. Units as in ``VgpuType``."""

    framebuffer_bytes: int | None = None
    heads: int | None = None
    max_instances: int | None = None
    frame_rate_limit: int | None = None
    resolution: tuple[int, int] | None = None


def parse_description(text: str | None) -> Described:
    """Never fails: what cannot be read is not said."""
    if not text:
        return Described()
    pairs = {key.lower(): value.strip() for key, value in _PAIR.findall(text)}
    return Described(
        framebuffer_bytes=_read_memory(pairs, text),
        heads=_number(pairs.get("num_heads")),
        max_instances=_number(pairs.get("max_instance")),
        frame_rate_limit=_number(pairs.get("frl_config")),
        resolution=_read_pixels(pairs.get("max_resolution") or pairs.get("resolution") or text),
    )


def parse_size(text: str) -> int | None:
    """Bytes of ``2048M``, ``4 MB``, ``128MB``; None for anything else."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2].upper()] if match else None


def _read_memory(pairs: dict[str, str], text: str) -> int | None:
    if "framebuffer" in pairs:
        return parse_size(pairs["framebuffer"])
    if "high_gm_size" in pairs:
        # GVT-g: graphics memory below and above what the CPU can map
        parts = [parse_size(pairs.get(key, "0")) for key in ("low_gm_size", "high_gm_size")]
        return sum(part for part in parts if part is not None)
    stated = _VIDEO_MEMORY.search(text)
    return parse_size(stated[1]) if stated else None


def _read_pixels(text: str) -> tuple[int, int] | None:
    match = _PIXELS.search(text)
    return (int(match[1]), int(match[2])) if match else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None
