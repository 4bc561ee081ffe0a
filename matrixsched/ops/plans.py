"""The forecast, for operators: what would go now, what is held and by what, and how it goes on."""

from __future__ import annotations

from matrixsched.app import App
from matrixsched.ops.render import Facts, as_argument
from matrixsched.rules.forecast import Forecast, Outlook
from matrixsched.rules.quota import Held

CHARTED_MAX = 20
"""So many templates have a line of their own in the chart; the others share one."""
ALL = "all"
OTHERS = "others"


async def foreseen(app: App, hours: int) -> Forecast:
    async with app:
        return await app.foresee(hours)


def window(forecast: Forecast) -> Facts:
    return {
        "at": forecast.at,
        "begins_at": forecast.begins_at,
        "ends_at": forecast.ends_at,
        "is_planned": forecast.is_planned,
        "templates": forecast.templates,
        "max_to_send": forecast.max_to_send,
        "planned": sum(outlook.planned for outlook in forecast.outlooks),
        "without_template": forecast.others,
        "since": forecast.since,
        "hours": forecast.hours,
        "not_counted": list(forecast.not_counted),
    }


def row(outlook: Outlook) -> Facts:
    """A line of the table."""
    held = ", ".join(f"{by.replace('_', ' ')} {count:,}" for by, count in outlook.held.items())
    return {**_facts(outlook), "held": held or None}


def plain(outlook: Outlook) -> Facts:
    """The same for programs, and what the chart shows."""
    return {**_facts(outlook), "sent": list(outlook.sent)}


def _facts(outlook: Outlook) -> Facts:
    return {
        "template": outlook.template,
        "waiting": outlook.waiting,
        "inside": outlook.inside,
        "planned": outlook.planned,
        "held": {by.value: count for by, count in outlook.held.items()},
        "finishes_at": outlook.finishes_at,
        "expires": outlook.expires,
        "left": outlook.left,
    }


def charted(forecast: Forecast) -> dict[str, list[int]]:
    """What is sent in each hour: by the templates that send most, by the others together, and by all."""
    sending = sorted(
        (one for one in forecast.outlooks if any(one.sent)), key=lambda one: (-sum(one.sent), one.template)
    )
    lines = {one.template: list(one.sent) for one in sending[:CHARTED_MAX]}
    if len(sending) > CHARTED_MAX:
        lines[f"({OTHERS})"] = _sum(sending[CHARTED_MAX:])
    if len(sending) > 1:
        lines[f"({ALL})"] = _sum(sending)
    return lines


def _sum(outlooks: list[Outlook]) -> list[int]:
    return [sum(counts) for counts in zip(*(outlook.sent for outlook in outlooks), strict=True)]


def next_move(forecast: Forecast, options: str = "") -> str:
    """What an operator who has read the forecast may want to know or to do."""
    outlooks = [outlook for outlook in forecast.outlooks if outlook.waiting]
    if not forecast.outlooks:
        return f"there is no template. To make one: `matrixsched templates set{options} NAME`."
    if not outlooks:
        return "no message of a template waits."
    said = [_end(forecast, outlooks)]
    expires = sum(outlook.expires for outlook in outlooks)
    if expires:
        said.append(f"{_count(expires, 'message')} will expire unsent: HELD says what keeps them back.")
    paused = [outlook.template for outlook in outlooks if Held.PAUSED in outlook.held]
    if paused:
        command = f"matrixsched templates resume{options} {as_argument(paused[0])}"
        said.append(f"{_count(len(paused), 'template')} paused: `{command}`.")
    return " ".join(said)


def _end(forecast: Forecast, outlooks: list[Outlook]) -> str:
    unfinished = sum(outlook.left > 0 for outlook in outlooks)
    if unfinished:
        return f"{_count(unfinished, 'template')} will not be through within {_count(forecast.hours, 'hour')}."
    last = max(outlook.finishes_at for outlook in outlooks if outlook.finishes_at is not None)
    return f"all will be through by {last.isoformat(sep=' ', timespec='minutes')}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
