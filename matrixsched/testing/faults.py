"""What goes wrong on a stage when the test says so: at the store, where everything is committed, and in workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum, auto
from typing import TypeVar

from matrixsched.clock import Clock
from matrixsched.errors import BadInput, DatabaseUnavailable, OutcomeUnknown
from matrixsched.rules.action import Attempt
from matrixsched.rules.names import check_name
from matrixsched.rules.times import check_duration, check_integer
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import TRANSITION_NAMES
from matrixsched.store.values import Acquired, Claimed, GatedClaim
from matrixsched.store.wrapper import StoreWrapper

T = TypeVar("T")
F = TypeVar("F", "_Fault", "_Death")

_CARRIED_BY = {"schedule_many": "schedule", "run_now": "reschedule"}
TIMES_MAX = 1_000_000


class _Fault(Enum):
    REFUSED = auto()
    REQUEST_LOST = auto()
    ANSWER_LOST = auto()


class _Death(Enum):
    BEFORE = auto()
    AFTER = auto()


class Faults:
    """What shall go wrong from now on; each fault strikes as often as it was asked for, then all is well again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._armed: list[tuple[str, _Fault]] = []
        self._deaths: list[tuple[str, _Death]] = []
        self._away_until: datetime | None = None
        self.struck: Counter[str] = Counter()
        """How often something went wrong, by the name of the transition or the id of the action."""
        self.struck_at: set[datetime] = set()

    # The database.

    def fail(self, transition: str, *, times: int = 1) -> None:
        """The database refuses: nothing is done, and the caller knows it (DatabaseUnavailable)."""
        self._arm(transition, _Fault.REFUSED, times)

    def lose_request(self, transition: str, *, times: int = 1) -> None:
        """The connection breaks on the way there: nothing is done, but the caller cannot know (OutcomeUnknown)."""
        self._arm(transition, _Fault.REQUEST_LOST, times)

    def lose_answer(self, transition: str, *, times: int = 1) -> None:
        """The connection breaks on the way back: it is done, but the caller cannot know (OutcomeUnknown)."""
        self._arm(transition, _Fault.ANSWER_LOST, times)

    def database_away(self, duration: timedelta) -> None:
        """From now on for so long, by the stage's clock, every call of the database is refused."""
        self._away_until = self._clock.now() + check_duration("duration", duration, zero=False)

    # Workers.

    def crash(self, id: str, *, before: bool = False, times: int = 1) -> None:
        """The worker dies at the next attempt at this action: after its handler has done its work and before anything
        of that is recorded, or with `before` before the handler is called.

        Whatever else that worker had claimed and not begun is interrupted with it, as when a process is killed. When
        the leases have ended, ten seconds later, other workers take all of it over.
        """
        check_name("id", id)
        for _ in range(check_integer("times", times, least=1, most=TIMES_MAX)):
            self._deaths.append((id, _Death.BEFORE if before else _Death.AFTER))

    @property
    def pending(self) -> list[str]:
        """What has not struck yet: the names of transitions and ids of actions."""
        return [name for name, _ in self._armed] + [id for id, _ in self._deaths]

    # For the stage.

    @property
    def away_until(self) -> datetime | None:
        """When the database is back, while it is away."""
        if self._away_until is not None and self._clock.now() < self._away_until:
            return self._away_until
        return None

    def strike(self, transition: str) -> _Fault | None:
        if self.away_until is not None:
            return self._struck(transition, _Fault.REFUSED)
        for number, (name, fault) in enumerate(self._armed):
            if name == transition:
                del self._armed[number]
                return self._struck(transition, fault)
        return None

    def dies_at(self, action_id: str, death: _Death) -> bool:
        """Whether the worker dies now; asked before the handler is called and after it ended."""
        if (action_id, death) not in self._deaths:
            return False
        self._deaths.remove((action_id, death))
        self._struck(action_id, death)
        return True

    def _arm(self, transition: str, fault: _Fault, times: int) -> None:
        if transition not in TRANSITION_NAMES:
            near = (
                [_CARRIED_BY[transition]]
                if transition in _CARRIED_BY
                else get_close_matches(transition, TRANSITION_NAMES)
            )
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise BadInput(f"there is no transition {transition!r:.80}; {hint}they are {', '.join(TRANSITION_NAMES)}")
        check_integer("times", times, least=1, most=TIMES_MAX)
        self._armed.extend([(transition, fault)] * times)

    def _struck(self, name: str, fault: F) -> F:
        self.struck[name] += 1
        self.struck_at.add(self._clock.now())
        return fault


BEFORE, AFTER = _Death.BEFORE, _Death.AFTER


class Tape:
    """What the answers of the database told, for the stage to know where to travel and what was run."""

    def __init__(self) -> None:
        self.next_due_at: datetime | None = None
        """As the last look for work was told."""
        self.attempts: dict[tuple[object, int], Attempt] = {}

    def note(self, answer: object) -> None:
        match answer:
            case Acquired(shard=None):
                self.next_due_at = answer.next_due_at
            case Claimed() | GatedClaim():
                self._note_attempts(answer.attempts)
            case list():
                self._note_attempts([one for one in answer if isinstance(one, Attempt)])

    def _note_attempts(self, attempts: Sequence[Attempt]) -> None:
        self.attempts.update({(attempt.claim.guid, attempt.claim.attempt): attempt for attempt in attempts})


class StageStore(StoreWrapper):
    """The real store, with faults between it and everybody else."""

    def __init__(self, inner: Store, faults: Faults, tape: Tape) -> None:
        super().__init__(inner)
        self._faults = faults
        self._tape = tape

    async def run(self, transition: Transition[T]) -> T:
        fault = self._faults.strike(transition.name)
        if fault is _Fault.REFUSED:
            raise DatabaseUnavailable(f"{transition.name}: the test lets the database be away")
        if fault is _Fault.REQUEST_LOST:
            raise OutcomeUnknown(f"{transition.name}: the test lets the connection break before it arrived")
        answer = await self._inner.run(transition)
        if fault is _Fault.ANSWER_LOST:
            raise OutcomeUnknown(f"{transition.name}: the test lets the connection break after it was done")
        self._tape.note(answer)
        return answer

    async def open(self) -> None:
        """It is open as long as the stage is, however often a program opens and closes its application."""

    async def close(self) -> None:
        """The stage does that."""

    def sibling(self) -> StageStore:
        return StageStore(self._inner.sibling(), self._faults, self._tape)
