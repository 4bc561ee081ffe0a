"""Mistakes in the gates, planted on purpose: each must be seen by one of their checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from matrixsched.rules.lanes import GLOBAL, lane_of
from matrixsched.worker.leases import Held, Leases
from simulation.actors import SimulatedWorker
from simulation.faults import Fault, FaultPlan
from simulation.gates import GatesPart
from simulation.nemesis import RandomNemesis
from simulation.parts import with_part
from simulation.planting import FENCE, NO_FENCE, Plant, Planted, all_of, asked_differently, sql, worker
from simulation.world import World


def with_gates(*plants: Plant) -> Plant:
    """In a run with gates, whose clients think little."""
    return all_of(with_part(GatesPart), thoughtless, *plants)


def thoughtless(world: World) -> None:
    world.size = replace(world.size, think_s=0.5, operations=20, clients=3, chaos_s=15)


def often(name: str) -> Plant:
    """Let clients do this a lot."""

    def plant(world: World) -> None:
        _gates(world).weights[name] = 25.0

    return plant


def faults(plan: FaultPlan) -> Plant:
    def plant(world: World) -> None:
        world.plan = plan
        world.nemesis = RandomNemesis(world, plan)

    return plant


calm = faults(FaultPlan())
"""No faults, which would be an excuse."""
slow_answers = faults(FaultPlan(rates={Fault.SLOW_AFTER: 0.2}))


def narrow(world: World) -> None:
    """Hardly any room in a window."""
    part = _gates(world)
    part.names, part.global_rates, part.intervals = {GLOBAL: 1.0}, ("4/s",), (1.0,)


def _gates(world: World) -> GatesPart:
    return next(part for part in world.parts if isinstance(part, GatesPart))


# In the protocol.


def _overlooks_important(world: World, count: Callable[..., Any]) -> Callable[..., Any]:
    """Of lanes of several priorities the most important ones are not seen."""

    def blind(*arguments: Any) -> Iterator[Any]:
        found: Mapping[str, int] = yield from count(*arguments)
        least = max((lane_of(name).priority for name in found), default=0)
        return {name: rows for name, rows in found.items() if lane_of(name).priority == least}

    return blind


def _listing_all(world: World, claim: Callable[..., Any]) -> Callable[..., Any]:
    """A claim looks at whatever is listed, important or not."""

    def wide(*arguments: Any, **options: Any) -> Any:
        listed = dict.fromkeys([*options["listed"], *(row[0] for row in world.database._rows(_LISTED))])
        return claim(*arguments, **{**options, "listed": list(listed)})

    return wide


def _without_lock(world: World, claim: Callable[..., Any]) -> Callable[..., Any]:
    """Under a guid that is that of no lock."""

    def unlocked(shard: int, sync_guid: UUID, **options: Any) -> Any:
        return claim(shard, UUID(int=sync_guid.int ^ 1), **options)

    return unlocked


_LISTED = "select lane from matrixsched_held_lanes order by lane"


# In the worker.


class _Impatient(Leases):
    def take(self, attempt: Any, asked_at: float) -> Held:
        held = super().take(attempt, asked_at)
        held.starts_at = float("-inf")
        return held


class StartsAtOnce(SimulatedWorker):
    """Does not wait for the slot of an attempt to begin."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leases.__class__ = _Impatient


class _Lasting(Leases):
    def take(self, attempt: Any, asked_at: float) -> Held:
        held = super().take(attempt, asked_at)
        held.void_at = float("inf")
        return held


