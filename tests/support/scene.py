"""A store at rest whose time stands still, and short ways to bring actions into any state.

    attempt = await scene.start("a")          # scheduled, moved, claimed
    scene.clock.advance(2 * LEASE)            # its worker is gone
    (again,) = await scene.sync()             # the next one finds it

Makers hide what does not matter: unless told otherwise everything happens in shard 0, to the handler "greet". Raw SQL
is written for PostgreSQL and read back alike from both: times as datetimes, guids as UUIDs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from matrixsched.clock import ManualClock, SystemChance
from matrixsched.rules.action import UNGATED, Action, Attempt, Claim, Outcome, PastAttempt, State, Terms
from matrixsched.rules.outcome import Verdict
from matrixsched.store.statements import render, statement
from matrixsched.store.store import Store
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Acquired, Answer, Change, Claimed, Ended, Extension, Holding, NewAction, Written

T = TypeVar("T")

SHARDS = 4
HANDLER = "greet"
LEASE = timedelta(seconds=10)
"""Of shards and of attempts."""

TABLES = ("scheduled_actions", "incoming_queue", "processing_queue", "requests", "attempt_history")
GATES = ("limits", "templates", "held_lanes", "quota_windows", "quota_grants")
SEMAPHORES = ("semaphores", "semaphore_tasks", "semaphore_changes")
QUEUES = ("queue_tasks", "queue_dead_letters", "known_queues", "queue_settings", "queue_workers")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOLDERS = ("last_locked_by", "planned_by")
"""Workers in words."""
# Asked by keys: a join is planned by statistics of tables that were empty a moment ago, and takes seconds.
_WITHOUT_ONE_ROW = """
select action_id, action_guid, live_rows
  from (select a.action_id, a.action_guid,
               (select count(*) from matrixsched.incoming_queue i
                 where i.shard_id = a.shard_id and i.action_id = a.action_id and i.action_guid = a.action_guid)
             + (select count(*) from matrixsched.processing_queue p
                 where p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid)
               as live_rows
          from matrixsched.scheduled_actions a
         where a.state = 'live') as living
 where live_rows <> 1
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """A shard lock that a sync iteration holds."""

    shard: int
    guid: UUID


