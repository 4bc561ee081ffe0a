"""The mutants that nothing notices, and why that does no harm; they stand in survivors.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hunting.behaviour import Verdict
from hunting.hot import DIALECTS, hot_statements, mutations

FILE = Path(__file__).with_name("survivors.toml")

Name = tuple[str, str, str]
"""Dialect, statement, what is different."""


def explanations() -> dict[Name, str]:
    """ValueError, when one is given twice."""
    found: dict[Name, str] = {}
    for entry in tomllib.loads(FILE.read_text())["survivor"]:
        for what in entry["what"]:
            name = (entry["dialect"], entry["statement"], what)
            if name in found:
                raise ValueError(f"{name} is explained twice")
            found[name] = entry["why"]
    return found


def explained_in_vain() -> list[Name]:
    """Explanations of mutants that there are not, or not any more."""
    there = {one.name for dialect in DIALECTS for one in mutations(dialect, hot_statements(dialect))}
    return [name for name in explanations() if name not in there]


@dataclass(slots=True)
class Judgement:
    explained: list[Verdict] = field(default_factory=list)
    unexplained: list[Verdict] = field(default_factory=list)
    caught_though_explained: list[Verdict] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.unexplained or self.caught_though_explained)


def judge(verdicts: Iterable[Verdict]) -> Judgement:
    known, judgement = explanations(), Judgement()
    for verdict in verdicts:
        is_explained = verdict.mutation.name in known
        if verdict.catch is None:
            (judgement.explained if is_explained else judgement.unexplained).append(verdict)
        elif is_explained:
            judgement.caught_though_explained.append(verdict)
    return judgement
