"""What a worker makes of handlers that succeed, fail, dawdle, lie or kill; one pass at a time, on both databases."""

from datetime import timedelta
from functools import partial

import anyio
import pytest

from matrixsched import App, Cancel, Context, Done, Outcome, Retry, RetryAt, State, every
from matrixsched.clock import SeededChance
from matrixsched.events import AttemptEnded, ShardSynced
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
LEASE = WorkerPolicy().attempt_lease
STRICT = Retry(max_attempts=3, first_delay=10 * SECOND, jitter=0)


async def status(app: App, id: str):
    return (await app.get(id)).status


async def test_a_failure_is_tried_again_as_the_policy_says_and_then_given_up(stage):
    app, start = stage.app, stage.now

    @app.action("fail", retry=STRICT)
    async def fail() -> None:
        raise ValueError("no luck")

    await app.schedule(fail, id="f")
    ran = await stage.run_until_idle()
    assert [(attempt.at - start) / SECOND for attempt in ran] == [0, 10, 30]
    final = await status(app, "f")
    assert (final.state, final.failed, final.consecutive_failures) == (State.FAILED, 3, 3)
    assert final.last_outcome is Outcome.FAILED
    assert final.last_error is not None
    assert final.last_error.startswith("ValueError: no luck [in fail (test_attempts.py:")
    assert [past.outcome for past in await app.history("f")] == [Outcome.FAILED] * 3


async def test_a_success_ends_the_row_of_failures(stage):
    answers = iter([ValueError, None, ValueError])

    @stage.app.action("moody", retry=STRICT)
    async def moody() -> None:
        if error := next(answers):
            raise error

    await stage.app.schedule(moody, id="m", repeat=every(timedelta(hours=1)))
    assert [attempt.outcome for attempt in await stage.advance(10 * SECOND)] == [Outcome.FAILED, Outcome.SUCCEEDED]
    now = await status(stage.app, "m")
    assert (now.failed, now.succeeded, now.consecutive_failures, now.tick) == (1, 1, 0, 1)


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), BaseException("odd"), GeneratorExit()], ids=lambda e: type(e).__name__
)
async def test_whatever_a_handler_raises_is_a_failed_attempt_and_the_worker_lives(stage, error):
    @stage.app.action("raise", retry=Retry(max_attempts=1))
    async def raising() -> None:
        raise error

    await stage.app.schedule(raising, id="r")
    (ran,) = await stage.run_due()
    assert (ran.state, ran.exception) == (State.FAILED, error)
    assert (await status(stage.app, "r")).state is State.FAILED


async def test_a_plain_function_that_raises_what_ends_coroutines_has_failed_and_the_worker_lives(app):
    @app.action("raise", retry=Retry(max_attempts=1))
    def raising() -> None:
        raise GeneratorExit

    await app.schedule(raising, id="r")
    assert await Worker(app).run_due() == 1
    assert (await status(app, "r")).state is State.FAILED


async def test_a_cancellation_of_the_handlers_own_making_is_a_failure_too(app):
    @app.action("cancels", retry=Retry(max_attempts=1))
    async def cancels() -> None:
        raise anyio.get_cancelled_exc_class()

    await app.schedule(cancels, id="c")
    assert await Worker(app).run_due() == 1
    assert (await status(app, "c")).state is State.FAILED


async def test_outcomes_are_return_values(stage):
    app = stage.app

    @app.action("answer")
    async def answer(kind: str) -> object:
        return {
            "done": Done(),
            "later": RetryAt(timedelta(minutes=5), "come back"),
            "cancel": Cancel("pointless"),
            "text": "ignored",
        }[kind]

    for kind in ("done", "later", "cancel", "text"):
        await app.schedule(answer, kind, id=kind)
    await stage.run_due()
    assert (await status(app, "done")).state is State.DONE
    assert (await status(app, "text")).state is State.DONE
    cancelled = await status(app, "cancel")
    assert (cancelled.state, cancelled.last_error) == (State.CANCELLED, "pointless")
    later = stage.assert_scheduled(answer, id="later", at=stage.now + timedelta(minutes=5)).action.status
    assert (later.failed, later.succeeded, later.last_error) == (0, 0, "come back")
    assert (later.attempts_started, cancelled.attempts_started) == (1, 1)


