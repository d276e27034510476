"""What a VM may take of the host by its channel, over all its processes: the keys of ``--limit`` and their defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Literal

from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import format_exact, format_size, list_near, parse_size

Unit = Literal["bytes", "count", "percent"]
#: what the worker's numbers are, in 64 bits with a sign
_MOST = (1 << 63) - 1
_NONE = "none"


@dataclass(frozen=True, slots=True)
class LimitKey:
    """One limit. ``of_cgroup``: the kernel holds it, not the worker; ``a_second``: of a rate, which delays; ``least``:
    with less no program gets as far as its first call.
    """

    name: str
    unit: Unit
    what: str
    of_cgroup: bool = False
    a_second: bool = False
    least: int = 1

    def format(self, value: int | None) -> str:
        """For people, and as ``--limit`` reads it."""
        if value is None:
            return _NONE
        text = format_size(value) if self.unit == "bytes" else str(value)
        # a rounded size would be another one
        if self.unit == "bytes" and parse_size(text) != value:
            text = format_exact(value)
        return text.replace(" ", "") + ("%" if self.unit == "percent" else "")


#: those of the worker first, in the order of ``enum vg_limit`` (stats.h)
KEYS = (
    # one context: WK_CONTEXT_BYTES
    LimitKey(
        "device-memory",
        "bytes",
        "memory of the GPU: allocations, contexts, modules",
        least=128 << 20,
    ),
    LimitKey("contexts", "count", "CUDA contexts"),
    LimitKey("streams", "count", "CUDA streams"),
    LimitKey("events", "count", "CUDA events"),
    LimitKey("modules", "count", "loaded modules"),
    LimitKey("image-bytes", "bytes", "images of modules, loaded or being received"),
    LimitKey("jit", "count", "modules that are compiled at the same time; others wait"),
    LimitKey("calls", "count", "calls a second; more are delayed", a_second=True),
    LimitKey("bytes", "bytes", "bytes of calls a second; more are delayed", a_second=True),
    LimitKey(
        "host-memory", "bytes", "memory of the worker on the host", of_cgroup=True, least=64 << 20
    ),
    LimitKey("processes", "count", "processes and threads of the worker", of_cgroup=True, least=16),
    LimitKey("cpu", "percent", "time on the host's processors; 100 is one", of_cgroup=True),
)
LIMIT_KEYS: Mapping[str, LimitKey] = {key.name: key for key in KEYS}
WORKER_KEYS = tuple(key for key in KEYS if not key.of_cgroup)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one channel; None: none. A default is more than programs need, and less than harms the host."""

    device_memory: int | None = None
    contexts: int | None = 256
    streams: int | None = 65536
    events: int | None = 1 << 20
    modules: int | None = 65536
    image_bytes: int | None = 32 << 30
    jit: int | None = 4
    calls: int | None = None
    bytes: int | None = None
    host_memory: int | None = 32 << 30
    processes: int | None = 4096
    cpu: int | None = None

    def items(self) -> Iterator[tuple[LimitKey, int | None]]:
        """All keys with their limits."""
        for key, field in zip(KEYS, fields(self), strict=True):
            yield key, getattr(self, field.name)

    @property
    def changed(self) -> tuple[str, ...]:
        """Those that are not the default, as ``--limit`` takes them."""
        pairs = zip(self.items(), DEFAULT_LIMITS.items(), strict=True)
        return tuple(
            f"{key.name}={key.format(value)}"
            for (key, value), (_, usual) in pairs
            if value != usual
        )

    @property
    def for_worker(self) -> str:
        """As the worker's option has them: ``device-memory:1024,contexts:16``."""
        return ",".join(
            f"{key.name}:{value}"
            for key, value in self.items()
            if value is not None and not key.of_cgroup
        )


DEFAULT_LIMITS = Limits()


def parse_limits(words: Iterable[str]) -> Limits:
    """Reads ``KEY=VALUE``, each key once. Raises ValueError with what is wrong in a sentence."""
    found: dict[str, int | None] = {}
    for word in words:
        name, equals, text = word.partition("=")
        key = LIMIT_KEYS.get(name)
        if key is None:
            raise ValueError(f"there is no limit {name!r}{_suggest(name)}")
        if not equals or not text:
            raise ValueError(f"{word!r} has no value: write {name}=VALUE, or {name}=none")
        field = name.replace("-", "_")
        if field in found:
            raise ValueError(f"{name} is given twice")
        found[field] = _parse_value(key, text)
    return replace(DEFAULT_LIMITS, **found)


def _suggest(name: str) -> str:
    near = list_near(name, LIMIT_KEYS, 1, 0.4)
    return f": {near[0]}?" if near else f": {', '.join(LIMIT_KEYS)}"


def _parse_value(key: LimitKey, text: str) -> int | None:
    if text == _NONE:
        return None
    number = text.removesuffix("%") if key.unit == "percent" else text
    if key.unit == "bytes":
        value = parse_size(text)
    elif number.isascii() and number.isdigit():
        value = int(number[:20])
    else:
        raise ValueError(f"{key.name}={text}: not a number")
    if value < key.least:
        raise ValueError(f"{key.name}={text}: at least {key.format(key.least)}, or none")
    if value > _MOST:
        raise ValueError(f"{key.name}={text[:20]}: at most {key.format(_MOST)}, or none")
    return value
