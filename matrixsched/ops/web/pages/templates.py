"""Templates: when they are sent, how much of them goes, and what can be done about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from starlette.responses import Response

from matrixsched.app import App
from matrixsched.ops import changes, plans, templates
from matrixsched.ops.fleet import GATED_LANES_MAX, HELD_COUNT_MAX
from matrixsched.ops.operator import Operator
from matrixsched.ops.render import Count, Facts
from matrixsched.ops.web.desk import FORECAST_HOURS
from matrixsched.ops.web.pages.changing import Changes, Given, Happened, Proposal
from matrixsched.ops.web.pages.charts import Band
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import State
from matrixsched.rules.durations import parse_duration
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.templates import SendWindow, Template
from matrixsched.rules.windows import window_text, windows_of
from matrixsched.store.values import ActionFilter

COUNT_MAX = 1_000
ZONES_SEEN = 200
"""Among so many messages of a template its recipients' zones are looked for."""
ZONES_MAX = 8
STOP_WITHIN = timedelta(seconds=15)
_DAY_H = 24.0


async def show_templates(visit: Visit) -> Response:
    app = visit.app
    found, settings = await app.templates.list(), await app.quota.settings()
    gates = await _gates(app)
    held = Counter[str]()
    for (_, name), count in gates.held.items():
        if name is not None:
            held[name] += count
    shares = {share.template: share for share in gates.shares if share.is_present}
    return visit.show(
        "templates.html",
        page="templates",
        templates=[
            {
                "template": one,
                "windows": [window_text(window) for window in windows_of(one, settings)],
                "is_paused": one.is_paused(visit.now),
                "share": shares.get(one.name),
                "held": held[one.name],
            }
            for one in found
        ],
        quota=templates.quota_facts(settings),
    )


async def _gates(app: App) -> GateReport:
    do = app.store.transitions
    return await app.store.run(do.gate_report(lanes_max=GATED_LANES_MAX, count_max=HELD_COUNT_MAX))


async def show_template(visit: Visit) -> Response:
    name = visit.request.query_params.get("name", "")
    is_wanted = visit.fragment == "forecast" or bool(visit.asked("forecast"))
    foreseen = await visit.desk.forecasts.soon(FORECAST_HOURS) if is_wanted else None
    forecast = None if foreseen is None else foreseen.forecast
    template, settings = await visit.app.templates.get(name), await visit.app.quota.settings()
    gates = await _gates(visit.app)
    unfinished = Count(await visit.app.templates.count(name, count_max=COUNT_MAX), COUNT_MAX)
    windows = windows_of(template, settings)
    zones = await zones_of(visit.app, template)
    outlook = None if forecast is None else next((o for o in forecast.outlooks if o.template == name), None)
    return visit.show(
        "template.html",
        page="templates",
        template=template,
        is_paused=template.is_paused(visit.now),
        windows=[window_text(window) for window in windows],
        bands=[band(zone, windows, visit.now) for zone in zones],
        zones=zones,
        now_hour=hour_of(visit.now),
        unfinished=unfinished,
        share=next((one for one in gates.shares if one.template == name and one.is_present), None),
        last_share=next((one for one in gates.shares if one.template == name and not one.is_present), None),
        held=[(gate, count) for (gate, of), count in gates.held.items() if of == name],
        quota=templates.quota_facts(settings),
        forecast=forecast,
        outlook=outlook,
        outlook_row={} if outlook is None else plans.row(outlook),
        is_reckoned=foreseen is not None and foreseen.is_under_way,
        is_slow=foreseen is not None and foreseen.is_too_slow,
        hours=FORECAST_HOURS,
        sent_most=max(outlook.sent, default=0) if outlook else 0,
    )


async def zones_of(app: App, template: Template) -> dict[str, int]:
    """The zones of recipients, by how many of the first messages are for them; the template's own is among them."""
    wanted = ActionFilter(state=State.LIVE, template=template.name)
    do = app.store.transitions
    found = await app.store.run(do.page_bounded(wanted, after=None, limit=ZONES_SEEN, look_max=ZONES_SEEN))
    seen = Counter(action.spec.zone or template.zone for action in found.actions)
    zones = {template.zone: seen.pop(template.zone, 0)}
    return zones | dict(seen.most_common(ZONES_MAX - 1))


def band(zone: str, windows: Sequence[SendWindow], now: datetime) -> Band:
    """The windows of a zone as they lie in a day of UTC; one over midnight is drawn in two parts."""
    try:
        offset = now.astimezone(ZoneInfo(zone)).utcoffset() or timedelta(0)
    except (ZoneInfoNotFoundError, ValueError):
        return Band(zone, "this machine does not know the zone", ())
    parts: list[tuple[float, float]] = []
    for window in windows:
        begins = (window.begins.hour + window.begins.minute / 60 - offset / timedelta(hours=1)) % _DAY_H
        length = (window.ends.hour - window.begins.hour + (window.ends.minute - window.begins.minute) / 60) % _DAY_H
        parts.append((round(begins, 2), round(min(length, _DAY_H - begins), 2)))
        if begins + length > _DAY_H:
            parts.append((0.0, round(begins + length - _DAY_H, 2)))
    said = ", ".join(window_text(window) for window in windows) or "the whole day alike"
    return Band(zone, said, parts or [(0.0, _DAY_H)])