class Scene:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self._chance = SystemChance()

    @property
    def do(self) -> Transitions:
        return self.store.transitions

    @property
    def now(self) -> datetime:
        return self.clock.now()

    async def run(self, transition: Transition[T]) -> T:
        return await self.store.run(transition)

    def guid(self) -> UUID:
        return self._chance.guid()

    # Users.

    def new(self, id: str = "a", **options: Any) -> NewAction:
        """An action to be written; due at once unless `at` or `delay` says otherwise."""
        usual: dict[str, Any] = {
            "shard": 0,
            "guid": self.guid(),
            "request_guid": None,
            "handler": HANDLER,
            "payload": b"{}",
            "terms": Terms(),
            "lane": UNGATED,
            "priority": 0,
            "template": None,
            "zone": None,
            "expires_at": None,
            "at": None,
            "delay": timedelta(0),
        }
        return NewAction(id=id, **(usual | options))

    async def send(
        self, batch: Sequence[NewAction], *, request: UUID | None = None, replace: bool = True
    ) -> list[Written]:
        transition = self.do.schedule(batch, request or self.guid(), replace=replace, lock_timeout=None, tell=False)
        return await self.run(transition)

    async def schedule(self, id: str = "a", **options: Any) -> Written:
        (written,) = await self.send([self.new(id, **options)])
        return written

    def change(self, id: str = "a", **options: Any) -> Change:
        usual = {"shard": 0, "guid": self.guid(), "request_guid": self.guid(), "expected_guid": None}
        return Change(id=id, **(usual | options))

    async def reschedule(self, id: str = "a", *, revive: bool = False, **options: Any) -> Written | None:
        return await self.run(self.do.reschedule(self.change(id, **options), revive=revive, tell=False))

    async def cancel(self, id: str = "a", **options: Any) -> Written | None:
        return await self.run(self.do.cancel(self.change(id, **options)))

    async def action(self, id: str = "a", *, shard: int = 0) -> Action:
        (found,) = await self.run(self.do.find([(shard, id)]))
        return found

    async def history(self, id: str = "a", *, shard: int = 0) -> list[PastAttempt]:
        return await self.run(self.do.history(shard, id))

    # Workers.

    async def acquire(self, *, lanes: Sequence[str] = (), guid: UUID | None = None) -> Acquired:
        return await self.run(
            self.do.acquire_shard(sync_guid=guid or self.guid(), holder="host:1", lease=LEASE, lanes=lanes)
        )

    async def hold(self, *, lanes: Sequence[str] = ()) -> Hold:
        """The lock of the shard that has work."""
        guid = self.guid()
        acquired = await self.acquire(lanes=lanes, guid=guid)
        assert acquired.shard is not None, "no free shard has work"
        return Hold(acquired.shard, guid)

    async def release(self, hold: Hold) -> bool:
        return await self.run(self.do.release_shard(hold.shard, hold.guid))

    async def move(self, hold: Hold, **options: Any) -> Claimed:
        usual = {"handlers": [HANDLER], "move_limit": 100, "claim_limit": 100, "attempt_lease": LEASE}
        return await self.run(self.do.move(hold.shard, hold.guid, **(usual | options)))

    async def claim(self, hold: Hold, **options: Any) -> Claimed:
        usual = {"lane": UNGATED, "handlers": [HANDLER], "limit": 100, "attempt_lease": LEASE}
        return await self.run(self.do.claim(hold.shard, hold.guid, **(usual | options)))

    async def sync(self, *, lanes: Sequence[str] = (), handlers: Sequence[str] = (HANDLER,)) -> list[Attempt]:
        """A whole sync iteration: the attempts that are now ours; none if there is no work."""
        guid = self.guid()
        acquired = await self.acquire(lanes=lanes, guid=guid)
        if acquired.shard is None:
            return []
        hold = Hold(acquired.shard, guid)
        attempts = list((await self.move(hold, handlers=handlers)).attempts)
        for lane in (UNGATED, *lanes):
            attempts += (await self.claim(hold, lane=lane, handlers=handlers)).attempts
        assert await self.release(hold)
        return attempts

    async def put_in_processing(self, *ids: str, **options: Any) -> None:
        """Schedule actions and move them, unclaimed."""
        await self.send([self.new(id, **options) for id in ids])
        hold = await self.hold()
        await self.move(hold, claim_limit=0)
        await self.release(hold)

    async def start(self, id: str = "a", **options: Any) -> Attempt:
        """Schedule an action and claim it."""
        await self.schedule(id, **options)
        (attempt,) = await self.sync(handlers=[options.get("handler", HANDLER)])
        return attempt

    async def interrupt(self, attempt: Attempt) -> Attempt:
        """Its worker is gone; the next attempt at the action."""
        self.clock.advance(LEASE + timedelta(microseconds=1))
        (again,) = await self.sync(lanes=[f"handler!{attempt.handler}"])
        return again

    async def extend(self, attempt: Attempt, *, longest: timedelta = timedelta(hours=1)) -> Extension:
        answers = await self.run(self.do.extend([Holding(attempt.claim, longest)], attempt_lease=LEASE))
        return answers[attempt.claim.guid]

    async def give_back(self, *attempts: Attempt) -> int:
        return await self.run(self.do.give_back(attempts))

    async def record(self, *ended: Ended, history_max: int = 50) -> list[Answer]:
        answers = await self.run(self.do.record(ended, history_max=history_max))
        return [answers[one.claim.guid] for one in ended]

    async def finish(self, attempt: Attempt) -> Answer:
        """Record that it succeeded, and that this was all."""
        (answer,) = await self.record(done(attempt))
        return answer

    # Behind the store's back.

    async def sql(self, text: str, **parameters: object) -> list[dict[str, Any]]:
        return await self.write([(text, parameters)])

    async def write(self, asked: Iterable[tuple[str, Mapping[str, object]]]) -> list[dict[str, Any]]:
        """In one transaction; what the last one returned."""
        asks = [self._raw(text, parameters) for text, parameters in asked]

        def conversation() -> Conversation[list[dict[str, Any]]]:
            for ask in asks:
                rows = yield ask
            return [{name: _read(name, value) for name, value in row.items()} for row in rows]

        return await self.run(Transition("raw", conversation))

    def _raw(self, text: str, parameters: Mapping[str, object]) -> Ask:
        if self.store.dialect == "sqlite":
            text = render("sqlite", "default", text.replace("matrixsched.", "matrixsched_"))
            parameters = {name: _for_sqlite(value) for name, value in parameters.items()}
        return Ask(statement(self.store.dialect, self.store.installation, "raw", text), parameters)

    async def table(self, name: str) -> list[dict[str, Any]]:
        rows = await self.sql(f"select * from matrixsched.{name}")
        return sorted(rows, key=lambda row: tuple(map(str, row.values())))

    async def row(self, id: str = "a", guid: UUID | None = None) -> dict[str, Any]:
        """The processing row of an action (of its version `guid` if there are several)."""
        rows = [row for row in await self.table("processing_queue") if row["action_id"] == id]
        (row,) = [row for row in rows if guid is None or row["action_guid"] == guid]
        return row

    async def waiting(self, table: str) -> set[str]:
        """Which actions have rows in a queue."""
        return {row["action_id"] for row in await self.table(table)}

    async def contents(self) -> dict[str, list[dict[str, Any]]]:
        """Everything there is, for comparison."""
        return {name: await self.table(name) for name in (*TABLES, "shard_locks")}

    @property
    def is_distributed(self) -> bool:
        return getattr(self.do, "is_distributed", False)

    async def requests(self) -> list[dict[str, Any]]:
        """Of actions, and of all others."""
        tables = ("requests", "action_requests") if self.is_distributed else ("requests",)
        return [row for table in tables for row in await self.table(table)]

    async def clear(self) -> None:
        """As after `init`."""
        own = ("action_requests",) if self.is_distributed else ()
        for name in (*own, *TABLES, *GATES, *SEMAPHORES, *QUEUES):
            await self.sql(f"delete from matrixsched.{name}")
        await self.sql(
            "update matrixsched.shard_locks set locked = false, last_locked_by = null, "
            "last_processing_start_at = :epoch, last_heartbeat_at = :epoch",
            epoch=_EPOCH,
        )
        await self.sql("update matrixsched.installation set oldest_library = 1")
        await self.sql("update matrixsched.quota_settings set settings = '{}'")
        await self.sql("update matrixsched.chores set held_by = null, position = '{}', done_at = null")

    async def check_one_live_row(self) -> None:
        """SPEC A8: every live action has exactly one row with its current guid, in one of the two queues."""
        wrong = await self.sql(_WITHOUT_ONE_ROW)
        assert not wrong, f"live actions without exactly one row: {wrong}"