async def test_a_handler_is_told_all_about_its_attempt(app, clock):
    told: list[Context] = []

    @app.action("listen", retry=Retry(max_attempts=2, first_delay=SECOND, jitter=0), timeout=7 * SECOND)
    async def listen(payload: int, context: Context) -> None:
        told.append(context)
        raise ValueError

    scheduled = await app.schedule(listen, 1, id="l", at=clock.now() + SECOND)
    worker = Worker(app)
    clock.advance(3 * SECOND)
    await worker.run_due()
    clock.advance(SECOND)
    await worker.run_due()
    first, second = told
    assert (first.id, first.guid, first.handler, first.attempt, first.failures) == ("l", scheduled.guid, "listen", 1, 0)
    assert first.scheduled_at == clock.now() - 3 * SECOND
    assert first.deadline == clock.now() - SECOND + 7 * SECOND
    assert (second.attempt, second.failures) == (2, 1)
    assert first.idempotency_key == second.idempotency_key == f"l:{scheduled.guid}:0"
    await app.run_now("l")
    await worker.run_due()
    third = told[2]
    assert third.version > second.version
    assert third.idempotency_key != first.idempotency_key


async def test_synchronous_handlers_run_in_threads(app):
    import threading

    threads: list[str] = []

    @app.action("sync")
    def sync(payload: int, context: Context) -> Done:
        threads.append(threading.current_thread().name)
        return Done()

    await app.schedule(sync, 5, id="s")
    await Worker(app).run_due()
    assert (await status(app, "s")).state is State.DONE
    assert threads[0] != threading.current_thread().name


async def test_middleware_goes_around_every_handler_in_order(app):
    seen: list[str] = []

    @app.middleware
    async def outer(context, call_next):
        seen.append(f"outer {context.id}")
        try:
            return await call_next()
        finally:
            seen.append("outer end")

    @app.middleware
    async def inner(context, call_next):
        seen.append("inner")
        await call_next()
        return Cancel("the middleware decides")

    @app.action("work")
    async def work() -> None:
        seen.append("work")

    await app.schedule(work, id="w")
    await Worker(app).run_due()
    assert seen == ["outer w", "inner", "work", "outer end"]
    assert (await status(app, "w")).state is State.CANCELLED


async def test_a_payload_that_no_longer_parses_is_quarantined_with_the_reason_and_harms_no_neighbour(
    app, database_url, clock
):
    ran: list[int] = []

    @app.action("count")
    async def count(number: int) -> None:
        ran.append(number)

    producer = App(database_url, clock=clock, chance=SeededChance(2))
    async with producer:
        await producer.schedule("count", "seven", id="bad")
    await app.schedule(count, 1, id="good")
    await Worker(app).run_due()
    bad = await app.get("bad")
    assert bad.status.state is State.QUARANTINED
    assert bad.status.last_error is not None
    assert "should be a valid integer" in bad.status.last_error
    assert bad.spec.payload == b'"seven"'
    assert ran == [1]


async def test_an_unknown_handler_is_parked_for_workers_that_know_it(app, database_url, clock):
    @app.action("known")
    async def known() -> None: ...

    knowing = App(database_url, clock=clock, chance=SeededChance(2))
    ran: list[str] = []

    @knowing.action("foreign")
    async def foreign() -> None:
        ran.append("foreign")

    await app.schedule("foreign", id="f")
    await app.schedule("foreign", id="g", delay=SECOND)
    clock.advance(SECOND)
    synced: list[ShardSynced] = []
    app.events.subscribe(ShardSynced, synced.append)
    ignorant = Worker(app)
    assert await ignorant.run_due() == 0
    looks = len(synced)
    assert await ignorant.run_due() == 0
    assert len(synced) == looks, "a parked row must not be looked at again and again"
    assert (await status(app, "f")).attempts_started == 0
    async with knowing:
        assert await Worker(knowing).run_due() == 2
    assert (await status(app, "f")).succeeded == 1


