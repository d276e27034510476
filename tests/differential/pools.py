"""Random calls on memory pools. They are a device's, so that those that everybody shares are used in turns only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.differential.values import SIZES

if TYPE_CHECKING:
    from tests.differential.generate import Generator

_REUSE, _THRESHOLD, _USED = (1, 2, 3), 4, 7


def _create(made: Generator) -> None:
    odd = made.odd()
    thing = made.add("pol", alive=not odd)
    made.emit("cuMemPoolCreate", thing.number, made.chance.choice((0, 2)) if odd else 1)


def _get_default(made: Generator) -> None:
    if made.in_turns:
        made.plain("cuDeviceGetDefaultMemPool")
        made.things[-1].is_primary = True


def _get_current(made: Generator) -> None:
    """Another name of one that there is: not used as such."""
    if made.in_turns:
        made.plain("cuDeviceGetMemPool")
        made.things[-1].alive = False


def _set_current(made: Generator) -> None:
    if made.in_turns and made.own("pol"):
        made.plain("cuDeviceSetMemPool")


def _destroy(made: Generator) -> None:
    """The default one, too, which is refused."""
    odd = made.odd()
    found = [t for t in made.own("pol") if odd or not t.is_primary]
    if not found:
        return
    thing = made.chance.choice(found)
    made.settle()
    made.emit("cuMemPoolDestroy", thing.number)
    if not thing.is_primary:
        made.end(thing)


def _trim(made: Generator) -> None:
    if found := made.own("pol"):
        made.emit("cuMemPoolTrimTo", made.chance.choice(found).number, made.chance.choice(SIZES))


def _allocate(made: Generator) -> None:
    found = made.own("pol")
    # pools are of device 0; contexts may be of another one, which is refused (docs/guest-driver.md)
    if not found or made.current is None or made.devices > 1:
        return
    size = 0 if made.odd() else made.chance.choice(SIZES)
    pool = made.chance.choice(found).number
    thing = made.add("mem", size=size, alive=size > 0)
    made.emit("cuMemAllocFromPoolAsync", thing.number, size, pool, None)
    if size:
        made.define(thing)


def _get_attribute(made: Generator) -> None:
    """How much is used, too, where no other thread changes that at the same time."""
    if found := made.own("pol"):
        made.settle()
        usual = (*_REUSE, _THRESHOLD, *([_USED] if made.in_turns else ()))
        attribute = 77 if made.odd() else made.chance.choice(usual)
        made.emit("cuMemPoolGetAttribute", made.chance.choice(found).number, attribute)


def _set_attribute(made: Generator) -> None:
    if found := made.own("pol"):
        attribute = made.chance.choice((_USED, 77) if made.odd() else (*_REUSE, _THRESHOLD))
        value = made.chance.choice((0, 1) if attribute in _REUSE else SIZES)
        number = made.chance.choice(found).number
        made.emit("cuMemPoolSetAttribute", number, attribute, value)


POOL_CALLS: dict[str, Callable[[Generator], None]] = {
    "cuMemPoolCreate": _create,
    "cuDeviceGetDefaultMemPool": _get_default,
    "cuDeviceGetMemPool": _get_current,
    "cuDeviceSetMemPool": _set_current,
    "cuMemPoolDestroy": _destroy,
    "cuMemPoolTrimTo": _trim,
    "cuMemAllocFromPoolAsync": _allocate,
    "cuMemPoolGetAttribute": _get_attribute,
    "cuMemPoolSetAttribute": _set_attribute,
}
