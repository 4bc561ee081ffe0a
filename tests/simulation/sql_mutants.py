"""Every small mistake in a statement, one at a time: a predicate, an alternative, a branch, a lock or a conflict clause
left out, a bound moved.

The text of a statement is changed at its tokens and otherwise left as it stands, so that a mutant differs from the
original in nothing else. A pause point inside of what is left out stays: whoever holds the statement there still can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from sqlglot import tokenize
from sqlglot.tokens import Token

BOUNDS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_PAUSE_POINT = re.compile(r"/\* pause point: \w+ \*/")
_END = {
    *("and", "or", "then", "order by", "group by", "limit", "returning", "for", "union", "window", "offset", "having"),
    *("join", "left", "inner", "cross", "on", "where", "set", "from", "else", "end", ",", ";", ")"),
}
_END_OF_ALTERNATIVE = _END - {"and"} | {"as", "asc", "desc", "nulls"}
_CONFLICT_RESOLUTIONS = {"abort", "fail", "ignore", "replace", "rollback"}
"""SQLite's `update or ignore` has no alternatives."""
_BEFORE_ALTERNATIVE = {*("(", ",", "where", "on", "when", "then", "else", "select", "by", "order by", "having", "or")}


@dataclass(frozen=True, slots=True)
class SqlMutant:
    what: str
    """What is different, in few words; no two of a statement are the same."""
    text: str


def mutants(text: str, dialect: str) -> list[SqlMutant]:
    """All of a statement."""
    tokens = tokenize(text, read="postgres" if dialect == "postgresql" else dialect)
    words = [token.text.lower() for token in tokens]
    found = [
        *_without_predicates(text, tokens, words),
        *_without_alternatives(text, tokens, words),
        *_without_conditions(text, tokens, words),
        *_with_moved_bounds(text, tokens, words),
        *_without_locks(text, tokens, words),
        *_without_conflict_clauses(text, tokens, words),
    ]
    return [SqlMutant(_numbered(one, found[:position]), one.text) for position, one in enumerate(found)]


def _numbered(mutant: SqlMutant, earlier: Sequence[SqlMutant]) -> str:
    again = sum(one.what == mutant.what for one in earlier)
    return f"{mutant.what} ({again + 1})" if again else mutant.what


def _without_predicates(text: str, tokens: Sequence[Token], words: Sequence[str]) -> Iterator[SqlMutant]:
    """Each operand of `and` left out; a predicate that stands alone is always true."""
    for begin, word in enumerate(words):
        if word not in ("where", "on", "and") or _is_between(words, begin) or _is_no_condition(words, begin):
            continue
        yield _replaced(text, tokens, begin + 1, _end_of_operand(words, begin + 1), "true")


def _without_alternatives(text: str, tokens: Sequence[Token], words: Sequence[str]) -> Iterator[SqlMutant]:
    """Each operand of `or` left out: it is never true."""
    for position, word in enumerate(words):
        if word != "or" or words[position + 1] in _CONFLICT_RESOLUTIONS:
            continue
        begin = _begin_of_alternative(words, position)
        if words[begin - 1] != "or":
            yield _replaced(text, tokens, begin, position, "false")
        yield _replaced(text, tokens, position + 1, _end_of_operand(words, position + 1, _END_OF_ALTERNATIVE), "false")


def _begin_of_alternative(words: Sequence[str], end: int) -> int:
    depth = 0
    for position in range(end - 1, -1, -1):
        word = words[position]
        if depth == 0 and word in _BEFORE_ALTERNATIVE:
            return position + 1
        depth += (word in (")", "end")) - (word in ("(", "case"))
    return 0


def _without_conditions(text: str, tokens: Sequence[Token], words: Sequence[str]) -> Iterator[SqlMutant]:
    """Each branch of a `case` left out, and the first operand of its condition."""
    for position, word in enumerate(words):
        if word != "when":
            continue
        begin, end = position + 1, _end_of_operand(words, position + 1, {"then"})
        if not _is_searched(words, position):
            yield _replaced(text, tokens, begin, end, "null")
            continue
        yield _replaced(text, tokens, begin, end, "false")
        first_end = _end_of_operand(words, begin)
        if words[first_end] != "or":
            yield _replaced(text, tokens, begin, first_end, "true")


