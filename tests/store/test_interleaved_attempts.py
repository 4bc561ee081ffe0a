"""Record and extend against each other and against users' open transactions; suspects; rows that must not starve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

import pytest
from support.interleaving import HANDLER, LEASE, Mutant, StatementWaits, Taken, World, cured

from matrixsched import App
from matrixsched.rules.action import UNGATED, Attempt, suspect_lane
from matrixsched.rules.outcome import Unrunnable, judge, refusal
from matrixsched.rules.retry import Retry
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.transition import Transition
from matrixsched.store.values import Acquired, Answer, Ended, Extension
from matrixsched.worker.daemon import Worker
from matrixsched.worker.policy import WorkerPolicy

pytestmark = pytest.mark.anyio

T = TypeVar("T")

HOUR = timedelta(hours=1)

# What the worker was told at the claim, in place of the attempt's name.
RECORD_BY_TIME = Mutant(
    "record",
    "where c.state <> 'live' and p.shard_id = c.shard_id and p.action_id = c.action_id "
    "and p.action_guid = c.action_guid and p.attempt = c.attempt and p.claimed_by = c.claimed_by",
    "where c.state <> 'live' and p.shard_id = c.shard_id and p.action_id = c.action_id "
    "and p.action_guid = c.action_guid and p.scheduled_at = p.claimed_at + interval '10 s'",
)
RECORD_WAITS = Mutant("record", "for no key update of a skip locked", "for no key update of a")
RECORD_NO_LOCK = Mutant("record", "for no key update of a skip locked", "")
EXTEND_WAITS = Mutant("extend", "for update of p skip locked", "for update of p")
EXTEND_NO_LOCK = Mutant("extend", "for update of p skip locked", "")
EXTEND_BY_ATTEMPT = Mutant(
    "extend",
    "and p.attempt = h.attempt and p.claimed_by = h.claimed_by /* pause point: extend_lock */",
    "and p.attempt = h.attempt /* pause point: extend_lock */",
)
CLAIM_WAITS = Mutant("claim", "for update skip locked", "for update")
MOVE_WAITS = Mutant("move", "end for update skip locked", "end for update")
ACTIONS_LOCKED = (
    Mutant(
        "claim", "and a.state = 'live' offset 0) a on true", "and a.state = 'live' for no key update of a) a on true"
    ),
    Mutant("move", "taken t left join matrixsched.scheduled_actions", "taken t join matrixsched.scheduled_actions"),
    Mutant("move", "r on r.action_id = t.action_id )", "r on r.action_id = t.action_id for no key update of a)"),
)
NO_SUSPICION = Mutant(
    "claim", "d.interrupted < cast(:suspect_from as integer) or d.lane like 'handler!%'", "d.interrupted < 1000"
)


# Record and extend.


@cured(row_named_by_time=[RECORD_BY_TIME])
async def test_an_outcome_is_recorded_after_its_lease_was_extended(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    (attempt,) = (await world.start_attempts("a")).values()
    world.clock.advance(LEASE / 3)
    assert await world.run(world.extending(attempt)) == {attempt.claim.guid: Extension.EXTENDED}
    answers = await world.run(world.recording(attempt))
    assert answers == {attempt.claim.guid: Answer.LOST if taken_out else Answer.RECORDED}
    assert await world.state("a") == ("live" if taken_out else "done")


@cured(row_named_by_time=[RECORD_BY_TIME])
async def test_an_outcome_is_recorded_while_its_lease_is_being_extended(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    (attempt,) = (await world.start_attempts("a")).values()
    world.clock.advance(LEASE / 3)
    extending, _ = await world.open(world.extending(attempt))
    recording = await world.start(world.recording(attempt))
    await recording.waits()
    await extending.commit()
    answers = await recording.outcome()
    assert answers == {attempt.claim.guid: Answer.LOST if taken_out else Answer.RECORDED}


@cured(row_named_by_attempt_alone=[EXTEND_BY_ATTEMPT])
async def test_a_late_extend_leaves_a_retry_alone(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    (attempt,) = (await world.start_attempts("a")).values()
    await world.run(world.recording(attempt, retry_in=HOUR))
    answers = await world.run(world.extending(attempt))
    # The answer is judged apart from the row, so that the mutant's answer is the same in spite of what it did.
    assert list(answers) == [attempt.claim.guid]
    row = await world.processing(attempt.claim.guid)
    assert row is not None
    assert row["scheduled_at"] == world.now + (LEASE if taken_out else HOUR)


@cured(no_row_lock=[EXTEND_NO_LOCK])
async def test_an_extend_with_a_snapshot_from_before_the_outcome_leaves_the_retry_alone(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    (attempt,) = (await world.start_attempts("a")).values()
    extending = await world.paused(world.extending(attempt))
    await world.run(world.recording(attempt, retry_in=HOUR))
    await extending.resume()
    answers = await extending.answer()
    assert answers == {attempt.claim.guid: Extension.EXTENDED if taken_out else Extension.BUSY}
    row = await world.processing(attempt.claim.guid)
    assert row is not None
    assert row["scheduled_at"] == world.now + (LEASE if taken_out else HOUR)


async def test_an_extend_and_a_new_claim_of_a_lapsed_attempt_cannot_both_win(world: World) -> None:
    (attempt,) = (await world.start_attempts("a")).values()
    world.clock.advance(LEASE)
    extending = await world.paused(world.extending(attempt))
    again = (await world.take())["a"]
    await extending.resume()
    assert await extending.answer() == {attempt.claim.guid: Extension.BUSY}
    assert await world.run(world.extending(attempt)) == {attempt.claim.guid: Extension.LOST}
    assert again.claim.attempt == 2
    assert await world.run(world.recording(attempt)) == {attempt.claim.guid: Answer.LOST}


async def test_an_outcome_sent_twice_counts_once(world: World) -> None:
    (attempt,) = (await world.start_attempts("a")).values()
    first, answers = await world.open(world.recording(attempt))
    assert answers == {attempt.claim.guid: Answer.RECORDED}
    assert await world.run(world.recording(attempt)) == {attempt.claim.guid: Answer.BUSY}
    await first.commit()
    assert await world.run(world.recording(attempt)) == {attempt.claim.guid: Answer.LOST}
    (row,) = await world.rows("select succeeded from matrixsched.scheduled_actions")
    assert row["succeeded"] == 1


# A user's transaction.


@cured(record_that_waits=[RECORD_WAITS])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("change", ["replace", "cancel"])
async def test_a_users_open_transaction_delays_only_the_outcome_of_its_own_action(
    world: World, change: str, ends: str, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    attempts = await world.start_attempts("a", "hot", "z")
    guids = {id: attempt.claim.guid for id, attempt in attempts.items()}
    user = await world.session()
    await user.begin()
    await user.run(world.cancelling("hot") if change == "cancel" else world.scheduling(world.an_action("hot")))
    recording = world.recording(*attempts.values())
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(recording)
        return
    answers = await world.run(recording)
    assert answers == {guids["a"]: Answer.RECORDED, guids["hot"]: Answer.BUSY, guids["z"]: Answer.RECORDED}
    await (user.commit() if ends == "commit" else user.rollback())
    answers = await world.run(world.recording(attempts["hot"]))
    assert answers == {guids["hot"]: Answer.SUPERSEDED if ends == "commit" else Answer.RECORDED}
    assert await world.processing(guids["hot"]) is None


@cured(no_lock=[RECORD_NO_LOCK])
async def test_an_outcome_does_not_overwrite_a_version_that_its_snapshot_does_not_show(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    (attempt,) = (await world.start_attempts("a")).values()
    recording = await world.paused(world.recording(attempt))
    await world.schedule("a")
    await recording.resume()
    answers = await recording.answer()
    row = await world.processing(attempt.claim.guid)
    if taken_out:
        # Neither written nor kept to be sent again: the outcome is gone.
        assert answers == {attempt.claim.guid: Answer.LOST}
        assert row is None
    else:
        assert answers == {attempt.claim.guid: Answer.BUSY}
        assert row is not None
        assert await world.run(world.recording(attempt)) == {attempt.claim.guid: Answer.SUPERSEDED}


@cured(actions_locked=ACTIONS_LOCKED)
async def test_a_users_open_transaction_keeps_no_worker_from_moving_claiming_and_extending(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    attempts = await world.start_attempts("hot", "running")
    await world.schedule("waiting")
    holder = await world.acquire()
    await world.run(world.moving(holder, claim_limit=0))
    await world.schedule("new")
    user, _ = await world.open(world.scheduling(*map(world.an_action, ["hot", "new", "running", "waiting"])))
    assert set((await world.run(world.extending(*attempts.values()))).values()) == {Extension.EXTENDED}
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(world.claiming(holder))
        with pytest.raises(StatementWaits):
            await world.run(world.moving(holder))
        return
    assert [one.claim.action_id for one in (await world.run(world.claiming(holder))).attempts] == ["waiting"]
    assert [one.claim.action_id for one in (await world.run(world.moving(holder))).attempts] == ["new"]
    await user.rollback()


@cured(extend_that_waits=[EXTEND_WAITS])
async def test_a_lease_is_extended_although_the_row_of_another_is_being_written(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    attempts = await world.start_attempts("a", "b")
    recording, _ = await world.open(world.recording(attempts["a"]))
    extending = world.extending(*attempts.values())
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(extending)
        return
    answers = await world.run(extending)
    assert answers == {attempts["a"].claim.guid: Extension.BUSY, attempts["b"].claim.guid: Extension.EXTENDED}
    await recording.commit()


@cured(claim_that_waits=[CLAIM_WAITS])
async def test_due_rows_are_claimed_although_one_of_them_is_being_written(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    attempts = await world.start_attempts("a", "b")
    world.clock.advance(LEASE)
    recording, _ = await world.open(world.recording(attempts["a"]))
    claiming = world.claiming(await world.acquire())
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(claiming)
        return
    assert [one.claim.action_id for one in (await world.run(claiming)).attempts] == ["b"]
    await recording.commit()


@cured(move_that_waits=[MOVE_WAITS])
async def test_rows_are_moved_although_one_of_them_is_locked(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("a", "b")
    holder = await world.acquire()
    operator = await world.session()
    await operator.begin()
    await operator.connection.execute("select from matrixsched.incoming_queue where action_id = 'a' for update")
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(world.moving(holder))
        return
    assert [one.claim.action_id for one in (await world.run(world.moving(holder))).attempts] == ["b"]
    await operator.rollback()


# Interruptions.


async def live_and_die(world: World) -> None:
    """A process that claims what is due, runs it, and dies of the poison if that is among it."""
    world.clock.advance(LEASE * 2)
    guid = uuid4()
    lane = suspect_lane(HANDLER)
    acquired: Acquired = await world.run(world.acquiring(guid, [lane]))
    claimed: list[Attempt] = []
    for one in acquired.lanes:
        limit = 1 if one == lane else 100
        claimed += (await world.run(world.claiming(guid, lane=one, limit=limit))).attempts
    if acquired.incoming:
        claimed += (await world.run(world.moving(guid))).attempts
    ended = [ended_without_a_call(world, one) for one in claimed if refusal(one, Retry(), world.now)]
    called = [one for one in claimed if not refusal(one, Retry(), world.now)]
    if ended:
        await world.run(world.do.record(ended, history_max=50))
    if called and all(one.claim.action_id != "poison" for one in called):
        await world.run(world.recording(*called))


def ended_without_a_call(world: World, attempt: Attempt) -> Ended:
    reason = refusal(attempt, Retry(), world.now)
    assert isinstance(reason, Unrunnable)
    return Ended(attempt.claim, judge(attempt, reason, Retry(), world.now, 0))


@cured(no_suspects=[NO_SUSPICION])
async def test_an_action_that_kills_its_process_does_not_take_its_neighbours_with_it(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.schedule("a", "b", "poison")
    for _ in range(12):
        await live_and_die(world)
    assert await world.state("poison") == "quarantined"
    assert {await world.state("a"), await world.state("b")} == {"quarantined" if taken_out else "done"}


async def test_an_attempt_interrupted_once_is_claimed_normally_and_twice_as_a_suspect(world: World) -> None:
    await world.start_attempts("a", "b")
    world.clock.advance(LEASE * 2)
    assert {id: one.interruptions for id, one in (await world.take()).items()} == {"a": 1, "b": 1}
    world.clock.advance(LEASE * 2)
    holder = await world.acquire()
    claimed = await world.run(world.claiming(holder))
    assert (claimed.seen, claimed.attempts) == (2, [])
    (suspect,) = (await world.run(world.claiming(holder, lane=suspect_lane(HANDLER), limit=1))).attempts
    assert (suspect.interruptions, suspect.claim.attempt) == (2, 3)


# Starving.


class IncomingFirst(PostgresStore):
    """Says nothing of due rows while there are new ones."""

    async def run(self, transition: Transition[T]) -> T:
        answer = await super().run(transition)
        if isinstance(answer, Acquired) and answer.incoming:
            return replace(answer, lanes=())
        return answer


@pytest.mark.parametrize("store", [PostgresStore, IncomingFirst], ids=["cure in place", "incoming first"])
async def test_an_overdue_row_is_served_although_incoming_is_always_full(
    world: World, store: type[PostgresStore]
) -> None:
    await world.start_attempts("overdue")
    world.clock.advance(LEASE * 2)
    batch_max = 4
    app = App(world.dsn, clock=world.clock, store=store(world.dsn, "default", clock=world.clock))
    app.handlers.register(HANDLER, lambda: None, retry=None, timeout=None)
    worker = Worker(app, WorkerPolicy(batch_max=batch_max, concurrency=batch_max))
    claimed: set[str] = set()
    async with app:
        for number in range(10):
            await world.schedule(*(f"new {number} {place}" for place in range(batch_max * 2)))
            await worker.intake.step()
            found = await world.rows(
                "select action_id from matrixsched.processing_queue where claimed_by is not null and scheduled_at > $1",
                world.now,
            )
            claimed |= {row["action_id"] for row in found}
            worker.runner.give_back_waiting()
            await worker.runner.giving_back.step()
    assert ("overdue" in claimed) == (store is PostgresStore)
    assert any(id.startswith("new") for id in claimed)


async def test_claims_of_lanes_other_than_the_ungated_one_are_not_made_in_passing(world: World) -> None:
    await world.run(world.scheduling(world.an_action("gated")._replace(lane="template:x"), world.an_action("free")))
    holder = await world.acquire()
    assert [one.claim.action_id for one in (await world.run(world.moving(holder))).attempts] == ["free"]
    assert (await world.run(world.claiming(holder, lane=UNGATED))).seen == 0
