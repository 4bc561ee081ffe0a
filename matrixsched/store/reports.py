"""The part of the protocol that only looks: how an action stands, and what the gates hold. It locks and writes nothing.

What the two databases do differently is asked of the class that this is a part of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from matrixsched.rules.action import Action, State
from matrixsched.rules.gate_report import GateReport, Share, held_by, slots_left
from matrixsched.rules.lanes import ANY_KEY, Lane, key_limit, lane_of
from matrixsched.rules.limits import Limit
from matrixsched.rules.minutes import WorkerSeen
from matrixsched.rules.play import PresentWindow
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.standing import BEFORE_COUNT_MAX, Standing, lane_to_pass
from matrixsched.rules.templates import Template
from matrixsched.store.gating import StoredGates, StoredQuota, quota_now
from matrixsched.store.planning import WindowsNow
from matrixsched.store.transition import Conversation, Transition, transition

_NOT = timedelta(0)


class Reporting(Protocol):
    """What operators and metrics ask."""

    def standing(self, shard: int, action_id: str) -> Transition[Standing | None]:
        """How an action stands, and everything that decides about it; None if there is no such action."""
        ...

    def gate_report(self, *, lanes_max: int, count_max: int) -> Transition[GateReport]:
        """What the gates hold back now; it looks at `lanes_max` lanes, and counting stops at `count_max`."""
        ...

    def present_window(self) -> Transition[PresentWindow]:
        """The window of the quota that this moment lies in, and what is left of its grants if it is planned."""
        ...


class Reports:
    """The reports, in terms of what a database can be asked."""

    @abstractmethod
    def _stand(self, shard: int, action_id: str, count_max: int) -> Conversation[Standing | None]:
        """An action with its row and the lock of its shard, in one snapshot; without its gates."""

    @abstractmethod
    def _read_grants(self, templates: Sequence[str] | None) -> Conversation[list[StoredQuota]]:
        """These templates, or all, with their grants in the present window."""

    @abstractmethod
    def _waiting(self, lanes_max: int, count_max: int) -> Conversation[tuple[datetime, dict[str, int]]]:
        """The time, and how many rows are due in each gated lane that has any."""

    @abstractmethod
    def _shares(self) -> Conversation[list[Share]]: ...

    @abstractmethod
    def _windows_now(self) -> Conversation[WindowsNow]: ...

    @abstractmethod
    def _last_served(self, begins_at: datetime) -> Conversation[dict[tuple[str, int], datetime | None]]: ...

    @abstractmethod
    def limits(self, *, after: str, limit: int, include_keys: bool) -> Transition[list[Limit]]: ...

    @abstractmethod
    def find_limits(self, names: Sequence[str]) -> Transition[list[Limit]]: ...

    @abstractmethod
    def find_template(self, name: str) -> Transition[Template | None]: ...

    @abstractmethod
    def workers_seen(self) -> Transition[list[WorkerSeen]]: ...

    @abstractmethod
    def quota_settings(self) -> Transition[QuotaSettings]: ...

    @transition
    def standing(self, shard: int, action_id: str) -> Conversation[Standing | None]:
        found = yield from self._stand(shard, action_id, BEFORE_COUNT_MAX)
        if found is None or found.action.status.state is not State.LIVE:
            return found
        found = replace(found, workers=(yield from self.workers_seen().begin()))
        return (yield from self._with_gates(found, found.action))

    @transition
    def gate_report(self, *, lanes_max: int, count_max: int) -> Conversation[GateReport]:
        now, waiting = yield from self._waiting(lanes_max, count_max)
        lanes = {name: lane_of(name) for name in waiting}
        limits = yield from self.limits(after="", limit=lanes_max, include_keys=False).begin()
        quotas = yield from self._read_grants(None)
        of_keys = yield from self._limits_of_keys(lanes.values(), now)
        stored = StoredGates(now=now, limits=[(limit, False) for limit in (*limits, *of_keys)], quotas=quotas)
        return GateReport(
            held=held_by(waiting, lanes, stored.open(lanes.values(), ahead=_NOT, lead=_NOT)),
            slots_left=slots_left(limits, now),
            slowed=frozenset(limit.name for limit in limits if limit.is_slowed(now)),
            shares=(yield from self._shares()),
            paused=frozenset(quota.template.name for quota in quotas if quota.template.is_paused(now)),
        )

    @transition
    def present_window(self) -> Conversation[PresentWindow]:
        windows = yield from self._windows_now()
        begins_at, ends_at = windows.window()
        last_served: Mapping[tuple[str, int], datetime | None] = {}
        if windows.previous_begins_at is not None:
            last_served = yield from self._last_served(windows.previous_begins_at)
        quotas = [quota for quota in (yield from self._read_grants(None)) if quota.window is not None]
        if not quotas:
            return PresentWindow(at=windows.now, begins_at=begins_at, ends_at=ends_at, last_served=last_served)
        assert quotas[0].window is not None
        begins_at, ends_at = quotas[0].window
        return PresentWindow(
            at=max(windows.now, begins_at),  # it may have begun since
            begins_at=begins_at,
            ends_at=ends_at,
            left={
                (quota.template.name, grant.priority, grant.inside): grant.granted - grant.used
                for quota in quotas
                for grant in quota.grants
            },
            zones_inside={
                quota.template.name: frozenset[str]().union(*(grant.zones for grant in quota.grants))
                for quota in quotas
            },
            last_served=last_served,
        )

    def _limits_of_keys(self, lanes: Iterable[Lane], now: datetime) -> Conversation[list[Limit]]:
        """A key that was never used has no limit yet, but is not held by that."""
        names = sorted({key_limit(lane.key) for lane in lanes if lane.key is not None})
        found = (yield from self.find_limits(names).begin()) if names else []
        there = {limit.name for limit in found}
        return [*found, *(Limit(name=name, updated_at=now) for name in names if name not in there)]

    def _with_gates(self, standing: Standing, action: Action) -> Conversation[Standing]:
        lane, name = lane_to_pass(action.spec), action.spec.template
        limits = yield from self.find_limits([*lane.limits, ANY_KEY]).begin()
        standing = replace(standing, limits={limit.name: limit for limit in limits})
        if name is None:
            return standing
        quotas = yield from self._read_grants([name])
        return replace(
            standing,
            template=(yield from self.find_template(name).begin()),
            quota=quota_now(quotas[0], standing.now) if quotas else None,
            settings=(yield from self.quota_settings().begin()),
        )
