"""Outcomes go to the database in batches: as many as are there, never waiting for more."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.events import ClaimsLost, Events, OutcomesRecorded
from matrixsched.rules.backoff import backoff_s
from matrixsched.store.store import Store
from matrixsched.store.values import Answer, Ended
from matrixsched.worker.leases import Leases
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.policy import WorkerPolicy


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
        self._under_way = False
        self.wakeup = Wakeup()
        self.settled = Wakeup()
        """Set when attempts have left our hands, so that others may be claimed."""

    @property
    def is_idle(self) -> bool:
        """Nothing is left to record, and nothing is on its way."""
        return not (self._ended or self._busy or self._under_way)

    def put(self, ended: Ended) -> None:
        self._ended.append(ended)
        self.wakeup.set()

    async def step(self) -> float:
        batch = self._take()
        if not batch:
            return self._policy.rest_max.total_seconds()
        self._under_way = True
        try:
            answers = await self._store.run(self._store.transitions.record(batch, history_max=self._policy.history_max))
        except BaseException:
            # Perhaps recorded, perhaps not: sent again it does nothing twice.
            self._ended.extendleft(reversed(batch))
            raise
        finally:
            self._under_way = False
        self._settle(batch, answers)
        if self._ended:
            return 0.0
        if self._busy:
            return backoff_s(self._busy_rounds, first=0.02, most=1.0, spread=0)
        return self._policy.rest_max.total_seconds()

    def _take(self) -> list[Ended]:
        """What goes next. Not what our own later claim took the place of: that is lost, and answers go by guid."""
        sent_again, self._busy = self._busy, []
        batch = [ended for ended in sent_again if ended.claim in self._leases]
        taken = len(sent_again)
        while self._ended and len(batch) < self._policy.batch_max * 2:
            ended = self._ended.popleft()
            taken += 1
            if ended.claim in self._leases:
                batch.append(ended)
        if len(batch) < taken:
            self._events.emit(ClaimsLost(taken - len(batch)))
        return batch

    def _settle(self, batch: list[Ended], answers: Mapping[UUID, Answer]) -> None:
        counts: Counter[Answer] = Counter()
        for ended in batch:
            answer = answers[ended.claim.guid]
            counts[answer] += 1
            if answer is Answer.BUSY:
                self._busy.append(ended)
            else:
                self._leases.drop(ended.claim)
        self._busy_rounds = self._busy_rounds + 1 if self._busy else 0
        self._events.emit(
            OutcomesRecorded(
                counts[Answer.RECORDED], counts[Answer.SUPERSEDED], counts[Answer.LOST], counts[Answer.BUSY]
            )
        )
        if counts[Answer.LOST]:
            self._events.emit(ClaimsLost(counts[Answer.LOST]))
        self.settled.set()
