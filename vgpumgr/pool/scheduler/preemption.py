"""Which leases make way for a claim that does not fit otherwise: as few of the dearer kinds as can be, and of these
the ones with the least work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Victim(NamedTuple):
    """What may make way: so much of each of its GPUs. ``kind`` comes first: a higher one is dearer than any work of a
    lower one.
    """

    name: str
    gpus: tuple[int, ...]
    milli: int
    kind: int
    work: float

    @property
    def cost(self) -> tuple[int, float, str]:
        """The least goes first."""
        return self.kind, self.work, self.name


class Choice(NamedTuple):
    """GPUs of one host, and what has to go from them."""

    gpus: tuple[int, ...]
    victims: tuple[Victim, ...]

    @property
    def cost(self) -> tuple[tuple[int, ...], float, int]:
        """Of two choices that with fewer victims of the dearest kind is better; of equal ones that with less work."""
        kinds = sorted((victim.kind for victim in self.victims), reverse=True)
        return tuple(kinds), sum(victim.work for victim in self.victims), len(self.victims)


def choose_victims(
    free: Mapping[int, int], victims: Sequence[Victim], gpus: int, milli: int
) -> Choice | None:
    """So many GPUs with so much free of each once the victims are gone, none of which goes in vain; None where that is
    not enough. ``free`` is what is free of each GPU, below 0 where more is held than there is.
    """
    gone: dict[str, Victim] = {}
    chosen: list[int] = []
    for _ in range(gpus):
        found = [
            (Choice((), tuple(more)).cost, gpu, more)
            for gpu in free
            if gpu not in chosen
            and (more := _list_needed(gpu, free, victims, milli, gone)) is not None
        ]
        if not found:
            return None
        _, gpu, more = min(found, key=lambda one: one[:2])
        chosen.append(gpu)
        gone |= {victim.name: victim for victim in more}
    for victim in sorted(gone.values(), key=lambda one: one.cost, reverse=True):
        left = [one for one in gone.values() if one is not victim]
        if all(_count_free(gpu, free, left) >= milli for gpu in chosen):
            del gone[victim.name]
    return Choice(tuple(sorted(chosen)), tuple(sorted(gone.values(), key=lambda one: one.cost)))


def _list_needed(
    gpu: int,
    free: Mapping[int, int],
    victims: Sequence[Victim],
    milli: int,
    gone: Collection[str],
) -> list[Victim] | None:
    """What has to go besides from one GPU; None where all is not enough."""
    left = _count_free(gpu, free, [one for one in victims if one.name in gone])
    needed = []
    for victim in sorted(victims, key=lambda one: one.cost):
        if left >= milli:
            break
        if gpu in victim.gpus and victim.name not in gone:
            needed.append(victim)
            left += victim.milli
    return needed if left >= milli else None


def _count_free(gpu: int, free: Mapping[int, int], gone: Collection[Victim]) -> int:
    return free[gpu] + sum(victim.milli for victim in gone if gpu in victim.gpus)
