"""Planning a window on PostgreSQL: the statements of its transaction; the text is in sql/postgresql/."""

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
from matrixsched.store.postgresql.templates import PostgresTemplates
from matrixsched.store.quota_codec import decode_settings, the_row
from matrixsched.store.transition import Conversation


class PostgresPlanning(PostgresTemplates, WindowPlanning):
    def _take_turn(self) -> Conversation[bool]:
        rows = yield self._ask("plan_window.turn")
        return bool(rows)

    def _windows_now(self) -> Conversation[WindowsNow]:
        row = the_row((yield self._ask("plan_window.state")))
        return WindowsNow(
            now=row["now"],
            previous_begins_at=row["previous_begins_at"],
            previous_ends_at=row["previous_ends_at"],
            next_begins_at=row["next_begins_at"],
            settings=decode_settings(row["settings"]),
            asked_at=row["asked_at"],
        )

    def _is_unsettled(self) -> Conversation[bool]:
        rows = yield self._ask("plan_window.unsettled", rows_max=SETTLE_ROWS_MAX)
        return bool(rows)

    def _put_off(self) -> Conversation[None]:
        yield self._ask("plan_window.put_off")

    def _last_served(self, begins_at: datetime) -> Conversation[dict[tuple[str, int], datetime | None]]:
        rows = yield self._ask("plan_window.served", begins_at=begins_at)
        return {(row["template"], row["priority"]): row["last_served_at"] for row in rows}

    def _due_lanes(self) -> Conversation[list[str]]:
        rows = yield self._ask("plan_window.due")
        return [row["lane"] for row in rows]

    def _count_due(self, lanes: Sequence[Sequence[str]], most: Sequence[int | None]) -> Conversation[list[int]]:
        numbered = [(lane, number) for number, names in enumerate(lanes, start=1) for lane in names]
        rows = yield self._ask(
            "plan_window.count",
            lanes=[lane for lane, _ in numbered],
            numbers=[number for _, number in numbered],
            most=most,
        )
        counted = {row["number"]: row["waiting"] for row in rows}
        return [counted[number] for number in range(1, len(lanes) + 1)]

    def _write_window(self, window: PlannedWindow) -> Conversation[bool]:
        grants, zones = window.plan.grants, window.zones_inside
        written = yield self._ask(
            "plan_window.write",
            begins_at=window.begins_at,
            ends_at=window.ends_at,
            planned_by=window.planned_by,
            max_to_send=window.plan.max_to_send,
            count=window.plan.templates,
            templates=[grant.template for grant in grants],
            priorities=[grant.priority for grant in grants],
            insides=[grant.inside for grant in grants],
            zones=[json.dumps(zones[grant.template] if grant.inside else []) for grant in grants],
            waiting=[grant.waiting for grant in grants],
            granted=[grant.granted for grant in grants],
            last_served_at=[grant.last_served_at for grant in grants],
            served=list(window.plan.last_served),
            served_at=list(window.plan.last_served.values()),
        )
        if not written:
            return False
        parts = [lane_parts(lane) for lane in window.ready_at]
        yield self._ask(
            "plan_window.lanes",
            lanes=list(window.ready_at),
            lane_priorities=[priority for priority, _ in parts],
            handlers=[handler for _, handler in parts],
            ready_at=list(window.ready_at.values()),
        )
        yield self._ask("plan_window.forget", keep=KEEP, forget_max=FORGET_MAX)
        return True
