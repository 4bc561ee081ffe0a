"""What is found in an installation that works, which is nothing; and mends that come late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random

import anyio
import pytest
from support.damage import (
    FOREIGN,
    LITTER,
    MENDABLE,
    QUEUED,
    Damage,
    Site,
    counters,
    dead,
    early_in_incoming,
    late,
    lost,
    misplaced,
)
from support.scene import SHARDS, Scene

from matrixsched import Acquired, App, Cancel, Retry, RetryAt, State, call, every
from matrixsched.clock import ManualClock
from matrixsched.ops import bulk, fsck
from matrixsched.ops.fsck import Outcome, Report
from matrixsched.rules.faults import Fault, Finding
from matrixsched.rules.names import shard_of
from matrixsched.store.fsck import FsckTerms
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
FAR = timedelta(days=300)
LEASE = WorkerPolicy().attempt_lease
DEADLINE_S = 60
EARLIER, LATER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC)

Life = Callable[[App, ManualClock], Awaitable[None]]


async def check(app: App) -> Report:
    report = await fsck.checked(app)
    assert [finding for finding, _ in report.named if not fsck.is_litter(finding.fault)] == []
    assert report.damage == 0
    return report


async def damaged(app: App, clock: ManualClock, *damages: Damage) -> list[Finding]:
    site = Site(app, clock)
    await site.build()
    for damage in damages:
        await damage(site)
    return [finding for finding, _ in (await fsck.checked(app)).named]


# Lives of actions. After each of them, and on the way, nothing is wrong.


async def new(app: App, clock: ManualClock) -> None:
    await app.schedule_many(call("work", id=f"a{number}", delay=number * HOUR) for number in range(20))
    await app.schedule("work", id="ends", at=clock.now() + HOUR, expires_at=clock.now() + 2 * HOUR)
    await check(app)


async def moved_and_done(app: App, clock: ManualClock) -> None:
    await new(app, clock)
    await Worker(app).run_due()


async def claimed(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a")
    await Worker(app).intake.step()


async def interrupted_and_suspect(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a")
    for _ in range(4):
        await Worker(app).intake.step()
        await check(app)
        clock.advance(LEASE)
    await check(app)
    await Worker(app).run_due()


async def interrupted_and_moved(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a")
    for _ in range(2):
        await Worker(app).intake.step()
        clock.advance(LEASE)
    await app.reschedule("a", delay=HOUR)


async def interrupted_and_expired(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a", expires_at=clock.now() + LEASE)
    await Worker(app).intake.step()
    clock.advance(2 * LEASE)
    await Worker(app).tidying.step()
    await check(app)
    await Worker(app).run_due()
    assert (await app.get("a")).status.state is State.EXPIRED


async def failed_and_retried(app: App, clock: ManualClock) -> None:
    await app.schedule("fail", id="a")
    for _ in range(5):
        await Worker(app).run_due()
        await check(app)
        clock.advance(HOUR)


async def deferred_and_cancelled(app: App, clock: ManualClock) -> None:
    await app.schedule("later", id="a")
    await app.schedule("never", id="b")
    await Worker(app).run_due()


async def repeated(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a", repeat=every(HOUR))
    await app.schedule("fail", id="b", repeat=every(HOUR))
    for _ in range(4):
        await Worker(app).run_due()
        clock.advance(HOUR)


async def replaced_while_it_waits(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a", delay=FAR)
    await Worker(app).run_due()
    await app.schedule("work", id="a", delay=2 * FAR)
    await app.reschedule("a", delay=FAR)


async def superseded_while_it_runs(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a")
    worker = Worker(app)
    await worker.intake.step()
    await app.run_now("a")
    await check(app)
    await Worker(app).intake.step()
    await check(app)
    await worker.run_due()


async def gone_while_it_runs(app: App, clock: ManualClock) -> None:
    await app.schedule("work", id="a")
    await Worker(app).intake.step()
    await app.cancel("a")
    await app.prune({State.CANCELLED: timedelta(0)})


async def cancelled_and_pruned(app: App, clock: ManualClock) -> None:
    await app.schedule("fail", id="b")
    await moved_and_done(app, clock)
    await app.cancel("a5")
    clock.advance(FAR)
    await check(app)
    await app.prune({state: HOUR for state in State if state is not State.LIVE})


async def redriven(app: App, clock: ManualClock) -> None:
    await failed_and_retried(app, clock)
    await app.run_now("a")


async def parked(app: App, clock: ManualClock) -> None:
    await app.schedule("unknown|100%", id="a")
    await Worker(app).run_due()


async def gated(app: App, clock: ManualClock) -> None:
    await app.limits.set("global", "2/h")
    await app.limits.set("handler:fail", "1/h")
    await app.templates.set("promo")
    for number in range(6):
        await app.schedule("work", id=f"limited{number}", limit="a|b%", priority=number)
        await app.schedule("work", id=f"sent{number}", template="promo", zone="Asia/Tokyo", delay=number * HOUR)
        await app.schedule("fail", id=f"failed{number}")
    for _ in range(4):
        await Worker(app).run_due()
        await check(app)
        clock.advance(HOUR)


async def events(app: App, clock: ManualClock) -> None:
    pool = await app.semaphores.get_or_create("pool", active=2, hold_for=HOUR)
    await pool.enqueue_many({f"task{number}": number for number in range(5)})
    worker = Worker(app)
    await worker.run_due()
    await check(app)
    clock.advance(2 * HOUR)
    await worker.run_due()
    await app.semaphores.update("pool", active=1)
    await worker.run_due()


LIVES: list[Life] = [
    new,
    moved_and_done,
    claimed,
    interrupted_and_suspect,
    interrupted_and_moved,
    interrupted_and_expired,
    failed_and_retried,
    deferred_and_cancelled,
    repeated,
    replaced_while_it_waits,
    superseded_while_it_runs,
    gone_while_it_runs,
    cancelled_and_pruned,
    redriven,
    parked,
    gated,
    events,
]


@pytest.fixture
def handlers(app: App) -> None:
    @app.action("work")
    async def work() -> None: ...

    @app.action("fail", retry=Retry(max_attempts=3, first_delay=HOUR))
    async def fail() -> None:
        raise ValueError

    @app.action("later")
    async def later() -> RetryAt:
        return RetryAt(HOUR)

    @app.action("never")
    async def never() -> Cancel:
        return Cancel()

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None:
        if event.task_id == "task4":
            raise ValueError


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
async def test_nothing_is_wrong_after_a_life(app: App, clock: ManualClock, life: Life) -> None:
    await life(app, clock)
    await check(app)
    clock.advance(LEASE)
    await check(app)


@pytest.mark.usefixtures("handlers")
async def test_nothing_is_wrong_after_all_of_them(app: App, clock: ManualClock) -> None:
    for life in (*LIVES, replaced_while_it_waits):
        await life(app, clock)
    before = await check(app)
    assert before.litter == 2  # as there is in every installation
    repaired = await fsck.repaired(app)
    assert repaired.ended(Outcome.MENDED) == 0
    assert repaired.ended(Outcome.MENDED, litter=True) == before.litter
    assert (await check(app)).litter == 0


async def test_nothing_is_found_beside_those_who_work(database_url: str) -> None:
    app, watcher = App(database_url), App(database_url)
    await app.init(shards=4)
    ran = anyio.Event()
    runs: dict[str, int] = {}

    @app.action("work", retry=Retry(max_attempts=2, first_delay=timedelta(milliseconds=1)))
    async def work(number: int) -> None:
        runs[f"a{number}"] = runs.get(f"a{number}", 0) + 1
        if number % 5 == 0 and runs[f"a{number}"] == 1:
            raise ValueError
        if len(runs) == 400:
            ran.set()

    checks = 0

    async def look() -> None:
        nonlocal checks
        while not ran.is_set():
            await check(watcher)
            checks += 1

    async def change() -> None:
        for number in range(400):
            await app.schedule(work, number, id=f"a{number}")
            await app.schedule(work, number, id="again", delay=HOUR)

    with anyio.fail_after(DEADLINE_S):
        async with app, watcher, Worker(app), anyio.create_task_group() as group:
            group.start_soon(look)
            group.start_soon(change)
    assert checks > 2


NOBODY_HAS_IT = "action_id = :id and claimed_by is null"
HARM: list[tuple[str, dict[str, object]]] = [
    ("delete from matrixsched.incoming_queue where action_id = :id", {}),
    (f"delete from matrixsched.processing_queue where {NOBODY_HAS_IT}", {}),
    (QUEUED.format(since="created_at") + "on conflict do nothing", {}),
    (QUEUED.format(since="scheduled_at") + "on conflict do nothing", {}),
    (f"update matrixsched.processing_queue set lane = 'nowhere' where {NOBODY_HAS_IT}", {}),
    (f"update matrixsched.processing_queue set scheduled_at = :at where {NOBODY_HAS_IT}", {"at": LATER}),
    (
        "update matrixsched.processing_queue set scheduled_at = :at where action_id = :id and claimed_by is not null",
        {"at": LATER},
    ),
    (f"update matrixsched.processing_queue set expires_at = :at where {NOBODY_HAS_IT}", {"at": LATER}),
    ("update matrixsched.scheduled_actions set consecutive_failures = 9 where action_id = :id", {}),
]
"""Done to an action; by none of it is an attempt begun that is not to be, or one that is under way lost."""
HARMED = 100


async def test_what_is_mended_beside_a_worker_is_lost_to_nobody_and_run_once(database_url: str) -> None:
    app, mender, random = App(database_url), App(database_url), Random(7)
    await app.init(shards=4)
    ran = anyio.Event()
    runs = Counter[int]()
    mended = Counter[Fault]()

    @app.action("work")
    async def work(number: int) -> None:
        runs[number] += 1
        if len(runs) == HARMED:
            ran.set()

    async def harm() -> None:
        scene = Scene(mender.store, ManualClock())
        for number in range(HARMED):
            await app.schedule(work, number, id=f"a{number}", delay=timedelta(milliseconds=random.randrange(500)))
            # One is new, the other one was moved and waits, or is run or done.
            for id in (f"a{number}", f"a{number - 20}"):
                text, parameters = random.choice(HARM)
                await scene.sql(text, id=id, **parameters)
                await scene.sql(FOREIGN, id=id, shard=shard_of(id, 4), guid=scene.guid(), now=EARLIER)

    async def mend() -> None:
        while not ran.is_set():
            report = await fsck.repaired(mender)
            mended.update({fault: number for (fault, one), number in report.outcomes.items() if one is Outcome.MENDED})

    with anyio.fail_after(DEADLINE_S):
        async with app, mender, Worker(app), anyio.create_task_group() as group:
            group.start_soon(mend)
            group.start_soon(harm)
    assert set(runs.values()) == {1}
    assert {Fault.LOST, Fault.COUNTERS} <= set(mended)
    assert {Fault.LANE, Fault.TIME, Fault.TWICE, Fault.LEASE} & set(mended)
    await fsck.repaired(mender)
    assert (await check(mender)).litter == 0
    async with app:
        assert {action.status.state for action in await app.list()} == {State.DONE}


# Mends that come late, or often.


async def test_a_fault_that_is_gone_is_said_to_be(app: App, clock: ManualClock) -> None:
    (found,) = await damaged(app, clock, lost)
    await app.run_now("lost")
    assert [one.outcome for one in await fsck.mended(app, [found])] == [Outcome.GONE]
    assert (await check(app)).litter == 0


@pytest.mark.parametrize("fault", [*MENDABLE, *LITTER], ids=lambda fault: fault.value)
async def test_a_mend_that_is_sent_twice_does_nothing_the_second_time(
    app: App, clock: ManualClock, fault: Fault
) -> None:
    found = await damaged(app, clock, (MENDABLE | LITTER)[fault][0])
    assert [one.outcome for one in await fsck.mended(app, found)] == [Outcome.MENDED]
    assert [one.outcome for one in await fsck.mended(app, found)] == [Outcome.GONE]
    assert (await check(app)).litter == 0


@pytest.mark.parametrize("damage", [early_in_incoming, late, lost])
async def test_what_was_mended_can_be_run_now_as_it_was_seen(app: App, clock: ManualClock, damage: Damage) -> None:
    (found,) = await damaged(app, clock, damage)
    assert [one.outcome for one in await fsck.mended(app, [found])] == [Outcome.MENDED]
    assert (await bulk.run_as_seen(app, await app.get(found.subject))).changed


async def test_an_action_whose_row_came_twice_is_run_once(app: App, clock: ManualClock) -> None:
    site = Site(app, clock)
    ran: list[str] = []

    @app.action("work")
    async def work() -> None:
        ran.append("work")

    await app.schedule("work", id="twice", delay=SECOND)
    clock.advance(2 * SECOND)
    await site.sql(QUEUED.format(since="scheduled_at"), id="twice")
    await Worker(app).run_due()
    assert ran == ["work"]
    assert (await check(app)).litter == 0


async def test_a_lost_action_is_queued_as_it_was(app: App, clock: ManualClock) -> None:
    found = await damaged(app, clock, lost)
    clock.advance(SECOND)
    await fsck.mended(app, found)
    action = await app.get("lost")
    (row,) = await Site(app, clock).scene.table("incoming_queue")
    assert (row["action_guid"], row["scheduled_at"]) == (action.meta.guid, action.status.scheduled_at)
    assert row["created_at"] == action.meta.updated_at


async def test_counters_are_raised_to_what_is_remembered(app: App, clock: ManualClock) -> None:
    await fsck.mended(app, await damaged(app, clock, counters))
    status = (await app.get("counters")).status
    assert (status.failed, status.interrupted) == (2, 1)


async def test_an_attempt_under_way_keeps_its_row_and_its_shard(app: App, clock: ManualClock) -> None:
    site = Site(app, clock)
    found = await damaged(app, clock, misplaced, dead)
    claim = "claimed_by = :guid, claimed_at = :now, attempt = 1, scheduled_at = :later"
    now = clock.now()
    await site.change_row("misplaced", claim, guid=app.chance.guid(), now=now, later=now + SECOND)
    outcomes = {one.finding.fault: one.outcome for one in await fsck.mended(app, found)}
    assert outcomes == {Fault.MISPLACED: Outcome.LEFT, Fault.DEAD: Outcome.MENDED}
    clock.advance(SECOND)
    outcomes = {one.finding.fault: one.outcome for one in await fsck.mended(app, found)}
    assert outcomes == {Fault.MISPLACED: Outcome.MENDED, Fault.DEAD: Outcome.GONE}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_slices_miss_nothing_and_tell_nothing_twice(
    app: App, clock: ManualClock, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(app, clock)
    await site.build()
    await site.sql("delete from matrixsched.processing_queue")
    for number in range(30):
        await site.put_foreign_row(f"nobody{number:02}", number % 4)
    monkeypatch.setattr(fsck, "SLICE", size)
    monkeypatch.setattr(fsck, "FINDINGS_MAX", size + 1)
    report = await fsck.checked(app, keep=1000)
    assert report.found == {Fault.LOST: len(Fault), Fault.ORPHAN: 30}
    assert len({finding for finding, _ in report.named}) == len(Fault) + 30
    assert report.actions == len(Fault)
    repaired = await fsck.repaired(app)
    assert repaired.ended(Outcome.MENDED) == len(Fault)
    assert (await check(app)).litter == 0


async def put_dead_versions(site: Site, id: str, count: int) -> None:
    shard, now = shard_of(id, SHARDS), site.clock.now()
    await site.scene.write(
        (FOREIGN, {"id": id, "shard": shard, "guid": site.scene.guid(), "now": now}) for _ in range(count)
    )


@pytest.mark.parametrize(
    ("count", "limit"), [(5_000, fsck.FINDINGS_MAX), (fsck.FINDINGS_MAX, fsck.FINDINGS_MAX), (23, 2), (23, 5)]
)
async def test_an_action_may_have_more_dead_versions_than_are_told_of_at_a_time(
    app: App, clock: ManualClock, count: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsck, "FINDINGS_MAX", limit)
    site = Site(app, clock)
    await site.build()
    await put_dead_versions(site, "dead", count)
    await put_dead_versions(site, "lane", 1)  # somebody comes behind it, as likely as not in its shard
    report = await fsck.checked(app, keep=2 * count)
    assert report.found == {Fault.DEAD: count + 1}
    assert len({finding for finding, _ in report.named}) == count + 1
    assert report.actions == len(Fault)
    repaired = await fsck.repaired(app)
    assert repaired.ended(Outcome.MENDED, litter=True) == count + 1
    assert (await check(app)).litter == 0


async def test_all_that_is_wrong_with_an_action_is_found_again(app: App, clock: ManualClock) -> None:
    site = Site(app, clock)
    await site.build()
    await put_dead_versions(site, "dead", 9)
    terms = FsckTerms(shard_count=SHARDS, attempt_lease_max=LEASE, visibility_max=HOUR, limit=2)
    again = await app.store.run(app.store.transitions.find_again(shard_of("dead", SHARDS), terms, "dead"))
    assert len(set(again)) == len(again) == 9
