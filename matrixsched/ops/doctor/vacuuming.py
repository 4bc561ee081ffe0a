"""Dead rows on PostgreSQL: whether they are cleared away, and how many are left."""

from __future__ import annotations

from collections.abc import Iterator

from matrixsched.ops.doctor.words import listed, of_sql
from matrixsched.ops.findings import Finding, fault, ok, warning
from matrixsched.store.facts import PostgresFacts, TableFacts

DEAD_MIN = 50_000
"""Autovacuum comes at 5,000 dead rows of our queues: with ten times as many it does not keep up."""
WRAPAROUND = 2_000_000_000
"""Transactions after which the server takes no more writes."""


def judge_vacuuming(facts: PostgresFacts) -> Iterator[Finding]:
    yield from _autovacuum(facts)
    bloated = [_bloated(facts, table) for table in facts.tables if _is_bloated(table)]
    yield from bloated
    if not bloated:
        dead, live = sum(table.dead for table in facts.tables), sum(table.live for table in facts.tables)
        yield ok("bloat", f"about {dead:,} dead rows beside {live:,} live ones")
    yield from _freezing(facts)


def _autovacuum(facts: PostgresFacts) -> Iterator[Finding]:
    off = [name for name in ("autovacuum", "track_counts") if facts.settings[name].value == "off"]
    if off:
        yield fault(
            "autovacuum",
            f"{' and '.join(off)} off for the whole server: queues fill with dead rows, and everything gets slower",
            f"`{' '.join(f'alter system set {name} = on;' for name in off)} select pg_reload_conf();`",
        )
    tables = [table.name for table in facts.tables if not table.is_vacuumed]
    if tables:
        alter = " ".join(f"alter table {facts.namespace}.{name} reset (autovacuum_enabled);" for name in tables)
        yield fault("autovacuum", f"it is switched off for {listed(tables)}: dead rows stay there", f"`{alter}`")
    if not off and not tables:
        yield ok("autovacuum", "on, for all of our tables")


def _is_bloated(table: TableFacts) -> bool:
    return table.dead >= DEAD_MIN and table.dead > table.live / 2


def _bloated(facts: PostgresFacts, table: TableFacts) -> Finding:
    vacuumed = "never" if table.vacuumed_at is None else f"last at {table.vacuumed_at:%Y-%m-%d %H:%M:%S} UTC"
    return warning(
        "bloat",
        f"{table.name} has about {table.dead:,} dead rows beside {table.live:,} live ones; vacuumed {vacuumed}",
        f"end long transactions first, then `vacuum (analyze) {facts.namespace}.{of_sql(table.name)};`",
    )


def _freezing(facts: PostgresFacts) -> Iterator[Finding]:
    most = int(facts.settings["autovacuum_freeze_max_age"].value)
    old = max(facts.tables, key=lambda table: table.frozen_age, default=None)
    if old is None or old.frozen_age <= most * 1.5:
        return
    told = fault if old.frozen_age > WRAPAROUND * 0.75 else warning
    yield told(
        "freezing",
        f"{old.name} was not frozen for {old.frozen_age:,} transactions, although autovacuum should at {most:,}: at "
        f"about {WRAPAROUND:,} the server takes no more writes",
        f"end what keeps old rows in sight, then `vacuum (freeze) {facts.namespace}.{of_sql(old.name)};`",
    )