def _is_searched(words: Sequence[str], when: int) -> bool:
    """`case when …`, not `case value when …`."""
    depth = 0
    for position in range(when - 1, -1, -1):
        word = words[position]
        if depth == 0 and word == "case":
            return words[position + 1] == "when"
        depth += (word in (")", "end")) - (word in ("(", "case"))
    return False


def _replaced(text: str, tokens: Sequence[Token], begin: int, end: int, by: str) -> SqlMutant:
    """`true`: it is left out of what must hold; else of what may."""
    first, last = tokens[begin].start, tokens[end - 1].end + 1
    kept = "".join(f" {point}" for point in _PAUSE_POINT.findall(text, first, last))
    what = f"{'without' if by == 'true' else 'never'} {_on_one_line(text[first:last])}"
    return SqlMutant(what, f"{text[:first]}{by}{kept}{text[last:]}")


def _is_between(words: Sequence[str], position: int) -> bool:
    return words[position] == "and" and "between" in words[max(0, position - 4) : position]


def _is_no_condition(words: Sequence[str], position: int) -> bool:
    """`on conflict`, `on true`, `where true`: nothing that could be left out."""
    return words[position + 1] in ("conflict", "true")


def _end_of_operand(words: Sequence[str], begin: int, ends: Set[str] = _END) -> int:
    depth = 0
    for position in range(begin, len(words)):
        word = words[position]
        if depth == 0 and word in ends:
            return position
        depth += (word == "(") + (word == "case") - (word == ")") - (word == "end" and depth > 0)
    return len(words)


def _with_moved_bounds(text: str, tokens: Sequence[Token], words: Sequence[str]) -> Iterator[SqlMutant]:
    for position, word in enumerate(words):
        if word in BOUNDS:
            token = tokens[position]
            around = f"{words[position - 1]} {BOUNDS[word]} {words[position + 1]}"
            yield SqlMutant(f"bound {around}", f"{text[: token.start]}{BOUNDS[word]}{text[token.end + 1 :]}")


def _without_locks(text: str, tokens: Sequence[Token], words: Sequence[str]) -> Iterator[SqlMutant]:
    """`for update …` left out, and `skip locked` alone."""
    for begin, word in enumerate(words):
        if word == "for" and words[begin + 1] in ("update", "no", "share", "key"):
            end = _end_of_lock(words, begin)
            yield _cut(text, tokens, begin, end)
        if word == "skip" and words[begin + 1] == "locked":
            yield _cut(text, tokens, begin, begin + 2)


def _end_of_lock(words: Sequence[str], begin: int) -> int:
    for position in range(begin + 1, len(words)):
        if words[position] in (")", ";", "limit", "order by", "offset", "for"):
            return position
    return len(words)


def _without_conflict_clauses(text: str, tokens: Sequence[Token], words: Sequence[str]) -> Iterator[SqlMutant]:
    for begin, word in enumerate(words):
        if word == "on" and words[begin + 1] == "conflict":
            depth, end = 0, len(words)
            for position in range(begin + 2, len(words)):
                depth += (words[position] == "(") - (words[position] == ")")
                if depth < 0 or depth == 0 and words[position] in ("returning", ";"):
                    end = position
                    break
            yield _cut(text, tokens, begin, end)


def _cut(text: str, tokens: Sequence[Token], begin: int, end: int) -> SqlMutant:
    first, last = tokens[begin].start, tokens[end - 1].end + 1
    return SqlMutant(f"without {_on_one_line(text[first:last])}", text[:first] + text[last:])


def _on_one_line(piece: str) -> str:
    return " ".join(_PAUSE_POINT.sub("", piece).split())
