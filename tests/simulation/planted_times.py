"""Mistakes about time, repetition, budgets and counters, and those that only one of the other checkers sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from matrixsched.rules import outcome
from matrixsched.scheduler import Scheduler
from matrixsched.worker import runner
from matrixsched.worker.intake import Intake
from matrixsched.worker.iteration import Iteration
from matrixsched.worker.runner import Runner
from simulation.actors import Client
from simulation.faults import Fault
from simulation.planting import (
    Planted,
    all_of,
    asked_differently,
    edited,
    often_restarted,
    sql,
)
from simulation.world import World

_HOUR = "3600000000"


def _with_long_leases(world: World, claim: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: claim(*arguments, **{**options, "attempt_lease": timedelta(minutes=1)})


def often_crashed(world: World) -> None:
    world.plan.crashes_every_s = 4


def busy(world: World) -> None:
    """Much is under way in few processes, and is asked for at once."""
    policy = replace(world.size.policy, concurrency=8)
    world.size = replace(world.size, policy=policy, workers=2, operations=60, think_s=0.5)


def unsure(world: World) -> None:
    """Many calls have no answer, and many of those that are sent again none but that there is no database."""
    world.plan.rates |= {Fault.REPLY_LOST: 0.2, Fault.UNAVAILABLE: 0.3}


def deaf(world: World) -> None:
    """Leases are not prolonged as long as there are faults: the database is away for whoever asks for that."""
    at_call = world.nemesis.at_call

    def strike(host: str, transition: str) -> Fault | None:
        return Fault.UNAVAILABLE if transition == "extend" else at_call(host, transition)

    world.nemesis.at_call = strike  # type: ignore[method-assign]


expiring = all_of(
    edited(
        Client,
        "_terms",
        'self._chance.random() < 0.15:\n        terms["expires_at"]',
        'True:\n        terms["expires_at"]',
    ),
    edited(Client, "_delay_s", "self._chance.uniform(0, 25)", "self._chance.uniform(20, 25)"),
)
"""Actions expire soon after they are due."""


PLANTED = (
    # Times.
    Planted(
        "what is scheduled comes an hour late",
        sql("schedule.write", "'live', :scheduled_at,", f"'live', :scheduled_at + {_HOUR},"),
        ("timed_as_asked",),
    ),
    Planted(
        "a row is queued for an hour later than its action",
        sql("schedule.queue", "a.scheduled_at", f"a.scheduled_at + {_HOUR}"),
        ("due_at_its_time",),
    ),
    Planted(
        "what is moved comes an hour late",
        sql("reschedule.write", "scheduled_at = :scheduled_at,", f"scheduled_at = :scheduled_at + {_HOUR},"),
        ("timed_as_asked",),
    ),
    Planted(
        "a replacement comes an hour late",
        sql("replace_expected.write", "scheduled_at = :scheduled_at,", f"scheduled_at = :scheduled_at + {_HOUR},"),
        ("timed_as_asked",),
    ),
    Planted(
        "retries and ticks come a day late",
        all_of(
            sql("record.again", "set scheduled_at = :scheduled_at", "set scheduled_at = :scheduled_at + 86400000000"),
            sql(
                "record.record",
                "coalesce(:scheduled_at, scheduled_at)",
                "coalesce(:scheduled_at + 86400000000, scheduled_at)",
            ),
        ),
        ("timed_as_recorded",),
    ),
    Planted(
        "a new version waits on when the attempt before it has ended",
        sql("record.unblock", "set scheduled_at = a.scheduled_at", "set scheduled_at = p.scheduled_at"),
        ("due_at_its_time",),
    ),
    Planted(
        "attempts are leased for a minute",
        all_of(asked_differently("claim", _with_long_leases), asked_differently("move", _with_long_leases)),
        ("leased_as_agreed",),
    ),
    Planted(
        "workers oversleep",
        edited(Intake, "_rest", "longest = self._policy.rest_max.total_seconds()", "longest = 6.0"),
        ("overlooked",),
    ),
    Planted(
        "shards are taken by their numbers",
        sql("acquire_shard.choose", "l.last_processing_start_at, l.shard_id", "l.shard_id"),
        ("taken_in_turn",),
    ),
    # Repetition.
    Planted(
        "a repetition ends with its first tick",
        edited(outcome, "_tick_ended", "if following is None:", "if True:"),
        ("repeated_to_its_end",),
    ),
    Planted(
        "a repetition after the end begins again at once",
        edited(outcome, "next_tick", "latest + repeat.interval", "latest"),
        ("on_target",),
    ),
    # Budgets.
    Planted(
        "what has expired is started",
        all_of(edited(runner, "refusal", "now >= attempt.expires_at", "False"), often_crashed, expiring),
        ("started_before_its_end",),
    ),
    Planted(
        "what is too late is started",
        edited(outcome, "_is_too_late", "start_within is not None and now >", "False and now >"),
        ("started_within",),
    ),
    Planted(
        "failures have no end",
        edited(outcome, "retry_delay", "is_last = ", "is_last = False and "),
        ("within_attempts",),
    ),
    Planted(
        "interruptions have no end",
        all_of(edited(runner, "refusal", "attempt.interruptions > policy.max_interruptions", "False"), often_crashed),
        ("within_interruptions",),
    ),
    Planted(
        "a handler is not stopped at its limit",
        edited(Runner, "_check", "self._cancel(run, Cause.TIMEOUT)", "pass"),
        ("stopped_at_its_limit",),
    ),
    Planted(
        "a handler is not stopped when its claim is lost",
        all_of(edited(Runner, "_check", "self._cancel(run, Cause.LOST)", "pass"), deaf),
        ("stopped_with_its_lease",),
    ),
    Planted(
        "suspects are run like anybody",
        all_of(
            sql("claim.judge", "d.interrupted < :suspect_from or", "d.interrupted < :suspect_from or true or"),
            often_crashed,
            busy,
        ),
        ("suspects_apart",),
    ),
    # Counters.
    Planted(
        "an action does not count its interruptions",
        sql("record.record", "interrupted + :interrupted + (:outcome = 'interrupted')", "interrupted"),
        ("counted_as_noted",),
    ),
    Planted(
        "an interruption counts as a failure",
        all_of(
            sql(
                "record.record",
                "failed + (:outcome in ('failed', 'timed_out'))",
                "failed + (:outcome in ('failed', 'timed_out', 'interrupted'))",
            ),
            often_restarted,
        ),
        ("counted_as_noted",),
    ),
    Planted(
        "failures in a row are counted over successes",
        sql(
            "record.record",
            "when :outcome = 'succeeded' then 0",
            "when :outcome = 'succeeded' then consecutive_failures",
        ),
        ("counted_as_noted",),
    ),
    Planted(
        "a success is counted twice",
        sql("record.record", "succeeded + (:outcome = 'succeeded')", "succeeded + 2 * (:outcome = 'succeeded')"),
        ("counted",),
    ),
    Planted(
        "attempts that went wrong are not remembered",
        all_of(
            sql("record.remember", "values (", "select * from (select "),
            sql("record.remember", ":now) on conflict", ":now) where false on conflict"),
        ),
        ("remembered",),
    ),
    # What the other checkers are for.
    Planted(
        "a caller is told that nothing was done by who does not know",
        all_of(edited(Scheduler, "_until_known", "if unknown is None:", "if True:"), unsure),
        ("unexpected",),
    ),
    Planted(
        "a claim is put in line twice",
        edited(
            Runner,
            "accept",
            "self._put(self._take(attempt, asked_at))",
            "self._put(held := self._take(attempt, asked_at)); self._put(held)",
        ),
        ("started_once",),
    ),
    Planted(
        "what a handler raises counts as success",
        edited(Runner, "_called", "return Failed(describe(error))", "return Done()"),
        ("not_made_up",),
    ),
    Planted(
        "a replacement is acknowledged and not written",
        sql("schedule.write", "finished_at = null", "finished_at = null where s.revision < 0"),
        ("lost",),
    ),
    Planted(
        "what was cancelled runs on",
        all_of(
            sql(
                "cancel.write",
                "set action_guid = :action_guid,",
                "set action_guid = coalesce(s.action_guid, :action_guid),",
            ),
            sql("cancel.write", "state = 'cancelled', finished_at = :now,", "state = s.state,"),
        ),
        ("superseded",),
    ),
    Planted(
        "some successes are followed by another attempt",
        edited(
            runner,
            "judge",
            "return _tick_ended(attempt, Outcome.SUCCEEDED, State.DONE, now, spread)",
            "if spread < 0.3:\n                return _again(attempt, Outcome.SUCCEEDED, now)\n"
            "            return _tick_ended(attempt, Outcome.SUCCEEDED, State.DONE, now, spread)",
        ),
        ("doubled",),
    ),
    Planted(
        "the last attempt is not made",
        edited(outcome, "retry_delay", ">= policy.max_attempts", ">= policy.max_attempts - 1"),
        ("ended_as_allowed",),
    ),
    Planted(
        "what comes in is deleted up to a time",
        sql(
            "move.remove",
            "created_at = :created_at and action_id = :action_id and action_guid = :action_guid",
            "created_at <= :created_at and :action_id is not null and :action_guid is not null",
        ),
        ("one_live_row",),
    ),
    Planted(
        "a worker that stops does not wait for the answer to its claim",
        all_of(edited(Iteration, "_taken", "shield=True", "shield=False"), often_restarted),
        ("abandoned",),
    ),
)
