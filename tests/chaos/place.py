"""The database of a run: how clients and workers reach it, and how the judge does."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Place:
    url: str
    """Straight to the database, for those who watch and judge."""
    proxied_url: str
    """Through the proxy, for those who are judged."""
    distributed: bool | None = None
    """The form in which its installation is made; None where nobody says."""

    @property
    def is_postgresql(self) -> bool:
        return self.url.startswith("postgresql")

    @property
    def path(self) -> Path:
        """Of the file, on SQLite."""
        return Path(urlsplit(self.url).path.removeprefix("/"))

    def ask(self, text: str) -> Rows:
        """The rows of one statement, which is written for PostgreSQL's names of tables."""
        return self.ask_together([text])[0]

    def ask_together(self, texts: list[str]) -> list[Rows]:
        """The rows of several questions to one and the same state of the database."""
        if self.is_postgresql:
            with psycopg.connect(self.url, connect_timeout=5) as connection:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                return [self._rows(connection.execute(text)) for text in texts]
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as connection:
            if len(texts) > 1:
                connection.execute("begin")
            return [connection.execute(text.replace("matrixsched.", "matrixsched_")).fetchall() for text in texts]

    @staticmethod
    def _rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Rows:
        return cursor.fetchall() if cursor.description else []
