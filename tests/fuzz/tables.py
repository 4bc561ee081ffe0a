"""All tables of an installation: what is in them, in the same words on both databases; copies to begin anew with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from matrixsched.store.statements import Statement, statement
from matrixsched.store.store import Store
from matrixsched.store.transition import Ask, Conversation, Transition

Rows = list[list[Any]]
Contents = dict[str, Rows]
"""The rows of each table by its name, in an order of their own; times and durations in microseconds."""
Answers = list[list[dict[str, Any]]]
Columns = dict[str, dict[str, str]]
"""By table and column: the type on PostgreSQL."""

_KEPT = "kept_"
_FACTS = {"installation", "migrations"}
"""Of the database itself; each has its own."""
_RESTORED_MAX = 300
"""So often rows are deleted before PostgreSQL is told to forget them, or it gets slower and slower."""
_APART = {"action_requests": "requests"}
"""In distributed form rows of the second are in the first, once for each shard."""
_ELSEWHERE = {"task_ids": "cast(null as bigint[])"}
"""Columns that a table apart lacks."""
_COLUMNS = (
    "select c.table_name as name, c.column_name as column_name, c.data_type as type from information_schema.columns c "
    "join information_schema.tables t using (table_schema, table_name) "
    "where table_schema = 'matrixsched' and t.table_type = 'BASE TABLE' order by c.table_name, c.ordinal_position"
)
_AS_NUMBERS = {
    "timestamp with time zone": "cast(extract(epoch from {0}) * 1000000 as bigint)",
    "interval": "cast(extract(epoch from {0}) * 1000000 as bigint)",
    "bytea": "encode({0}, 'hex')",
    "boolean": "cast({0} as integer)",
}
_JSON = ("jsonb", "ARRAY")


async def columns_of(store: Store) -> Columns:
    """What there is, asked of PostgreSQL, which knows types."""
    columns: Columns = {}
    for row in (await Tables(store, {}).sql(_COLUMNS))[0]:
        if row["name"] not in _FACTS | _APART.keys():
            columns.setdefault(row["name"], {})[row["column_name"]] = row["type"]
    return columns


class Tables:
    def __init__(self, store: Store, columns: Columns) -> None:
        """They have these columns, and are all there are but for those that are apart."""
        self._store, self._columns = store, columns
        self._is_postgres = store.dialect == "postgresql"
        self._prefix = "matrixsched." if self._is_postgres else "matrixsched_"
        is_distributed = getattr(store.transitions, "is_distributed", False)
        self._apart = {whole: part for part, whole in _APART.items() if is_distributed}
        self._names = [*columns, *self._apart.values()]
        self._prepared: dict[str, Statement] = {}
        self._restored = 0
        self._answers: Answers = []
        self._contents: Contents = {}
        self._reading = [self._in_one()] if self._is_postgres else [self._select(name) for name in columns]

    async def sql(self, *texts: str) -> Answers:
        """The answers to statements, in one transaction on SQLite."""
        prepared = [self._statement(text) for text in texts]

        def conversation() -> Conversation[Answers]:
            answers = []
            for one in prepared:
                answers.append([dict(row) for row in (yield Ask(one, {}))])
            return answers

        return await self._store.run(Transition("raw", conversation))

    def _statement(self, text: str) -> Statement:
        if text not in self._prepared:
            self._prepared[text] = statement(self._store.dialect, self._store.installation, "raw", text)
        return self._prepared[text]

    # What is in them.

    async def contents(self) -> Contents:
        answers = await self.sql(*self._reading)
        if answers != self._answers:  # most often they are as before, and need not be read again
            self._answers, self._contents = answers, self._read(answers)
        return self._contents

    def _read(self, answers: Answers) -> Contents:
        if self._is_postgres:
            found = json.loads(answers[0][0]["found"])
        else:
            names = self._columns
            found = {name: [list(row.values()) for row in rows] for name, rows in zip(names, answers, strict=True)}
        return {name: self._alike(name, rows or []) for name, rows in found.items()}

    def _alike(self, name: str, rows: Rows) -> Rows:
        kinds = list(self._columns[name].values())
        return sorted(([_read(kind, one) for kind, one in zip(kinds, row, strict=True)] for row in rows), key=repr)

    def _select(self, name: str) -> str:
        return f"select {', '.join(self._columns[name])} from {self._prefix}{name}"

    def _in_one(self) -> str:
        """All of it by one statement, as JSON: a statement for each table would take most of the time."""
        parts = []
        for name, columns in self._columns.items():
            values = ", ".join(_AS_NUMBERS.get(kind, "{0}").format(column) for column, kind in columns.items())
            parts.append(f"'{name}', (select json_agg(json_build_array({values})) from {self._whole(name)})")
        return f"select cast(json_build_object({', '.join(parts)}) as text) as found"

    def _whole(self, name: str) -> str:
        if (apart := self._apart.get(name)) is None:
            return f"matrixsched.{name}"
        columns = ", ".join(self._columns[name])
        others = ", ".join(_ELSEWHERE.get(column, column) for column in self._columns[name])
        return f"(select {columns} from matrixsched.{name} union select {others} from matrixsched.{apart}) as {name}"

    # Copies.

    async def level(self) -> None:
        """Take away in what two installations differ before anything was done: when, and with which guids, they were
        made."""
        guid = "cast(lpad(cast(shard_id as text), 32, '0') as uuid)"
        if not self._is_postgres:
            guid = "printf('00000000-0000-0000-0000-%012d', shard_id)"
        epoch = "timestamptz 'epoch'" if self._is_postgres else "0"
        await self.sql(f"update {self._prefix}shard_locks set last_lock_guid = {guid} where last_locked_by is null")
        await self.sql(f"update {self._prefix}quota_settings set updated_at = {epoch}")

    async def keep(self) -> None:
        """What is there now is what `restore` brings back."""
        kept = f"{self._prefix}{_KEPT}"
        await self.sql(*(f"create table {kept}{name} as select * from {self._prefix}{name}" for name in self._names))
        if not self._is_postgres:
            await self.sql(f"create table {kept}sequence as select * from sqlite_sequence")

    async def restore(self) -> None:
        texts = []
        overriding = "overriding system value " if self._is_postgres else ""
        for name in self._names:
            table, kept = f"{self._prefix}{name}", f"{self._prefix}{_KEPT}{name}"
            texts += [f"delete from {table}", f"insert into {table} {overriding}select * from {kept}"]
        if self._is_postgres:
            await self._restore_postgres(texts)
        else:
            sequence = f"insert into sqlite_sequence select * from {self._prefix}{_KEPT}sequence"
            await self.sql(*texts, "delete from sqlite_sequence", sequence)

    async def _restore_postgres(self, texts: Sequence[str]) -> None:
        ids = "select id from matrixsched.kept_queue_tasks union all select id from matrixsched.kept_queue_dead_letters"
        next_id = f"coalesce((select max(id) from ({ids}) as ids), 0) + 1"
        sequence = "pg_get_serial_sequence('matrixsched.queue_tasks', 'id')"
        await self.sql(f"do $$ begin {'; '.join(texts)}; perform setval({sequence}, {next_id}, false); end $$")
        self._restored += 1
        if self._restored % _RESTORED_MAX == 0:
            await self.sql("vacuum")


def _read(kind: str, value: Any) -> Any:
    """A value of SQLite, or of PostgreSQL as JSON, as both are compared."""
    if isinstance(value, bytes):
        return value.hex()
    if kind in _JSON and isinstance(value, str):
        return json.loads(value)
    return value