async def claim_and_die(app: App) -> int:
    """Let a worker claim all that is due, start nothing and never be heard of again; how many it had claimed."""
    worker = Worker(app)
    while await worker.intake.step() == 0:
        pass
    return len(worker.leases)


async def interrupt(app: App, clock) -> int:
    """As claim_and_die, and the leases end."""
    claimed = await claim_and_die(app)
    clock.advance(LEASE)
    return claimed


async def test_an_attempt_whose_worker_died_is_interrupted_not_failed_and_made_again(stage):
    app = stage.app
    runs: list[int] = []

    @app.action("work", retry=Retry(max_attempts=1))
    async def work(context: Context) -> None:
        runs.append(context.attempt)

    await app.schedule(work, id="w")
    stage.faults.crash("w", before=True)
    await stage.advance(LEASE)
    final = await status(app, "w")
    assert (final.state, final.failed, final.interrupted, final.succeeded) == (State.DONE, 0, 1, 1)
    assert final.attempts_started == 2
    assert runs == [2]
    assert [past.outcome for past in await app.history("w")] == [Outcome.INTERRUPTED]


async def test_until_its_lease_ends_nobody_else_gets_a_claimed_action(app, clock):
    @app.action("work")
    async def work() -> None: ...

    await app.schedule(work, id="w")
    assert await claim_and_die(app) == 1
    clock.advance(LEASE - timedelta(microseconds=1))
    assert await Worker(app).run_due() == 0
    clock.advance(timedelta(microseconds=1))
    assert await Worker(app).run_due() == 1


async def test_what_kills_its_worker_again_and_again_is_quarantined_and_its_neighbours_are_not(app, clock):
    ran: list[str] = []

    @app.action("work")
    async def work(context: Context) -> None:
        ran.append(context.id)

    ids = ["poison", *(f"n{n}" for n in range(5))]
    for id in ids:
        await app.schedule(work, id=id)

    async def a_worker_that_poison_kills() -> None:
        """Claims all it can, then runs one after the other until the poison is called, which ends it on the spot."""
        worker = Worker(app)
        while await worker.intake.step() == 0:
            pass
        while worker.runner.has_waiting:
            attempt = worker.runner.line._waiting[0].attempt
            if attempt.claim.action_id == "poison" and attempt.interruptions <= Retry().max_interruptions:
                return
            await worker.runner.run_next()
            await worker.recorder.step()

    for _ in range(12):
        await a_worker_that_poison_kills()
        clock.advance(LEASE)
    await Worker(app).run_due()
    poison = await status(app, "poison")
    assert (poison.state, poison.interrupted, poison.failed) == (State.QUARANTINED, 5, 0)
    assert "poison" not in ran
    for id in ids[1:]:
        assert (await status(app, id)).state is State.DONE, id


async def test_a_suspect_is_run_alone_while_others_go_on_beside_it(app, clock):
    started: list[str] = []

    @app.action("work")
    async def work(context: Context) -> None:
        started.append(context.id)

    for id in ("a", "b", "c"):
        await app.schedule(work, id=id)
    for _ in range(2):
        assert await interrupt(app, clock) == 3
    await app.schedule(work, id="fresh")
    worker = Worker(app)
    for _ in range(8):
        await worker.intake.step()
    waiting = [held.attempt.claim.action_id for held in worker.runner.line._waiting]
    assert "fresh" in waiting
    assert len(waiting) == 2, "one suspect at a time"
    assert await worker.run_due() == 4
    assert sorted(started) == ["a", "b", "c", "fresh"]


async def test_redriving_a_quarantined_action_gives_it_a_fresh_budget(stage):
    app = stage.app

    @app.action("work", retry=Retry(max_interruptions=0))
    async def work() -> None: ...

    await app.schedule(work, id="w")
    stage.faults.crash("w", before=True)
    await stage.run_until_idle()
    assert (await status(app, "w")).state is State.QUARANTINED
    await app.run_now("w")
    await stage.run_due()
    final = await status(app, "w")
    assert (final.state, final.interrupted, final.succeeded) == (State.DONE, 1, 1)


