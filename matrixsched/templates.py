"""Templates and their quota, for programs: `app.templates` and `app.quota`. What is changed holds for all workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, NoReturn, Protocol, TypeVar

from matrixsched.clock import Chance
from matrixsched.errors import BadInput, InvalidTime, UnknownTemplate, shown
from matrixsched.events import Events, TemplatePaused, TemplateResumed
from matrixsched.rules.arguments import check_function
from matrixsched.rules.names import check_name
from matrixsched.rules.quota import QuotaSettings, Spare, check_weight
from matrixsched.rules.rates import Rate, check_rate
from matrixsched.rules.templates import Distribution, SendWindow, Template, TemplateChange
from matrixsched.rules.times import check_duration, check_integer, check_time
from matrixsched.rules.windows import check_window, check_windows
from matrixsched.rules.zones import check_zone
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions

BATCH = 500
"""How many actions are cancelled in a transaction: small, so that nobody waits for it."""
NO_MAX_SPEED = "none"
COUNT_MAX = 1_000_000

All = list[Template]
E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
Progress = Callable[[int], object]


class Templates:
    def __init__(
        self,
        store: Callable[[], Store],
        *,
        chance: Callable[[], Chance],
        wrote: Callable[[], None],
        events: Callable[[], Events],
    ) -> None:
        """`wrote` is called after a change that may have opened something, so that a worker here looks at once."""
        self._store = store
        self._chance = chance
        self._wrote = wrote
        self._events = events

    async def set(
        self,
        name: str,
        *,
        distribution: Distribution | str | None = None,
        windows: Iterable[SendWindow | str] | None = None,
        max_speed: Rate | str | None = None,
        zone: str | None = None,
        weight: float | None = None,
    ) -> Template:
        """Create a template, or change what is given of one.

        >>> await app.templates.set("promo", windows=["10:00-12:00", "18:00-20:00"], max_speed="100/min")

        `distribution` is uniform (the default), morning, day, evening, or own with `windows` of the recipient's day in
        which its messages have priority; one whose end lies before its beginning goes over midnight. `zone` (UTC) is
        that of recipients without one. A `weight` of 2 has twice the share of a template of weight 1. `max_speed` is
        the limit `template:<name>`; "none" lifts it.
        """
        change = check_change(distribution, windows, max_speed, zone, weight)
        template = await self._run(self._do.put_template(check_name("template", name), change))
        self._wrote()
        return template

    async def get(self, name: str) -> Template:
        """The template; UnknownTemplate if there is none."""
        found = await self._run(self._do.find_template(check_name("template", name)))
        if found is None:
            await self._missing(name)
        return found

    async def list(self) -> All:
        """All templates by name."""
        return await self._run(self._do.templates())

    async def pause(self, name: str, until: datetime | timedelta | None = None) -> Template:
        """Send nothing more of it, at once; it goes on by itself `until` then, or when it is resumed."""
        check_name("template", name)
        if isinstance(until, timedelta):
            check_duration("until", until, zero=False)
        elif until is not None:
            until = check_time("until", until)
        if not await self._run(self._do.pause_template(name, until)):
            await self.get(name)
            raise InvalidTime("until", "is not in the future")
        paused = await self.get(name)
        self._events().emit(TemplatePaused(name, paused.paused_until))
        return paused

    async def resume(self, name: str) -> Template:
        """Let a paused template go on; a share of its own it has from the next window on that is planned."""
        if not await self._run(self._do.resume_template(check_name("template", name))):
            await self._missing(name)
        self._wrote()
        self._events().emit(TemplateResumed(name))
        return await self.get(name)

    async def stop(self, name: str, *, progress: Progress | None = None) -> int:
        """Cancel all messages of a template that wait, due or not, batch after batch; how many.

        Attempts under way come to their end. What a user's transaction holds all the while stays as it is. Messages
        that are scheduled later are not concerned; pause the template first if none shall go out meanwhile.
        """
        if progress is not None:
            check_function("progress", progress)
        await self.get(name)
        stopped = 0

        def note(count: int) -> None:
            nonlocal stopped
            stopped += count
            if progress is not None and count:
                progress(stopped)

        while await self._stop_round(name, note):
            pass
        return stopped

    async def _stop_round(self, name: str, note: Callable[[int], None]) -> bool:
        """Once through all of them; whether any was cancelled."""
        chance = self._chance()
        after: tuple[int, str] | None = (-1, "")
        is_changed = False
        while after is not None:
            guids = [chance.guid() for _ in range(BATCH)]
            batch = await self._run(self._do.cancel_template_batch(name, guids=guids, after=after))
            after, is_changed = batch.after, is_changed or batch.cancelled > 0
            note(batch.cancelled)
        return is_changed

    async def count(self, name: str, *, count_max: int = COUNT_MAX) -> int:
        """How many messages of it are not finished; counting stops at `count_max`."""
        check_integer("count_max", count_max, least=1, most=COUNT_MAX)
        return await self._run(self._do.count_template(check_name("template", name), count_max=count_max))

    async def remove(self, name: str) -> None:
        """Remove a template and its limit; TemplateInUse while it has messages that are not finished."""
        if not await self._run(self._do.remove_template(check_name("template", name))):
            await self._missing(name)

    @property
    def _do(self) -> Transitions:
        return self._store().transitions

    async def _run(self, transition: Transition[T]) -> T:
        return await self._store().run(transition)

    async def _missing(self, name: str) -> NoReturn:
        known = [template.name for template in await self.list()]
        raise UnknownTemplate(name, get_close_matches(name, known))


class Quota:
    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    async def settings(self) -> QuotaSettings:
        store = self._store()
        return await store.run(store.transitions.quota_settings())

    async def set(
        self,
        *,
        interval: timedelta | None = None,
        inside_share: float | None = None,
        outside_share: float | None = None,
        uniform_share: float | None = None,
        inside_times_outside: float | None = None,
        spare: Spare | str | None = None,
        morning: SendWindow | str | None = None,
        day: SendWindow | str | None = None,
        evening: SendWindow | str | None = None,
    ) -> QuotaSettings:
        """Change what is given; it holds from the next window on.

        `inside_share` and `inside_times_outside` are two ways to say the same: the one that is given last counts.
        """
        change = check_quota_change(
            interval=interval,
            inside_share=inside_share,
            outside_share=outside_share,
            uniform_share=uniform_share,
            inside_times_outside=inside_times_outside,
            spare=None if spare is None else _word(Spare, "spare", spare),
            morning=None if morning is None else check_window(morning),
            day=None if day is None else check_window(day),
            evening=None if evening is None else check_window(evening),
        )
        store = self._store()
        return await store.run(store.transitions.set_quota_settings(change))


class CarryOut(Protocol):
    """Awaits what is done with the templates and their quota, elsewhere, and answers with what came of it."""

    def __call__(self, work: Callable[[Templates, Quota], Awaitable[T]], /) -> T: ...


class SyncTemplates:
    """`app.sync.templates`: the same from synchronous code."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def set(self, name: str, **options: Any) -> Template:
        """As Templates.set."""
        return self._carry_out(lambda templates, _: templates.set(name, **options))

    def get(self, name: str) -> Template:
        """As Templates.get."""
        return self._carry_out(lambda templates, _: templates.get(name))

    def list(self) -> All:
        """As Templates.list."""
        return self._carry_out(lambda templates, _: templates.list())

    def pause(self, name: str, until: datetime | timedelta | None = None) -> Template:
        """As Templates.pause."""
        return self._carry_out(lambda templates, _: templates.pause(name, until))

    def resume(self, name: str) -> Template:
        """As Templates.resume."""
        return self._carry_out(lambda templates, _: templates.resume(name))

    def stop(self, name: str, *, progress: Progress | None = None) -> int:
        """As Templates.stop; `progress` is called in the background thread."""
        return self._carry_out(lambda templates, _: templates.stop(name, progress=progress))

    def count(self, name: str, *, count_max: int = COUNT_MAX) -> int:
        """As Templates.count."""
        return self._carry_out(lambda templates, _: templates.count(name, count_max=count_max))

    def remove(self, name: str) -> None:
        """As Templates.remove."""
        self._carry_out(lambda templates, _: templates.remove(name))


