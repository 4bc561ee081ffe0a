"""Planning a window of the quota, for both databases: once for the whole fleet, by whoever finds it unplanned.

1. one planner at a time; a window that covers this moment is never planned again
2. the lanes of templates in which something is due, found by skipping through their index
3. how many rows wait of each kind, counted no further than could be granted
4. what each may send: a pure function (rules/quota.py)
5. the window, its grants, and which lanes are worth a look now; all in one transaction
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from matrixsched.rules.lanes import GLOBAL, template_limit
from matrixsched.rules.limits import Limit
from matrixsched.rules.quota import Plan, QuotaSettings, most, window_at
from matrixsched.rules.selection import Kind, Selection
from matrixsched.rules.templates import Template
from matrixsched.store.transition import Conversation, Transition, transaction
from matrixsched.store.values import Planned

KEEP = timedelta(days=2)
"""How long windows and grants are kept once they are over."""
SETTLE_MAX = timedelta(seconds=1)
"""How long a plan waits for messages that are due, but not before their gates yet: a campaign begins in all shards at
once, and what is not counted waits for a whole window."""
SETTLE_PART = 10
"""At most this part of the interval is waited for them, …"""
SETTLE_PART_FOLLOWING = 50
"""… and less where the window before was planned, too: what is sent meanwhile waits for this one."""
SETTLE_ROWS_MAX = 500
"""So many new rows of a shard are looked at for such messages; of others a tenth."""
FORGET_MAX = 1000
"""How many old grants are deleted with each window: more than one is made of."""


class Planning(Protocol):
    def plan_window(self, planned_by: str) -> Transition[Planned]:
        """Plan the present window of the quota, if messages of templates are due and nobody has planned it yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsNow:
    """The windows around this moment."""

    now: datetime
    previous_begins_at: datetime | None
    previous_ends_at: datetime | None
    """Of the last one that began, which may be the present one."""
    next_begins_at: datetime | None
    """Of one that was planned ahead of this moment: the clock was set back since."""
    settings: QuotaSettings
    asked_at: datetime | None
    """When a plan was first put off."""

    @property
    def is_planned(self) -> bool:
        return self.previous_ends_at is not None and self.previous_ends_at > self.now

    @property
    def follows_another(self) -> bool:
        """Whether the window before was planned, too."""
        return self.previous_ends_at == self.window()[0]

    @property
    def put_off_for(self) -> timedelta | None:
        """How long the plan of this window has been put off; None: it was not."""
        if self.asked_at is None or not self.window()[0] <= self.asked_at <= self.now:
            return None
        return self.now - self.asked_at

    @property
    def may_be_put_off(self) -> bool:
        part = SETTLE_PART_FOLLOWING if self.follows_another else SETTLE_PART
        return self.put_off_for is None or self.put_off_for < min(SETTLE_MAX, self.settings.interval / part)

    def window(self) -> tuple[datetime, datetime]:
        begins, ends = window_at(self.now, self.settings.interval, self.previous_ends_at)
        return begins, ends if self.next_begins_at is None else min(ends, self.next_begins_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWindow:
    """What is written of a plan."""

    begins_at: datetime
    ends_at: datetime
    planned_at: datetime
    planned_by: str
    plan: Plan
    zones_inside: Mapping[str, Sequence[str]]
    """By template."""
    ready_at: Mapping[str, datetime]
    """When each lane is worth a look, by name."""


class WindowPlanning:
    """The transaction, in terms of what a database can be asked."""

    @abstractmethod
    def _take_turn(self) -> Conversation[bool]:
        """Whether we are the one who plans, until the transaction ends."""

    @abstractmethod
    def _windows_now(self) -> Conversation[WindowsNow]: ...

    @abstractmethod
    def _is_unsettled(self) -> Conversation[bool]:
        """Whether messages of templates are due that are not before their gates yet."""

    @abstractmethod
    def _put_off(self) -> Conversation[None]:
        """Remember that it was asked for now."""

    @abstractmethod
    def _last_served(self, begins_at: datetime) -> Conversation[dict[tuple[str, int], datetime | None]]:
        """When those that waited in that window were last given something, by template and priority."""

    @abstractmethod
    def _due_lanes(self) -> Conversation[list[str]]:
        """The lanes of templates in which rows are due."""

    @abstractmethod
    def _count_due(self, lanes: Sequence[Sequence[str]], most: Sequence[int | None]) -> Conversation[list[int]]:
        """How many rows of each set of lanes are due and not expired; counting stops at what is given for it."""

    @abstractmethod
    def _write_window(self, window: PlannedWindow) -> Conversation[bool]:
        """Whether it was; False: meanwhile it is over, and nothing was written."""

    @abstractmethod
    def templates(self) -> Transition[list[Template]]: ...

    @abstractmethod
    def find_limits(self, names: Sequence[str]) -> Transition[list[Limit]]: ...

    @transaction
    def plan_window(self, planned_by: str) -> Conversation[Planned]:
        if not (yield from self._take_turn()):
            return Planned.BUSY
        windows = yield from self._windows_now()
        if windows.is_planned:
            return Planned.BEFORE
        lanes = yield from self._due_lanes()
        if not lanes:
            return Planned.BEFORE
        if windows.may_be_put_off and (yield from self._is_unsettled()):
            if windows.put_off_for is None:
                yield from self._put_off()
            return Planned.BUSY
        selection = yield from self._selection(lanes, windows)
        plan = selection.plan()
        if not plan.templates:
            return Planned.BEFORE
        begins_at, ends_at = windows.window()
        granted = {Kind(grant.template, grant.priority, grant.inside) for grant in plan.grants if grant.granted}
        served = {lane for kind in granted for lane in selection.messages[kind].lanes}
        window = PlannedWindow(
            begins_at=begins_at,
            ends_at=ends_at,
            planned_at=windows.now,
            planned_by=planned_by,
            plan=plan,
            zones_inside={name: sorted(zones) for name, zones in selection.zones_inside.items()},
            ready_at={lane: windows.now if lane in served else ends_at for lane in sorted(lanes)},
        )
        return Planned.NOW if (yield from self._write_window(window)) else Planned.BUSY

    def _selection(self, lanes: Sequence[str], windows: WindowsNow) -> Conversation[Selection]:
        """What waits, counted as far as it matters."""
        templates = {template.name: template for template in (yield from self.templates().begin())}
        names = [GLOBAL, *map(template_limit, templates)]
        begins, ends = windows.window()
        room = {
            limit.name: most(limit.rate, begins, ends, slow_until=limit.slow_until, slow_rate=limit.slow_rate)
            for limit in (yield from self.find_limits(names).begin())
        }
        last_served: dict[tuple[str, int], datetime | None] = {}
        if windows.previous_begins_at is not None:
            last_served = yield from self._last_served(windows.previous_begins_at)
        selection = Selection(
            templates=templates,
            settings=windows.settings,
            max_to_send=room.get(GLOBAL),
            template_max={name: room.get(template_limit(name)) for name in templates},
            last_served=last_served,
            now=windows.now,
        )
        selection.add(lanes)
        while asked := selection.uncounted():
            counts = yield from self._count_due(
                [selection.messages[kind].lanes for kind in asked], list(asked.values())
            )
            selection.note(dict(zip(asked, counts, strict=True)), asked)
        return selection


def lane_parts(lane: str) -> tuple[int, str]:
    """The priority and the handler in the name of a lane, as it stands there."""
    *_, priority, _, handler = lane.split("|")
    return int(priority), handler
