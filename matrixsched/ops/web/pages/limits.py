"""Limits: how fast everything may go, and what was told to slow down."""

from __future__ import annotations

from starlette.responses import Response

from matrixsched.errors import BadInput
from matrixsched.ops import changes, limits
from matrixsched.ops.operator import Operator
from matrixsched.ops.render import Facts
from matrixsched.ops.web.pages.changing import Changes, Given, Happened, Proposal, check_seen, seen
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.rules.limits import check_pool, check_settable
from matrixsched.rules.rates import check_rate

PAGE = 100


async def show_limits(visit: Visit) -> Response:
    with_keys, after = bool(visit.asked("keys")), visit.request.query_params.get("after", "")
    found = await limits.listed(visit.app, keys=with_keys, after=after, limit=PAGE)
    is_full = len(found.standings) == PAGE
    more = visit.to("limits", keys=visit.asked("keys"), after=found.standings[-1].limit.name) if is_full else None
    return visit.show(
        "limits.html",
        page="limits",
        standings=found.standings,
        keys_said=found.keys_said if found.keys else "",
        with_keys=with_keys,
        more=more,
        is_first=not after,
    )


async def propose_set(visit: Visit, given: Given) -> Proposal:
    """Refused here already, if no limit can be so."""
    name, rate = check_settable(given.text("name").strip()), check_rate(given.text("rate").strip())
    pool = check_pool(given.integer_or_none("pool") or 0)
    before = await limits.standing_or_none(visit.app, name)
    was = "There was none before." if before is None else f"Before it was {before.row['rate'] or 'no rate'}."
    return Proposal(
        title=f"Set the limit {name}?",
        says=[f"Together, all workers start at most {rate} of it, with a pool of {pool:,}. {was} It holds at once."],
        facts={} if before is None else before.row,
        sends={"name": name, "rate": str(rate), "pool": str(pool), **seen(_shown(before))},
        button="Set the limit",
        back=visit.to("limits"),
    )


async def set_limit(visit: Visit, operator: Operator, given: Given) -> Happened:
    name = given.text("name")
    check_seen(given, _shown(await limits.standing_or_none(visit.app, name)))
    await changes.set_limit(operator, name, given.text("rate"), pool=given.integer_or_none("pool") or 0)
    standing = await limits.standing(visit.app, name)
    return _happened(visit, f"The limit {name} holds now: {standing.pace}.", standing)


async def propose_remove(visit: Visit, given: Given) -> Proposal:
    standing = await limits.standing(visit.app, given.text("name"))
    return Proposal(
        title=f"Remove the limit {standing.limit.name}?",
        says=["What it held back goes as fast as the other limits allow, at once."],
        facts=standing.facts,
        sends={"name": standing.limit.name, **seen(_shown(standing))},
        button="Remove the limit",
        is_grave=True,
        back=visit.to("limits"),
    )


async def remove(visit: Visit, operator: Operator, given: Given) -> Happened:
    name = given.text("name")
    if (standing := await limits.standing_or_none(visit.app, name)) is not None:
        check_seen(given, _shown(standing))
    was_there = await changes.remove_limit(operator, name)
    said = f"The limit {name} is removed." if was_there else f"There was no limit {name} any more."
    return Happened(title="Done", says=[said], back=visit.to("limits"), is_done=was_there)


async def propose_resume(visit: Visit, given: Given) -> Proposal:
    standing = await limits.standing(visit.app, given.text("name"))
    if not standing.is_slowed:
        raise BadInput(f"the limit {standing.limit.name} is not slowed down: there is nothing to resume")
    return Proposal(
        title=f"End the slow-down of {standing.limit.name}?",
        says=["It goes at its own rate again, at once. Whoever asked for it may tell it to slow down again."],
        facts=standing.facts,
        sends={"name": standing.limit.name, **seen(_shown(standing))},
        button="End the slow-down",
        back=visit.to("limits"),
    )


async def resume(visit: Visit, operator: Operator, given: Given) -> Happened:
    name = given.text("name")
    if (before := await limits.standing_or_none(visit.app, name)) is not None and before.is_slowed:
        check_seen(given, _shown(before))
    was_slowed = await changes.resume_limit(operator, name)
    standing = await limits.standing_or_none(visit.app, name)
    said = f"The slow-down of {name} is over." if was_slowed else f"{name} was not slowed down any more."
    return _happened(visit, said, standing, is_done=was_slowed)


def _shown(standing: limits.Standing | None) -> Facts:
    """What makes it another limit than that which was shown; how much is left of it always changes."""
    names = ("rate", "pool", "slowed_until", "slowed_to")
    return {name: None if standing is None else standing.row[name] for name in names}


def _happened(visit: Visit, said: str, standing: limits.Standing | None, *, is_done: bool = True) -> Happened:
    facts = {} if standing is None else standing.facts
    return Happened(title="Done", says=[said], facts=facts, back=visit.to("limits"), is_done=is_done)


LIMIT_CHANGES: Changes = {
    "set_limit": (propose_set, set_limit),
    "remove_limit": (propose_remove, remove),
    "resume_limit": (propose_resume, resume),
}
