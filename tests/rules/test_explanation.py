"""Why an action has not run yet, told from everything that is known about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from matrixsched.rules.action import Action, Meta, Outcome, Spec, State, Status, Terms, parked_lane, suspect_lane
from matrixsched.rules.explanation import (
    QUIET_AFTER,
    SILENT_AFTER,
    Reason,
    Why,
    explain,
)
from matrixsched.rules.gates import Allowance, QuotaNow
from matrixsched.rules.limits import Limit, in_nanoseconds
from matrixsched.rules.minutes import SEEN_WITHIN, WorkerSeen
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.standing import BEFORE_COUNT_MAX, QueueRow, ShardLock, Standing, lane_to_pass
from matrixsched.rules.templates import Distribution, Template

NOW = datetime(2030, 1, 1, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
SOON_NS = in_nanoseconds(NOW + 10 * SECOND)
WINDOW = (NOW - 20 * SECOND, NOW + 40 * SECOND)
SPEC = Spec(
    handler="send", payload=b"{}", terms=Terms(), priority=0, template=None, zone=None, limit=None, expires_at=None
)
STATUS = Status(
    state=State.LIVE,
    scheduled_at=NOW - MINUTE,
    running=False,
    tick=0,
    succeeded=0,
    failed=0,
    interrupted=0,
    missed=0,
    deferred=0,
    consecutive_failures=0,
    last_outcome=None,
    last_error=None,
    last_started_at=None,
    last_ended_at=None,
    finished_at=None,
)
META = Meta(id="a", guid=UUID(int=1), version=1, revision=1, shard=3, created_at=NOW, updated_at=NOW)
ROW = QueueRow(lane="", due_at=NOW - MINUTE, claimed_at=None, is_claimed=False, interrupted=0)
FREE = ShardLock(is_locked=False, locked_by=None, heartbeat_at=NOW)


def an_action(status: dict[str, Any] | None = None, **spec: Any) -> Action:
    return Action(meta=META, spec=SPEC._replace(**spec), status=STATUS._replace(**(status or {})))


def a_standing(**facts: Any) -> Standing:
    """Due for a minute, moved, and workers are there, unless told otherwise."""
    usual = {"now": NOW, "action": an_action(), "row": ROW, "blocked_until": None, "shard": FREE}
    return Standing(**(usual | {"worker_seen_at": NOW - SECOND} | facts))


def reasons(**facts: Any) -> list[Why]:
    return [reason.why for reason in explain(a_standing(**facts)).reasons]


def reason(**facts: Any) -> Reason:
    return explain(a_standing(**facts)).reason


# One reason says it all.


def test_what_is_due_and_held_by_nothing_waits_for_a_worker():
    found = explain(a_standing())
    assert [one.why for one in found.reasons] == [Why.DUE]
    assert (found.due_at, found.reason.since, found.worker_seen_at) == (NOW - MINUTE, NOW - MINUTE, NOW - SECOND)


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (State.DONE, "actions run-now"),
        (State.CANCELLED, "actions run-now"),
        (State.FAILED, "actions redrive"),
        (State.EXPIRED, "actions redrive"),
        (State.QUARANTINED, "actions redrive"),
    ],
)
def test_what_is_finished_says_how_and_when_and_how_to_run_it_again(state, command):
    for expires_at in (None, NOW + MINUTE):
        finished = an_action({"state": state, "finished_at": NOW - MINUTE}, expires_at=expires_at)
        found = reason(action=finished, row=None)
        assert reasons(action=finished, row=None) == [Why.FINISHED]
        assert (found.since, found.move.command, found.move.arguments) == (NOW - MINUTE, command, ("a",))
        assert found.move.text.endswith(", without an end") == (expires_at is not None)


def test_what_was_cancelled_while_it_ran_says_so():
    cancelled = an_action({"state": State.CANCELLED, "finished_at": NOW})
    assert reasons(action=cancelled, row=None, blocked_until=NOW + SECOND) == [Why.FINISHED, Why.RUNNING]


def test_what_runs_has_no_other_reason():
    claimed = replace(ROW, is_claimed=True, claimed_at=NOW - SECOND, due_at=NOW + SECOND)
    expiring = an_action(expires_at=NOW + MINUTE)
    assert reasons(action=expiring, row=claimed, worker_seen_at=None) == [Why.RUNNING]
    assert reason(row=claimed).since == NOW - SECOND


@pytest.mark.parametrize("row", [None, replace(ROW, due_at=NOW + MINUTE)])
def test_what_is_not_due_waits_for_its_time_whoever_is_there(row):
    early = an_action({"scheduled_at": NOW + MINUTE}, template="gone")
    assert reasons(action=early, row=row, worker_seen_at=None) == [Why.NOT_DUE]
    assert reason(action=early, row=row).until == NOW + MINUTE


def test_what_failed_waits_for_the_next_try_without_saying_why_it_failed():
    status = {"scheduled_at": NOW + MINUTE, "consecutive_failures": 2, "last_ended_at": NOW - SECOND}
    found = reason(action=an_action(status | {"last_outcome": Outcome.FAILED, "last_error": "secret"}))
    assert (found.why, found.since, found.until) == (Why.RETRY, NOW - SECOND, NOW + MINUTE)
    assert found.text == "it failed 2 times in a row and waits for the next try"


def test_an_attempt_at_an_older_version_comes_first():
    assert reasons(blocked_until=NOW + SECOND) == [Why.BLOCKED]
    assert reasons(row=None, blocked_until=NOW + SECOND) == [Why.BLOCKED]
    pushed = reason(row=replace(ROW, due_at=NOW + 5 * SECOND))
    assert (pushed.why, pushed.since, pushed.until) == (Why.BLOCKED, NOW - MINUTE, NOW + 5 * SECOND)


def test_what_expires_says_when():
    late = an_action(expires_at=NOW)
    assert reasons(action=late) == [Why.EXPIRED]
    soon = explain(a_standing(action=an_action(expires_at=NOW + MINUTE))).reasons
    assert [(one.why, one.until) for one in soon] == [(Why.DUE, None), (Why.EXPIRES, NOW + MINUTE)]
    never = an_action({"scheduled_at": NOW + MINUTE}, expires_at=NOW + SECOND)
    assert "never runs" in explain(a_standing(action=never)).reasons[1].text


# Somebody must be there.


def test_without_workers_nothing_moves():
    assert reasons(worker_seen_at=None) == [Why.NO_WORKER]
    assert reasons(worker_seen_at=None, row=None) == [Why.NO_WORKER, Why.INCOMING]
    quiet = NOW - QUIET_AFTER - SECOND
    assert (reason(worker_seen_at=quiet).why, reason(worker_seen_at=quiet).since) == (Why.NO_WORKER, quiet)
    assert reasons(worker_seen_at=NOW - QUIET_AFTER) == [Why.DUE]


def test_what_has_no_row_is_lost_whether_it_is_due_or_not():
    found = reason(row=None, is_new=False, worker_seen_at=None)
    assert (found.why, found.move.command) == (Why.LOST, "fsck --repair")
    early = an_action({"scheduled_at": NOW + MINUTE}, expires_at=NOW + 2 * MINUTE)
    assert reasons(action=early, row=None, is_new=False) == [Why.LOST, Why.EXPIRES]
    done = an_action({"state": State.DONE, "finished_at": NOW})
    assert reasons(action=done, row=None, is_new=False) == [Why.FINISHED]


def test_the_shard_tells_who_has_it():
    held = ShardLock(is_locked=True, locked_by="host/1", heartbeat_at=NOW - SECOND)
    assert "is held by host/1" in reason(row=None, shard=held).text
    assert "has no holder" in reason(row=None).text
    stale = replace(held, heartbeat_at=NOW - SILENT_AFTER - SECOND)
    found = reason(shard=stale)
    assert (found.why, found.since) == (Why.STALE_LOCK, stale.heartbeat_at)
    assert (found.move.command, found.move.arguments) == ("shards release", ("3",))
    assert reasons(shard=replace(stale, is_locked=False)) == [Why.DUE]


# What nothing but a person or the time can open.


def test_a_handler_that_nobody_has_decides():
    parked = replace(ROW, lane=parked_lane("send"))
    assert reasons(row=parked, worker_seen_at=None) == [Why.NO_HANDLER, Why.NO_WORKER]


def a_worker(name: str = "host/1", *handlers: str, running: int = 0, seen: timedelta = MINUTE) -> WorkerSeen:
    return WorkerSeen(
        name=name, started_at=NOW - 60 * MINUTE, seen_at=NOW - seen, slots=10, running=running, handlers=handlers
    )


def test_a_worker_of_queues_alone_runs_no_action():
    found = reason(worker_seen_at=None, workers=[a_worker(seen=SECOND)])
    assert (found.why, found.text) == (Why.NO_WORKER, "no worker that runs actions has ever run here")
    assert reasons(worker_seen_at=None, workers=[a_worker("host/1", "send", seen=SECOND)]) == [Why.DUE]
    assert explain(a_standing(worker_seen_at=None, workers=[a_worker("host/1", "send")])).worker_seen_at == NOW - MINUTE


def test_a_handler_that_nobody_has_who_is_there_decides_before_anybody_met_it():
    other = a_worker("host/1", "other")
    assert reasons(workers=[other]) == [Why.NO_HANDLER]
    assert reason(workers=[other]).text == "the only worker that is there does not have the handler 'send'"
    assert "none of the 2 workers" in reason(workers=[other, a_worker("host/2", "third")]).text
    assert reasons(workers=[other, a_worker("host/2", "send")]) == [Why.DUE]


def test_a_worker_that_is_silent_has_no_handlers_and_tells_nothing_of_others():
    silent = SEEN_WITHIN + timedelta(seconds=1)
    assert reasons(workers=[a_worker("host/1", "other", seen=silent)]) == [Why.DUE]
    there = [a_worker("host/1", "send", seen=silent), a_worker("host/2", "other")]
    assert reasons(workers=there) == [Why.NO_HANDLER]


def test_what_was_parked_waits_for_those_no_more_who_have_the_handler_since():
    parked = replace(ROW, lane=parked_lane("send"))
    assert reasons(row=parked, workers=[a_worker("host/1", "send")]) == [Why.DUE]


def test_a_crowd_is_named_only_if_nobody_has_room():
    full, free = a_worker("host/1", "send", running=10), a_worker("host/2", "send", running=9)
    assert reasons(workers=[full]) == [Why.NO_ROOM]
    assert "the worker that has its handler had no slot free" in reason(workers=[full]).text
    assert "all 2 workers" in reason(workers=[full, replace(full, name="host/3")]).text
    assert reasons(workers=[full, free]) == [Why.DUE]
    assert reasons(workers=[full, a_worker("host/4", "other")]) == [Why.NO_ROOM]


@pytest.mark.parametrize(
    ("lane", "interrupted", "is_claimed"), [(suspect_lane("send"), 2, False), ("limit|0||send", 1, True)]
)
def test_a_suspect_is_named(lane, interrupted, is_claimed):
    row = replace(ROW, lane=lane, interrupted=interrupted, is_claimed=is_claimed)
    assert reasons(row=row) == [Why.SUSPECT]
    assert "2 times" in reason(row=row).text


def test_a_template_that_is_gone_or_paused_decides():
    message = an_action(template="promo")
    assert reasons(action=message, worker_seen_at=None) == [Why.NO_TEMPLATE, Why.NO_WORKER]
    paused = Template(name="promo", paused_at=NOW - MINUTE)
    quota = QuotaNow(is_paused=True, window=WINDOW)
    found = reason(action=message, template=paused, quota=quota)
    assert (found.why, found.since, found.until) == (Why.PAUSED, NOW - MINUTE, None)
    assert "until somebody resumes it" in found.text
    for_a_time = replace(paused, paused_until=NOW + MINUTE)
    assert reason(action=message, template=for_a_time, quota=quota).until == NOW + MINUTE
    over = replace(paused, paused_until=NOW)
    assert reasons(action=message, template=over, quota=QuotaNow(window=WINDOW)) == [Why.QUOTA]


def test_a_closed_limit_decides_and_says_why():
    closed = Limit(name="global", updated_at=NOW).slowed(NOW + MINUTE, None, "HTTP 429", NOW)
    found = reason(limits={"global": closed}, worker_seen_at=None)
    assert (found.why, found.until) == (Why.SLOWED, NOW + MINUTE)
    assert "because: HTTP 429" in found.text
    assert (found.move.command, found.move.arguments) == ("limits resume", ("global",))


def test_an_event_of_a_semaphore_is_under_no_limit():
    closed = Limit(name="global", updated_at=NOW).slowed(NOW + MINUTE, None, None, NOW)
    assert reasons(action=an_action(handler="acquired:pool"), limits={"global": closed}) == [Why.DUE]


# Its turn.

MESSAGE = an_action(template="promo", zone="Europe/Berlin")
EVENING = Template(name="promo", distribution=Distribution.EVENING)


def a_quota(*allowances: Allowance, inside: frozenset[str] = frozenset()) -> QuotaNow:
    by_kind = {(allowance.priority, allowance.inside): allowance for allowance in allowances}
    return QuotaNow(window=WINDOW, zones_inside=inside, allowances=by_kind)


def test_a_window_that_nobody_has_planned_is_waited_for():
    template = Template(name="promo")
    assert reasons(action=MESSAGE, template=template, quota=QuotaNow()) == [Why.UNPLANNED]
    assert reasons(action=MESSAGE, template=template, quota=QuotaNow(), worker_seen_at=None) == [
        Why.NO_WORKER,
        Why.UNPLANNED,
    ]


def test_a_share_that_is_used_up_is_waited_for_until_the_next_window():
    template = Template(name="promo")
    found = reason(action=MESSAGE, template=template, quota=a_quota(Allowance("promo", 0, False, 1200, 1200)))
    assert (found.why, found.since, found.until) == (Why.QUOTA, NOW - MINUTE, WINDOW[1])
    assert "(1,200 of 1,200)" in found.text
    none = reason(action=MESSAGE, template=template, quota=a_quota(Allowance("promo", 1, False, 10, 0)))
    assert (none.why, "no share for it" in none.text) == (Why.QUOTA, True)
    assert reasons(action=MESSAGE, template=template, quota=a_quota(Allowance("promo", 0, False, 10, 9))) == [Why.DUE]


def test_outside_of_its_hours_an_action_is_told_when_they_begin():
    quota = a_quota(Allowance("promo", 0, True, 10, 0), inside=frozenset({"Asia/Tokyo"}))
    found = explain(a_standing(action=MESSAGE, template=EVENING, quota=quota)).reasons
    assert [one.why for one in found] == [Why.QUOTA, Why.OUTSIDE]
    assert found[1].until == datetime(2030, 1, 1, 17, tzinfo=UTC), "18:00 in Berlin"
    assert "18:00-22:00 in Europe/Berlin" in found[1].text
    tokyo = an_action(template="promo", zone="Asia/Tokyo")
    assert reasons(action=tokyo, template=EVENING, quota=quota) == [Why.DUE], "there it is 19:00"


def test_a_limit_without_a_slot_says_when_the_next_one_comes():
    used = Limit(name="handler:send", rate=parse_rate("6/min"), pool=3, next_slot_ns=SOON_NS, updated_at=NOW)
    assert reasons(limits={"handler:send": replace(used, next_slot_ns=0)}) == [Why.DUE]
    found = reason(limits={"handler:send": used, "handler:other": used})
    assert (found.why, found.since, found.until) == (Why.LIMIT, NOW - MINUTE, NOW + 10 * SECOND)
    assert "handler:send is 6/min with a pool of 3" in found.text
    slowed = used.slowed(NOW + MINUTE, parse_rate("1/min"), None, NOW)
    found = reason(limits={"handler:send": slowed})
    assert (found.why, found.until) == (Why.SLOWED, NOW + MINUTE)


def test_a_slot_from_before_a_clock_was_set_back_holds_nothing():
    ahead_ns = in_nanoseconds(NOW + timedelta(days=30))
    limits = {"global": Limit(name="global", rate=parse_rate("1/s"), next_slot_ns=ahead_ns, updated_at=NOW)}
    assert reasons(limits=limits) == [Why.DUE], "as the claim decides"


def test_a_key_without_a_limit_of_its_own_goes_by_that_of_all():
    keyed = an_action(limit="acme")
    every = Limit(name="key:*", rate=parse_rate("1/s"), updated_at=NOW)
    bucket = Limit(name="key:acme", next_slot_ns=SOON_NS, updated_at=NOW)
    fresh = {"key:*": every}
    assert reasons(action=keyed, limits=fresh) == [Why.DUE]
    assert reasons(action=keyed, limits=fresh | {"key:acme": bucket}) == [Why.LIMIT]
    assert reasons(action=an_action(), limits=fresh) == [Why.DUE]


def test_those_before_it_are_counted():
    lane = lane_to_pass(SPEC).name
    limits = {"global": Limit(name="global", rate=parse_rate("10/s"), updated_at=NOW)}
    behind = reason(row=replace(ROW, lane=lane, before=1500), limits=limits)
    assert (behind.why, behind.until) == (Why.TURN, NOW + timedelta(seconds=150))
    assert behind.text == "1,500 of the same kind were due before it, and the limit global is 10/s"
    used = {"global": replace(limits["global"], next_slot_ns=SOON_NS)}
    assert reasons(row=replace(ROW, lane=lane, before=1), limits=used) == [Why.TURN, Why.LIMIT]
    many = replace(ROW, lane=lane, before=BEFORE_COUNT_MAX)
    assert reason(row=many, limits=limits).text.startswith("10,000 or more")
    assert reasons(row=replace(ROW, lane=lane, before=5)) == [Why.DUE], "nothing limits it any more"


def test_all_that_holds_an_action_is_named():
    paused = Template(name="promo", paused_at=NOW)
    closed = Limit(name="global", updated_at=NOW).slowed(NOW + MINUTE, None, None, NOW)
    used = Limit(name="template:promo", rate=parse_rate("1/min"), next_slot_ns=SOON_NS, updated_at=NOW)
    action = an_action(template="promo", expires_at=NOW + MINUTE)
    assert reasons(
        action=action,
        row=None,
        worker_seen_at=None,
        limits={"global": closed, "template:promo": used},
        template=paused,
        quota=QuotaNow(is_paused=True),
    ) == [Why.PAUSED, Why.SLOWED, Why.NO_WORKER, Why.INCOMING, Why.LIMIT, Why.EXPIRES]