async def test_a_worker_that_lost_its_claim_records_nothing_over_the_new_owner(app, clock):
    @app.action("work")
    async def work() -> None: ...

    await app.schedule(work, id="w", repeat=every(timedelta(hours=1)))
    zombie = Worker(app)
    await zombie.intake.step()
    await zombie.runner.run_next()
    clock.advance(LEASE)
    assert await Worker(app).run_due() == 1
    before = await app.get("w")
    await zombie.recorder.step()
    assert (await app.get("w")) == before
    assert before.status.tick == 1


async def test_a_claim_is_not_started_when_its_lease_is_no_longer_trusted(app, clock):
    ran: list[str] = []

    @app.action("work")
    async def work() -> None:
        ran.append("work")

    await app.schedule(work, id="w")
    sleeper = Worker(app)
    await sleeper.intake.step()
    clock.advance(LEASE - timedelta(seconds=1))
    await sleeper.runner.run_next()
    assert ran == []
    assert len(sleeper.leases) == 0


async def test_what_could_not_be_started_soon_is_given_back_unattempted(app, clock):
    @app.action("work")
    async def work() -> None: ...

    await app.schedule(work, id="w")
    slow = Worker(app)
    await slow.intake.step()
    clock.advance(LEASE / 3 + timedelta(milliseconds=1))
    await slow.runner.watch()
    await slow.runner.giving_back.step()
    assert not slow.runner.has_waiting
    assert await Worker(app).run_due() == 1
    final = await status(app, "w")
    assert (final.attempts_started, final.interrupted) == (1, 0)


