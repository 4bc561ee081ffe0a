"""Faults: what a test lets go wrong, and what the product makes of it."""

from datetime import timedelta

import pytest

from matrixsched import Outcome, Retry, State
from matrixsched.errors import BadInput, DatabaseUnavailable, InvalidDuration, InvalidId, InvalidNumber, OutcomeUnknown
from matrixsched.scheduler_policy import SchedulerPolicy
from matrixsched.store.transitions import TRANSITION_NAMES, Transitions
from matrixsched.testing import stage

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
TEA = {"user_id": 1}


async def status(on, id: str):
    return (await on.app.get(id)).status


# The program's calls.


async def test_a_call_that_is_refused_has_done_nothing(on):
    on.faults.fail("schedule")
    with pytest.raises(DatabaseUnavailable, match="schedule: the test lets the database be away"):
        await on.app.schedule("remind", TEA, id="r")
    on.assert_not_scheduled()
    await on.app.schedule("remind", TEA, id="r")
    on.assert_scheduled(id="r")


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
async def test_a_call_of_unknown_outcome_is_sent_again_and_takes_effect_once(on, program, fault):
    start = on.now
    getattr(on.faults, fault)("schedule", times=2)
    scheduled = await on.app.schedule("remind", TEA, id="r", delay=DAY)
    assert scheduled.created
    assert on.faults.struck["schedule"] == 2
    assert SECOND > on.now - start > timedelta(0), "it waited before it sent it again"
    assert len(await on.run_until_idle()) == 1


async def test_lost_for_good_is_reported_when_patience_ends(program, place):
    with stage(program.app, url=place) as on:
        on.faults.lose_request("schedule", times=1000)
        start = on.now
        with pytest.raises(OutcomeUnknown, match="the test lets the connection break before it arrived"):
            await on.app.schedule("remind", TEA, id="r")
        assert on.now - start >= SchedulerPolicy().outcome_patience
        on.assert_not_scheduled()


@pytest.mark.parametrize("transition", ["cancel", "reschedule", "replace", "get", "list", "history"])
async def test_each_call_by_its_name(on, transition):
    scheduled = await on.app.schedule("remind", TEA, id="r", delay=DAY)
    calls = {
        "replace": lambda: on.app.schedule("remind", TEA, id="r", expected_guid=scheduled.guid),
        "cancel": lambda: on.app.cancel("r"),
        "reschedule": lambda: on.app.run_now("r"),
        "get": lambda: on.app.get("r"),
        "list": lambda: on.app.list(),
        "history": lambda: on.app.history("r"),
    }
    on.faults.fail(transition)
    with pytest.raises(DatabaseUnavailable):
        await calls[transition]()
    on.assert_scheduled(id="r", at=on.now + DAY)


def test_synchronous_calls_meet_the_same_faults(on):
    on.faults.fail("schedule")
    with pytest.raises(DatabaseUnavailable):
        on.app.sync.schedule("remind", TEA, id="r")


# The worker.


@pytest.mark.parametrize("fault", ["fail", "lose_request", "lose_answer"])
@pytest.mark.parametrize("transition", ["acquire_shard", "move", "claim", "record", "release_shard"])
async def test_whatever_step_of_the_worker_is_struck_everything_runs_once(on, program, fault, transition):
    getattr(on.faults, fault)(transition)
    for number in range(3):
        await on.app.schedule("remind", {"user_id": number, "text": f"{number}"}, id=f"r{number}", delay=MINUTE)
    await on.advance(2 * MINUTE)
    assert on.faults.struck[transition] == 1
    assert on.faults.pending == []
    assert sorted(text for text, _ in program.said) == ["0", "1", "2"]
    assert on.scheduled() == []


async def test_an_outcome_that_could_not_be_recorded_is_kept_until_the_database_is_back(on, program):
    @program.app.action("unplug")
    async def unplug() -> None:
        on.faults.database_away(5 * SECOND)

    start = on.now
    await on.app.schedule(unplug, id="u")
    assert [ran.outcome for ran in await on.run_due()] == ["succeeded"]
    with pytest.raises(DatabaseUnavailable):
        await on.app.get("u")
    assert on.assert_scheduled(id="u").action.status.running, "asserts look past the faults"
    assert await on.advance(MINUTE) == []
    assert (await status(on, "u")).last_ended_at == start + 5 * SECOND
    assert (await status(on, "u")).state is State.DONE