class SyncQuota:
    """`app.sync.quota`: the same from synchronous code."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def settings(self) -> QuotaSettings:
        """As Quota.settings."""
        return self._carry_out(lambda _, quota: quota.settings())

    def set(self, **changes: Any) -> QuotaSettings:
        """As Quota.set."""
        return self._carry_out(lambda _, quota: quota.set(**changes))


def check_quota_change(**given: Any) -> Callable[[QuotaSettings], QuotaSettings]:
    """What makes of settings those in which what is given is different; None: as it is."""
    changes = {name: value for name, value in given.items() if value is not None}
    if "inside_share" in changes and "inside_times_outside" in changes:
        raise BadInput("inside_share and inside_times_outside are both given: choose one")
    if "inside_share" in changes:
        changes["inside_times_outside"] = None
    return lambda settings: replace(settings, **changes)


def check_change(
    distribution: object, windows: Iterable[object] | None, max_speed: object, zone: object, weight: object
) -> TemplateChange:
    """What shall be different about a template, checked."""
    is_lifted = max_speed == NO_MAX_SPEED
    return TemplateChange(
        distribution=None if distribution is None else _word(Distribution, "distribution", distribution),
        windows=None if windows is None else check_windows(windows),
        zone=None if zone is None else check_zone(zone),
        weight=None if weight is None else check_weight(weight),
        max_speed=None if max_speed is None or is_lifted else check_rate(max_speed),
        lifts_max_speed=is_lifted,
    )


def _word(kind: type[E], argument: str, given: object) -> E:
    for word in kind:
        if word == given:
            return word
    raise BadInput(f"{argument} is {shown(given)}, but must be one of {', '.join(kind)}")
