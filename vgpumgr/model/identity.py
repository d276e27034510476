"""Names that never change their form inside the program: UUIDs of GPUs and of MIG devices."""

from __future__ import annotations

import re
from typing import ClassVar, Self

_HEX = "[0-9a-fA-F]"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"


class _Uuid(str):
    """A checked string: equal and hashable by value, and JSON as it is."""

    __slots__ = ()
    _form: ClassVar[re.Pattern[str]]

    def __new__(cls, text: str) -> Self:
        if cls._form.fullmatch(text) is None:
            raise ValueError(f"not a {cls.__name__}: {text!r}")
        return super().__new__(cls, text)


class GpuUuid(_Uuid):
    """``GPU-xxxxxxxx-xxxx-...``: what NVML calls the GPU; survives reboots and re-cabling."""

    __slots__ = ()
    _form = re.compile(f"GPU-{_UUID}")


class MigUuid(_Uuid):
    """``MIG-xxxxxxxx-...`` of one compute instance; older drivers write ``MIG-GPU-.../GI/CI``."""

    __slots__ = ()
    _form = re.compile(rf"MIG-(?:{_UUID}|GPU-{_UUID}/\d+/\d+)")
