"""Limits: how fast everything, a handler, a template or a key may go."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Self

from pydantic import Field, model_validator

from matrixsched.ops import changes, limits
from matrixsched.ops.limits import Standing
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.cursors import cursor_of, text_in
from matrixsched.ops.web.api.endpoint import Asked, Endpoint
from matrixsched.ops.web.api.values import (
    PAGE_DEFAULT,
    Cursor,
    Duration,
    Flag,
    Given,
    Instant,
    Limit,
    Moment,
    RateText,
    Told,
    refused,
)
from matrixsched.rules import limits as rules
from matrixsched.rules.lanes import ANY_KEY
from matrixsched.rules.limits import POOL_MAX

REASON_MAX = 1000


class LimitsQuery(Given):
    keys: Flag = Field(False, description="Those of single keys, too, which may be many.")
    limit: Limit = PAGE_DEFAULT
    cursor: Cursor | None = None


class LimitGiven(Given):
    rate: RateText
    pool: int = Field(0, ge=0, le=POOL_MAX, description="How many may be saved up while nothing is due, to go at once.")


class SlowDownGiven(Given):
    """How long: `until` an instant, or `for` a time."""

    until: Instant | None = None
    for_: Duration | None = Field(None, alias="for")
    rate: RateText | None = Field(None, description="null: nothing at all starts.")
    reason: Annotated[str, Field(max_length=REASON_MAX)] = ""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.until is None) == (self.for_ is None):
            raise refused("must have either until or for")
        return self


class LimitTold(Told):
    name: str
    rate: str | None = Field(description="null: none of its own.")
    pool: int
    left: int | None = Field(
        description="How many could start at this very moment; null: any number, or each key its own."
    )
    slowed: bool
    slowed_until: Moment | None
    slowed_to: str | None = Field(description="While it is slowed; null: to nothing at all.")
    reason: str | None
    updated_at: Moment


class LimitsTold(Told):
    items: list[LimitTold]
    next_cursor: str | None = Field(description="For the next page; null: this is the last one.")


async def list_limits(asked: Asked, query: LimitsQuery) -> LimitsTold:
    """The limits that are in force, by name; those of single keys only if they are asked for."""
    app, after = asked.app, text_in("limits", query.cursor) or ""
    found = await app.limits.list(keys=query.keys, after=after, limit=query.limit)
    now = await app.store.run(app.store.transitions.now())
    return LimitsTold(
        items=[_told(Standing(one, now)) for one in found],
        next_cursor=cursor_of("limits", found[-1].name) if len(found) == query.limit else None,
    )


async def get_limit(asked: Asked) -> LimitTold:
    """A limit as it stands: `global`, `handler:NAME`, `template:NAME`, `key:KEY`, or `key:*` for every other key."""
    return _told(await limits.standing(asked.app, asked.path["name"]))


async def set_limit(asked: Asked, body: LimitGiven) -> LimitTold:
    """Set or change a limit: it holds at once, for all workers. Sent again it is the same."""
    return await _written(asked, await changes.set_limit(asked.operator, asked.path["name"], body.rate, pool=body.pool))


async def remove_limit(asked: Asked) -> None:
    """Take a limit away, with what it was told. Sent again it is 404."""
    await limits.standing(asked.app, asked.path["name"])
    await changes.remove_limit(asked.operator, asked.path["name"])


async def slow_limit_down(asked: Asked, body: SlowDownGiven) -> LimitTold:
    """Close a limit for a time, or slow it down. What has no limit yet has one until then.

    What was told before is never shortened or weakened by it: resume ends it.
    """
    until = body.until or body.for_
    assert until is not None
    return await _written(
        asked,
        await changes.slow_down_limit(asked.operator, asked.path["name"], until, rate=body.rate, reason=body.reason),
    )


class ResumedTold(Told):
    resumed: bool = Field(description="false: it was not slowed down.")


async def resume_limit(asked: Asked) -> ResumedTold:
    """End a slow-down early."""
    await limits.standing(asked.app, asked.path["name"])
    return ResumedTold(resumed=await changes.resume_limit(asked.operator, asked.path["name"]))


async def _written(asked: Asked, limit: rules.Limit) -> LimitTold:
    return _told(Standing(limit, await asked.app.store.run(asked.app.store.transitions.now())))


def _told(standing: Standing) -> LimitTold:
    limit, slowed = standing.limit, standing.is_slowed
    return LimitTold(
        name=limit.name,
        rate=None if limit.rate is None else str(limit.rate),
        pool=limit.pool,
        left=None if limit.name == ANY_KEY else limit.left(standing.now),
        slowed=slowed,
        slowed_until=limit.slow_until if slowed else None,
        slowed_to=str(limit.slow_rate) if slowed and limit.slow_rate is not None else None,
        reason=limit.slow_reason if slowed else None,
        updated_at=limit.updated_at,
    )


ENDPOINTS = (
    Endpoint("GET", "/limits", list_limits, Role.VIEWER),
    Endpoint("GET", "/limits/{name}", get_limit, Role.VIEWER),
    Endpoint("PUT", "/limits/{name}", set_limit),
    Endpoint("DELETE", "/limits/{name}", remove_limit, succeeds=(HTTPStatus.NO_CONTENT,)),
    Endpoint("POST", "/limits/{name}/slow-down", slow_limit_down),
    Endpoint("POST", "/limits/{name}/resume", resume_limit),
)
