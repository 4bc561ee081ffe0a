"""Outcomes go to the database in batches: as many as are there, never waiting for more."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from matrixsched.events import ClaimsLost, Events, OutcomesRecorded, StepFailed
from matrixsched.rules.action import Claim, Outcome, State
from matrixsched.rules.backoff import backoff_s
from matrixsched.store.store import Store
from matrixsched.store.values import Answer, Ended
from matrixsched.worker.leases import Leases
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.policy import WorkerPolicy

REFUSED_ROUNDS_MAX = 5
"""So often outcomes are sent again when the database refuses every one of them; then they are dropped."""
_PASSING = (DatabaseUnavailable, DatabaseBusy, OutcomeUnknown)


class Recorder:
    def __init__(self, store: Store, leases: Leases, policy: WorkerPolicy, clock: Clock, events: Events) -> None:
        self._store = store
        self._leases = leases
        self._policy = policy
        self._clock = clock
        self._events = events
        self._ended: deque[Ended] = deque()
        self._busy: list[Ended] = []
        self._busy_rounds = 0
        self.held_up = 0
        """Outcomes that a user's transaction kept from being recorded when they were last sent."""
        self._refused_rounds = 0
        self._under_way = False
        self.wakeup = Wakeup()
        self.settled = Wakeup()
        """Set when attempts have left our hands, so that others may be claimed."""
        self._opened = False

    @property
    def is_idle(self) -> bool:
        """Nothing is left to record, and nothing is on its way."""
        return not (self._ended or self._busy or self._under_way)

    def opened_work(self) -> bool:
        """Whether what was recorded since this was last asked may have made something due: another run of the same
        action, or a version that waited for the attempt to end."""
        opened, self._opened = self._opened, False
        return opened

    def put(self, ended: Ended) -> None:
        if not self._ended:  # else it is awake, or tries again by itself
            self.wakeup.set()
        self._ended.append(ended)

    async def step(self) -> float:
        batch = self._take()
        if not batch:
            return 0.0 if self._ended else self._policy.rest_max.total_seconds()
        self._under_way = True
        try:
            await self._record(batch)
        finally:
            self._under_way = False
        if self._ended:
            return 0.0
        if self._busy:
            return backoff_s(self._busy_rounds, first=0.02, most=1.0, spread=0)
        return self._policy.rest_max.total_seconds()

    async def _record(self, batch: list[Ended]) -> None:
        try:
            answers = await self._send(batch)
        except _PASSING:
            self._put_back(batch)
            raise
        except Exception as error:
            await self._record_apart(batch, error)
        except BaseException:
            self._put_back(batch)
            raise
        else:
            self._refused_rounds = 0
            self._settle(batch, answers)

    async def _record_apart(self, batch: list[Ended], error: Exception) -> None:
        """The database refused the batch for good: find what it refuses, and let that keep nobody else."""
        left = deque(batch)
        refused: list[Ended] = []
        try:
            while left:
                if not await self._record_one(left[0]):
                    refused.append(left[0])
                left.popleft()
        except BaseException:
            self._put_back([*refused, *left])
            raise
        self._refused_rounds = self._refused_rounds + 1 if len(refused) == len(batch) else 0
        if not refused:
            return
        if 0 < self._refused_rounds < REFUSED_ROUNDS_MAX:
            # Nothing at all was taken: that may as well be the database's fault as theirs.
            self._put_back(refused)
            raise error
        self._drop(refused, error)

    async def _record_one(self, ended: Ended) -> bool:
        """Whether it was stored: as it is, or else as a failure whose text any database takes."""
        for one in (ended, _unstorable(ended)):
            try:
                answers = await self._send([one])
            except _PASSING:
                raise
            except Exception:
                continue
            self._settle([one], answers, more_busy=True)
            return True
        return False

    async def _send(self, batch: list[Ended]) -> Mapping[UUID, Answer]:
        do, history_max = self._store.transitions, self._policy.history_max
        if any(ended.delivery is not None for ended in batch):
            return await self._store.run(do.record_deliveries(batch, history_max=history_max))
        return await self._store.run(do.record(batch, history_max=history_max))

    def _put_back(self, batch: list[Ended]) -> None:
        """Perhaps recorded, perhaps not: sent again it does nothing twice."""
        self._ended.extendleft(reversed(batch))

    def _drop(self, refused: list[Ended], error: Exception) -> None:
        """Their rows come due by themselves when their leases end, as interrupted."""
        self._leases.drop(*[ended.claim for ended in refused])
        self._refused_rounds = 0
        what = f"{len(refused)} outcomes could not be stored and were dropped: {type(error).__name__}"
        self._events.emit(StepFailed("record", what, 1, 0.0))
        self._events.emit(ClaimsLost(len(refused)))
        self.settled.set()

    def _take(self) -> list[Ended]:
        """What goes next. Not what our own later claim took the place of: that is lost, and answers go by guid."""
        # Some of each: outcomes that a user's transaction holds up must not keep the others waiting.
        limit = self._policy.batch_max
        taken, self._busy = self._busy[:limit], self._busy[limit:]
        while self._ended and len(taken) < 2 * limit:
            taken.append(self._ended.popleft())
        batch = [ended for ended in taken if ended.claim in self._leases]
        if len(batch) < len(taken):
            self._events.emit(ClaimsLost(len(taken) - len(batch)))
        return batch

    def _settle(self, batch: list[Ended], answers: Mapping[UUID, Answer], *, more_busy: bool = False) -> None:
        counts = dict.fromkeys(Answer, 0)
        settled: list[Claim] = []
        for ended in batch:
            answer = answers[ended.claim.guid]
            counts[answer] += 1
            if answer is Answer.BUSY:
                self._busy.append(ended)
            else:
                settled.append(ended.claim)
                self._opened |= answer is not Answer.RECORDED or ended.verdict.state is State.LIVE
        self._leases.drop(*settled)
        self.held_up = len(self._busy)
        if not more_busy:
            self._busy_rounds = self._busy_rounds + 1 if self._busy else 0
        self._events.emit(
            OutcomesRecorded(
                counts[Answer.RECORDED], counts[Answer.SUPERSEDED], counts[Answer.LOST], counts[Answer.BUSY]
            )
        )
        if counts[Answer.LOST]:
            self._events.emit(ClaimsLost(counts[Answer.LOST]))
        self.settled.set()


def _unstorable(ended: Ended) -> Ended:
    """The same attempt as a failure, in words that any database takes."""
    verdict = ended.verdict
    state = verdict.state if verdict.state is State.LIVE else State.FAILED
    error = f"its outcome could not be stored: it was {verdict.outcome.value}"
    return Ended(ended.claim, verdict._replace(outcome=Outcome.FAILED, state=state, error=error))
