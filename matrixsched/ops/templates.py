"""Templates and their quota, for operators: what they are, how they stand, how much of them waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from matrixsched.app import App
from matrixsched.errors import UnknownTemplate
from matrixsched.ops.render import Count, Facts
from matrixsched.rules.durations import duration_text
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.templates import Template, TemplateChange
from matrixsched.rules.windows import window_text, windows_of

COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    """A template as it stood at a time of the database."""

    template: Template
    settings: QuotaSettings
    unfinished: int
    """Messages, counted up to COUNT_MAX."""
    now: datetime

    @property
    def is_paused(self) -> bool:
        return self.template.is_paused(self.now)

    @property
    def row(self) -> Facts:
        template = self.template
        return {
            "template": template.name,
            "distribution": template.distribution.value,
            "windows": [window_text(window) for window in windows_of(template, self.settings)],
            "zone": template.zone,
            "weight": template.weight,
            "max_speed": None if template.max_speed is None else str(template.max_speed),
            "paused": self.is_paused,
            "paused_until": template.paused_until if self.is_paused else None,
            "last_served_at": template.last_served_at,
            "unfinished": Count(self.unfinished, COUNT_MAX),
        }

    def after(self, change: TemplateChange) -> Standing:
        """As it would stand."""
        max_speed = None if change.lifts_max_speed else change.max_speed or self.template.max_speed
        return replace(self, template=replace(change.apply(self.template), max_speed=max_speed))

    @property
    def pause(self) -> str:
        """For how long it is paused, in words."""
        until = self.template.paused_until
        return "until it is resumed" if until is None else f"until {until.isoformat(sep=' ', timespec='seconds')}"


async def listed(app: App) -> list[Standing]:
    async with app:
        return [await _standing(app, template) for template in await app.templates.list()]


async def standing(app: App, name: str) -> Standing:
    async with app:
        return await _standing(app, await app.templates.get(name))


async def standing_or_none(app: App, name: str) -> Standing | None:
    try:
        return await standing(app, name)
    except UnknownTemplate:
        return None


async def _standing(app: App, template: Template) -> Standing:
    return Standing(
        template,
        await app.quota.settings(),
        await app.templates.count(template.name, count_max=COUNT_MAX),
        await app.store.run(app.store.transitions.now()),
    )


# How capacity is shared.


async def settings(app: App) -> QuotaSettings:
    async with app:
        return await app.quota.settings()


async def settings_changed(app: App, changes: dict[str, object]) -> QuotaSettings:
    async with app:
        return await app.quota.set(**changes)  # type: ignore[arg-type]


def quota_facts(settings: QuotaSettings) -> Facts:
    return {
        "interval": duration_text(settings.interval),
        "inside_share": float(settings.inside),
        "outside_share": settings.outside_share,
        "uniform_share": settings.uniform_share,
        "inside_times_outside": settings.inside_times_outside,
        "spare": settings.spare.value,
        "morning": window_text(settings.morning),
        "day": window_text(settings.day),
        "evening": window_text(settings.evening),
    }
