"""What the database says once all is over."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks.places import Place

from matrixsched.rules.quota import Grant

WINDOWS = "select begins_at, ends_at, planned_at, max_to_send, templates from matrixsched.quota_windows order by 1"
GRANTS = "select begins_at, template, priority, inside, waiting, granted, used from matrixsched.quota_grants"
ACTIONS = "select action_id, template, state, succeeded, failed, interrupted from matrixsched.scheduled_actions"
LIVE = "select count(*) from matrixsched.scheduled_actions where state = 'live'"
ROWS_LEFT = """
select (select count(*) from matrixsched.incoming_queue), (select count(*) from matrixsched.processing_queue)
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Spent:
    """A grant, and how much of it was used."""

    grant: Grant
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    begins: datetime
    ends: datetime
    planned_at: datetime
    max_to_send: int
    templates: int
    grants: list[Spent] = field(default_factory=list)

    @property
    def granted(self) -> int:
        return sum(spent.grant.granted for spent in self.grants)

    @property
    def used(self) -> int:
        return sum(spent.used for spent in self.grants)

    def granted_to(self, template: str) -> int:
        return sum(spent.grant.granted for spent in self.grants if spent.grant.template == template)


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    template: str
    state: str
    succeeded: int
    failed: int
    interrupted: int


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


def read_records(place: Place) -> Records:
    grants: dict[datetime, list[Spent]] = defaultdict(list)
    for begins_at, template, priority, inside, waiting, granted, used in place.ask(GRANTS):
        grant = Grant(
            template=template,
            priority=priority,
            inside=bool(inside),
            waiting=waiting,
            granted=granted,
            last_served_at=None,
        )
        grants[_moment(begins_at)].append(Spent(grant, used))
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
    messages = [Message(*row) for row in place.ask(ACTIONS)]
    ((incoming, processing),) = place.ask(ROWS_LEFT)
    return Records(windows, {message.id: message for message in messages}, (incoming, processing))


def _moment(stored: datetime | int) -> datetime:
    """SQLite keeps microseconds."""
    return _EPOCH + timedelta(microseconds=stored) if isinstance(stored, int) else stored
