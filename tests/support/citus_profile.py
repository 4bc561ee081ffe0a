"""What Citus 13 refuses of a read over several shards, as far as the text tells. Each rule names the tables of shards
that are asked so:

    recursive(text, SHARDED)    # skipped through by recursion, and not in one shard
    stranded(text, SHARDED)     # asked for each row of something that lies on no node: VALUES, a list, nothing at all
    limited(text, SHARDED)      # the first of them, or their number, in a join for each row of such a thing
    bare(text, SHARDED)         # a part that is carried out by itself and hands on rows without a column
    switched(text, SHARDED)     # asked on a condition that parameters alone decide: where it is false, no join is seen

What is bound to one shard, by the parameter, is sent to its node as it is: none of them is about that. But one that
writes and has an INSERT among its parts is carried out part by part, and what one part has found is handed on as rows:

    placed(text)                # by a place that was handed on nothing is written: of it only a text may be
    locked_beside(text)         # what is locked beside something that was joined is handed on in a wrong form
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from sqlglot import exp, parse_one

from support.one_shard import SCHEMA, conditions, is_bound


def recursive(text: str, sharded: Collection[str]) -> list[str]:
    skips = any(one.args.get("recursive") for one in _parsed(text).find_all(exp.With))
    return [table.name for table in _spread(text, sharded)] if skips else []


def stranded(text: str, sharded: Collection[str]) -> list[str]:
    return [
        table.name
        for table in _spread(text, sharded)
        for inner, block in _blocks_around(table)
        if _asked_as(inner, block) is None and _outer(inner) and not _reads_spread(block, sharded)
    ]


def limited(text: str, sharded: Collection[str]) -> list[str]:
    found = []
    for table in _spread(text, sharded):
        for inner, block in _blocks_around(table):
            if _asked_as(inner, block) is exp.Lateral and (inner.args.get("limit") or _counts(inner)):
                sources = {one.alias_or_name: one for one in _sources(block)}
                asked_of = [sources[name] for name in _outer(inner) if name in sources]
                found += [table.name for one in asked_of if not _is_spread(one, sharded)][:1]
    return found


def bare(text: str, sharded: Collection[str]) -> list[str]:
    return [
        table.name
        for table in _spread(text, sharded)
        for inner, block in _blocks_around(table)
        if _asked_as(inner, block) is exp.From and not inner.expressions and not _outer(inner)
    ]


def switched(text: str, sharded: Collection[str]) -> list[str]:
    return [
        table.name
        for table in _spread(text, sharded)
        for inner, block in list(_blocks_around(table))[:1]
        if _outer(inner) and any(_is_of_parameters(part) for part in conditions(inner))
    ]


def placed(text: str) -> list[str]:
    """The tables that are written by places, and the parts that hand places on."""
    if not _is_in_parts(text):
        return []
    changes = [one for one in _parsed(text).find_all(exp.Update, exp.Delete)]
    written = [one.this.name for one in changes if any(column.name == "ctid" for column in one.find_all(exp.Column))]
    return written + [part.alias for part in _parsed(text).find_all(exp.CTE) if _hands_on_places(part.this)]


def locked_beside(text: str) -> list[str]:
    if not _is_in_parts(text):
        return []
    locking = [one for one in _parsed(text).find_all(exp.Select) if one.args.get("locks")]
    return [next(_sources(one)).alias_or_name for one in locking if len(list(_sources(one))) > 1]


def _is_in_parts(text: str) -> bool:
    inserts = list(_parsed(text).find_all(exp.Insert))
    return any(one.find_ancestor(exp.CTE) is not None or one.args.get("with_") is not None for one in inserts)


def _hands_on_places(query: exp.Expression) -> bool:
    """Whether a column of it is a place that is not a text."""
    if not isinstance(query, exp.Select):
        return False
    for one in query.expressions:
        column = one.unalias()
        if not isinstance(column, exp.Column):
            continue
        sources = [source for source in _sources(query) if column.table in ("", source.alias_or_name)]
        if column.name == "ctid" and any(isinstance(source, exp.Table) and source.db == SCHEMA for source in sources):
            return True
        is_all = isinstance(column.this, exp.Star)
        inner = [source.this.unnest() for source in sources if isinstance(source, exp.Subquery | exp.Lateral)]
        if (is_all or column.name in ("ctid", "place")) and any(map(_hands_on_places, inner)):
            return True
    return False


@cache
def _parsed(text: str) -> exp.Expression:
    return parse_one(text, read="postgres")


def _spread(text: str, sharded: Collection[str]) -> Iterator[exp.Table]:
    """Its tables of shards that are not bound to one."""
    tables = _parsed(text).find_all(exp.Table)
    return (table for table in tables if _is_of(table, sharded) and not is_bound(table))


def _is_of(table: exp.Table, sharded: Collection[str]) -> bool:
    return table.db == SCHEMA and table.name in sharded


def _blocks_around(table: exp.Table) -> Iterator[tuple[exp.Select, exp.Select]]:
    """Each block that it is in, with the one around that."""
    inner = table.find_ancestor(exp.Select)
    while inner is not None and (block := inner.find_ancestor(exp.Select)) is not None:
        yield inner, block
        inner = block


def _asked_as(inner: exp.Select, block: exp.Select) -> type[exp.Expression] | None:
    """How the one is part of the other: joined for each row, read by itself, or, None, as a value."""
    way: type[exp.Expression] | None = None
    one = inner.parent
    while one is not block and one is not None:
        if isinstance(one, exp.CTE):
            return exp.CTE
        if isinstance(one, exp.Lateral):
            return exp.Lateral
        if isinstance(one, (exp.From, exp.Join)):
            way = exp.From
        one = one.parent
    return way


def _sources(block: exp.Select) -> Iterator[exp.Expression]:
    """What it reads from."""
    from_ = block.args.get("from_")
    read = [] if from_ is None else [from_.this]
    read += [join.this for one in (block, *read) for join in one.args.get("joins") or ()]
    yield from read


def _reads_spread(block: exp.Select, sharded: Collection[str]) -> bool:
    return any(_is_spread(one, sharded) for one in _sources(block))


def _is_spread(source: exp.Expression, sharded: Collection[str]) -> bool:
    if isinstance(source, exp.Table):
        return _is_of(source, sharded)
    inner = source.this.unnest() if isinstance(source, (exp.Subquery, exp.Lateral)) else None
    return isinstance(inner, exp.Select) and _reads_spread(inner, sharded)


def _outer(block: exp.Select) -> set[str]:
    """The names by which it speaks of what is around it."""
    kinds = (exp.Table, exp.Subquery, exp.Lateral, exp.Unnest, exp.Values)
    own = {one.alias_or_name for one in block.find_all(*kinds)}
    return {column.table for column in block.find_all(exp.Column) if column.table} - own


def _counts(block: exp.Select) -> bool:
    return not block.args.get("group") and any(one.find(exp.AggFunc) for one in block.expressions)


def _is_of_parameters(part: exp.Expression) -> bool:
    return part.find(exp.Placeholder) is not None and part.find(exp.Column, exp.Select) is None
