"""How transitions ask SQLite: by the name of a statement, once or for each of many rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.store.sqlite.each import AskEach
from matrixsched.store.sqlite.rows import as_json, in_microseconds
from matrixsched.store.statements import load
from matrixsched.store.transition import Ask

_JUDGING = ("claim.judge", "move.judge", "record.judge", "relist_lanes.turn", "plan_window.due")


class SqliteAsking:
    def __init__(self, installation: str, *, clock: Clock) -> None:
        statements = load("sqlite", installation)
        # They read, but what they read is written at once: asked as writes, lest they are read twice, in a read
        # transaction and again in the write transaction.
        judging = {name: replace(statements[name], writes=True) for name in _JUDGING}
        self._statements = statements | judging
        self._clock = clock

    def _ask(self, name: str, **parameters: object) -> Ask:
        return Ask(self._statements[name], parameters)

    def _each(self, name: str, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> AskEach:
        return AskEach(self._statements[name], {}, columns, rows)

    def _note_changes(self, guids: Iterable[UUID], now: int) -> Ask:
        """Keep that changes with these guids take effect, for `carried_out`."""
        return self._ask("carried_out.note", guids=as_json([str(guid) for guid in guids]), now=now)

    def _now(self) -> int:
        """Read once in a conversation, which begins inside its transaction: a wait for the lock does not age it."""
        return in_microseconds(self._clock.now())
