"""Finding the PCI function that a user means: pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from vgpumgr.errors import PciAmbiguousError, PciNotFoundError, VgpumgrError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.pci import Function, PciAddress, find_function

# A shorter prefix of a UUID, or part of a model, is more likely a slip.
_SHORTEST_PART = 3


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """What a GPU is called besides its address."""

    address: PciAddress
    index: int | None = None
    uuid: str | None = None
    model: str | None = None

    def __str__(self) -> str:
        return f"{self.address} ({self.model})" if self.model else str(self.address)


def select_function(
    functions: Sequence[Function], gpus: Sequence[KnownGpu], selector: str
) -> Function:
    """The one function that ``selector`` names.

    Accepted: the full or short bus address of any function; of a GPU also its index, its UUID or a
    unique prefix, and a part of its model's name. Raises PciNotFoundError, PciAmbiguousError.
    """
    text = selector.strip()
    address = _parse(text)
    found = [address] if address else [gpu.address for gpu in _match(gpus, text)]
    present = [f for a in found if (f := find_function(functions, a)) is not None]
    if len(present) == 1:
        return present[0]
    raise _explain(functions, gpus, text, present)


def is_index(selector: str) -> bool:
    """Whether it can only be the index of a GPU; more digits are part of a model's name."""
    text = selector.strip()
    return text.isascii() and text.isdigit() and len(text) <= _SHORTEST_PART


def _parse(text: str) -> PciAddress | None:
    try:
        return PciAddress.parse(text)
    except ValueError:
        return None


def _match(gpus: Sequence[KnownGpu], text: str) -> list[KnownGpu]:
    if is_index(text):
        return [gpu for gpu in gpus if gpu.index == int(text)]
    word = text.lower()
    if len(word.removeprefix("gpu-")) < _SHORTEST_PART:
        return []
    by_uuid = [gpu for gpu in gpus if gpu.uuid and _has_prefix(gpu.uuid.lower(), word)]
    return by_uuid or [gpu for gpu in gpus if gpu.model and word in gpu.model.lower()]


def _has_prefix(uuid: str, word: str) -> bool:
    return uuid.startswith(word) or uuid.removeprefix("gpu-").startswith(word)


def _explain(
    functions: Sequence[Function], gpus: Sequence[KnownGpu], text: str, found: Sequence[Function]
) -> VgpumgrError:
    if found:
        names = {gpu.address: str(gpu) for gpu in gpus}
        fits = ", ".join(names.get(f.address, str(f.address)) for f in found)
        return PciAmbiguousError(
            f'"{text}" is not one function', why=f"it fits {fits}", hint="write the bus address"
        )
    known = [str(f.address) for f in functions] + [f.address.short for f in functions]
    near = difflib.get_close_matches(text, known, n=2, cutoff=0.75)
    why = f"did you mean {' or '.join(near)}?" if near else "no such address, index, UUID or model"
    return PciNotFoundError(
        f'no PCI function is "{text}"', why=why, hint="vgpumgr passthrough list"
    )
