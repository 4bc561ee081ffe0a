"""The scheduler: writes actions and their incoming rows, and does nothing else.

Every operation is a conversation (store/transition.py), so that it runs alike in a transaction of our own, in a
caller's asynchronous transaction and in a caller's synchronous one. Each carries the guid of its request, made before
the first try: however often it is sent, and however late a lost try is carried out after all, it takes effect once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import anyio
import anyio.lowlevel

from matrixsched.answers import (
    Answer,
    as_found,
    as_scheduled,
    as_scheduled_many,
    as_written,
    earlier,
    sent_again,
    written,
)
from matrixsched.calls import (
    Call,
    Exists,
    Request,
    Scheduled,
    ScheduledMany,
    Timing,
    batches,
    check_call,
    check_exists,
    check_expected_guid,
    check_timing,
    first_run,
    gate_of,
    id_of,
    needs_now,
    request_guid,
    terms_of,
)
from matrixsched.clock import Chance, Clock
from matrixsched.coalescer import Coalescer
from matrixsched.errors import (
    ActionFinished,
    ActionNotAsSeen,
    BadInput,
    DatabaseBusy,
    DatabaseError,
    GuidMismatch,
    MatrixSchedError,
    OutcomeUnknown,
)
from matrixsched.events import CallsWritten, Events
from matrixsched.handlers import Handlers
from matrixsched.known_templates import KnownTemplates
from matrixsched.lookups import Lookups
from matrixsched.naming import Named
from matrixsched.operations import Operation, bound, one_ahead, operation, together
from matrixsched.rules.action import Action, State
from matrixsched.rules.arguments import check_function
from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.names import check_name, shard_of
from matrixsched.rules.times import check_time
from matrixsched.scheduler_policy import SchedulerPolicy
from matrixsched.store.callers import AsyncCaller, run_in
from matrixsched.store.store import Store
from matrixsched.store.transition import Composed, Conversation, Transition
from matrixsched.store.values import Change, NewAction, Seen

T = TypeVar("T")

CALLS_AT_A_TIME = 64
"""So many calls are made ready before others get their turn."""


class Scheduler(Lookups):
    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        *,
        clock: Clock,
        chance: Chance,
        policy: SchedulerPolicy,
        wrote: Callable[[], None],
        events: Events,
        trace: Callable[[], str | None],
    ) -> None:
        """`wrote` is called after something was committed, so that a worker in this process looks at once. What `trace`
        says when an action is scheduled is stored with it."""
        super().__init__(store.transitions)
        self._store = store
        self._handlers = handlers
        self._clock = clock
        self._chance = chance
        self._policy = policy
        self._wrote = wrote
        self._events = events
        self._trace = trace
        self._templates = KnownTemplates(self._do, clock)
        self._coalescer: Coalescer[NewAction, Answer] = Coalescer(self._send_together, batch_max=policy.batch_max)
        # Together they leave connections for everybody else, however many calls wait for somebody's lock.
        self._quick, self._patient = anyio.Semaphore(2), anyio.Semaphore(2)
        self._told_at = float("-inf")
        self._owes_telling = False

    # Operations. With `connection` they are part of the caller's transaction.

    async def schedule(
        self, call: Call, *, exists: Exists, expected_guid: UUID | None, connection: AsyncCaller | None
    ) -> Scheduled:
        if expected_guid is not None:
            return await self._perform(self.replacing(call, expected_guid), connection)
        if connection is not None or (exists == "error" and call.request_id is not None):
            # A named request that is refused must leave no trace, which among others cannot be had.
            return await self._perform(self.scheduling(call, exists), connection)
        check_exists(exists)
        if (shard_count := self._shard_count) is None:
            shard_count = await self._store.run(self.installing())
        now: datetime | None = None
        if needs_now(call):
            now = await self._store.run(self._do.now())
        if self._templates.is_in_doubt(call):
            await self._store.run(self._templates.checking([call]))
        new = self._new_action(call, self._chance.guid(), shard_count, now, self._trace())
        return await self._schedule_together(new, exists)

    async def schedule_many(
        self,
        calls: Iterable[Call],
        *,
        exists: Exists,
        connection: AsyncCaller | None,
        progress: Callable[[int], object] | None,
    ) -> ScheduledMany:
        if progress is not None:
            check_function("progress", progress)
        written = self._written_inside(calls, exists, connection) if connection else self._written(calls, exists)
        many = ScheduledMany()
        async with aclosing(written) as counted:
            async for count in counted:
                many += count
                if progress is not None:
                    progress(many.total)
        return many

    async def _written_inside(
        self, calls: Iterable[Call], exists: Exists, connection: AsyncCaller
    ) -> AsyncGenerator[ScheduledMany, None]:
        for batch in batches(calls, self._policy.batch_max):
            yield await self._perform(self.scheduling_many(batch, exists), connection)

    async def _written(self, calls: Iterable[Call], exists: Exists) -> AsyncGenerator[ScheduledMany, None]:
        """What became of each batch. While one is under way the next one is made ready."""
        coming = batches(calls, self._policy.batch_max)

        async def carry_out(scheduling: Operation[ScheduledMany]) -> ScheduledMany:
            return await self._perform(scheduling, None)

        async for counted in one_ahead(lambda: self._next_batch(coming, exists), carry_out):
            self._events.emit(CallsWritten(counted.total, coalesced=False))
            yield counted

    async def _next_batch(self, coming: Iterator[list[Call]], exists: Exists) -> Operation[ScheduledMany] | None:
        """Made ready as far as that can be done without asking the database, and so that others get their turns."""
        await anyio.lowlevel.checkpoint()  # let the batch before go on its way
        calls = next(coming, None)
        if calls is None:
            return None
        shard_count = self._shard_count
        if shard_count is None or any(needs_now(call) or self._templates.is_in_doubt(call) for call in calls):
            return self.scheduling_many(calls, exists)
        check_exists(exists)
        trace = self._trace()
        ready: list[NewAction] = []
        for number, call in enumerate(calls):
            if number % CALLS_AT_A_TIME == 0:
                await anyio.lowlevel.checkpoint()
            ready.append(self._new_action(call, self._chance.guid(), shard_count, None, trace))
        return self.scheduling_many(calls, exists, ready)

    async def schedule_named(self, calls: Sequence[Call], exists: Exists, requests: Sequence[Named]) -> ScheduledMany:
        """In one transaction, unless one of these names was used for something else."""
        many = await self._perform(bound(self._do, self.scheduling_many(calls, exists), requests), None)
        self._events.emit(CallsWritten(many.total, coalesced=False))
        return many

    async def change(self, operation: Operation[Scheduled], connection: AsyncCaller | None) -> Scheduled:
        return await self._perform(operation, connection)

    async def change_together(self, operations: Sequence[Operation[Scheduled]]) -> list[Scheduled | MatrixSchedError]:
        """Changes of different actions in one transaction, with the refusals of those that did not fit; DatabaseBusy,
        and nothing is done, if somebody holds one of them for more than a moment."""
        both = together(operations)
        async with self._quick:
            answers = await self._until_known(both.patient(self._policy.lock_timeout), both.calling_off)
        self._wrote()
        return answers

    async def read(self, operation: Transition[T], connection: AsyncCaller | None) -> T:
        if connection is not None:
            return await run_in(connection, self._store.dialect, operation)
        return await self._store.run(operation)

    # The operations as conversations; also for callers' synchronous transactions.

    def scheduling(self, call: Call, exists: Exists) -> Operation[Scheduled]:
        writing = self._writing([call], exists)

        def conversation(lock_timeout: timedelta | None) -> Conversation[Scheduled]:
            ((new, answer),) = yield from writing(lock_timeout)
            return as_scheduled(new, answer, exists)

        return operation("schedule", conversation)

    def scheduling_many(
        self, calls: Sequence[Call], exists: Exists, ready: list[NewAction] | None = None
    ) -> Operation[ScheduledMany]:
        """Schedule calls of different ids in one transaction; `ready` is what they become, if that is known already."""
        writing = self._writing(calls, exists, ready)

        def conversation(lock_timeout: timedelta | None) -> Conversation[ScheduledMany]:
            return as_scheduled_many([answer for _, answer in (yield from writing(lock_timeout))])

        return operation("schedule", conversation)

    def replacing(self, call: Call, expected_guid: UUID) -> Operation[Scheduled]:
        """Replace an action only if it is still at the guid the caller read."""
        expected = check_expected_guid(expected_guid)
        if call.id is None or expected is None:
            raise BadInput("expected_guid goes with the id of an action")
        guid, trace = self._chance.guid(), self._trace()

        def conversation(lock_timeout: timedelta | None) -> Conversation[Scheduled]:
            (new,) = yield from self._prepared([call], [guid], trace)
            request = request_guid("replace", new.id, call.request_id) or guid
            new = new._replace(request_guid=request)
            replaced = yield from self._do.replace_expected(
                new, request, expected, lock_timeout=lock_timeout, tell=True
            ).begin()
            if replaced is not None:
                return as_written(replaced)
            known = yield from earlier(self._do, new.shard, new.id, guid=guid, request_guid=request)
            if known is not None:
                return known
            raise GuidMismatch(new.id, expected, (yield from self._found(new.id)).meta.guid)

        return operation("replace", conversation)

    def rescheduling(
        self,
        action_id: str,
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        revive: bool = False,
        expected_guid: UUID | None = None,
        seen: Seen | None = None,
        request_id: str | None = None,
    ) -> Operation[Scheduled]:
        """Move the next run of an action; with `revive` also of a finished one; with `seen` only if it is still so."""
        timing = check_timing(at, delay)
        change = self._change("run_now" if revive else "reschedule", action_id, timing, expected_guid, request_id)
        change = replace(change, seen=seen)

        def conversation(lock_timeout: timedelta | None) -> Conversation[Scheduled]:
            located = replace(change, shard=(yield from self._shard(action_id)))
            moved = yield from self._do.reschedule(located, revive=revive, lock_timeout=lock_timeout, tell=True).begin()
            if moved is not None:
                return as_written(moved)
            if (known := (yield from self._earlier(located))) is not None:
                return known
            found = yield from self._found_expected(located)
            if found.status.state is not State.LIVE and not revive:
                raise ActionFinished(action_id, found.status.state)
            if seen is not None:
                raise ActionNotAsSeen(action_id)
            return as_found(found)

        return operation("reschedule", conversation, self._calling_off(change))

    def cancelling(
        self, action_id: str, *, expected_guid: UUID | None = None, request_id: str | None = None
    ) -> Operation[Scheduled]:
        change = self._change("cancel", action_id, Timing(None, timedelta(0)), expected_guid, request_id)

        def conversation(lock_timeout: timedelta | None) -> Conversation[Scheduled]:
            located = replace(change, shard=(yield from self._shard(action_id)))
            cancelled = yield from self._do.cancel(located, lock_timeout=lock_timeout).begin()
            if cancelled is not None:
                return as_written(cancelled)
            if (known := (yield from self._earlier(located))) is not None:
                return known
            return as_found((yield from self._found_expected(located)))

        return operation("cancel", conversation, self._calling_off(change))

    # Parts of conversations.

    def _writing(
        self, calls: Sequence[Call], exists: Exists, ready: list[NewAction] | None = None
    ) -> Callable[[timedelta | None], Conversation[list[tuple[NewAction, Answer]]]]:
        """Calls of different ids, written together as one request, however often that is begun."""
        check_exists(exists)
        own_guid, trace = self._chance.guid(), self._trace()
        guids = [] if ready else [self._chance.guid() for _ in calls]

        def conversation(lock_timeout: timedelta | None) -> Conversation[list[tuple[NewAction, Answer]]]:
            batch = ready or (yield from self._prepared(calls, guids, trace))
            answers = yield from written(
                self._do,
                batch,
                own_guid,
                replaces=exists == "replace",
                only_if_new=exists == "error",
                lock_timeout=lock_timeout,
                tell=self._policy.tell_in_callers_transaction,
            )
            return list(zip(batch, answers, strict=True))

        return conversation

    def _prepared(
        self, calls: Sequence[Call], guids: Sequence[UUID], trace: str | None
    ) -> Conversation[list[NewAction]]:
        shard_count = yield from self._shards()
        yield from self._templates.checking(calls).begin()
        now = (yield from self._do.now().begin()) if any(needs_now(call) for call in calls) else None
        return [self._new_action(call, guid, shard_count, now, trace) for call, guid in zip(calls, guids, strict=True)]

    def _new_action(
        self, call: Call, guid: UUID, shard_count: int, now: datetime | None, trace: str | None
    ) -> NewAction:
        """The call as it is written; everything about it has been checked then."""
        timing = check_call(call)
        spread = self._chance.random() if call.repeat is not None and call.repeat.jitter else 0.0
        repeat, timing = first_run(call, timing, now, spread)
        handler, payload, version = self._handlers.encode(call.handler, call.payload, call.payload_version)
        action_id = id_of(call) or guid.hex
        return NewAction(
            shard_of(action_id, shard_count),
            action_id,
            guid,
            request_guid("schedule", action_id, call.request_id),
            handler,
            payload,
            terms_of(call, repeat, version, trace),
            gate_of(call, handler),
            call.priority,
            call.template,
            call.zone,
            None if call.expires_at is None else check_time("expires_at", call.expires_at),
            timing.at,
            timing.delay,
        )

    def _change(
        self,
        operation: Request,
        action_id: str,
        timing: Timing,
        expected_guid: UUID | None,
        request_id: str | None,
    ) -> Change:
        check_name("id", action_id)
        guid = self._chance.guid()
        return Change(
            shard=-1,  # known only once the installation was read
            id=action_id,
            guid=guid,
            request_guid=request_guid(operation, action_id, request_id) or guid,
            expected_guid=check_expected_guid(expected_guid),
            at=timing.at,
            delay=timing.delay,
        )

    def _calling_off(self, change: Change) -> Transition[None]:
        def conversation() -> Conversation[None]:
            yield from self._do.call_off((yield from self._shard(change.id)), change.guid).begin()

        return Transition("call_off", conversation)

    def _earlier(self, change: Change) -> Conversation[Scheduled | None]:
        return earlier(self._do, change.shard, change.id, guid=change.guid, request_guid=change.request_guid)

    def _found_expected(self, change: Change) -> Conversation[Action]:
        found = yield from self._found(change.id)
        if change.expected_guid is not None and found.meta.guid != change.expected_guid:
            raise GuidMismatch(change.id, change.expected_guid, found.meta.guid)
        return found

    # Carrying out.

    async def _perform(self, operation: Operation[T], connection: AsyncCaller | None) -> T:
        if connection is not None:
            return await run_in(connection, self._store.dialect, operation)
        try:
            async with self._quick:
                answer = await self._until_known(operation.patient(self._policy.lock_timeout), operation.calling_off)
        except DatabaseBusy:
            if self._store.dialect == "sqlite":
                raise  # there is one lock for all: it has been waited for
            async with self._patient:
                answer = await self._until_known(operation.patient(self._policy.lock_patience), operation.calling_off)
        self._wrote()
        return answer

    async def _until_known(self, operation: Transition[T], calling_off: Transition[None] | None = None) -> T:
        """Send again, under the same request guid, what may or may not have been done."""
        deadline = self._clock.monotonic() + self._policy.outcome_patience.total_seconds()
        unknown: OutcomeUnknown | None = None
        failures = 0
        while True:
            try:
                if unknown is not None and calling_off is not None:
                    return await sent_again(self._store, operation, calling_off)
                return await self._store.run(operation)
            except OutcomeUnknown as error:
                unknown = error
            except DatabaseError:
                # Only this try is known to have failed: the one before may still be under way, and hold the lock.
                if unknown is None:
                    raise
            failures += 1
            if self._clock.monotonic() >= deadline:
                raise unknown
            await self._clock.sleep(backoff_s(failures, first=0.05, most=2, spread=self._chance.random()))

    async def _schedule_together(self, new: NewAction, exists: Exists) -> Scheduled:
        answer = await self._sent_together(new, exists == "replace")
        while answer is None and new.request_guid is None:
            # What it found is gone since, and what the answer would have been nobody knows: ask anew, as a new request.
            answer = await self._sent_together(new, exists == "replace")
        self._wrote()
        return as_scheduled(new, answer, exists)

    async def _sent_together(self, new: NewAction, replaces: bool) -> Answer:
        try:
            return await self._coalescer.submit(new, key=new.id, kind=replaces)
        except DatabaseBusy:
            async with self._patient:
                sending = self._sending([new], replaces, self._policy.lock_patience, tell=True)
                return (await self._until_known(sending))[0]

    async def _send_together(self, batch: Sequence[NewAction], replaces: bool) -> list[Answer]:
        tell = self._tells(batch)
        answers = await self._until_known(self._sending(batch, replaces, self._policy.lock_timeout, tell=tell))
        self._events.emit(CallsWritten(len(batch), coalesced=True))
        if self._owes_telling and self._coalescer.is_idle:
            self._owes_telling = False
            with suppress(DatabaseError):  # only a hint: workers also look by themselves
                await self._store.run(self._do.wake())
        return answers

    def _sending(
        self, batch: Sequence[NewAction], replaces: bool, lock_timeout: timedelta, *, tell: bool
    ) -> Transition[list[Answer]]:
        own_guid = self._chance.guid()
        return Composed(
            "schedule",
            lambda: written(self._do, batch, own_guid, replaces=replaces, lock_timeout=lock_timeout, tell=tell),
        )

    def _tells(self, batch: Sequence[NewAction]) -> bool:
        """Whether this statement wakes the workers.

        Telling serialises commits on PostgreSQL, so under load only some do, and the last one makes up for it.
        """
        ahead = self._clock.now() + self._policy.tell_ahead
        if not any(
            new.delay <= self._policy.tell_ahead if new.at is None else new.at + new.delay <= ahead for new in batch
        ):
            return False
        now = self._clock.monotonic()
        if self._coalescer.is_idle or now - self._told_at >= self._policy.tell_interval_s:
            self._told_at, self._owes_telling = now, False
            return True
        self._owes_telling = True
        return False
