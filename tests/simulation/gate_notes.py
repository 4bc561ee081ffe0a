"""What is noted of the gates in a run: limits, templates, windows and lanes after every commit, the claims that passed
them, and how long the database took to answer."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from matrixsched.rules.action import Attempt
from matrixsched.rules.lanes import ANY_KEY, Lane, lane_of
from matrixsched.rules.quota import QuotaSettings
from matrixsched.store.quota_codec import decode_settings
from matrixsched.store.store import Store
from matrixsched.store.values import Acquired, GatedClaim
from simulation.commit_checkers import Commit
from simulation.history import Key
from simulation.parts import notes_taken

if TYPE_CHECKING:
    from simulation.world import World

TRUSTED_S = 5.0
"""So long a worker trusts at least what it learned of the database's time."""


class LimitRow(NamedTuple):
    name: str
    requests: int | None
    per_us: int | None
    pool: int
    next_slot_ns: int
    slow_until: int | None
    slow_requests: int | None
    slow_per_us: int | None


class TemplateRow(NamedTuple):
    name: str
    distribution: str
    weight: float
    paused_at: int | None
    paused_until: int | None
    last_served_at: int | None

    def is_paused(self, now: int) -> bool:
        return self.paused_at is not None and (self.paused_until is None or now < self.paused_until)


class Window(NamedTuple):
    begins_at: int
    ends_at: int
    max_to_send: int | None


class Kind(NamedTuple):
    """Messages that a window has one grant for."""

    begins_at: int
    template: str
    priority: int
    inside: bool


class Grant(NamedTuple):
    zones: str
    waiting: int
    granted: int
    used: int
    last_served_at: int | None


class HeldRow(NamedTuple):
    """A row in a gated lane."""

    shard: int
    id: str
    guid: str
    lane: str
    due: int
    expires_at: int | None
    claimed_by: str | None

    def may_go(self, now: int) -> bool:
        return self.due <= now and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a limit lets go, in starts a microsecond."""

    rate: float | None
    """None: as fast as anybody likes."""
    pool: int
    slow_until: int | None
    slow_rate: float | None
    """Until then; None: closed."""

    def is_slowed(self, now: int) -> bool:
        return self.slow_until is not None and now < self.slow_until

    def at(self, now: int) -> float | None:
        if not self.is_slowed(now):
            return self.rate
        if self.slow_rate is None:
            return 0.0
        return self.slow_rate if self.rate is None else min(self.rate, self.slow_rate)


@dataclass(slots=True, eq=False)
class Epoch:
    """A time during which nobody changed a limit."""

    pace: Pace
    begins_at: int
    follows: bool
    """Whether its slots follow those of the time before; not so after the limit was removed, or had no rate."""


@dataclass(frozen=True, slots=True)
class GateState:
    """What a commit left behind."""

    limits: dict[str, LimitRow] = field(default_factory=dict)
    templates: dict[str, TemplateRow] = field(default_factory=dict)
    windows: dict[int, Window] = field(default_factory=dict)
    grants: dict[Kind, Grant] = field(default_factory=dict)
    rows: list[HeldRow] = field(default_factory=list)
    listed: dict[str, int] = field(default_factory=dict)
    """When each lane is worth a look."""
    lanes: dict[str, str] = field(default_factory=dict)
    """The gates of live actions, by guid."""
    settings: QuotaSettings = field(default_factory=QuotaSettings)

    @property
    def told(self) -> list[LimitRow]:
        """The limits without their slots."""
        return [row._replace(next_slot_ns=0) for row in self.limits.values()]

    def pace(self, name: str) -> Pace | None:
        """None: no limit. A key without a rate of its own goes at that of key:*."""
        row, default = self.limits.get(name), self.limits.get(ANY_KEY) if name.startswith("key:") else None
        if row is None and default is None:
            return None
        own = row if row is not None and (row.requests is not None or default is None) else default
        assert own is not None
        rate = _rate(own.requests, own.per_us)
        if row is None:
            return Pace(rate, own.pool, None, None)
        return Pace(rate, own.pool, row.slow_until, _rate(row.slow_requests, row.slow_per_us))

    def window_at(self, now: int) -> Window | None:
        return next((one for one in self.windows.values() if one.begins_at <= now < one.ends_at), None)

    def rows_of(self, lane: str, shard: int) -> list[HeldRow]:
        return [row for row in self.rows if row.lane == lane and row.shard == shard]


_settings = lru_cache(decode_settings)


def _rate(requests: int | None, per_us: int | None) -> float | None:
    return None if requests is None or per_us is None else requests / per_us


_LIMITS = """
select name, requests, per_us, pool, next_slot_ns, slow_until, slow_requests, slow_per_us from matrixsched_limits
"""
_TEMPLATES = "select name, distribution, weight, paused_at, paused_until, last_served_at from matrixsched_templates"
_WINDOWS = "select begins_at, ends_at, max_to_send from matrixsched_quota_windows order by begins_at desc limit 3"
_GRANTS = """
select begins_at, template, priority, inside, zones, waiting, granted, used, last_served_at
  from matrixsched_quota_grants
 where begins_at in (select begins_at from matrixsched_quota_windows order by begins_at desc limit 3)
