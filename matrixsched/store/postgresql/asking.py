"""How transitions ask PostgreSQL: by the name of a statement, with the time of the decision."""

from __future__ import annotations

from collections.abc import Mapping

from matrixsched.clock import Clock
from matrixsched.store.statements import Statement, load
from matrixsched.store.transition import Ask


class PostgresAsking:
    def __init__(self, installation: str, *, clock: Clock | None = None) -> None:
        """`clock` replaces the database's own; for tests."""
        self._statements = self._load(installation)
        self._clock = clock

    def _load(self, installation: str) -> Mapping[str, Statement]:
        return load("postgresql", installation)

    def _ask(self, name: str, **parameters: object) -> Ask:
        parameters["now"] = None if self._clock is None else self._clock.now()
        return Ask(self._statements[name], parameters)
