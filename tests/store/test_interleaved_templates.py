"""Stopping a campaign against users and claims, and planners against each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import uuid4

import pytest
from support.interleaving import HANDLER, Mutant, StatementWaits, Taken, World, cured, fetch

from matrixsched.rules.lanes import Lane
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.transition import Transition
from matrixsched.store.values import Answer, NewAction, Planned, Stopped

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
DONE = Stopped(1, None)

STOP_WAITS_FOR_USERS = Mutant("cancel_template", "for no key update skip locked", "for no key update")
STOP_TAKES_ROWS_OF_ALL = Mutant(
    "cancel_template",
    "from written w join chosen c on c.shard_id = w.shard_id and c.action_id = w.action_id",
    "from chosen c",
)
PUT_WITHOUT_LOCK = Mutant("put_template.create", "do update set updated_at = excluded.updated_at", "do nothing")
PLAN_WITHOUT_TURN = Mutant("plan_window.turn", "for update skip locked", "")


def a_message(world: World, id: str = "a") -> NewAction:
    return world.an_action(id, at=world.now + HOUR)._replace(template="promo")


async def waiting(world: World, *ids: str) -> None:
    """Messages of a template that are due in an hour, in processing."""
    await world.run(world.scheduling(*(a_message(world, id) for id in ids)))
    guid = await world.acquire()
    await world.run(world.moving(guid))
    await world.release(guid)


def stopping(world: World) -> Transition[Stopped]:
    return world.do.cancel_template_batch("promo", guids=[uuid4() for _ in range(10)], after=(-1, ""))


async def test_a_message_that_is_replaced_while_its_campaign_is_stopped_stays(world: World) -> None:
    await waiting(world, "a", "b")
    held = await world.paused(stopping(world))
    await world.run(world.scheduling(a_message(world, "a")))
    await held.resume()
    assert await held.answer() == DONE
    assert (await world.state("a"), await world.state("b")) == ("live", "cancelled")
    assert await world.run(stopping(world)) == DONE


@cured(rows_of_all=[STOP_TAKES_ROWS_OF_ALL])
async def test_the_row_of_a_message_that_is_not_cancelled_after_all_stays(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await waiting(world, "a")
    held = await world.paused(stopping(world))
    # Anything that writes the action and leaves its guid as it is, as recording an outcome does.
    await world.rows("update matrixsched.scheduled_actions set updated_at = updated_at")
    await held.resume()
    assert await held.answer() == Stopped(0, None)
    assert await world.state("a") == "live"
    if taken_out:
        world.wrong = {"a": 0}


@cured(waits=[STOP_WAITS_FOR_USERS])
async def test_stopping_does_not_wait_for_a_user(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await waiting(world, "a", "b")
    user, _ = await world.open(world.scheduling(a_message(world, "a")))
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(stopping(world))
    else:
        assert await world.run(stopping(world)) == DONE
    await user.commit()


async def test_the_row_of_an_attempt_that_begins_meanwhile_stays_until_it_ends(world: World) -> None:
    await waiting(world, "a")
    world.clock.advance(HOUR)
    held = await world.paused(stopping(world))
    attempt = (await world.take())["a"]
    await held.resume()
    assert await held.answer() == DONE
    answer = (await world.run(world.recording(attempt)))[attempt.claim.guid]
    assert answer is Answer.SUPERSEDED


async def test_two_that_stop_the_same_campaign_cancel_each_message_once(world: World) -> None:
    await waiting(world, "a", "b")
    first = await world.paused(stopping(world))
    assert await world.run(stopping(world)) == Stopped(2, None)
    await first.resume()
    assert await first.answer() == Stopped(0, None)


# Planners.


@cured(no_turn=[PLAN_WITHOUT_TURN])
async def test_a_planner_does_not_wait_for_another_and_does_not_plan_twice(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.run(world.do.put_template("promo", TemplateChange()))
    lane = Lane(handler=HANDLER, template="promo").name
    await world.run(world.scheduling(a_message(world)._replace(at=world.now, lane=lane)))
    guid = await world.acquire()
    await world.run(world.moving(guid))
    first, planned = await world.open(world.do.plan_window("first"))
    assert planned is Planned.NOW
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(world.do.plan_window("second"))
        await first.commit()
        return
    assert await world.run(world.do.plan_window("second")) is Planned.BUSY
    await first.rollback()
    session, planned = await world.open(world.do.plan_window("second"))
    assert planned is Planned.NOW
    await session.commit()
    assert await world.run(world.do.plan_window("first")) is Planned.BEFORE
    (window,) = await world.rows("select planned_by from matrixsched.quota_windows")
    assert window["planned_by"] == "second"


# Operators.


@cured(unlocked=[PUT_WITHOUT_LOCK])
async def test_a_template_stays_while_it_is_changed(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    change = TemplateChange(zone="Europe/Berlin")
    await world.run(world.do.put_template("promo", TemplateChange()))
    changing, remover = await world.session(), await world.session()
    await changing.begin()
    first = next(world.do.put_template("promo", change).begin())
    await fetch(changing.connection, first, world.statements[first.statement.name])
    await remover.begin()
    removing = remover.start(world.do.remove_template("promo"))
    if taken_out:
        assert await removing.answer()  # and nothing is left that could be changed
        return
    await removing.waits()
    assert (await changing.run(world.do.put_template("promo", change))).zone == "Europe/Berlin"
    await changing.commit()
    assert await removing.outcome()
