"""Calls made at the same time go to the database together.

While a statement is under way the next calls gather; then they go as one. Nobody waits for more to come. There is no
task of its own: the first caller that finds room sends for all that wait, the others are woken with their answers.
At most two statements are under way, and never the same id in both or twice in one, so the order of calls for an id is
kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from matrixsched.errors import DatabaseBusy, DatabaseError

BATCH_MAX = 1000
STATEMENTS_MAX = 2

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Waiting(Generic[Item, Answer]):
    __slots__ = ("_woken", "answer", "error", "item", "key", "kind", "settled")

    def __init__(self, item: Item, key: str, kind: bool) -> None:
        self.item, self.key, self.kind = item, key, kind
        self.answer: Answer | None = None
        self.error: Exception | None = None
        self.settled = False
        self._woken: anyio.Event | None = None

    def settle(self, answer: Answer | None, error: Exception | None) -> None:
        self.answer, self.error, self.settled = answer, error, True
        self.wake()

    def wake(self) -> None:
        """It need not be asleep: whoever sends never is."""
        if self._woken is not None:
            self._woken.set()

    async def sleep(self) -> None:
        self._woken = anyio.Event()
        await self._woken.wait()


class Coalescer(Generic[Item, Answer]):
    def __init__(
        self,
        send: Callable[[Sequence[Item], bool], Awaitable[Sequence[Answer]]],
        *,
        batch_max: int = BATCH_MAX,
    ) -> None:
        """`send` carries out items of one kind in one statement and answers in their order."""
        self._send = send
        self._batch_max = batch_max
        self._waiting: deque[_Waiting[Item, Answer]] = deque()
        self._keys_under_way: set[str] = set()
        self._statements = 0

    @property
    def is_idle(self) -> bool:
        """Nothing is waiting to be sent, and at most the statement that asks is under way."""
        return not self._waiting and self._statements <= 1

    async def submit(self, item: Item, *, key: str, kind: bool) -> Answer:
        """Carry out `item`, together with others of its kind. A `key` is under way once at a time."""
        mine: _Waiting[Item, Answer] = _Waiting(item, key, kind)
        self._waiting.append(mine)
        try:
            # Whoever is ready to call at this moment goes along, or a burst begins with statements of one row.
            await anyio.lowlevel.checkpoint()
            while not mine.settled:
                batch = self._take() if self._statements < STATEMENTS_MAX else []
                if batch:
                    await self._carry_out(batch)
                else:
                    await mine.sleep()
        except BaseException:
            self._withdraw(mine)
            raise
        if mine.error is not None:
            raise mine.error
        return mine.answer  # type: ignore[return-value]  # settled without an error: there is an answer

    def _take(self) -> list[_Waiting[Item, Answer]]:
        """What can go now, in order: one kind, no key that is under way, none twice."""
        batch: list[_Waiting[Item, Answer]] = []
        passed: deque[_Waiting[Item, Answer]] = deque()
        held_back: set[str] = set()
        while self._waiting and len(batch) < self._batch_max:
            one = self._waiting.popleft()
            fits = not batch or one.kind == batch[0].kind
            if fits and one.key not in self._keys_under_way and one.key not in held_back:
                self._keys_under_way.add(one.key)
                batch.append(one)
            else:
                held_back.add(one.key)
                passed.append(one)
        self._waiting.extendleft(reversed(passed))
        return batch

    async def _carry_out(self, batch: list[_Waiting[Item, Answer]]) -> None:
        self._statements += 1
        try:
            # The caller that happens to send must not take the others with it when it is cancelled.
            with anyio.CancelScope(shield=True):
                await self._settle(batch)
        finally:
            # From here to the next statement nothing is awaited: a call cannot slip in between unseen.
            self._statements -= 1
            self._keys_under_way.difference_update(one.key for one in batch)
            self._wake_next()

    async def _settle(self, batch: list[_Waiting[Item, Answer]]) -> None:
        try:
            answers = await self._send([one.item for one in batch], batch[0].kind)
        except Exception as error:
            if len(batch) == 1 or not _is_definite(error):
                for one in batch:
                    one.settle(None, error)
                return
        else:
            for one, answer in zip(batch, answers, strict=True):
                one.settle(answer, None)
            return
        # One caller's lock or mistake is nobody else's: by halves it is soon alone, and the others went together.
        middle = len(batch) // 2
        await self._settle(batch[:middle])
        await self._settle(batch[middle:])

    def _wake_next(self) -> None:
        """Let a waiting caller send, if there is one."""
        if self._waiting:
            self._waiting[0].wake()

    def _withdraw(self, mine: _Waiting[Item, Answer]) -> None:
        if mine in self._waiting:
            self._waiting.remove(mine)
        # It may have been woken to send for the others.
        if self._statements < STATEMENTS_MAX:
            self._wake_next()


def _is_definite(error: Exception) -> bool:
    """Whether nothing was done, for a reason that may lie in a single row."""
    return isinstance(error, DatabaseBusy) or type(error) is DatabaseError
