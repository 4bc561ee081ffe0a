"""Who keeps whom waiting on a PostgreSQL server, and what is not cleared away because somebody might still see it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from matrixsched.ops.doctor.words import listed, of_sql
from matrixsched.ops.findings import Finding, note, ok, warning
from matrixsched.ops.render import age
from matrixsched.store.facts import LockWait, OpenTransaction, PostgresFacts

SLOT_XMIN_MAX = 1_000_000
"""So many transactions may a replica be behind before dead rows are too many."""


def judge_sessions(facts: PostgresFacts, patience: timedelta) -> Iterator[Finding]:
    """`patience` is how long a transaction may last before it is told of."""
    held = [_held(one) for one in facts.transactions if _is_long(one, patience)]
    yield from held
    if not held:
        yield ok("transactions", f"none has been open for {age(patience)}")
    waits = [_wait(wait, patience) for wait in facts.lock_waits]
    yield from waits
    if not waits:
        yield ok("lock waits", "nobody waits for a lock on our tables")
    if facts.hidden_sessions:
        yield note(
            "hidden",
            f"{facts.hidden_sessions} sessions of other roles do not show us since when they have been at what",
            f"to be told more: `grant pg_read_all_stats to {of_sql(facts.role)};`",
        )


def _is_long(one: OpenTransaction, patience: timedelta) -> bool:
    if one.age is not None:
        return one.age >= patience
    return (one.xmin_age or 0) >= SLOT_XMIN_MAX


def _held(one: OpenTransaction) -> Finding:
    since = "" if one.age is None else f" has been open for {age(one.age)}"
    keeps = "" if one.xmin_age is None else f", seeing what was there {one.xmin_age:,} transactions ago"
    detail = f"{one.kind} {one.name} ({one.who}, {one.state or 'hidden'}){since}{keeps}"
    why = ": until it ends, no row that died since is cleared away, and every claim steps over more of them"
    return warning("transactions", f"{detail}{why}", _end_of(one))


def _end_of(one: OpenTransaction) -> str:
    match one.kind:
        case "prepared transaction":
            name = one.name.replace("'", "''")
            return f"`commit prepared '{name}';` or `rollback prepared '{name}';`"
        case "replication slot":
            name = one.name.replace("'", "''")
            return f"bring its replica back, or let it go: `select pg_drop_replication_slot('{name}');`"
    return f"commit it; or end its session: `select pg_terminate_backend({one.name});`"


def _wait(wait: LockWait, patience: timedelta) -> Finding:
    tables = listed(wait.tables) or "our tables"
    detail = (
        f"session {wait.pid} ({wait.who}) has waited for {age(wait.waited)} to lock ({wait.mode}) what belongs to "
        f"{tables}, behind {wait.blockers}"
    )
    ending = "; ".join(f"select pg_terminate_backend({pid})" for pid in wait.blocked_by)
    remedy = f"commit the transaction that is in the way; or end its session: `{ending};`" if ending else None
    return (warning if wait.waited >= patience else note)("lock waits", detail, remedy)
