"""Mistakes planted in the SQL, each with a pair that shows it: an interleaver that never objects proves nothing."""

from __future__ import annotations

from dataclasses import dataclass

from support.interleaving import Mutant

RECEIPT = "and t.receipt = (cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]"


ALL_OF = (
    "and (select count(*) from {0}) = (select count(*) from matrixsched.{0}_queue {1} "
    "where {1}.shard_id = cast(:shard_id as integer) and {1}.action_id = cast(:subject as text))"
)


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    mutant: Mutant
    pair: tuple[str, str]
    scene: str
    seen_as: str
    """What is then said of it."""


def without(statement: str, piece: str, *, keep: str = "") -> Mutant:
    """The statement without a piece of its text; `keep` of it stays."""
    return Mutant(statement, piece, keep)


SERIAL = "as after one order or the other"
FENCE = "only the holder of a shard moves and claims"
WAITS = "nobody waits who promised not to"

PLANTED = (
    Planted(
        "a change that is written although it is called off",
        Mutant(
            "reschedule",
            "where w.action_guid <> cast(:request_guid as uuid)",
            "where w.action_guid <> cast(:request_guid as uuid) on conflict do nothing",
        ),
        ("reschedule-named", "call-off"),
        "new",
        "a change that is called off is not written",
    ),
    Planted(
        "a claim without a fence", without("claim", "for key share skip locked"), ("acquire", "claim"), "left", FENCE
    ),
    Planted("a move without a fence", without("move", "for key share skip locked"), ("acquire", "move"), "left", FENCE),
    Planted(
        "a claim of rows that others claim",
        Mutant("claim", "limit s.take for update skip locked", "limit s.take"),
        ("claim", "claim="),
        "waiting",
        "who was handed an attempt holds its row",
    ),
    Planted(
        "a move of rows that others move",
        Mutant("move", "end for update skip locked", "end"),
        ("move", "run"),
        "new",
        WAITS,
    ),
    Planted(
        "a claim that waits",
        Mutant("claim", "limit s.take for update skip locked", "limit s.take for update"),
        ("claim", "record"),
        "lapsed",
        WAITS,
    ),
    Planted(
        "an outcome that waits for users",
        Mutant("record", "for no key update of a skip locked", "for no key update of a"),
        ("schedule", "record"),
        "claimed",
        WAITS,
    ),
    Planted(
        "a lease that anybody extends",
        Mutant(
            "extend",
            "and p.attempt = h.attempt and p.claimed_by = h.claimed_by /* pause",
            "and p.attempt = h.attempt /* pause",
        ),
        ("extend", "give-back"),
        "claimed",
        SERIAL,
    ),
    Planted(
        "a version that stays behind an attempt that has ended",
        Mutant("unblock", "set scheduled_at = w.scheduled_at", "set scheduled_at = p.scheduled_at"),
        ("move", "record"),
        "replaced",
        SERIAL,
    ),
    Planted("a blind cancel", without("cancel", "for no key update"), ("cancel", "cancel"), "new", SERIAL),
    Planted("a blind replace", without("replace_expected", "for no key update"), ("replace", "cancel"), "new", SERIAL),
    Planted(
        "a request that counts twice",
        Mutant("schedule", "where g.request_guid in (select request_guid from request)", ""),
        ("schedule", "schedule-twice"),
        "new",
        SERIAL,
    ),
    Planted(
        "two who acquire",
        without("acquire_shard", "for update of l skip locked"),
        ("acquire", "acquire"),
        "free",
        SERIAL,
    ),
    Planted(
        "a limit in two hands",
        Mutant("lock_limits", "order by l.name for no key update skip locked", "order by l.name"),
        ("claim-gated", "claim-gated"),
        "one-token",
        "no more pass a gate than it lets through",
    ),
    Planted(
        "a grant in two hands",
        without("lock_grants", "for no key update of g skip locked"),
        ("claim-gated", "claim-gated"),
        "one-grant",
        "no more pass a gate than it lets through",
    ),
    Planted(
        "two who plan", without("plan_window.turn", "for update skip locked"), ("plan", "plan"), "unplanned", SERIAL
    ),
    Planted(
        "two who balance",
        without("balance.hold", "for no key update skip locked"),
        ("balance", "balance"),
        "place-free",
        "no more hold places than there are",
    ),
    Planted(
        "a campaign that is stopped under attempts",
        without("cancel_template", "and p.claimed_by is not null and p.scheduled_at > {now}", keep="and false"),
        ("claim-gated", "stop-campaign"),
        "one-grant",
        SERIAL,
    ),
    Planted(
        "a place that is let go and not told",
        without("release_tasks", "where exists (select from released) ), noted", keep="where false ), noted"),
        ("balance", "let-go"),
        "place-asked",
        "a semaphore at rest has the best in its places",
    ),
    Planted(
        "two who take",
        without("take_tasks", "for update skip locked"),
        ("take", "take"),
        "tasks",
        "a task is in one hand",
    ),
    Planted("done without a receipt", without("done_tasks.delete", RECEIPT), ("done", "take"), "taken-lapsing", SERIAL),
    Planted(
        "a letter that is waited for",
        without("dead_letters.redrive", "for update skip locked"),
        ("redrive", "redrive"),
        "tasks",
        WAITS,
    ),
    Planted(
        "a task of another semaphore that goes, too",
        without("release_tasks", "t.semaphore = cast(:semaphore as text) and t.task_id = any", keep="t.task_id = any"),
        ("let-go", "renew"),
        "place-held",
        SERIAL,
    ),
    Planted(
        "a task of another semaphore that is found",
        without("release_tasks", "t.semaphore = cast(:semaphore as text) and t.task_id = g", keep="t.task_id = g"),
        ("let-go", "let-go"),
        "place-held",
        SERIAL,
    ),
    Planted(
        "a task of another semaphore that is renewed, too",
        without("renew_tasks", "and t.semaphore = s.key"),
        ("renew", "let-go"),
        "place-late",
        SERIAL,
    ),
    Planted(
        "a task that holds a place elsewhere, and is renewed here",
        without("renew_tasks", "t.semaphore = cast(:semaphore as text) and t.task_id = g", keep="t.task_id = g"),
        ("renew", "renew"),
        "place-free",
        SERIAL,
    ),
    Planted(
        "a task of another semaphore that steps back, too",
        without("step_back", "t.semaphore = cast(:semaphore as text) and t.task_id", keep="t.task_id"),
        ("step-back", "let-go"),
        "place-held",
        SERIAL,
    ),
    Planted(
        "a place that is given up on behalf of another time",
        without("step_back", "and (cast(:hold as uuid) is null or t.guid = cast(:hold as uuid))"),
        ("step-back-late", "renew"),
        "place-held",
        SERIAL,
    ),
    Planted(
        "a grant of another window",
        without("spend", "g.begins_at = cast(:begins_at as timestamptz) and g", keep="g"),
        ("claim-gated", "claim-gated"),
        "one-grant",
        SERIAL,
    ),
    Planted(
        "a grant of another template",
        without("spend", "and g.template = s.template"),
        ("claim-gated", "claim-gated"),
        "one-grant",
        SERIAL,
    ),
    Planted(
        "a grant of another priority",
        without("spend", "and g.priority = s.priority"),
        ("claim-gated", "claim-gated"),
        "one-grant",
        SERIAL,
    ),
    Planted(
        "a grant of the other side",
        without("spend", "and g.inside = s.inside"),
        ("claim-gated", "claim-gated"),
        "one-grant",
        SERIAL,
    ),
    Planted(
        "a repair that waits for a move of a row that came twice",
        Mutant("mend.twice", "for update of i skip locked", "for update of i"),
        ("mend-twice", "move"),
        "twice-new",
        WAITS,
    ),
    Planted(
        "a repair that waits for a move that drops a dead row",
        Mutant("mend.unwanted", "for update of p skip locked", "for update of p"),
        ("mend-dead", "move"),
        "litter-new",
        WAITS,
    ),
    Planted(
        "a repair that waits for a move of a dead row",
        Mutant("mend.unwanted", "for update of i skip locked", "for update of i"),
        ("mend-dead", "move"),
        "litter",
        WAITS,
    ),
    Planted(
        "a repair that waits for the outcome of an attempt",
        Mutant("mend.lease", "for update of p skip locked", "for update of p"),
        ("mend-lease", "record"),
        "stranded",
        WAITS,
    ),
    Planted(
        "a repair that waits for a claim",
        Mutant("mend.time", "for update of p skip locked", "for update of p"),
        ("mend-time", "claim"),
        "early",
        WAITS,
    ),
    Planted(
        "a repair that waits for a move",
        Mutant("mend.time", "for update of i skip locked", "for update of i"),
        ("mend-time", "move"),
        "early-new",
        WAITS,
    ),
    Planted(
        "a repair that waits for another one",
        Mutant("mend.lane", "for update of p skip locked", "for update of p"),
        ("mend-lane", "mend-lane"),
        "astray",
        WAITS,
    ),
    Planted(
        "a repair that waits for a counter",
        Mutant("mend.counters", "for no key update of a skip locked", "for no key update of a"),
        ("mend-counters", "record"),
        "miscounted",
        WAITS,
    ),
    Planted(
        "a repair that waits for another one to forget",
        Mutant("mend.forgotten", "for update of h skip locked", "for update of h"),
        ("mend-forgotten", "mend-forgotten"),
        "forgotten",
        WAITS,
    ),
    Planted(
        "a repair that takes an attempt its row",
        without("mend.unwanted", "and (p.claimed_by is null or p.scheduled_at <= {now})"),
        ("mend-dead", "record"),
        "litter-run",
        SERIAL,
    ),
    Planted(
        "a repair that takes a live action its row",
        without("mend.unwanted", "where a.live is null"),
        ("mend-dead", "move"),
        "litter-new",
        "every live action has exactly one row",
    ),
    Planted(
        "an action that is brought home out of a claim",
        Mutant("mend.misplaced", ALL_OF.format("processing", "p"), ""),
        ("claim", "mend-misplaced"),
        "misplaced",
        SERIAL,
    ),
    Planted(
        "an action that is brought home out of a move",
        Mutant("mend.misplaced", ALL_OF.format("incoming", "i"), ""),
        ("move", "mend-misplaced"),
        "misplaced-new",
        SERIAL,
    ),
    Planted(
        "a lock that somebody has taken meanwhile, and that goes all the same",
        without("mend.extra_lock", "and l.last_lock_guid = any (cast(:guids as uuid[]))"),
        ("acquire", "mend-extra-lock"),
        "extra-lock",
        SERIAL,
    ),
    Planted(
        "a repair that waits for a heartbeat",
        Mutant("mend.lock_time", "for no key update skip locked", "for no key update"),
        ("beat", "mend-lock-time"),
        "lock-time-held",
        WAITS,
    ),
    Planted(
        "a repair that waits for whoever settles a task",
        Mutant("mend.task_lease", "for update skip locked", "for update"),
        ("retry", "mend-task-lease"),
        "task-lease",
        WAITS,
    ),
    Planted(
        "a repair that waits for whoever deletes a letter",
        Mutant("mend.task_twice", "for update of d skip locked", "for update of d"),
        ("purge-dead", "mend-task-twice"),
        "task-twice",
        WAITS,
    ),
    Planted(
        "what is run now although a claim has it in hand",
        Mutant("reschedule", "and (p.claimed_by is null or p.scheduled_at <= {now}) for update of p skip locked", ""),
        ("claim", "run-now-as-seen"),
        "waiting",
        "what is run now as it was seen was not started since",
    ),
)
