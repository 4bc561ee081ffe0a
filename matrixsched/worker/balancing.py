"""Balancing: semaphores about which something changed are balanced, by one worker at a time.

The lease of the chore spares the others the work; correctness does not hang on it, for a balance holds its semaphore
while it decides. Only workers that are told of events, because they know handlers of them, look at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile, zip_longest

from matrixsched.clock import Chance, Clock
from matrixsched.errors import DatabaseUnavailable
from matrixsched.events import Events, SemaphoreBalanced, StepFailed
from matrixsched.handlers import Handlers
from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.semaphore import acquired_handler, semaphore_of
from matrixsched.store.chores import BALANCE
from matrixsched.store.semaphores import CHANGED_PAGE, Balanced, ToBalance
from matrixsched.store.store import Store
from matrixsched.worker.chore import Chore
from matrixsched.worker.pace import described
from matrixsched.worker.policy import WorkerPolicy

REST_FIRST_S, REST_MAX_S = 0.1, 5.0
"""Until it is tried again to balance what could not be, at first and in the end."""


@dataclass(frozen=True, slots=True)
class _Rest:
    tries: int
    until: float
    """On the monotonic clock."""


class Balancing:
    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        policy: WorkerPolicy,
        events: Events,
        *,
        clock: Clock,
        chance: Chance,
        wrote: Callable[[], None],
    ) -> None:
        """`wrote` is called when there are new events."""
        self._store = store
        self._do = store.transitions
        self._handlers = handlers
        self._policy = policy
        self._events = events
        self._clock = clock
        self._chance = chance
        self._wrote = wrote
        self.chore = Chore(store, BALANCE, chance, lease=policy.shard_lease, every=timedelta(0))
        self._after = ""
        """Where to go on: semaphores have their turns by key, or some would always wait for those that change often."""
        self._found_some = False
        """Whether something was to be balanced in this round through the keys."""
        self._resting: dict[str, _Rest] = {}
        self._shards: int | None = None

    async def step(self) -> float:
        """Balance what is to be, if it is our turn; the rest until there may be more."""
        rest_s = self._policy.rest_max.total_seconds()
        if not self._told_of:
            return rest_s
        found = await self._store.run(self._do.changed_semaphores(after=self._after, told_of=self._told_of))
        keys = [key for key in _in_turns(found) if self._is_ours(key)]
        if keys:
            if await self.chore.take() is None:  # whoever has it has it for a moment
                return min(rest_s, self._policy.hold_max.total_seconds() * (1 + self._chance.random()))
            done = await self._balance_all(keys)
            await self.chore.end()
            self._found_some = True
            left = set(keys) - done
            self._after = max(takewhile(lambda key: key not in left, found.changed), default=self._after)
            return 0.0
        self._after = found.changed[-1] if len(found.changed) >= CHANGED_PAGE else ""
        if self._after:
            return 0.0
        # A round is over. If it took time, something may have changed before the place where it is now.
        found_some, self._found_some = self._found_some, False
        return 0.0 if found_some else self._until_next_try(rest_s)

    @property
    def _told_of(self) -> list[str]:
        """The semaphores whose places are told here."""
        keys = [semaphore_of(name) for name in self._handlers.names]
        return list(dict.fromkeys(key for key in keys if key is not None))

    def _is_ours(self, key: str) -> bool:
        """Not while it rests; nor if only others are told of its places, for nobody knows whether they are there."""
        rests = key in self._resting and self._clock.monotonic() < self._resting[key].until
        return not rests and acquired_handler(key) in self._handlers

    async def _balance_all(self, keys: Iterable[str]) -> set[str]:
        """One after the other, for as long as others may wait for their turn; which of them."""
        until = self._clock.monotonic() + self._policy.hold_max.total_seconds()
        done = set()
        for key in keys:
            await self._try(key)
            done.add(key)
            if self._clock.monotonic() > until:
                break
        return done

    async def _try(self, key: str) -> None:
        """Whatever hinders it, the others have their turn."""
        try:
            balanced = await self._balance(key)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            rest = self._rest(key)
            self._events.emit(StepFailed(f"balance {key}", described(error), rest.tries, self._left_s(rest)))
        else:
            if balanced is not None and balanced.is_complete:
                self._resting.pop(key, None)
            else:
                self._rest(key)  # a user's transaction is at it

    async def _balance(self, key: str) -> Balanced | None:
        began = self._clock.monotonic()
        balanced = await self._store.run(self._do.balance(key, self._chance.guid, shards=await self._shard_count()))
        if balanced is not None and (balanced.acquired or balanced.asked):
            self._wrote()
        if balanced is not None:
            self._events.emit(
                SemaphoreBalanced(
                    key,
                    acquired=len(balanced.acquired),
                    asked=len(balanced.asked),
                    kept=len(balanced.kept),
                    lapsed=len(balanced.lapsed),
                    took_s=self._clock.monotonic() - began,
                )
            )
        return balanced

    def _rest(self, key: str) -> _Rest:
        tries = self._resting[key].tries + 1 if key in self._resting else 1
        rest_s = backoff_s(tries, first=REST_FIRST_S, most=REST_MAX_S, spread=self._chance.random())
        self._resting[key] = _Rest(tries, self._clock.monotonic() + rest_s)
        return self._resting[key]

    def _until_next_try(self, most_s: float) -> float:
        """Nothing is to be balanced but what rests; who has rested long enough, and was not found, needs none."""
        self._resting = {key: rest for key, rest in self._resting.items() if self._left_s(rest) > 0}
        return min([most_s, *map(self._left_s, self._resting.values())])

    def _left_s(self, rest: _Rest) -> float:
        return rest.until - self._clock.monotonic()

    async def _shard_count(self) -> int:
        if self._shards is None:
            self._shards = (await self._store.run(self._do.installation())).shard_count
        return self._shards


def _in_turns(found: ToBalance) -> Iterator[str]:
    """Each key once: those that changed, and those with late places, by turns, or one kind would wait for the other."""
    both = zip_longest(found.changed, found.late)
    return iter(dict.fromkeys(key for pair in both for key in pair if key is not None))
