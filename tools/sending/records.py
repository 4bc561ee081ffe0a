"""What the database says once all is over."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks.places import Place

from sending.formula import Kind

WINDOWS = "select begins_at, ends_at, planned_at, max_to_send, templates from matrixsched.quota_windows order by 1"
GRANTS = "select begins_at, template, priority, inside, zones, waiting, granted, used from matrixsched.quota_grants"
ACTIONS = "select action_id, template, state, succeeded, finished_at from matrixsched.scheduled_actions"
LIVE = "select count(*) from matrixsched.scheduled_actions where state = 'live'"
ON_THE_WAY = """
select (select count(*) from (select 1 from matrixsched.incoming_queue limit 1) i)
       + (select count(*) from (select 1 from matrixsched.processing_queue where lane = '' and attempt = 0 limit 1) p)
"""
ROWS_LEFT = """
select (select count(*) from matrixsched.incoming_queue), (select count(*) from matrixsched.processing_queue)
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    kind: Kind
    zones: frozenset[str] = frozenset()
    """Those that were taken for inside; empty for recipients without one."""
    waiting: int
    """Counted as far as it mattered."""
    granted: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    begins: datetime
    ends: datetime
    planned_at: datetime
    max_to_send: int
    templates: int
    grants: list[Grant] = field(default_factory=list)

    @property
    def granted(self) -> int:
        return sum(grant.granted for grant in self.grants)

    @property
    def used(self) -> int:
        return sum(grant.used for grant in self.grants)

    def granted_to(self, template: str) -> int:
        return sum(grant.granted for grant in self.grants if grant.kind.template == template)


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    template: str
    state: str
    succeeded: int
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Records:
    windows: list[Window]
    messages: Mapping[str, Message]
    rows_left: tuple[int, int]

    @property
    def states(self) -> Counter[str]:
        return Counter(message.state for message in self.messages.values())

    def of(self, template: str) -> Iterable[Message]:
        return (message for message in self.messages.values() if message.template == template)


def count_live(place: Place) -> int:
    ((count,),) = place.ask(LIVE)
    return int(count)


def is_settled(place: Place) -> bool:
    """Whether every message has reached its gate: before that, plans cannot know of all of them."""
    ((on_the_way,),) = place.ask(ON_THE_WAY)
    return not on_the_way


def read_records(place: Place) -> Records:
    grants: dict[datetime, list[Grant]] = defaultdict(list)
    for begins_at, template, priority, inside, zones, waiting, granted, used in place.ask(GRANTS):
        kind = Kind(template, priority, bool(inside))
        grant = Grant(kind=kind, zones=frozenset(json.loads(zones)), waiting=waiting, granted=granted, used=used)
        grants[_moment(begins_at)].append(grant)
    windows = [
        Window(
            begins=_moment(begins_at),
            ends=_moment(ends_at),
            planned_at=_moment(planned_at),
            max_to_send=max_to_send,
            templates=templates,
            grants=grants[_moment(begins_at)],
        )
        for begins_at, ends_at, planned_at, max_to_send, templates in place.ask(WINDOWS)
    ]
    messages = [
        Message(id, template, state, succeeded, None if finished_at is None else _moment(finished_at))
        for id, template, state, succeeded, finished_at in place.ask(ACTIONS)
    ]
    ((incoming, processing),) = place.ask(ROWS_LEFT)
    return Records(windows, {message.id: message for message in messages}, (incoming, processing))


def _moment(stored: datetime | int) -> datetime:
    """SQLite keeps microseconds."""
    return _EPOCH + timedelta(microseconds=stored) if isinstance(stored, int) else stored
