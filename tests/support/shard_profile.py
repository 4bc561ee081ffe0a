"""Whether a statement keeps to one shard: each table it reads or writes is bound by equality to a shard that was given.

    unbound(text, {"processing_queue": "shard_id"})        # the tables, as written there, that are not

A table is bound if its distributing column is equal to a parameter, to a column of rows that were given (`unnest`), or
to that column of another table that is bound; what common table expressions and sub-selects hand on keeps its bond.
Only what must hold counts: an alternative, a negation, a range, a list of shards bind nothing. Of what is inserted it
is the value that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp, parse_one

SCHEMA = "matrixsched"
Term = tuple[int, str]
"""A column of a source."""
Outputs = dict[str, bool]
"""The columns that a query hands on, in their order, and whether each is made of nothing but what was given."""
Named = dict[str, Outputs]
"""Common table expressions."""


@dataclass
class Source:
    """What a block reads under a name."""

    name: str
    table: str | None = None
    outputs: Outputs = field(default_factory=dict)
    """Of what is no table."""


@dataclass
class Block:
    """The sources of one SELECT, and those around it."""

    outer: Block | None = None
    sources: list[Source] = field(default_factory=list)
    equal: list[set[Term]] = field(default_factory=list)
    given: set[Term] = field(default_factory=set)

    def resolve(self, column: exp.Column, columns: Mapping[str, frozenset[str]]) -> Term | None:
        block: Block | None = self
        while block is not None:
            for source in block.sources:
                if column.table == source.name or (not column.table and _has(source, column.name, columns)):
                    return id(source), column.name
            block = block.outer
        return None

    def holds(self, term: Term) -> bool:
        """Whether it is equal to what was given."""
        reached, grown = {term}, True
        blocks = list(self._blocks())
        while grown:
            before = len(reached)
            for block in blocks:
                for terms in block.equal:
                    if terms & reached:
                        reached |= terms
            grown = len(reached) > before
        return any(reached & block.given for block in blocks)

    def terms(self) -> set[Term]:
        return self.given.union(*self.equal)

    def _blocks(self) -> Iterator[Block]:
        block: Block | None = self
        while block is not None:
            yield block
            block = block.outer


def _has(source: Source, name: str, columns: Mapping[str, frozenset[str]]) -> bool:
    if source.table is not None:
        return name in columns.get(source.table, ())
    return name in source.outputs


def unbound(text: str, distributed: Mapping[str, str], columns: Mapping[str, frozenset[str]]) -> list[str]:
    """Tables that are not bound to one value of their distributing column, as often as the statement names them so."""
    looking = _Looking(distributed, columns)
    looking.query(parse_one(text, read="postgres"), None, {})
    return looking.found


class _Looking:
    def __init__(self, distributed: Mapping[str, str], columns: Mapping[str, frozenset[str]]) -> None:
        self._distributed = distributed
        self._columns = columns
        self.found: list[str] = []

    def query(self, query: exp.Expression, outer: Block | None, named: Named) -> Outputs:
        named = dict(named)
        with_ = query.args.get("with_")
        for common in with_.expressions if with_ is not None else ():
            named[common.alias] = self.query(common.this, outer, named)
        match query:
            case exp.Subquery():
                return self.query(query.this, outer, named)
            case exp.SetOperation():
                left, right = self.query(query.left, outer, named), self.query(query.right, outer, named)
                return {name: left[name] and other for name, other in zip(left, right.values(), strict=True)}
            case exp.Select():
                return self._select(query, outer, named)
            case exp.Insert():
                return self._insert(query, outer, named)
            case exp.Update() | exp.Delete():
                return self._change(query, outer, named)
            case exp.Values():
                return {}
        raise AssertionError(f"no query: {type(query).__name__}")

    def _select(self, select: exp.Select, outer: Block | None, named: Named) -> Outputs:
        block = Block(outer)
        from_ = select.args.get("from_")
        self._read(block, select, [from_.this] if from_ is not None else [], named)
        return self._outputs(select.expressions, block, named)

    def _change(self, change: exp.Update | exp.Delete, outer: Block | None, named: Named) -> Outputs:
        block = Block(outer)
        from_ = change.args.get("from_")
        using = change.args.get("using") or []
        self._read(block, change, [change.this, *([from_.this] if from_ is not None else []), *using], named)
        return self._returned(change, block, named)

    def _insert(self, insert: exp.Insert, outer: Block | None, named: Named) -> Outputs:
        schema = insert.this
        table = schema.this if isinstance(schema, exp.Schema) else schema
        written = insert.expression
        values: list[bool] = []
        if isinstance(written, exp.Values):
            block = Block(outer)
            values = [self._is_given(value, block, named) for value in written.expressions[0].expressions]
        elif written is not None:
            values = list(self.query(written, outer, named).values())
        column = self._distributed.get(table.name)
        names = [name.name for name in schema.expressions] if isinstance(schema, exp.Schema) else []
        is_given = dict(zip(names, values, strict=False)).get(column, False) if column is not None else False
        if column is not None and not is_given:
            self.found.append(table.name)
        block = Block(outer, [Source(table.alias or table.name, table=table.name)])
        if column is not None and is_given:
            block.given.add((id(block.sources[0]), column))
        return self._returned(insert, block, named)

    def _returned(self, change: exp.Expression, block: Block, named: Named) -> Outputs:
        returning = change.args.get("returning")
        return self._outputs(returning.expressions, block, named) if returning is not None else {}

    # What is read.

    def _read(
        self,
        block: Block,
        query: exp.Expression,
        first: list[exp.Expression],
        named: Named,
    ) -> None:
        joins = [*(join for one in first for join in one.args.get("joins") or ()), *(query.args.get("joins") or ())]
        lateral: list[exp.Lateral] = []
        for one in [*first, *(join.this for join in joins)]:
            if isinstance(one, exp.Lateral):
                lateral.append(one)
                block.sources.append(Source(one.alias, outputs={}))
            else:
                block.sources.append(self._source(one, block.outer, named))
        for source in block.sources:
            self._trust(block, source)
        conditions = [query.args["where"].this] if query.args.get("where") is not None else []
        conditions += [join.args["on"] for join in joins if join.args.get("on") is not None and not join.side]
        for condition in conditions:
            for part in _parts(condition):
                self._equate(block, part, named)
        for join in joins:
            for shared in join.args.get("using") or ():
                block.equal.append({(id(source), shared.name) for source in block.sources})
        for join in joins:
            if join.side:
                self._equate_one_side(block, join, named)
        for one in lateral:
            (source,) = [source for source in block.sources if source.name == one.alias]
            source.outputs = self.query(one.this, block, named) if isinstance(one.this, exp.Subquery) else {}
            self._trust(block, source)
        self._inner(block, query, [*first, *joins], named)
        for source in block.sources:
            column = self._distributed.get(source.table or "")
            if column is not None and not block.holds((id(source), column)):
                self.found.append(source.table or "")

    def _source(self, one: exp.Expression, outer: Block | None, named: Named) -> Source:
        alias = one.alias_or_name
        if isinstance(one, exp.Table) and one.db == SCHEMA:
            return Source(alias, table=one.name)
        if isinstance(one, exp.Table) and one.name in named:
            return Source(alias, outputs=named[one.name])
        if isinstance(one, exp.Subquery):
            return Source(alias, outputs=self.query(one, outer, named))
        if isinstance(one, exp.Unnest) and not any(one.find_all(exp.Select)):
            return Source(alias, outputs={column.name: True for column in one.args["alias"].columns})
        return Source(alias, outputs={})

    def _trust(self, block: Block, source: Source) -> None:
        if source.table is not None:
            return
        block.given |= {(id(source), name) for name, is_given in source.outputs.items() if is_given}

    def _equate(self, block: Block, part: exp.Expression, named: Named) -> None:
        pairs: list[tuple[exp.Expression, exp.Expression]] = []
        if isinstance(part, exp.EQ):
            left, right = part.left.unnest(), part.right.unnest()
            if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
                pairs = list(zip(left.expressions, right.expressions, strict=True))
            else:
                pairs = [(left, right)]
        elif isinstance(part, exp.In) and isinstance(part.this, exp.Tuple) and part.args.get("query") is not None:
            # Rows that carry their shard, each with the rest of its key.
            outputs = self.query(part.args["query"], block, named)
            for column, is_given in zip(part.this.expressions, outputs.values(), strict=True):
                term = block.resolve(column, self._columns) if isinstance(column, exp.Column) else None
                if is_given and term is not None:
                    block.given.add(term)
        for left, right in pairs:
            for one, other in ((left, right), (right, left)):
                term = block.resolve(one, self._columns) if isinstance(one, exp.Column) else None
                if term is None:
                    continue
                other_term = block.resolve(other, self._columns) if isinstance(other, exp.Column) else None
                if other_term is not None:
                    block.equal.append({term, other_term})
                elif not isinstance(other, exp.Column) and self._is_given(other, block, named):
                    block.given.add(term)

    def _equate_one_side(self, block: Block, join: exp.Join, named: Named) -> None:
        """An outer join keeps every row of the one side: its condition binds the joined side alone."""
        assert join.side == "LEFT", join.side
        (joined,) = [source for source in block.sources if source.name == join.alias_or_name]
        apart = Block(block.outer, block.sources, list(block.equal), set(block.given))
        for part in _parts(join.args["on"]):
            self._equate(apart, part, named)
        block.given |= {term for term in apart.terms() if term[0] == id(joined) and apart.holds(term)}

    def _is_given(self, value: exp.Expression, block: Block, named: Named) -> bool:
        """Whether it is made of nothing but what was given."""
        value = value.unalias()
        match value:
            case exp.Column():
                term = block.resolve(value, self._columns)
                return term is not None and block.holds(term)
            case exp.Any() | exp.All():
                return False
            case exp.Subquery() | exp.Select():
                outputs = list(_Looking(self._distributed, self._columns).query(value, block, named).values())
                return len(outputs) == 1 and outputs[0]
            case exp.Placeholder():
                return True
            case exp.Null():
                return False
        parts = [part for part in value.iter_expressions() if not isinstance(part, exp.DataType | exp.Literal)]
        return bool(parts) and all(self._is_given(part, block, named) for part in parts)

    def _inner(
        self,
        block: Block,
        query: exp.Expression,
        read: Iterable[exp.Expression],
        named: Named,
    ) -> None:
        """Look into the sub-selects of its conditions and of what it hands on."""
        skipped = {id(one) for one in read} | {id(query.args.get("with_")), id(query.args.get("from_"))}
        joins = [one.args.get("on") for one in read if isinstance(one, exp.Join)]
        todo = [one for one in query.iter_expressions() if id(one) not in skipped] + [
            on for on in joins if on is not None
        ]
        while todo:
            one = todo.pop()
            if isinstance(one, exp.Subquery | exp.Select | exp.SetOperation):
                self.query(one, block, named)
            else:
                todo += one.iter_expressions()

    def _outputs(self, expressions: list[exp.Expression], block: Block, named: Named) -> Outputs:
        outputs: Outputs = {}
        for number, one in enumerate(expressions):
            stars = _starred(one, block)
            if stars is not None:
                for source in stars:
                    outputs |= {name: block.holds((id(source), name)) for name in self._names(source)}
            else:
                name = one.alias_or_name
                free = name if name and name not in outputs else f"{name}?{number}"
                outputs[free] = self._is_given(one, block, named)
        return outputs

    def _names(self, source: Source) -> Iterable[str]:
        if source.table is not None:
            return sorted(self._columns.get(source.table, ()))
        return source.outputs


def _starred(one: exp.Expression, block: Block) -> list[Source] | None:
    if isinstance(one, exp.Star):
        return block.sources
    if isinstance(one, exp.Column) and isinstance(one.this, exp.Star):
        return [source for source in block.sources if source.name == one.table]
    return None


def _parts(condition: exp.Expression) -> Iterator[exp.Expression]:
    """What must hold, each for itself."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _parts(condition.left)
        yield from _parts(condition.right)
    else:
        yield condition
