"""Controllers and hosts of a simulated pool: processes that pause, crash and are begun anew."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vgpumgr.errors import PoolOutcomeError, PoolStoreError
from vgpumgr.pool.control.host import Action, Begin, HostAgent, Session
from vgpumgr.pool.control.records import HostRecord, Timing

if TYPE_CHECKING:
    from tests.pool_histories.world import World

TIMING = Timing(2, 7, 2)
PATIENCE_S = 1.0
#: what comes where no answer does
_NO_ANSWER = object()


class Sleep(float):
    """What a process yields to wait."""


Process = Generator[Any, Any, None]


class Actor:
    """A process on a machine with a clock of its own; ``epoch`` counts its lives."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.epoch = 0
        self.is_cut_off = False
        #: while it is cut off: of calls; the answers to the others are lost
        self.loss = 1.0
        self.paused_until_s = 0.0
        self.process: Process | None = None
        self.waiting = 0
        self._rate = 1 + world.draw.uniform(-0.01, 0.01)
        self._offset_s = world.draw.uniform(0, 1e6)
        #: of its clock of the day, which jumps
        self.wall_offset_s = 0.0

    def read_clock_s(self) -> float:
        return self._offset_s + self._rate * self.world.now_s

    def read_wall_s(self) -> float:
        return self.world.times.read_wall_s(self.wall_offset_s)

    @property
    def is_paused(self) -> bool:
        return self.world.now_s < self.paused_until_s

    def make_process(self) -> Process:
        raise NotImplementedError

    def start(self) -> None:
        self.epoch += 1
        self.process = self.make_process()
        self.resume(None)

    def crash(self) -> None:
        self.epoch += 1
        self.process = None

    def resume(self, answer: object) -> None:
        """Goes on with an answer, or with an error, when it is not paused."""
        if self.is_paused:
            epoch = self.epoch

            def resume_later() -> None:
                if epoch == self.epoch:
                    self.resume(answer)

            self.world.at(self.paused_until_s, resume_later)
            return
        process = self.process
        if process is None:
            return
        if answer is _NO_ANSWER:
            answer = PoolOutcomeError("no answer")
        is_error = isinstance(answer, Exception)
        wanted = process.throw(answer) if is_error else process.send(answer)  # type: ignore[call-overload]
        self.waiting += 1
        if isinstance(wanted, Sleep):
            self._expect(self.world.now_s + wanted, None)
        else:
            self._expect(self.world.now_s + PATIENCE_S, _NO_ANSWER)
            self.world.send(self, wanted)

    def _expect(self, time_s: float, answer: object) -> None:
        self.world.at(time_s, self.answering(answer))

    def answering(self, answer: object) -> Callable[[], None]:
        """Resumes with it, unless it has gone on or died meanwhile."""
        key = (self.epoch, self.waiting)

        def answer_now() -> None:
            if (self.epoch, self.waiting) == key and self.process is not None:
                self.waiting += 1  # another answer comes too late
                self.resume(answer)

        return answer_now


class ControllerActor(Actor):
    """A controller, begun anew after each crash."""

    def make_process(self) -> Process:
        controller = self.world.make_controller(
            f"{self.name}.{self.epoch}", TIMING, self.read_clock_s, self.read_wall_s
        )
        while True:
            try:
                if (yield from controller.step()):
                    self.world.count["rounds"] += 1
            except PoolStoreError:
                self.world.count["rounds broken"] += 1
            yield Sleep(self.world.draw.uniform(0.5, 1.2))


class HostActor(Actor):
    """A host: its agent, and the sessions, which outlive it."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.record = HostRecord(name, f"machine-{name}")
        self.sessions: dict[str, Session] = {}
        self.agent: HostAgent | None = None
        self.boot = 0

    def make_process(self) -> Process:
        agent = self.agent = self.world.make_agent(
            self.record, TIMING, self.read_clock_s, self.sessions, boot=str(self.boot)
        )
        while True:
            try:
                yield from agent.step(self.act)
            except PoolStoreError:
                self.world.count["heartbeats lost"] += 1
            self.world.count["refused"] += agent.refused
            agent.refused = 0
            yield Sleep(self.world.draw.uniform(0.5, 1.2))

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            self.world.changed += 1
            if isinstance(action, Begin):
                known = self.sessions.get(action.session.claim)
                if known is None:
                    self.world.count["sessions"] += 1
                elif known.token != action.session.token:
                    self.world.count["sessions resized"] += 1
                self.sessions[action.session.claim] = action.session
            else:
                self._end(action.claim)
            self.world.check()

    def _end(self, claim: str) -> None:
        ending = self.sessions[claim] = replace(self.sessions[claim], is_ending=True)
        if ending.until_s is not None and ending.until_s <= self.read_clock_s():
            self.world.count["sessions fenced"] += 1
        duration_s = self.world.draw.uniform(0, 0.9 * TIMING.grace_s)
        self.world.at(self.world.now_s + duration_s, lambda: self._ended(claim, ending))

    def _ended(self, claim: str, ending: Session) -> None:
        if self.sessions.get(claim) == ending:
            del self.sessions[claim]
            if self.agent is not None:
                self.agent.ended(claim)

    def crash(self) -> None:
        super().crash()
        self.sessions, self.agent = {}, None
        self.boot += 1

    def kill_agent(self) -> None:
        super().crash()
        self.agent = None

    def list_live(self) -> list[Session]:
        """What runs: one whose time is over has ended by itself, and a host that stands still runs nothing."""
        now_s = self.read_clock_s()
        return [
            session
            for session in self.sessions.values()
            if not self.is_paused and (session.until_s is None or now_s < session.until_s)
        ]
