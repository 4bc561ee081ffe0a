"""Who gives out processors, and how workers follow: reports, plans, silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from matrixsched import App
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import NotOpen
from matrixsched.events import BatchEnded, BatchTaken, Events, ProcessorsAssigned, QueuesSampled
from matrixsched.queues.database import DatabaseStorage
from matrixsched.rules.queues import NewItem, QueueSettings
from matrixsched.worker.managing import COUNT_MAX, EVERY, FRESH, SAMPLE_EVERY_S, Managing

pytestmark = pytest.mark.anyio

EMAILS, SMS = 1, 2
SECOND = timedelta(seconds=1)


class Processors:
    """Those of one worker, which only note what they are told."""

    def __init__(self, processors_max: int) -> None:
        self.processors_max = processors_max
        self.told: list[Mapping[int, int]] = []
        self.terms: list[Mapping[int, QueueSettings]] = []

    def assign(self, processors: Mapping[int, int]) -> None:
        self.told.append(processors)

    def configure(self, terms: Mapping[int, QueueSettings]) -> None:
        self.terms.append(terms)


class Fleet:
    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app, self.clock = app, clock
        self.storage = DatabaseStorage(lambda: app.store, chance=lambda: app.chance)
        self.events: dict[UUID, Events] = {}
        self.seen: list[ProcessorsAssigned] = []

    def worker(
        self, number: int, processors_max: int = 10, queues: tuple[int, ...] = (EMAILS, SMS)
    ) -> tuple[Managing, Processors]:
        names = {EMAILS: "emails", SMS: "sms"}
        processors = Processors(processors_max)
        guid = UUID(int=number)
        self.events[guid] = Events()
        self.events[guid].subscribe(ProcessorsAssigned, self.seen.append)
        managing = Managing(
            self.app.store,
            processors,
            {queue: names[queue] for queue in queues},
            self.events[guid],
            worker=guid,
            name=f"worker-{number}",
            lease=timedelta(seconds=10),
            clock=self.clock,
            chance=SeededChance(number),
        )
        return managing, processors

    async def fill(self, queue: int, ready: int) -> None:
        """So many are ready, whatever was there."""
        while await self.storage.purge(queue):
            pass
        await self.storage.put_many([NewItem(queue=queue, data=b"x")] * ready)

    async def take(self, number: int, queue: int, *, tasks: int) -> None:
        """A processor of this worker has so many in its hands."""
        assert len(await self.storage.get(queue, tasks)) == tasks
        self.events[UUID(int=number)].emit(BatchTaken(queue, "", tasks))

    def work(self, number: int, queue: int, *, tasks: int, cycle_s: float, stated_s: float | None = None) -> None:
        self.events[UUID(int=number)].emit(BatchTaken(queue, "", tasks))
        counts = dict.fromkeys(("retried", "dead", "stale", "left", "errors"), 0)
        self.events[UUID(int=number)].emit(
            BatchEnded(queue, "", tasks, tasks, **counts, duration_s=0, cycle_s=cycle_s, stated_s=stated_s)
        )

    async def said(self, number: int, queue: int) -> object:
        reports = await self.app.store.run(self.app.store.transitions.processor_reports(within=FRESH))
        (report,) = [one.report for one in reports if one.worker == UUID(int=number)]
        return report["queues"][str(queue)]

    async def turn(self, *workers: Managing) -> None:
        """All report, all try to manage, and hear what came of it."""
        for step in ("report", "manage", "report"):
            for one in workers:
                assert await getattr(one, step)() == EVERY.total_seconds()
        self.clock.advance(EVERY)


@pytest.fixture
def fleet(app: App, clock: ManualClock) -> Fleet:
    return Fleet(app, clock)


async def test_workers_are_told_what_follows_from_what_waits(fleet: Fleet) -> None:
    first, of_first = fleet.worker(1, 4)
    second, of_second = fleet.worker(2, 4)
    await fleet.fill(EMAILS, 900)
    await fleet.fill(SMS, 300)
    await fleet.turn(first, second)
    assert of_first.told == [{EMAILS: 3, SMS: 1}]
    assert of_second.told == [{EMAILS: 3, SMS: 1}]
    (event,) = fleet.seen
    assert event.processors == {EMAILS: 6, SMS: 2}
    assert event.assigned == {"worker-1": {EMAILS: 3, SMS: 1}, "worker-2": {EMAILS: 3, SMS: 1}}
    assert [(load.queue, load.ready) for load in event.loads] == [(EMAILS, 900), (SMS, 300)]
    assert event.moved == 8


async def test_processors_move_to_the_queue_that_fills_up(fleet: Fleet) -> None:
    worker, processors = fleet.worker(1, 8)
    table = []
    for ready in (0, 10, 500, 5000, 500, 0):
        await fleet.fill(EMAILS, 500)
        await fleet.fill(SMS, ready)
        await fleet.turn(worker)
        table.append(dict(processors.told[-1]))
    assert table == [{1: 7}, {1: 7, 2: 1}, {1: 4, 2: 4}, {1: 1, 2: 7}, {1: 4, 2: 4}, {1: 7}]
    assert [event.moved for event in fleet.seen] == [7, 1, 3, 3, 3, 4]


async def test_one_plans_for_all_and_not_more_often_than_it_should(fleet: Fleet) -> None:
    workers = [fleet.worker(number)[0] for number in (1, 2, 3)]
    await fleet.fill(EMAILS, 10)
    await fleet.turn(*workers)
    assert len(fleet.seen) == 1
    fleet.clock.advance(-EVERY / 2)
    for one in workers:
        await one.manage()
    assert len(fleet.seen) == 1
    fleet.clock.advance(EVERY)
    for one in workers:
        await one.manage()
    assert len(fleet.seen) == 2


async def test_what_stays_is_not_written_again(fleet: Fleet) -> None:
    worker, processors = fleet.worker(1)
    await fleet.fill(EMAILS, 100)
    for _ in range(3):
        await fleet.turn(worker)
    assert len(fleet.seen) == 3
    assert [event.moved for event in fleet.seen] == [9, 0, 0]
    assert processors.told == [{EMAILS: 9}]


async def test_if_nobody_manages_all_go_on_as_before(fleet: Fleet) -> None:
    worker, processors = fleet.worker(1)
    await worker.report()
    assert processors.told == [], "it never heard anything"
    await fleet.fill(EMAILS, 100)
    await fleet.turn(worker)
    await fleet.fill(EMAILS, 0)
    for _ in range(5):
        fleet.clock.advance(EVERY)
        await worker.report()
    assert processors.told == [{EMAILS: 9}]


async def test_with_nothing_to_do_a_worker_is_told_to_go_round(fleet: Fleet) -> None:
    worker, processors = fleet.worker(1)
    await fleet.turn(worker)
    assert processors.told == [{}]


async def test_who_was_not_seen_lately_is_not_counted_on(fleet: Fleet) -> None:
    first, of_first = fleet.worker(1, 4)
    second, of_second = fleet.worker(2, 4)
    await fleet.fill(EMAILS, 1000)
    await fleet.fill(SMS, 1000)
    await fleet.turn(first, second)
    assert fleet.seen[-1].processors == {EMAILS: 4, SMS: 4}
    fleet.clock.advance(FRESH)
    await fleet.turn(second)
    assert fleet.seen[-1].assigned == {"worker-2": {EMAILS: 2, SMS: 2}}
    await fleet.turn(first, second)
    assert fleet.seen[-1].processors == {EMAILS: 4, SMS: 4}


async def test_a_worker_that_dies_as_the_manager_is_followed_by_another(fleet: Fleet) -> None:
    first, _ = fleet.worker(1)
    second, of_second = fleet.worker(2)
    await fleet.fill(EMAILS, 100)
    await second.report()
    assert await first.chore.take() is not None  # and then it is killed
    await second.manage()
    assert fleet.seen == []
    fleet.clock.advance(timedelta(seconds=11))
    await fleet.turn(second)
    assert of_second.told == [{EMAILS: 9}]


async def test_what_is_slow_gets_more(fleet: Fleet) -> None:
    first, _ = fleet.worker(1, 12)
    second, _ = fleet.worker(2, 12)
    fleet.work(1, EMAILS, tasks=10, cycle_s=8.0)
    fleet.work(2, EMAILS, tasks=10, cycle_s=4.0)
    fleet.work(1, SMS, tasks=20, cycle_s=4.0)
    await fleet.fill(EMAILS, 1000)
    await fleet.fill(SMS, 1000)
    await fleet.turn(first, second)
    (event,) = fleet.seen
    assert [load.task_s for load in event.loads] == [pytest.approx(0.6), pytest.approx(0.2)]
    assert event.processors == {EMAILS: 18, SMS: 6}


async def test_reports_say_what_was_done_since_the_last_that_was_heard(fleet: Fleet) -> None:
    worker, _ = fleet.worker(1)
    await worker.report()
    assert await fleet.said(1, EMAILS) == {"task_s": None, "tasks": 0, "taken": 0, "batch": None}
    fleet.work(1, EMAILS, tasks=10, cycle_s=1.0)
    fleet.work(1, EMAILS, tasks=30, cycle_s=7.0)
    await fleet.app.close()
    with pytest.raises(NotOpen):
        await worker.report()
    await fleet.app.open()
    await worker.report()
    assert await fleet.said(1, EMAILS) == {"task_s": 0.2, "tasks": 40, "taken": 0, "batch": 30}
    fleet.work(1, EMAILS, tasks=10, cycle_s=4.0)
    await worker.report()
    assert await fleet.said(1, EMAILS) == {"task_s": pytest.approx(0.3), "tasks": 10, "taken": 0, "batch": 30}
    await worker.report()
    assert await fleet.said(1, EMAILS) == {"task_s": pytest.approx(0.3), "tasks": 0, "taken": 0, "batch": 30}


async def test_what_is_in_hand_counts_however_much_is_delayed(fleet: Fleet) -> None:
    first, of_first = fleet.worker(1)
    second, of_second = fleet.worker(2)
    await fleet.storage.put_many([NewItem(queue=EMAILS, data=b"x")] * 3)
    await fleet.storage.put_many([NewItem(queue=EMAILS, data=b"x", delay=30 * SECOND)] * (COUNT_MAX + 1))
    await fleet.take(1, EMAILS, tasks=2)
    await fleet.take(2, EMAILS, tasks=1)
    await fleet.turn(first, second)
    assert [(load.queue, load.ready, load.taken) for load in fleet.seen[-1].loads] == [(EMAILS, 0, 3), (SMS, 0, 0)]
    assert fleet.seen[-1].processors == {EMAILS: 3}
    assert await fleet.said(1, EMAILS) == {"task_s": None, "tasks": 0, "taken": 2, "batch": None}


async def test_what_is_in_the_hands_of_others_needs_no_processors(fleet: Fleet) -> None:
    """Of a worker that was killed, or of who takes tasks without one: nobody here can do anything for them."""
    worker, processors = fleet.worker(1)
    await fleet.fill(EMAILS, 3)
    assert len(await fleet.storage.get(EMAILS, 3)) == 3
    await fleet.turn(worker)
    assert processors.told == [{}]


async def test_settings_of_queues_bound_what_they_get(fleet: Fleet) -> None:
    worker, processors = fleet.worker(1)
    await fleet.fill(EMAILS, 1000)
    await fleet.fill(SMS, 1000)
    await fleet.storage.change_settings(EMAILS, lambda one: replace(one, processors_max=2))
    await fleet.turn(worker)
    await fleet.storage.pause(EMAILS)
    await fleet.turn(worker)
    await fleet.storage.resume(EMAILS)
    await fleet.storage.change_settings(EMAILS, lambda one: replace(one, processors_max=None, batch_size=1000))
    await fleet.turn(worker)
    assert processors.told == [{EMAILS: 2, SMS: 8}, {SMS: 10}, {EMAILS: 1, SMS: 9}]


async def test_for_a_limited_queue_that_is_empty_one_stands_by_in_the_whole_fleet(fleet: Fleet) -> None:
    """Its first task must not wait for the next plan, and no more than it may have may begin."""
    first, of_first = fleet.worker(1, 1)
    second, of_second = fleet.worker(2, 1)
    await fleet.storage.change_settings(EMAILS, lambda one: replace(one, processors_max=1))
    await fleet.fill(SMS, 1000)
    for _ in range(3):
        await fleet.turn(first, second)
        await fleet.turn(second, first)
    assert of_first.told[-1] | of_second.told[-1] == {EMAILS: 1, SMS: 1}
    assert [told.get(EMAILS, 0) for told in (of_first.told[-1], of_second.told[-1])].count(1) == 1


async def test_whoever_manages_follows_its_own_plan_at_once(fleet: Fleet, clock: ManualClock) -> None:
    worker, _ = fleet.worker(1)
    await fleet.fill(EMAILS, 1000)
    await worker.report()
    await worker.manage()
    await worker.report_wakeup.wait_at_most(EVERY.total_seconds(), clock)
    assert clock.monotonic() == 0.0


async def test_a_task_takes_as_long_as_its_handler_says_if_it_does(fleet: Fleet) -> None:
    """It may have waited for others most of the time."""
    worker, _ = fleet.worker(1)
    fleet.work(1, EMAILS, tasks=10, cycle_s=60.0, stated_s=5.0)
    fleet.work(1, SMS, tasks=10, cycle_s=60.0)
    await worker.report()
    assert await fleet.said(1, EMAILS) == {"task_s": 0.5, "tasks": 10, "taken": 0, "batch": 10}
    assert await fleet.said(1, SMS) == {"task_s": 6.0, "tasks": 10, "taken": 0, "batch": 10}


async def test_a_worker_hears_of_settings_that_were_changed(fleet: Fleet) -> None:
    worker, processors = fleet.worker(1, queues=(EMAILS,))
    await worker.hear_settings()
    assert processors.terms == []
    await fleet.storage.change_settings(EMAILS, lambda one: replace(one, batch_size=5))
    await fleet.storage.change_settings(SMS, lambda one: replace(one, batch_size=6))
    for _ in range(2):
        await worker.hear_settings()
    (terms,) = processors.terms
    assert {queue: one.batch_size for queue, one in terms.items()} == {EMAILS: 5}
    await fleet.storage.change_settings(EMAILS, lambda one: replace(one, batch_size=None))
    await worker.hear_settings()
    assert processors.terms[-1][EMAILS].batch_size is None


async def test_a_worker_gets_only_what_it_handles(fleet: Fleet) -> None:
    first, of_first = fleet.worker(1, 4, (EMAILS,))
    second, of_second = fleet.worker(2, 4, (SMS,))
    await fleet.fill(SMS, 1000)
    await fleet.turn(first, second)
    assert (of_first.told, of_second.told) == ([{}], [{SMS: 4}])


async def test_what_another_version_reports_is_read_as_far_as_it_can_be(fleet: Fleet) -> None:
    worker, _ = fleet.worker(1)
    await fleet.fill(EMAILS, 100)
    await fleet.take(1, EMAILS, tasks=5)
    fleet.clock.advance(30 * SECOND)
    await worker.report()
    strange = {"queues": {"1": {"task_s": "fast", "tasks": None, "batch": True}, "two": {}, "3": None, "9" * 20: {}}}
    for number, report in ((8, strange), (9, {"queues": [EMAILS]})):
        saying = fleet.app.store.transitions.report_processors(
            UUID(int=number), name=f"worker-{number}", processors_max=2, report=report
        )
        await fleet.app.store.run(saying)
    await fleet.turn(worker)
    (event,) = fleet.seen
    assert event.assigned == {"worker-1": {EMAILS: 9}, "worker-8": {EMAILS: 1}, "worker-9": {}}
    load, *others = event.loads
    assert [(one.queue, one.tasks) for one in others] == [(SMS, 0), (3, 0)], "what nobody handles is not asked for"
    assert (load.task_s, load.batch_size, load.ready, load.taken, load.oldest_s) == (None, 1, 95, 5, 30)


async def test_a_worker_that_stops_is_counted_on_no_more_and_leaves_the_chore(fleet: Fleet) -> None:
    first, _ = fleet.worker(1, 4)
    second, _ = fleet.worker(2, 4)
    await fleet.fill(EMAILS, 100)
    await fleet.turn(first, second)
    assert await first.chore.take() is not None
    await first.leave()
    await second.report()
    await second.manage()
    assert fleet.seen[-1].assigned == {"worker-2": {EMAILS: 3}}
    idle, _ = fleet.worker(3, queues=())
    await idle.leave()


@pytest.mark.parametrize(("processors_max", "queues"), [(10, ()), (0, (EMAILS,))])
async def test_a_worker_without_handlers_of_queues_neither_reports_nor_manages(
    fleet: Fleet, processors_max: int, queues: tuple[int, ...]
) -> None:
    worker, _ = fleet.worker(1, processors_max, queues)
    served = fleet.app.store.pool.served
    await fleet.turn(worker)
    assert await worker.sample() == SAMPLE_EVERY_S
    assert fleet.app.store.pool.served == served


async def test_how_queues_stand_is_looked_up_for_those_who_listen(fleet: Fleet) -> None:
    worker, _ = fleet.worker(1, queues=(EMAILS,))
    await fleet.fill(EMAILS, 9)
    first, *_ = await fleet.storage.get(EMAILS, 3)
    await fleet.storage.set_aside([(first, "it is broken")])
    await fleet.storage.put(SMS, b"x", delay=90 * SECOND)
    await fleet.storage.put(77, b"x")
    await fleet.storage.change_settings(SMS, lambda one: replace(one, name="sms"))
    fleet.clock.advance(30 * SECOND)
    served = fleet.app.store.pool.served
    await worker.sample()
    assert fleet.app.store.pool.served == served, "nobody listens"
    heard: list[QueuesSampled] = []
    fleet.events[UUID(int=1)].subscribe(QueuesSampled, heard.append)
    await worker.sample()
    (event,) = heard
    found = [(one.name, one.ready, one.taken, one.delayed, one.dead, one.oldest_ready_s) for one in event.samples]
    assert found == [("emails", 6, 2, 0, 1, 30), ("sms", 0, 0, 1, 0, 0), ("77", 1, 0, 0, 0, 30)]
