"""Whether a statement is about one shard, as an engine must see it that looks at each table by itself:

    strays(text, SHARDED)     # its tables that are not bound to the parameter :shard_id, as often as it names them so
    unjoined(text, SHARDED)   # of those, the ones that are read beside others and not joined with them by the shard

A table is bound if, where it is named, its shard is equal to the parameter itself; what is inserted bears that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from sqlglot import exp, parse_one

SCHEMA = "matrixsched"
SHARD = "shard_id"
VOLATILE = ("set_config", "pg_notify", "random", "gen_random_uuid", "clock_timestamp", "nextval", "timeofday")


def strays(text: str, sharded: Collection[str]) -> list[str]:
    return [table.name for table in _tables(_parsed(text), sharded) if not is_bound(table)]


def unjoined(text: str, sharded: Collection[str]) -> list[str]:
    tables = [table for table in _tables(_parsed(text), sharded) if not is_bound(table)]
    return [table.name for table in tables if _has_company(table, sharded) and not _is_joined(table)]


def writes(text: str) -> set[str]:
    """The tables that it writes to, or locks rows of."""
    tree = _parsed(text)
    changed = {_target(one).name for one in tree.find_all(exp.Insert, exp.Update, exp.Delete)}
    locked = {table.name for one in tree.find_all(exp.Lock) for table in one.parent.find_all(exp.Table) if table.db}
    return changed | locked


def tables_of(text: str) -> set[str]:
    return {table.name for table in _parsed(text).find_all(exp.Table) if table.db == SCHEMA}


def volatile_in(text: str) -> set[str]:
    names = {call.name.lower() for call in _parsed(text).find_all(exp.Anonymous)}
    return {name for name in VOLATILE if name in names or f"{name}(" in text}


def choices_in(text: str) -> list[str]:
    """What it says in CASE and COALESCE."""
    return [one.sql("postgres").lower() for one in _parsed(text).find_all(exp.Case, exp.Coalesce)]


def columnless(text: str) -> list[str]:
    """Its common table expressions that hand on rows without columns."""
    read = [one for one in _parsed(text).find_all(exp.CTE) if isinstance(one.this, exp.Select)]
    return [one.alias for one in read if not one.this.expressions]


@cache
def _parsed(text: str) -> exp.Expression:
    return parse_one(text, read="postgres")


def _tables(tree: exp.Expression, sharded: Collection[str]) -> Iterator[exp.Table]:
    return (table for table in tree.find_all(exp.Table) if table.db == SCHEMA and table.name in sharded)


def _target(change: exp.Expression) -> exp.Table:
    target = change.this.this if isinstance(change.this, exp.Schema) else change.this
    assert isinstance(target, exp.Table)
    return target


def _scope(one: exp.Expression) -> exp.Expression | None:
    return one.find_ancestor(exp.Select, exp.Insert, exp.Update, exp.Delete)


def is_bound(table: exp.Table) -> bool:
    scope = _scope(table)
    if isinstance(scope, exp.Insert):
        return all(_is_parameter(value) for value in _inserted(scope))
    return any(_is_parameter(other) for other in _equal_to(table, scope))


def _is_joined(table: exp.Table) -> bool:
    return any(isinstance(other, exp.Column) and other.name == SHARD for other in _equal_to(table, _scope(table)))


def _has_company(table: exp.Table, sharded: Collection[str]) -> bool:
    """Whether another table of this kind is read before it in the same block, or around it."""
    scope = _scope(table)
    first = next(_read_in(scope, sharded), None)
    if first is not table:
        return True
    while (scope := _scope(scope) if scope is not None else None) is not None:
        if next(_read_in(scope, sharded), None) is not None and not scope.find_ancestor(exp.CTE):
            return True
    return False


def _read_in(scope: exp.Expression | None, sharded: Collection[str]) -> Iterator[exp.Table]:
    """What it names itself, without what is in sub-selects and common table expressions."""
    return (table for table in _tables(scope, sharded) if _scope(table) is scope) if scope is not None else iter(())


def _equal_to(table: exp.Table, scope: exp.Expression | None) -> Iterator[exp.Expression]:
    """What the shard of this table must be equal to where it is named."""
    for part in conditions(scope):
        if not isinstance(part, exp.EQ):
            continue
        for one, other in ((part.left, part.right), (part.right, part.left)):
            if isinstance(one, exp.Column) and one.name == SHARD and one.table in ("", table.alias_or_name):
                yield other


def conditions(scope: exp.Expression | None) -> Iterator[exp.Expression]:
    if scope is None:
        return
    where, from_ = scope.args.get("where"), scope.args.get("from_")
    read = [*(scope.args.get("using") or ()), *([] if from_ is None else [from_.this])]
    joins = [join for one in (scope, *read) for join in one.args.get("joins") or ()]
    given = [*([] if where is None else [where.this]), *(join.args.get("on") for join in joins)]
    for condition in given:
        if condition is not None:
            yield from _parts(condition)


def _parts(condition: exp.Expression) -> Iterator[exp.Expression]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _parts(condition.left)
        yield from _parts(condition.right)
    else:
        yield condition


def _inserted(insert: exp.Insert) -> Iterator[exp.Expression]:
    """What is inserted as the shard, by each query that gives rows."""
    number = [column.name for column in insert.this.expressions].index(SHARD)
    for rows in _givers(insert.expression):
        yield rows.expressions[number].unalias()


def _givers(given: exp.Expression) -> Iterator[exp.Expression]:
    if isinstance(given, exp.SetOperation):
        yield from _givers(given.left)
        yield from _givers(given.right)
    elif isinstance(given, exp.Values):
        yield from given.expressions
    else:
        yield given


def _is_parameter(value: exp.Expression) -> bool:
    """The parameter :shard_id, as a number."""
    value = value.unnest()
    return isinstance(value, exp.Cast) and isinstance(value.this, exp.Placeholder) and value.this.name == SHARD
