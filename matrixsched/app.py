"""The application: handlers by name, and everything a program does with its actions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from uuid import UUID

from matrixsched.calls import Call, Exists, Scheduled, ScheduledMany
from matrixsched.clock import Chance, Clock, SystemChance, SystemClock
from matrixsched.config import read_database_settings
from matrixsched.errors import AlreadyOpen, BadInput
from matrixsched.events import Events
from matrixsched.foresight import look_ahead
from matrixsched.handlers import PAYLOAD_BYTES_MAX, Handler, Handlers, Middleware
from matrixsched.limits import Limits
from matrixsched.opening import Opening
from matrixsched.pruning import Progress, prune
from matrixsched.queues.api import Queues
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.storage import QueueStorage
from matrixsched.rules.action import Action, PastAttempt, State
from matrixsched.rules.explanation import Explanation
from matrixsched.rules.forecast import Forecast
from matrixsched.rules.names import SHARDS_DEFAULT, SHARDS_MAX
from matrixsched.rules.retention import Keep
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import Repeat
from matrixsched.rules.semaphore import EVENT_RETRY, acquired_handler, check_semaphore_key, try_release_handler
from matrixsched.rules.times import check_integer
from matrixsched.scheduler import Scheduler
from matrixsched.scheduler_policy import SchedulerPolicy
from matrixsched.semaphores import Acquired, Semaphores, TryRelease
from matrixsched.store.callers import AsyncCaller
from matrixsched.store.news import News
from matrixsched.store.opening import open_store
from matrixsched.store.store import Store
from matrixsched.store.values import ActionFilter, ShardReport
from matrixsched.sync import SyncApp
from matrixsched.templates import Quota, Templates
from matrixsched.tracing import Tracer, Untraced

Page = list[Action]
History = list[PastAttempt]
Runs = list[datetime]
Shards = list[ShardReport]

COUNT_MAX = 1_000_000

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")


class App:
    """Handlers and the database their actions live in.

    >>> app = App("sqlite:///reminders.db")
    >>> @app.action("remind")
    ... async def remind(text: str) -> None: ...
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        installation: str | None = None,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        policy: SchedulerPolicy | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        store: Store | None = None,
        queue_storage: QueueStorage | None = None,
    ) -> None:
        """Database and installation, where not given, come from the settings: the environment, or matrixsched.toml.

        `clock`, `chance` and `store` are for tests: time, randomness and faults of their own. `queue_storage` is
        where the tasks of queues are if not in the database: a MemoryStorage.
        """
        self.url = url = read_database_settings("database").database() if url is None else url
        if installation is None:
            installation = read_database_settings("installation").checked().installation
        self.installation = installation
        self.handlers = Handlers(payload_bytes_max=payload_bytes_max)
        self.middlewares: list[Middleware] = []
        self.events = Events()
        self.tracer: Tracer = Untraced()
        self.clock = clock or SystemClock()
        self.chance = chance or SystemChance()
        self.policy = policy or SchedulerPolicy()
        self._make_scheduler: Callable[..., Scheduler] = Scheduler
        self.store = store or open_store(url, installation, clock=clock, chance=chance)
        self.scheduler = self._scheduler(self.store, wrote=self._wake)
        self.limits = Limits(lambda: self.store, wrote=self._wake, events=lambda: self.events)
        self.templates = Templates(
            lambda: self.store, chance=lambda: self.chance, wrote=self._wake, events=lambda: self.events
        )
        self.quota = Quota(lambda: self.store)
        self.semaphores = Semaphores(lambda: self.store, chance=lambda: self.chance, wrote=self._wake)
        self.queues = Queues(
            lambda: self.store,
            lambda store: DatabaseStorage(lambda: store, chance=lambda: self.chance),
            wrote=partial(self._wake, News.QUEUES),
            elsewhere=queue_storage,
            actions=self.handlers,
        )
        self.sync = SyncApp(self)
        self._wakeups: list[tuple[Callable[[], None], News]] = []
        self.opening = self._not_open()

    def _not_open(self) -> Opening:
        return Opening(lambda: self.store, lambda: self.scheduler)

    def scheduler_for(self, store: Store) -> Scheduler:
        """A scheduler over another store of the same installation, for another thread.

        It wakes nobody in this process: an event must not be set from another thread, and the database tells workers.
        """
        return self._scheduler(store, wrote=lambda: None)

    def _scheduler(self, store: Store, *, wrote: Callable[[], None]) -> Scheduler:
        return self._make_scheduler(
            store,
            self.handlers,
            clock=self.clock,
            chance=self.chance,
            policy=self.policy,
            wrote=wrote,
            events=self.events,
            trace=lambda: self.tracer.carried(),
        )

    # Handlers.

    def action(
        self,
        name: str,
        *,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        version: int = 1,
        oldest_version: int = 1,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register a function, async or not, as the handler `name`.

        It takes (payload), (payload, context), (context) or nothing; the payload's type is read from its annotation. It
        returns None or an outcome (Done, RetryAt, SlowDown, Cancel), or raises: then it is tried again as `retry` says.
        After `timeout` (default 60 s) it is cancelled. `version` is that of the payload it takes: raise it when the
        type changes, and let `@handler.upcast(older)` lift what is stored already, back to `oldest_version`.
        """
        if not isinstance(name, str):
            raise BadInput('a handler is registered under a name: @app.action("name"), with parentheses')

        def register(function: Callable[P, R]) -> Handler[P, R]:
            return self.handlers.register(
                name, function, retry=retry, timeout=timeout, version=version, oldest_version=oldest_version
            )

        return register

    def on_acquired(
        self, key: str, *, retry: Retry | None = None, timeout: timedelta | None = None
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register who is told that a task has a place of the semaphore `key`: it takes an Acquired.

        Told at least once, and not any more once the task was released. If it raises, it is told again without end, at
        first after a second, later every minute, unless `retry` says otherwise. Events pass no gate and come in any
        order: the task may be asked for its place before this is told, or meanwhile. It may take a Context, too.
        """
        return self._on_event(acquired_handler(check_semaphore_key(key)), Acquired, retry, timeout)

    def on_try_release(
        self, key: str, *, retry: Retry | None = None, timeout: timedelta | None = None
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register who is asked to release a task's place because more important ones wait: it takes a TryRelease.

        As `on_acquired`; not any more once the task need not go after all. A place is kept until it is released.
        """
        return self._on_event(try_release_handler(check_semaphore_key(key)), TryRelease, retry, timeout)

    def _on_event(
        self, name: str, event: type[Acquired | TryRelease], retry: Retry | None, timeout: timedelta | None
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        def register(function: Callable[P, R]) -> Handler[P, R]:
            return self.handlers.register(
                name,
                function,
                retry=EVENT_RETRY if retry is None else retry,
                timeout=timeout,
                event_type=event,
                guard=self.semaphores._void,
            )

        return register

    def middleware(self, around: Middleware) -> Middleware:
        """Register `async def around(context, call_next)`, called around every handler; the first one is outermost."""
        self.middlewares.append(around)
        return around

    def on(self, kind: type[E]) -> Callable[[Callable[[E], object]], Callable[[E], object]]:
        """Call a function at every event of a kind (see matrixsched.events), in this process.

        >>> @app.on(AttemptEnded)
        ... def tell(event: AttemptEnded) -> None: ...

        It must be quick, and may be called from another thread. `app.events.subscribe(kind, function)` does the same
        and returns what ends it.
        """

        def subscribe(subscriber: Callable[[E], object]) -> Callable[[E], object]:
            self.events.subscribe(kind, subscriber)
            return subscriber

        return subscribe

    # Life.

    async def open(self) -> None:
        """Connect, and refuse a database whose schema does not fit. Opened twice, it is closed by the second close."""
        await self.opening.open()

    async def close(self) -> None:
        await self.opening.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def init(self, *, shards: int = SHARDS_DEFAULT, distributed: bool | None = None) -> list[str]:
        """Create the tables, or bring them to the newest schema; the names of the migrations applied.

        Safe when many processes call it at once. An installation that exists keeps its number of shards and its form.
        `distributed=True` makes one for PostgreSQL whose tables are spread over several nodes by shard, and is refused
        for one that exists in the usual form, as False is for a distributed one; None takes it as it is.
        """
        store = self.store.sibling()
        await store.open()
        try:
            return await store.upgrade(shards, distributed=distributed)
        finally:
            await store.close()

    # Actions.

    async def schedule(
        self,
        handler: Handler[..., Any] | str,
        payload: object = None,
        *,
        id: str | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        repeat: Repeat | None = None,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        start_within: timedelta | None = None,
        expires_at: datetime | None = None,
        priority: int = 0,
        template: str | None = None,
        zone: str | None = None,
        limit: str | None = None,
        payload_version: int | None = None,
        exists: Exists = "replace",
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: AsyncCaller | None = None,
    ) -> Scheduled:
        """Write an action: now, `at` an instant or after a `delay`, once or repeatedly.

        Without an `id` one is made. An action of that id is replaced (its attempt under way is not stopped), kept, or
        an error, as `exists` says; `expected_guid` replaces only that very version. The same `request_id` takes effect
        once. `start_within`: no attempt begins later than that after its tick. `expires_at` ends the action.
        With a `template` it waits for a share of that template's quota, which looks at the time of the day in `zone`,
        the recipient's; `limit` is a key: actions of one key together stay below its limit.
        `payload_version` goes with the name of a handler that is not registered here, if it takes more than version 1.
        With `connection` it is part of the caller's transaction: an AsyncConnection or AsyncSession of SQLAlchemy, or
        a connection of asyncpg, psycopg or aiosqlite.
        """
        call = Call(
            handler=handler,
            payload=payload,
            id=id,
            at=at,
            delay=delay,
            repeat=repeat,
            retry=retry,
            timeout=timeout,
            start_within=start_within,
            expires_at=expires_at,
            priority=priority,
            template=template,
            zone=zone,
            limit=limit,
            payload_version=payload_version,
            request_id=request_id,
        )
        with self.tracer.producing(call) as answered:
            scheduled = await self.scheduler.schedule(
                call, exists=exists, expected_guid=expected_guid, connection=connection
            )
            answered(scheduled)
        return scheduled

    async def schedule_many(
        self,
        calls: Iterable[Call],
        *,
        exists: Exists = "replace",
        connection: AsyncCaller | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> ScheduledMany:
        """Write any number of actions made by `call()`, a thousand in a statement.

        Without `connection` each thousand is a transaction: a mistake further on leaves the earlier ones written. With
        `exists="error"` nothing of a thousand is written if one of its actions exists. While one is written the next
        is drawn from `calls` already.
        `progress` is told how many are written so far.
        """
        with self.tracer.producing(None) as answered:
            many = await self.scheduler.schedule_many(calls, exists=exists, connection=connection, progress=progress)
            answered(many)
        return many

    async def reschedule(
        self,
        id: str,
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: AsyncCaller | None = None,
    ) -> Scheduled:
        """Move the next run of a live action; a repeating one goes on from there, without what it missed before."""
        operation = self.scheduler.rescheduling(
            id, at=at, delay=delay, expected_guid=expected_guid, request_id=request_id
        )
        return await self.scheduler.change(operation, connection)

    async def run_now(
        self,
        id: str,
        *,
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: AsyncCaller | None = None,
    ) -> Scheduled:
        """Make an action due at once; a finished one is run again (redriven), without the end that it had."""
        operation = self.scheduler.rescheduling(id, revive=True, expected_guid=expected_guid, request_id=request_id)
        return await self.scheduler.change(operation, connection)

    async def cancel(
        self,
        id: str,
        *,
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: AsyncCaller | None = None,
    ) -> Scheduled:
        """End a live action: nothing of it starts any more. An attempt under way is not stopped (`running` tells)."""
        operation = self.scheduler.cancelling(id, expected_guid=expected_guid, request_id=request_id)
        return await self.scheduler.change(operation, connection)

    async def get(self, id: str, *, connection: AsyncCaller | None = None) -> Action:
        """The action as it stands; ActionNotFound if there is none."""
        return await self.scheduler.read(self.scheduler.finding(id), connection)

    async def list(
        self,
        *,
        state: State | None = None,
        handler: str | None = None,
        template: str | None = None,
        id_prefix: str | None = None,
        due_before: datetime | None = None,
        after: Action | str | None = None,
        limit: int = 100,
        connection: AsyncCaller | None = None,
    ) -> Page:
        """A page of actions in a stable order; pass the last one as `after` for the next page."""
        wanted = ActionFilter(
            state=state, handler=handler, template=template, id_prefix=id_prefix, due_before=due_before
        )
        return await self.scheduler.read(self.scheduler.listing(wanted, after, limit), connection)

    async def each(self, *, state: State | None = None, handler: str | None = None) -> AsyncIterator[Action]:
        """All actions that fit, page by page."""
        after: Action | None = None
        while page := await self.list(state=state, handler=handler, after=after, limit=1000):
            for action in page:
                yield action
            after = page[-1]

    async def history(self, id: str) -> History:
        """The last attempts that failed, timed out, were interrupted or superseded; newest first."""
        return await self.scheduler.read(self.scheduler.remembering(id), None)

    async def next_runs(self, id: str, count: int = 5, *, connection: AsyncCaller | None = None) -> Runs:
        """When a live action runs next, then at which ticks by its rule, without jitter; what is finished has none."""
        return await self.scheduler.read(self.scheduler.foreseeing(id, count), connection)

    async def explain(self, id: str) -> Explanation:
        """Why an action has not run yet, or what became of it: the reasons, the deciding one first."""
        return await self.scheduler.read(self.scheduler.explaining(id), None)

    # Operators.

    async def shards(self, *, count_max: int = 10_000) -> Shards:
        """Every shard lock with its queues; counts stop at `count_max`."""
        check_integer("count_max", count_max, least=1, most=COUNT_MAX)
        return await self.store.run(self.store.transitions.shards(count_max=count_max))

    async def release_shard(self, shard: int, lock_guid: UUID) -> bool:
        """Free a shard lock if it is still held under that guid. Its holder notices and writes nothing more."""
        check_integer("shard", shard, least=0, most=SHARDS_MAX - 1)
        if not isinstance(lock_guid, UUID):
            raise BadInput(f"lock_guid must be a UUID, as shards() shows it, not {type(lock_guid).__name__}")
        return await self.store.run(self.store.transitions.release_shard(shard, lock_guid))

    async def prune(
        self, keep: Keep = None, *, progress: Progress | None = None, dry_run: bool = False
    ) -> Mapping[State, int]:
        """Delete actions that ended longer ago than `keep`, with their history; how many by state.

        `keep` is a duration for all, or one for each state that is named (the others stay), or None for the workers'
        defaults. Batch after batch, each a transaction; `progress` is told how many are gone so far. With `dry_run`
        nothing is deleted; counting stops at 10,000 of a state. Workers do the same by themselves, a little at a time.
        """
        return await prune(self.store, keep, progress=progress, dry_run=dry_run)

    async def foresee(self, hours: int = 24) -> Forecast:
        """How the messages of templates that wait now will go out, if no others come: a dry run that changes nothing.

        Per template: what goes in the rest of the present window, what is held and why, how many are sent in each of
        the coming hours, when the last one is, and how many will expire before that. All limits are played along, and
        actions without a template, which share them. Near ahead it is played window by window, later ones several at a
        time: a finish is told to about a hundredth of the time until then. `not_counted` says what is left out.
        """
        return await look_ahead(self.store, hours)

    @property
    def stores(self) -> dict[str, Store]:
        """What this process is connected by, by who uses it: `app`, and `sync` while it is open."""
        return {"app": self.store} | ({} if self.sync.store is None else {"sync": self.sync.store})

    # Wake-ups inside this process.

    def on_news(self, wake: Callable[[], None], *, of: News = News.ANYTHING) -> None:
        """Call `wake` after something was scheduled, or put into a queue, through this application."""
        self._wakeups.append((wake, of))

    def _wake(self, news: News = News.ACTIONS) -> None:
        for wake, of in self._wakeups:
            if news & of:
                wake()

    # Tests.

    @contextmanager
    def bound_to(
        self, store: Store, *, clock: Clock, chance: Chance, make_scheduler: Callable[..., Scheduler] = Scheduler
    ) -> Iterator[None]:
        """Everything of this application goes to another store until the block ends; then all is as before.

        For tests of programs whose App stands in a module: `matrixsched.testing` opens this door. Refused while the
        application is open, because calls under way would end up half here and half there. Subscribers and middlewares
        that are added inside are gone afterwards, too.
        """
        if self.opening.is_connected or self.sync.is_connected:
            raise AlreadyOpen("the application is connected to its own database")
        before = {name: value for name, value in vars(self).items() if name not in ("handlers", "policy", "sync")}
        self.store, self.installation, self.clock, self.chance = store, store.installation, clock, chance
        self.events, self.middlewares, self._wakeups = self.events.copy(), list(self.middlewares), []
        self._make_scheduler, self.opening = make_scheduler, self._not_open()
        self.scheduler = self._scheduler(store, wrote=self._wake)
        try:
            yield
        finally:
            self.sync.close()
            vars(self).update(before)