def hour_of(now: datetime) -> float:
    return round(now.hour + now.minute / 60, 2)


# Changes.


async def _standing(visit: Visit, given: Given) -> templates.Standing:
    return await templates.standing(visit.app, given.text("name"))


async def propose_pause(visit: Visit, given: Given) -> Proposal:
    standing = await _standing(visit, given)
    until = given.text_or_none("until")
    how_long = f"for {until}" if until else "until somebody resumes it"
    if until:
        parse_duration(until, "how long")
    return _proposal(
        visit,
        standing,
        title=f"Pause {standing.template.name}?",
        says=[f"Nothing more of it is sent, at once, {how_long}. Messages stay and wait."],
        button="Pause the template",
        sends={"until": until} if until else {},
    )


async def propose_resume(visit: Visit, given: Given) -> Proposal:
    standing = await _standing(visit, given)
    says = ["It goes on; a share of its own it has from the next window on that is planned."]
    if not standing.is_paused:
        return Proposal(
            title="It is not paused",
            says=["There is nothing to resume."],
            facts=standing.row,
            back=_back(visit, standing),
        )
    return _proposal(visit, standing, title=f"Resume {standing.template.name}?", says=says, button="Resume it")


async def propose_stop(visit: Visit, given: Given) -> Proposal:
    standing = await _standing(visit, given)
    count = Count(standing.unfinished, templates.COUNT_MAX)
    return _proposal(
        visit,
        standing,
        title=f"Stop the campaign {standing.template.name}?",
        says=[
            f"All messages of it that are not finished are cancelled: {count}. This cannot be undone at once.",
            "Attempts under way come to their end. Messages that are scheduled later are not concerned: pause it, too, "
            "if none shall go out.",
        ],
        button="Cancel all its messages",
        is_grave=True,
        sends={"unfinished": str(standing.unfinished)},
    )


async def propose_remove(visit: Visit, given: Given) -> Proposal:
    standing = await _standing(visit, given)
    if standing.unfinished:
        count = Count(standing.unfinished, templates.COUNT_MAX)
        return Proposal(
            title="It is in use",
            says=[f"{count} messages of it are not finished. Stop the campaign first, or wait for its end."],
            facts=standing.row,
            back=_back(visit, standing),
        )
    return _proposal(
        visit,
        standing,
        title=f"Remove {standing.template.name}?",
        says=["The template and its limit are removed. Messages cannot be scheduled under this name any more."],
        button="Remove the template",
        is_grave=True,
    )


def _proposal(
    visit: Visit,
    standing: templates.Standing,
    *,
    title: str,
    says: list[str],
    button: str,
    is_grave: bool = False,
    sends: dict[str, str] | None = None,
) -> Proposal:
    return Proposal(
        title=title,
        says=says,
        facts=standing.row,
        sends={"name": standing.template.name, **(sends or {})},
        button=button,
        is_grave=is_grave,
        back=_back(visit, standing),
    )


def _back(visit: Visit, standing: templates.Standing) -> str:
    return visit.to("template", name=standing.template.name)


async def pause(visit: Visit, operator: Operator, given: Given) -> Happened:
    name, until = given.text("name"), given.text_or_none("until")
    await changes.pause_template(operator, name, None if until is None else parse_duration(until, "how long"))
    return await _happened(visit, name, f"{name} is paused: nothing more of it is sent.")


async def resume(visit: Visit, operator: Operator, given: Given) -> Happened:
    name = given.text("name")
    await changes.resume_template(operator, name)
    return await _happened(visit, name, f"{name} goes on.")


async def stop(visit: Visit, operator: Operator, given: Given) -> Happened:
    name, shown = given.text("name"), given.integer("unfinished")
    unfinished = (await templates.standing(visit.app, name)).unfinished
    if shown < unfinished:
        raise Refused(
            HTTPStatus.CONFLICT,
            f"nothing was done: {shown:,} messages of {name} were shown to you, and there are {unfinished:,} now. Open "
            "the page again, and decide; while more are scheduled all the time, `matrixsched templates stop` does it",
        )
    cancelled, is_complete = await changes.stop_template(operator, name, within=STOP_WITHIN)
    happened = await _happened(visit, name, f"{cancelled:,} messages of {name} were cancelled.")
    if is_complete:
        return happened
    return Happened(
        title="Done so far",
        says=[*happened.says, "There are more."],
        facts=happened.facts,
        back=happened.back,
        next_step=(visit.to("change/stop_template", name=name), "Go on with the next ones…"),
    )


async def remove(visit: Visit, operator: Operator, given: Given) -> Happened:
    name = given.text("name")
    await changes.remove_template(operator, name)
    return Happened(title="Done", says=[f"The template {name} is removed."], back=visit.to("templates"))


async def _happened(visit: Visit, name: str, said: str) -> Happened:
    facts: Facts = (await templates.standing(visit.app, name)).row
    return Happened(title="Done", says=[said], facts=facts, back=visit.to("template", name=name))


TEMPLATE_CHANGES: Changes = {
    "pause_template": (propose_pause, pause),
    "resume_template": (propose_resume, resume),
    "stop_template": (propose_stop, stop),
    "remove_template": (propose_remove, remove),
}