async def test_a_database_that_is_away_delays_what_is_due(on, program):
    start = on.now
    await on.app.schedule("remind", TEA, id="r", delay=10 * SECOND)
    on.faults.database_away(MINUTE)
    with pytest.raises(DatabaseUnavailable):
        await on.app.schedule("remind", TEA, id="s")
    (ran,) = await on.run_until_idle()
    assert (ran.id, ran.at) == ("r", start + MINUTE)


# Workers that die.


async def test_a_worker_that_dies_after_the_handler_did_its_work_makes_it_run_twice(on, program):
    start = on.now
    await on.app.schedule("remind", TEA, id="r", delay=DAY)
    on.faults.crash("r")
    ran = await on.advance(2 * DAY)
    assert [(one.outcome, one.at - start) for one in ran] == [
        (Outcome.INTERRUPTED, DAY),
        (Outcome.SUCCEEDED, DAY + 10 * SECOND),
    ]
    assert ran[0].error == "the test let the worker die"
    assert len(program.said) == 2
    final = await status(on, "r")
    assert (final.state, final.interrupted, final.failed, final.succeeded) == (State.DONE, 1, 0, 1)
    assert [past.outcome for past in await on.app.history("r")] == [Outcome.INTERRUPTED]


async def test_a_worker_that_dies_before_the_handler_is_called(on, program):
    await on.app.schedule("remind", TEA, id="r")
    on.faults.crash("r", before=True)
    assert [one.outcome for one in await on.run_until_idle()] == ["interrupted", "succeeded"]
    assert len(program.said) == 1


async def test_a_worker_can_die_of_a_handler_that_fails(on, program):
    program.broken = True
    await on.app.schedule("remind", TEA, id="r")
    on.faults.crash("r")
    (ran,) = await on.run_due()
    assert ran.outcome is Outcome.INTERRUPTED
    assert isinstance(ran.exception, ConnectionError)


async def test_what_the_dead_worker_held_is_taken_over_when_its_lease_ends(on, program):
    start = on.now
    for id in ("a", "b", "c"):
        await on.app.schedule("remind", {"user_id": 1, "text": id}, id=id)
    on.faults.crash("a", before=True)
    on.faults.crash("b", before=True)
    on.faults.crash("c", before=True)
    ran = await on.run_until_idle()
    assert sorted(one.id for one in ran if one.outcome is Outcome.SUCCEEDED) == ["a", "b", "c"]
    assert sorted(text for text, _ in program.said) == ["a", "b", "c"]
    assert on.now > start


async def test_what_kills_its_worker_again_and_again_is_quarantined(program, place):
    @program.app.action("poison", retry=Retry(max_interruptions=3))
    async def poison() -> None: ...

    with stage(program.app, url=place) as on:
        await on.app.schedule(poison, id="p")
        on.faults.crash("p", times=10)
        ran = await on.run_until_idle()
        assert [one.outcome for one in ran] == ["interrupted"] * 4 + ["quarantined"]
        assert on.faults.pending == ["p"] * 6


async def test_a_thread_is_interrupted_likewise(on, program):
    await on.app.schedule("remind_from_thread", TEA, id="r")
    on.faults.crash("r")
    assert [one.outcome for one in await on.run_until_idle()] == ["interrupted", "succeeded"]


# Saying it wrong.


async def test_a_fault_must_name_a_transition(on):
    with pytest.raises(BadInput, match="no transition 'recrod'; did you mean 'record'. they are acquire_shard"):
        on.faults.fail("recrod")
    with pytest.raises(BadInput, match="no transition 'run_now'; did you mean 'reschedule'. they are"):
        on.faults.lose_answer("run_now")
    with pytest.raises(BadInput, match="no transition 'juggle'; they are"):
        on.faults.lose_request("juggle")


async def test_a_fault_must_strike_at_least_once_and_an_absence_must_last(on):
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(InvalidNumber, match="times"):
            on.faults.fail("record", times=wrong)
        with pytest.raises(InvalidNumber, match="times"):
            on.faults.crash("r", times=wrong)
    with pytest.raises(InvalidId, match="id is empty"):
        on.faults.crash("")
    with pytest.raises(InvalidDuration, match="duration"):
        on.faults.database_away(timedelta(0))
    assert on.faults.pending == []


def test_the_names_are_those_of_the_protocol_and_of_the_scheduler():
    own = {"replace": "replace_expected", "get": "find", "list": "page"}
    assert all(hasattr(Transitions, own.get(name, name)) for name in TRANSITION_NAMES)