def ended(attempt: Attempt, outcome: Outcome, state: State, **verdict: Any) -> Ended:
    """An attempt that ended; it was the same tick unless told otherwise."""
    usual = {"tick": attempt.tick, "tick_at": attempt.tick_at}
    return Ended(attempt.claim, Verdict(outcome=outcome, state=state, **(usual | verdict)))


def done(attempt: Attempt) -> Ended:
    return ended(attempt, Outcome.SUCCEEDED, State.DONE)


def failed(attempt: Attempt, *, delay: timedelta = timedelta(seconds=1)) -> Ended:
    """A failure that is tried again."""
    failures = attempt.tick_failures + 1
    return ended(attempt, Outcome.FAILED, State.LIVE, tick_failures=failures, delay=delay, error="no luck")


def ids(attempts: Sequence[Attempt]) -> list[str]:
    return sorted(attempt.claim.action_id for attempt in attempts)


def claims(attempts: Sequence[Attempt]) -> set[Claim]:
    return {attempt.claim for attempt in attempts}


def _for_sqlite(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value


def _read(name: str, value: Any) -> Any:
    if isinstance(value, int) and name.endswith("_at"):
        return _EPOCH + timedelta(microseconds=value)
    if isinstance(value, str) and (name.endswith("_guid") or name.endswith("_by")) and name not in _HOLDERS:
        return UUID(value)
    if name in ("locked", "inside"):
        return bool(value)
    return value
