"""What a random program has."""

from __future__ import annotations

from dataclasses import dataclass


class SkipError(Exception):
    """This call would have two things wrong, or needs what there is not."""


@dataclass
class Thing:
    """One object of the sequence: its context, and what a later call has to know."""

    kind: str
    number: int
    thread: int
    context: int | None = None
    size: int = 0
    home: int | None = None
    owner: int | None = None
    kernel: str = ""
    image: str = ""
    alive: bool = True
    is_primary: bool = False
