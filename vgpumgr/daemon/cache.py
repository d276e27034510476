"""Answers that several callers share for a moment: pollers and boards ask the same again and again."""

from __future__ import annotations

from dataclasses import dataclass

from vgpumgr.host.clock import Clock

MAX_AGE_S = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A body as it goes over the wire."""

    body: bytes
    etag: str | None
    made_s: float
    epoch: int


class AnswerCache:
    """Keyed by path and query. A change ends every answer that began before it."""

    def __init__(self, clock: Clock, max_age_s: float = MAX_AGE_S, max_answers: int = 64) -> None:
        self._clock = clock
        self._max_age_s = max_age_s
        self._max_answers = max_answers
        self._answers: dict[str, Answer] = {}
        self.epoch = 0

    def find(self, key: str) -> Answer | None:
        """A young enough answer."""
        answer = self._answers.get(key)
        if answer is None or answer.epoch != self.epoch:
            return None
        age_s = self._clock.monotonic_s() - answer.made_s
        return answer if age_s <= self._max_age_s else None

    def keep(self, key: str, body: bytes, etag: str | None, epoch: int) -> None:
        """Keeps an answer whose reading began in ``epoch``."""
        if len(self._answers) >= self._max_answers:
            self._answers.clear()
        self._answers[key] = Answer(body, etag, self._clock.monotonic_s(), epoch)

    def forget(self) -> None:
        """Something changes: nothing read before counts any more."""
        self.epoch += 1
