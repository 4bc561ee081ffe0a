"""Templates, their quota, and the forecast."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from math import ceil
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from matrixsched.ops import changes, templates
from matrixsched.ops.templates import COUNT_MAX, Standing
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.bulk import WORK_FOR
from matrixsched.ops.web.api.cursors import cursor_of, text_in
from matrixsched.ops.web.api.endpoint import Asked, Endpoint
from matrixsched.ops.web.api.values import (
    PAGE_DEFAULT,
    Cursor,
    Duration,
    Given,
    Instant,
    Limit,
    Moment,
    Name,
    Number,
    RateText,
    Told,
    WindowText,
    refused,
)
from matrixsched.ops.web.forecasts import TooSlow
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.forecast import HOURS_MAX, Forecast
from matrixsched.rules.quota import RATIO_MAX, SHARE_MIN, WEIGHT_MAX, WEIGHT_MIN, Held, QuotaSettings, Spare
from matrixsched.rules.templates import Distribution, Template
from matrixsched.rules.windows import WINDOWS_MAX, window_text, windows_of
from matrixsched.templates import NO_MAX_SPEED

# Templates.


class TemplatesQuery(Given):
    limit: Limit = PAGE_DEFAULT
    cursor: Cursor | None = None


class TemplateGiven(Given):
    """What shall be so; what is not given stays as it is, or has its default if the template is new."""

    distribution: Distribution | None = None
    windows: Annotated[list[WindowText], Field(max_length=WINDOWS_MAX)] | None = Field(
        None, description="Of the distribution `own`."
    )
    max_speed: RateText | None = Field(None, description="null: none.")
    zone: Name | None = Field(None, description="Of recipients that have none.")
    weight: Annotated[float, Field(ge=WEIGHT_MIN, le=WEIGHT_MAX)] | None = None


class TemplateTold(Told):
    name: str
    distribution: Distribution
    windows: list[str]
    zone: str
    weight: float
    max_speed: str | None
    paused: bool
    paused_until: Moment | None = Field(description="While it is paused; null: until it is resumed.")
    last_served_at: Moment | None
    unfinished: int | None = Field(
        None, description=f"Messages, counted up to {COUNT_MAX:,}; told only by GET /templates/{{name}}."
    )


class TemplatesTold(Told):
    items: list[TemplateTold]
    next_cursor: str | None


async def list_templates(asked: Asked, query: TemplatesQuery) -> TemplatesTold:
    """All templates by name."""
    app = asked.app
    after = text_in("templates", query.cursor) or ""
    found = [one for one in await app.templates.list() if one.name.encode() > after.encode()]
    settings, now = await app.quota.settings(), await app.store.run(app.store.transitions.now())
    page = found[: query.limit]
    return TemplatesTold(
        items=[TemplateTold(**_facts(one, settings, now)) for one in page],
        next_cursor=cursor_of("templates", page[-1].name) if len(found) > len(page) else None,
    )


async def get_template(asked: Asked) -> TemplateTold:
    """A template as it stands, with how many of its messages are not finished."""
    return _told(await templates.standing(asked.app, asked.path["name"]))


async def set_template(asked: Asked, body: TemplateGiven) -> TemplateTold:
    """Create a template, or change what is given of one.

    It holds at once, for all workers. Sent again it is the same.
    """
    given: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    if "max_speed" in given:
        given["max_speed"] = given["max_speed"] or NO_MAX_SPEED
    return await _written(asked, await changes.set_template(asked.operator, asked.path["name"], **given))


async def remove_template(asked: Asked) -> None:
    """Remove a template and its limit; 409 while it has messages that are not finished."""
    await changes.remove_template(asked.operator, asked.path["name"])


class PauseGiven(Given):
    """How long: `until` an instant, `for` a time, or, with neither, until it is resumed."""

    until: Instant | None = None
    for_: Duration | None = Field(None, alias="for")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.until is not None and self.for_ is not None:
            raise refused("has both until and for: choose one")
        return self


async def pause_template(asked: Asked, body: PauseGiven) -> TemplateTold:
    """Send nothing more of a template, at once."""
    until = body.until if body.for_ is None else body.for_
    return await _written(asked, await changes.pause_template(asked.operator, asked.path["name"], until))


async def resume_template(asked: Asked) -> TemplateTold:
    """Let a paused template go on; a share of its own it has from the next window on that is planned."""
    return await _written(asked, await changes.resume_template(asked.operator, asked.path["name"]))


class StoppedTold(Told):
    cancelled: int
    complete: bool = Field(description="false: there are more. Send the same again.")


async def stop_template(asked: Asked) -> StoppedTold:
    """Cancel all messages of a template that wait; attempts under way come to their end.

    It works for 20 seconds at most; with `complete: false`, or after an answer of 504, send the same again: it goes on
    with those that are left.
    """
    cancelled, is_complete = await changes.stop_template(asked.operator, asked.path["name"], within=WORK_FOR)
    return StoppedTold(cancelled=cancelled, complete=is_complete)


async def _written(asked: Asked, template: Template) -> TemplateTold:
    app = asked.app
    settings, now = await app.quota.settings(), await app.store.run(app.store.transitions.now())
    return TemplateTold(**_facts(template, settings, now))


def _told(standing: Standing) -> TemplateTold:
    facts = _facts(standing.template, standing.settings, standing.now)
    return TemplateTold(**facts, unfinished=standing.unfinished)


def _facts(template: Template, settings: QuotaSettings, now: datetime) -> dict[str, Any]:
    paused = template.is_paused(now)
    return {
        "name": template.name,
        "distribution": template.distribution,
        "windows": [window_text(window) for window in windows_of(template, settings)],
        "zone": template.zone,
        "weight": template.weight,
        "max_speed": None if template.max_speed is None else str(template.max_speed),
        "paused": paused,
        "paused_until": template.paused_until if paused else None,
        "last_served_at": template.last_served_at,
    }


# The quota.

Share = Annotated[float, Field(ge=SHARE_MIN, le=1)]


class QuotaGiven(Given):
    """What shall be different; what is not given stays as it is."""

    interval: Duration | None = Field(None, description="How long a window is: a second to a day.")
    inside_share: Share | None = None
    outside_share: Share | None = None
    uniform_share: Share | None = None
    inside_times_outside: Annotated[float, Field(ge=1 / RATIO_MAX, le=RATIO_MAX)] | None = Field(
        None, description="Instead of `inside_share`: so many times `outside_share`."
    )
    spare: Spare | None = None
    morning: WindowText | None = None
    day: WindowText | None = None
    evening: WindowText | None = None


class QuotaTold(Told):
    interval: Duration
    inside_share: float
    outside_share: float
    uniform_share: float
    inside_times_outside: float | None
    spare: Spare
    morning: str
    day: str
    evening: str


async def get_quota(asked: Asked) -> QuotaTold:
    """How the capacity is shared between templates."""
    return _quota(await asked.app.quota.settings())


async def change_quota(asked: Asked, body: QuotaGiven) -> QuotaTold:
    """Change how the capacity is shared; it holds from the next window on."""
    given = {name: value for name, value in body if value is not None}
    return _quota(await changes.set_quota(asked.operator, **given))


def _quota(settings: QuotaSettings) -> QuotaTold:
    return QuotaTold(
        interval=settings.interval,
        inside_share=float(settings.inside),
        outside_share=settings.outside_share,
        uniform_share=settings.uniform_share,
        inside_times_outside=settings.inside_times_outside,
        spare=settings.spare,
        morning=window_text(settings.morning),
        day=window_text(settings.day),
        evening=window_text(settings.evening),
    )


# The forecast.


class PlanQuery(Given):
    hours: Number = Field(24, ge=1, le=HOURS_MAX, description="How far ahead.")


class OutlookTold(Told):
    template: str
    waiting: int
    inside: int = Field(description="Of those that are due: how many it is the right time of the day for.")
    planned: int = Field(description="How many go in the rest of the present window.")
    held: dict[Held, int] = Field(description="How many do not, and why.")
    sent: list[int] = Field(description="In each of the coming hours.")
    finishes_at: Moment | None = Field(description="null: not within these hours.")
    expires: int
    left: int


class PlanTold(Told):
    """How the messages of templates that wait now will go out, if no others come."""

    at: Moment
    since: Moment
    hours: int
    begins_at: Moment
    ends_at: Moment
    is_planned: bool
    max_to_send: int | None
    without_template: int
    not_counted: list[str]
    outlooks: list[OutlookTold]


async def get_plan(asked: Asked, query: PlanQuery) -> PlanTold:
    """A forecast of what each template sends in the coming hours: a dry run that changes nothing.

    It counts all that waits, which takes seconds where that is a million. So it is made twice a minute at most, and
    `at` tells when that was. After a 504 it goes on being made: ask again. If it takes more than a minute it is 503,
    for some minutes.
    """
    try:
        return _plan(await asked.desk.forecasts.of(query.hours))
    except TooSlow as slow:
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{slow}: run `matrixsched plan`, which may take its time",
            headers={"Retry-After": str(ceil(slow.again_in_s))},
        ) from None


def _plan(forecast: Forecast) -> PlanTold:
    return PlanTold(
        at=forecast.at,
        since=forecast.since,
        hours=forecast.hours,
        begins_at=forecast.begins_at,
        ends_at=forecast.ends_at,
        is_planned=forecast.is_planned,
        max_to_send=forecast.max_to_send,
        without_template=forecast.others,
        not_counted=list(forecast.not_counted),
        outlooks=[
            OutlookTold(
                template=one.template,
                waiting=one.waiting,
                inside=one.inside,
                planned=one.planned,
                held=dict(one.held),
                sent=list(one.sent),
                finishes_at=one.finishes_at,
                expires=one.expires,
                left=one.left,
            )
            for one in forecast.outlooks
        ],
    )


ENDPOINTS = (
    Endpoint("GET", "/templates", list_templates, Role.VIEWER),
    Endpoint("GET", "/templates/{name}", get_template, Role.VIEWER),
    Endpoint("PUT", "/templates/{name}", set_template),
    Endpoint(
        "DELETE",
        "/templates/{name}",
        remove_template,
        succeeds=(HTTPStatus.NO_CONTENT,),
        refuses=(HTTPStatus.CONFLICT,),
    ),
    Endpoint("POST", "/templates/{name}/pause", pause_template),
    Endpoint("POST", "/templates/{name}/resume", resume_template),
    Endpoint("POST", "/templates/{name}/stop", stop_template),
    Endpoint("GET", "/plan", get_plan, Role.VIEWER),
    Endpoint("GET", "/quota", get_quota, Role.VIEWER),
    Endpoint("PATCH", "/quota", change_quota),
)
