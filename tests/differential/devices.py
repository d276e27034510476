"""Random calls between devices. On one device alone there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential.things import Thing

if TYPE_CHECKING:
    from tests.differential.generate import Generator


def _written(made: Generator) -> list[Thing]:
    """Memory of any living context; each takes its turn, so all may be waited for."""
    contexts = {t.number for t in made.own("ctx")}
    return [
        t
        for t in made.own("mem", here=False)
        if t.size and t.context in contexts and t.owner is None
    ]


def copy(made: Generator) -> None:
    """From the memory of one context to that of another, which may be of another device."""
    found = _written(made)
    if not made.in_turns or made.devices < 2 or len(found) < 2 or made.current is None:
        return
    to, source = made.chance.sample(found, 2)
    contexts = [to.context, source.context]
    length = made.chance.randint(0, min(to.size, source.size))
    if made.odd():
        length = max(to.size, source.size) + 1
    made.settle()
    made.emit("cuMemcpyPeer", [to.number, 0], contexts[0], [source.number, 0], contexts[1], length)
    made.settle()


def wait(made: Generator) -> None:
    """For an event of any context, recorded or not."""
    events = made.own("evt", here=False) if made.in_turns and made.devices > 1 else []
    contexts = {t.number for t in made.own("ctx")}
    found = [t for t in events if t.context in contexts]
    if found and made.current is not None:
        made.emit("cuStreamWaitEvent", made.handle("stm"), made.chance.choice(found).number, 0)
    else:
        made.plain("cuStreamWaitEvent")


DEVICE_CALLS = {"cuMemcpyPeer": copy, "cuStreamWaitEvent": wait}
