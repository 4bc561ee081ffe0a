"""Two applications, one on SQLite and one on PostgreSQL, with the same time, the same chance and the same beginning.

What is there at the beginning is made once by public calls and kept in tables beside; each example begins with a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import BaseModel

from fuzz.inputs import MIXED, Input, build, references
from fuzz.tables import Contents, Tables, columns_of
from fuzz.values import SECOND, START
from matrixsched import Acquired, App, Cancel, Context, Retry, RetryAt, SlowDown, TryRelease, retry_after
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.queues import DeadLetter, decode, load_contract, parse_contract, task_class
from matrixsched.queues.ledger import BatchStorage, Ledger, SyncBatchStorage
from matrixsched.rules.schedule import upcoming
from matrixsched.store.opening import open_store
from matrixsched.store.sqlite.store import SqliteStore
from matrixsched.store.store import Store
from matrixsched.testing.places import PortalStore
from matrixsched.worker import Worker, WorkerPolicy

T = TypeVar("T")

Register = Callable[[App], None]

SHARDS = 4
SEED, SEED_OF_BEGINNING = 1, 0


class Greeting(BaseModel):
    text: str
    times: int = 1
    amount: float | None = None


def register(app: App) -> None:
    """Handlers of all shapes; none of them says anything about its payload."""

    @app.action("greet", retry=Retry(max_attempts=1))
    async def greet(greeting: Greeting) -> None:
        if greeting.times == 0:
            raise RuntimeError("no greeting at all")

    @app.action("anything")
    async def anything(payload: Any) -> None: ...

    @app.action("nothing")
    async def nothing(context: Context) -> None: ...

    @app.action("lifted", version=3)
    async def lifted(greeting: Greeting) -> None: ...

    @lifted.upcast(1)
    def from_first(payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    @lifted.upcast(2)
    def from_second(payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    @app.action("mapped")
    async def mapped(numbers: dict[str, list[int]]) -> None: ...

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None: ...

    @app.on_try_release("pool")
    async def step_back(event: TryRelease) -> None: ...

    app.queues.use(MIXED)


async def prepare(app: App, clock: ManualClock) -> None:
    """Something of everything: live and finished actions, limits, templates, semaphores, tasks, dead letters."""
    await app.limits.set("handler:greet", "1000/s", pool=100)
    await app.limits.set("key:k1", "10/s")
    await app.templates.set("news", windows=["08:00-12:00"], distribution="own", max_speed="100/min")
    await app.templates.set("alerts", weight=2)
    await app.schedule("anything", {"a": 1}, id="sent")
    await app.schedule("greet", {"text": "x", "times": 0}, id="failed")
    await Worker(app, WorkerPolicy(slots_ahead=timedelta(0)), name="worker").run_due()
    clock.advance(SECOND)
    await app.schedule("greet", {"text": "x"}, id="due", limit="k1")
    await app.schedule("greet", {"text": "x"}, id="later", delay=timedelta(hours=1), template="news")
    await app.schedule("nothing", id="over", expires_at=clock.now() + SECOND)
    await app.cancel("over")
    await app.schedule("elsewhere", id="daily", delay=timedelta(days=1))
    pool = await app.semaphores.get_or_create("pool", active=2)
    await pool.enqueue_many({"t1": 1, "t2": 2, "t3": 3})
    await app.semaphores.get_or_create("small", active=0, hold_for=timedelta(minutes=1))
    await pool.balance()
    Plain: Any = task_class(MIXED.queue("plain"))
    await app.queues.put_many([Plain(text="one"), Plain(text="two"), Plain(text="three")])
    (first,) = await app.queues.storage.get(2, 1)
    await app.queues.storage.set_aside([(first, "it is broken")])


class Side:
    """One database, and an application on it. All but the making of it happens in the loop of the portal."""

    def __init__(self, store: Store, clock: ManualClock, portal: BlockingPortal, register: Register) -> None:
        self.store, self.clock, self._register = store, clock, register
        self.tables = Tables(store, {})
        self.chance = SeededChance(SEED_OF_BEGINNING)
        self.app = self._app(store)
        # Of synchronous calls the connections belong to another thread.
        self.synchronous = self._app(PortalStore(store, portal))
        self.taken: list[Any] = []
        self.told: list[int] = []

    def _app(self, store: Store) -> App:
        app = App("sqlite://", store=store, clock=self.clock, chance=self.chance)
        self._register(app)
        return app

    @property
    def name(self) -> str:
        return self.store.dialect

    def close(self) -> None:
        self.synchronous.sync.close()

    # Beginnings.

    async def prepare(self) -> None:
        await prepare(self.app, self.clock)
        await self.tables.level()
        await self.tables.keep()

    async def restore(self) -> None:
        """As at the beginning; guids and jitter are drawn from the beginning, too."""
        await self.tables.restore()
        self.chance._random.seed(SEED)
        self.taken, self.told = [], []

    # One input.

    async def carry_out(self, given: Input) -> Any:
        """Build the arguments and make the call."""
        asked = {one: await self._look_up(*one) for one in references((given.args, given.options))}

        def lookup(what: str, args: tuple[Any, ...]) -> Any:
            return asked[what, args]

        args, options = build(given.args, lookup), build(given.options, lookup)
        if given.door == "sync":
            return await to_thread.run_sync(self._synchronously, given.surface, args, options)
        return await self._asynchronously(given.surface, args, options)

    def _synchronously(self, surface: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
        app, (owner, _, method) = self.synchronous.sync, surface.rpartition(".")
        if owner == "storage":
            return self._as_handler(method, args, options)
        if owner == "semaphore":
            return getattr(app.semaphores.get(args[0]), method)(*args[1:], **options)
        return getattr(getattr(app, owner) if owner else app, method)(*args, **options)

    def _as_handler(self, method: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """As the handler of a batch that is a plain function, in a thread of the loop in which the storage lives."""
        mine = BatchStorage(self.app.queues.storage_over(self.app.store), Ledger(self.taken))
        answer = getattr(SyncBatchStorage(mine), method)(*args, **options)
        if method == "get":
            self.taken += answer
        return answer

    async def _asynchronously(self, surface: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
        if surface in ELSEWHERE:
            # What is registered stays registered: so on an application of its own.
            return ELSEWHERE[surface](self._app(self.store), *args, **options)
        owner, _, method = surface.rpartition(".")
        if owner == "semaphore":
            return await getattr(await self.app.semaphores.get(args[0]), method)(*args[1:], **options)
        if owner == "storage":
            answer = await getattr(self.app.queues.storage_over(self.app.store), method)(*args, **options)
            if method == "get":
                self.taken += answer
            return answer
        return await getattr(getattr(self.app, owner) if owner else self.app, method)(*args, **options)

    async def _look_up(self, what: str, args: tuple[Any, ...]) -> Any:
        """What depends on what happened on this side."""
        match what:
            case "guid_of":
                return (await self.app.get(*args)).meta.guid
            case "action_of":
                return await self.app.get(*args)
            case "hold_of":
                return (await (await self.app.semaphores.get("pool")).get(*args)).guid
            case "taken":
                return self.taken[args[0] % len(self.taken)] if self.taken else None
            case "counting":
                return self.told.append
            case "mixed contract":
                return MIXED
            case "mixed queue":
                return MIXED.queue("mixed")
            case "mixed class":
                return task_class(MIXED.queue("mixed"))
        raise KeyError(what)


def _registered(app: App, name: Any, **options: Any) -> str:
    async def handler() -> None: ...

    return app.action(name, **options)(handler).name


def _told(app: App, key: Any, **options: Any) -> str:
    async def handler(event: Acquired) -> None: ...

    return app.on_acquired(key, **options)(handler).name


def _batches(app: App, queue: Any, **options: Any) -> None:
    async def handler(tasks: list[Any]) -> None: ...

    app.queues.handler(queue, **options)(handler)


PLAIN: tuple[Callable[..., Any], ...] = (
    *(parse_contract, load_contract, task_class, decode, retry_after, upcoming),
    *(WorkerPolicy, RetryAt, SlowDown, Cancel, DeadLetter),
)
"""Functions and values that know of no application."""


def _plainly(made: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *args, **options: made(*args, **options)


ELSEWHERE: dict[str, Callable[..., Any]] = {
    "action": _registered,
    "on_acquired": _told,
    "queues.use": lambda app, *args, **options: app.queues.use(*args, **options),
    "queues.handler": _batches,
    "App": lambda _, *args, **options: App(*args, **options).url,
    **{made.__name__: _plainly(made) for made in PLAIN},
}
"""Calls that ask no database."""


class Sides:
    """Both of them, and the time that they share."""

    def __init__(self, sides: Sequence[Side], clock: ManualClock, portal: BlockingPortal) -> None:
        self.both, self.clock, self.portal = sides, clock, portal

    async def prepare(self) -> None:
        columns = await columns_of(self.both[-1].store)
        for side in self.both:
            self.clock.time = START
            side.tables = Tables(side.store, columns)
            await side.prepare()
        self._began = self.clock.now()

    async def restore(self) -> None:
        """As at the beginning. Time is set back, but nothing that was remembered for a while is remembered still."""
        self.clock.time = self._began
        self.clock._elapsed += 86_400
        for side in self.both:
            await side.restore()

    async def contents(self) -> list[Contents]:
        """All rows of both."""
        return [await side.tables.contents() for side in self.both]


@contextmanager
def opened(dsn: str, register: Register = register, *, file: str | None = None) -> Iterator[Sides]:
    """An application on each database; the one of PostgreSQL must be empty. SQLite is in memory, or in a `file`."""
    clock = ManualClock(START)
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        sides = []
        for store in (SqliteStore(file, "default", clock=clock, hop=_at_once), open_store(dsn, clock=clock)):
            portal.call(store.open)
            stack.callback(portal.call, store.close)
            portal.call(store.upgrade, SHARDS)
            sides.append(Side(store, clock, portal, register))
            stack.callback(sides[-1].close)
        both = Sides(sides, clock, portal)
        portal.call(both.prepare)
        yield both


async def _at_once(function: Callable[[], T]) -> T:
    return function()
