"""Random launches with attributes, how many clusters fit, and attributes of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.differential.generate import Generator

#: of a cluster; (0, 0, 0): the launch does not ask for one
_CLUSTERS, _ODD_CLUSTERS = ((0, 0, 0), (0, 0, 0), (1, 1, 1)), ((0, 1, 1), (7, 1, 1), (64, 64, 1))
#: CUstreamAttrID and the value's first words: how a thread waits, the priority, the domains of memory
_ATTRIBUTES = ((3, (2,)), (3, (4,)), (8, (-1,)), (8, (0,)), (8, (-99,)), (9, (256,)), (10, (1,)))
_ODD_ATTRIBUTES = ((3, (9,)), (10, (7,)), (2, (1,)), (99, (0,)))


def _some_cluster(made: Generator, *, of_two: bool) -> tuple[int, int, int]:
    if of_two and made.chance.random() < 0.4:
        return (2, 1, 1)
    return made.chance.choice(_ODD_CLUSTERS if made.odd() else _CLUSTERS)


def _launch(made: Generator) -> None:
    before = len(made.steps)
    made.make_cuLaunchKernel()
    if len(made.steps) > before and made.steps[-1][1] == "cuLaunchKernel":
        thread, _, arguments = made.steps.pop()
        _, kernel, shape, *_ = arguments
        # several blocks and parameters that no frame holds: docs/guest-driver.md
        cluster = _some_cluster(made, of_two=shape[0] == 2 and kernel != "huge")
        made.steps.append([thread, "cuLaunchKernelEx", [*arguments, cluster]])


def _count(name: str) -> Callable[[Generator], None]:
    def make(made: Generator) -> None:
        made.prepare_launch()
        found = [t for t in made.own("fun") if t.kernel]
        if found:
            shape = [8, 1, 1, made.chance.choice((32, 64)), 1, 1, 0]
            cluster = _some_cluster(made, of_two=True)
            made.emit(name, made.chance.choice(found).number, shape, cluster)

    return make


def _set(made: Generator) -> None:
    stream = made.handle("stm")
    attribute, words = made.chance.choice(_ODD_ATTRIBUTES if made.odd() else _ATTRIBUTES)
    made.emit("cuStreamSetAttribute", stream, attribute, words)


LAUNCH_CALLS: dict[str, Callable[[Generator], None]] = {
    "cuLaunchKernelEx": _launch,
    "cuOccupancyMaxActiveClusters": _count("cuOccupancyMaxActiveClusters"),
    "cuOccupancyMaxPotentialClusterSize": _count("cuOccupancyMaxPotentialClusterSize"),
    "cuStreamSetAttribute": _set,
}