"""
_ROWS = """
select shard_id, action_id, action_guid, lane, scheduled_at, expires_at, claimed_by from matrixsched_processing_queue
 where lane >= 'limit|' and lane < 'quota}'
"""
_LISTED = "select lane, ready_at from matrixsched_held_lanes"
_LANES = (
    "select action_guid, lane from matrixsched_scheduled_actions where state = 'live' and lane not in ('', 'event')"
)
_SETTINGS = "select settings from matrixsched_quota_settings"


class GateNotes:
    def __init__(self, world: World) -> None:
        self._world = world
        self.before = self.after = GateState()
        self.epochs: defaultdict[str, list[Epoch]] = defaultdict(list)
        """Of each limit."""
        self.passed: dict[Key, dict[str, Epoch]] = {}
        """The limits that a claim passed, as they stood."""
        self.vague_us: dict[Key, int] = {}
        """How well the worker knew the database's time when it heard of a claim."""
        self._answers: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    # Commits.

    def look(self) -> GateState:
        """The gates as they stand."""
        rows = self._world.database._rows
        return GateState(
            limits={row[0]: LimitRow(*row) for row in rows(_LIMITS)},
            templates={row[0]: TemplateRow(*row) for row in rows(_TEMPLATES)},
            windows={row[0]: Window(*row) for row in rows(_WINDOWS)},
            grants={Kind(*row[:3], bool(row[3])): Grant(*row[4:]) for row in rows(_GRANTS)},
            rows=[HeldRow(*row) for row in rows(_ROWS)],
            listed=dict(rows(_LISTED)),
            lanes=dict(rows(_LANES)),
            settings=_settings(rows(_SETTINGS)[0][0]),
        )

    def follow(self, names: Iterable[str]) -> None:
        """Take notes of what was committed just now."""
        now = self._world.database.now()
        self.before, self.after = self.after, self.look()
        if not self.epochs or self.before.told != self.after.told:
            for name in names:
                self._follow_limit(name, now)

    def _follow_limit(self, name: str, now: int) -> None:
        epochs, pace = self.epochs[name], self.after.pace(name)
        was_removed = name in self.before.limits and name not in self.after.limits
        if pace is None:
            pace = Pace(None, 0, None, None)
        if not epochs or epochs[-1].pace != pace or was_removed:
            follows = bool(epochs) and epochs[-1].pace.at(now) is not None and not was_removed
            epochs.append(Epoch(pace, now, follows))

    def note_claims(self, attempts: Sequence[Attempt]) -> None:
        if not attempts:
            return
        now = self._world.database.now()
        present = {name: epochs[-1] for name, epochs in self.epochs.items() if epochs[-1].pace.at(now) is not None}
        for attempt in attempts:
            names = lane_of_attempt(attempt).limits
            self.passed[key_of(attempt)] = {name: present[name] for name in names if name in present}

    # Answers.

    def time_answers(self, store: Store, host: str) -> None:
        """Measure how long this host waits for the answers from which it learns the database's time."""
        run, clock = store.run, self._world.clock

        async def timed(transition: Any) -> Any:
            asked_at = clock.monotonic()
            answer = await run(transition)
            if isinstance(answer, Acquired | GatedClaim) and answer.now is not None:
                self._note_answer(host, clock.monotonic(), asked_at, answer)
            return answer

        store.run = timed  # type: ignore[method-assign]

    def _note_answer(self, host: str, now: float, asked_at: float, answer: Acquired | GatedClaim) -> None:
        answers = self._answers[host]
        answers.append((now, now - asked_at))
        if isinstance(answer, GatedClaim):
            trusted = min(bisect_right(answers, (now - TRUSTED_S, 0.0)), max(0, len(answers) - 2))
            vague_us = round(min(took for _, took in answers[trusted:]) * 1_000_000)
            self.vague_us |= {key_of(attempt): vague_us for attempt in answer.attempts}


def notes_of(world: World) -> GateNotes:
    return notes_taken(world, GateNotes)


def key_of(attempt: Attempt) -> Key:
    return attempt.claim.guid, attempt.claim.attempt, attempt.claim.claimed_by


def lane_of_attempt(attempt: Attempt) -> Lane:
    return Lane(
        handler=attempt.handler,
        priority=attempt.priority,
        key=attempt.limit,
        template=attempt.template,
        zone=attempt.zone,
    )


def gated(commit: Commit) -> Iterator[tuple[Attempt, Lane]]:
    """What a commit claimed that passed its gates."""
    if isinstance(commit.answer, GatedClaim):
        for attempt in commit.answer.attempts:
            yield attempt, lane_of_attempt(attempt)


def lanes_asked(commit: Commit) -> dict[str, Lane]:
    """The lanes that a gated claim was asked about."""
    options = commit.transition.options  # type: ignore[attr-defined]
    return {name: lane_of(name) for name in (*options["listed"], *options["filled"])}
