"""Planning a window on SQLite: the statements of its transaction; the text is in sql/sqlite/."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from matrixsched.store.planning import (
    FORGET_MAX,
    KEEP,
    SETTLE_ROWS_MAX,
    PlannedWindow,
    WindowPlanning,
    WindowsNow,
    lane_parts,
)
from matrixsched.store.quota_codec import decode_settings, the_row
from matrixsched.store.sqlite.rows import as_json, in_microseconds, moment_of, moment_or_none, span
from matrixsched.store.sqlite.templates import SqliteTemplates
from matrixsched.store.transition import Conversation

_GRANT = ("begins_at", "template", "priority", "inside", "zones", "waiting", "granted", "last_served_at")
_LANE = ("lane", "priority", "handler", "ready_at")
_ALL = -1
"""A limit that is none."""


class SqlitePlanning(SqliteTemplates, WindowPlanning):
    def _take_turn(self) -> Conversation[bool]:
        yield from ()
        return True

    def _windows_now(self) -> Conversation[WindowsNow]:
        row = the_row((yield self._ask("plan_window.state", now=self._now())))
        return WindowsNow(
            now=moment_of(row["now"]),
            previous_begins_at=moment_or_none(row["previous_begins_at"]),
            previous_ends_at=moment_or_none(row["previous_ends_at"]),
            next_begins_at=moment_or_none(row["next_begins_at"]),
            settings=decode_settings(row["settings"]),
            asked_at=moment_or_none(row["asked_at"]),
        )

    def _is_unsettled(self) -> Conversation[bool]:
        rows = yield self._ask("plan_window.unsettled", rows_max=SETTLE_ROWS_MAX, now=self._now())
        return bool(rows)

    def _put_off(self) -> Conversation[None]:
        yield self._ask("plan_window.put_off", now=self._now())

    def _last_served(self, begins_at: datetime) -> Conversation[dict[tuple[str, int], datetime | None]]:
        rows = yield self._ask("plan_window.served", begins_at=in_microseconds(begins_at))
        return {(row["template"], row["priority"]): moment_or_none(row["last_served_at"]) for row in rows}

    def _due_lanes(self) -> Conversation[list[str]]:
        rows = yield self._ask("plan_window.due", now=self._now())
        return [row["lane"] for row in rows]

    def _count_due(self, lanes: Sequence[Sequence[str]], most: Sequence[int | None]) -> Conversation[list[int]]:
        now, counts = self._now(), []
        for names, limit in zip(lanes, most, strict=True):
            asked = _ALL if limit is None else limit
            (row,) = yield self._ask("plan_window.count", lanes=as_json(names), most=asked, now=now)
            counts.append(row["waiting"])
        return counts

    def _write_window(self, window: PlannedWindow) -> Conversation[bool]:
        now, begins_at = in_microseconds(window.planned_at), in_microseconds(window.begins_at)
        plan, zones = window.plan, window.zones_inside
        yield self._ask(
            "plan_window.window",
            begins_at=begins_at,
            ends_at=in_microseconds(window.ends_at),
            planned_by=window.planned_by,
            max_to_send=plan.max_to_send,
            count=plan.templates,
            now=now,
        )
        grants = [
            (
                begins_at,
                grant.template,
                grant.priority,
                int(grant.inside),
                json.dumps(zones[grant.template] if grant.inside else []),
                grant.waiting,
                grant.granted,
                None if grant.last_served_at is None else in_microseconds(grant.last_served_at),
            )
            for grant in plan.grants
        ]
        yield self._each("plan_window.grant", _GRANT, grants)
        served = [(name, in_microseconds(at)) for name, at in plan.last_served.items()]
        yield self._each("plan_window.serve", ("template", "last_served_at"), served)
        lanes = [(lane, *lane_parts(lane), in_microseconds(ready_at)) for lane, ready_at in window.ready_at.items()]
        yield self._each("plan_window.lane", _LANE, lanes)
        yield self._ask("plan_window.forget_grants", keep=span(KEEP), forget_max=FORGET_MAX, now=now)
        yield self._ask("plan_window.forget_windows", keep=span(KEEP), forget_max=FORGET_MAX, now=now)
        return True