class UsesVoidSlots(SimulatedWorker):
    """Starts an attempt however late its slot is."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leases.__class__ = _Lasting


_OR_LIMITED = "or exists (select 1 from matrixsched_limits where name in ('global', 'handler:' || a.handler))"
_UNSLOWED = """select l.name, l.requests, l.per_us, l.pool, l.next_slot_ns, null as slow_until, null as slow_requests,
null as slow_per_us, null as slow_reason, l.updated_at from"""

PLANTED = (
    Planted(
        "slots are not taken",
        with_gates(sql("spend.slots", "where name = :name", "where name = :name and next_slot_ns > :next_slot_ns")),
        ("slots_are_taken", "within_its_rate", "within_its_rates"),
    ),
    Planted(
        "a claim takes one slot for all",
        with_gates(
            sql("spend.slots", "= :next_slot_ns", "= min(:next_slot_ns, max(next_slot_ns, :next_slot_ns - 60000000))")
        ),
        ("slots_are_taken", "within_its_rate", "within_its_rates"),
    ),
    Planted(
        "a limit of everything is seen only by what has a gate of its own",
        with_gates(sql("claim.judge", _OR_LIMITED), sql("move.judge", _OR_LIMITED)),
        ("no_way_round_gates",),
    ),
    Planted(
        "being told to slow down changes nothing",
        with_gates(sql("lock_limits.read", "select l.* from", _UNSLOWED)),
        ("closed",),
    ),
    Planted(
        "a slow-down ends before its time",
        with_gates(sql("write_limit.write", "slow_until = :slow_until", "slow_until = :slow_until - 400000")),
        ("told_is_told",),
    ),
    Planted(
        "the rate of every key is nobody's",
        with_gates(sql("lock_limits.read", "where", "where l.name <> 'key:*' and")),
        ("slots_are_taken", "within_its_rate", "within_its_rates"),
    ),
    Planted(
        "what a change opens is not looked at",
        with_gates(sql("open_gates.lanes", "where ready_at >", "where false and ready_at >")),
        ("opens_at_once",),
    ),
    Planted(
        "a paused template goes on",
        with_gates(
            often("pause"), sql("read_grants", "t.paused_at, t.paused_until", "null as paused_at, t.paused_until")
        ),
        ("paused",),
    ),
    Planted(
        "a window has a share for a paused template",
        with_gates(sql("templates", "select t.*,", "select t.*, null as paused_at,")),
        ("only_to_those_at_work",),
    ),
    Planted(
        "what is granted is not used up",
        with_gates(sql("spend.grants", "set used = :used", "set used = min(used, :used)")),
        ("quota_is_counted",),
    ),
    Planted(
        "a window that is over is used on",
        with_gates(
            sql("read_grants", "where ends_at > :now", "where ends_at > :now - 1500000"),
            sql("read_grants", "w.ends_at,", "w.ends_at + 1500000 as ends_at,"),
        ),
        ("in_its_window",),
    ),
    Planted(
        "a window is planned again and again",
        with_gates(
            sql("plan_window.state", "as previous_ends_at", "- 60000000 as previous_ends_at"),
            sql("plan_window.window", "insert into", "insert or replace into"),
            sql("plan_window.grant", "insert into", "insert or replace into"),
        ),
        ("planned_once", "quota_is_counted"),
    ),
    Planted(
        "what waits is counted twice",
        with_gates(sql("plan_window.count", "count(*)", "2 * count(*)")),
        ("no_more_than_waits",),
    ),
    Planted(
        "the last one in is the first to go",
        with_gates(sql("claim.judge", "order by p.scheduled_at,", "order by p.scheduled_at desc,")),
        ("oldest_first",),
    ),
    Planted(
        "what is important is overlooked",
        with_gates(
            asked_differently("claim_gated", _listing_all), asked_differently("_count_held", _overlooks_important)
        ),
        ("important_first",),
    ),
    Planted(
        "those who were served last are served first",
        with_gates(narrow, sql("plan_window.served", "g.last_served_at", "-g.last_served_at as last_served_at")),
        ("served_in_turn",),
    ),
    Planted(
        "rows are put before gates that nobody lists",
        with_gates(sql("relist_lanes.list", "from parted s", "from parted s where false")),
        ("listed_as_they_wait",),
    ),
    Planted(
        "lanes stay listed when they are empty",
        with_gates(sql("relist_lanes.unlist", "where not exists", "where false and not exists")),
        ("listed_as_they_wait",),
    ),
    Planted(
        "stopping a campaign drops attempts under way",
        with_gates(
            calm,
            often("stop"),
            often("send_campaign"),
            sql("cancel_template.choose", "and p.claimed_by is not null", "and p.claimed_by = ''"),
            sql("cancel_template.drop", "and claimed_by is null"),
        ),
        ("abandoned", "overlapping"),
    ),
    Planted(
        "a gated claim without a fence",
        with_gates(asked_differently("claim_gated", _without_lock), sql("claim.judge", FENCE, NO_FENCE)),
        ("gated_claim_is_fenced",),
    ),
    Planted(
        "a window grants more than there is room for",
        with_gates(narrow, sql("plan_window.grant", ":granted", "5 * :granted")),
        ("within_the_room", "no_more_than_its_share"),
    ),
    Planted(
        "messages of templates wait for limits alone",
        with_gates(
            sql("move.judge", "case when a.lane <> '' then a.lane", "case when a.lane like 'limit%' then a.lane")
        ),
        ("in_the_lane_of_its_action",),
    ),
    Planted("a handler is called before its slot begins", with_gates(worker(StartsAtOnce)), ("in_its_slot",)),
    Planted(
        "a handler is called after its slot is void", with_gates(slow_answers, worker(UsesVoidSlots)), ("in_its_slot",)
    ),
    Planted(
        "limits are stored ten times as fast",
        with_gates(sql("write_limit.write", "set requests = :requests", "set requests = 10 * :requests")),
        ("set_as_asked",),
    ),
    Planted(
        "pausing a template does nothing",
        with_gates(
            often("pause"),
            sql("pause_template", "paused_at = :now, paused_until = :until", "paused_at = null, paused_until = null"),
        ),
        ("paused_as_asked",),
    ),
)