async def test_leases_of_what_is_running_are_prolonged_to_its_limit_and_not_beyond(app, clock):
    release = anyio.Event()

    @app.action("long", timeout=30 * SECOND)
    async def long() -> None:
        await release.wait()

    await app.schedule(long, id="l")
    worker, other = Worker(app), Worker(app)
    await worker.intake.step()
    async with anyio.create_task_group() as running:
        running.start_soon(worker.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        for _ in range(10):
            clock.advance(3 * SECOND)
            await worker.leases.extend(app.store)
            assert await other.run_due() == 0, "somebody else got an action that is running"
        # 30 s are over, the worker does not cancel (its loop may be blocked): the lease ends soon after the limit.
        clock.advance(worker.policy.timeout_grace + worker.policy.lease_margin)
        await worker.leases.extend(app.store)
        await other.intake.step()
        assert len(other.leases) == 1
        running.cancel_scope.cancel()


async def test_a_handler_is_cancelled_at_its_limit_and_tried_again(app, clock):
    @app.action("long", timeout=2 * SECOND, retry=STRICT)
    async def long() -> None:
        await anyio.sleep_forever()

    await app.schedule(long, id="l")
    worker = Worker(app)
    await worker.intake.step()
    async with anyio.create_task_group() as running:
        running.start_soon(worker.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        await worker.runner.watch()
        clock.advance(2 * SECOND)
        await worker.runner.watch()
    await worker.recorder.step()
    now = await status(app, "l")
    assert (now.state, now.failed, now.last_outcome) == (State.LIVE, 1, Outcome.TIMED_OUT)
    assert now.scheduled_at == clock.now() + 10 * SECOND


async def test_a_handler_that_ignores_its_cancellation_leaks_its_slot_but_not_the_action(app, clock):
    release = anyio.Event()

    @app.action("deaf", timeout=2 * SECOND, retry=Retry(max_attempts=1))
    async def deaf() -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    await app.schedule(deaf, id="d")
    worker = Worker(app)
    await worker.intake.step()
    async with anyio.create_task_group() as running:
        running.start_soon(worker.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        clock.advance(2 * SECOND)
        await worker.runner.watch()
        clock.advance(5 * SECOND)
        await worker.runner.watch()
        assert worker.runner.leaked == 1
        await worker.recorder.step()
        assert (await status(app, "d")).state is State.FAILED
        release.set()
    assert worker.runner.leaked == 0
    assert worker.recorder.is_idle, "its late return is nobody's outcome"


async def test_replacing_a_running_action_waits_for_its_end_and_the_new_version_wins(app, clock):
    release, ran = anyio.Event(), []

    @app.action("work")
    async def work(name: str) -> None:
        ran.append(f"{name} began")
        if name == "old":
            await release.wait()
        ran.append(f"{name} ended")

    await app.schedule(work, "old", id="w")
    first, second = Worker(app), Worker(app)
    await first.intake.step()
    async with anyio.create_task_group() as running:
        running.start_soon(first.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        replaced = await app.schedule(work, "new", id="w")
        assert replaced.running
        synced: list[ShardSynced] = []
        app.events.subscribe(ShardSynced, synced.append)
        assert await second.run_due() == 0
        assert await second.run_due() == 0
        assert len(synced) == 1, "moved once, blocked, and then left alone"
        release.set()
    await first.recorder.step()
    assert await second.run_due() == 1, "due at once when the old attempt ended"
    assert ran == ["old began", "old ended", "new began", "new ended"]
    final = await app.get("w")
    assert (final.status.state, final.status.succeeded, final.meta.guid) == (State.DONE, 1, replaced.guid)
    assert [past.outcome for past in await app.history("w")] == [Outcome.SUPERSEDED]


@pytest.mark.parametrize("change", ["run_now", "cancel", "reschedule"])
async def test_changing_a_running_action_never_makes_two_attempts_at_once(app, clock, change):
    release = anyio.Event()
    at_once: list[int] = []
    under_way = 0

    @app.action("work")
    async def work() -> None:
        nonlocal under_way
        under_way += 1
        at_once.append(under_way)
        if len(at_once) == 1:
            await release.wait()
        under_way -= 1

    await app.schedule(work, id="w")
    first, second = Worker(app), Worker(app)
    await first.intake.step()
    async with anyio.create_task_group() as running:
        running.start_soon(first.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        changing = partial(app.reschedule, delay=timedelta(0)) if change == "reschedule" else getattr(app, change)
        assert (await changing("w")).running
        assert await second.run_due() == 0
        release.set()
    await first.recorder.step()
    await second.run_due()
    assert at_once == ([1] if change == "cancel" else [1, 1])
    assert (await status(app, "w")).state is (State.CANCELLED if change == "cancel" else State.DONE)


async def test_a_dead_worker_under_a_replaced_action_delays_the_new_version_only_until_its_lease_ends(stage):
    @stage.app.action("work")
    async def work(name: str) -> None: ...

    start = stage.now
    await stage.app.schedule(work, "old", id="w")
    stage.faults.crash("w", before=True)
    await stage.run_due()
    await stage.app.schedule(work, "new", id="w")
    (ran,) = await stage.run_until_idle()
    assert (ran.payload, ran.at) == ("new", start + LEASE)


async def test_overdue_rows_do_not_starve_behind_new_ones(app, clock):
    order: list[str] = []

    @app.action("work")
    async def work(context: Context) -> None:
        order.append(context.id)

    await app.schedule(work, id="overdue", delay=SECOND)
    worker = Worker(app, WorkerPolicy(batch_max=5, concurrency=5))
    await worker.run_due()
    clock.advance(SECOND)
    shard = (await app.get("overdue")).meta.shard
    neighbours = [f"n{n}" for n in range(400)]
    for id in neighbours:
        await app.schedule(work, id=id)
    own_shard = {action.id for action in await app.list(limit=1000) if action.meta.shard == shard}
    await worker.run_due()
    assert [id for id in order if id in own_shard].index("overdue") <= 5


async def test_events_tell_what_happened_to_each_attempt(app, clock):
    ended: list[AttemptEnded] = []
    app.events.subscribe(AttemptEnded, ended.append)

    @app.action("work")
    async def work() -> None: ...

    await app.schedule(work, id="w")
    clock.advance(SECOND)
    await Worker(app).run_due()
    (event,) = ended
    assert (event.id, event.outcome, event.late) == ("w", Outcome.SUCCEEDED, SECOND)
