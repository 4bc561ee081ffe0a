"""A small program with its App at the top of a module, as users have it, and every place a stage can be in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from matrixsched import App, Context, Retry
from matrixsched.testing import Stage, stage

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


class Reminder(BaseModel):
    user_id: int
    text: str = "tea"


@dataclass
class Program:
    """What a user wrote, and what its handlers did."""

    app: App
    said: list[tuple[str, datetime]] = field(default_factory=list)
    broken: bool = False

    def tell(self, reminder: Reminder, context: Context) -> None:
        self.said.append((reminder.text, self.app.clock.now()))
        if self.broken:
            raise ConnectionError("the mail server is away")


@pytest.fixture
def program() -> Program:
    """Its database is real, and nowhere: whatever reached it would fail."""
    program = Program(App("postgresql://user:secret@nowhere.invalid/production"))

    @program.app.action("remind", retry=Retry(max_attempts=3, first_delay=10 * SECOND, jitter=0))
    async def remind(reminder: Reminder, context: Context) -> None:
        program.tell(reminder, context)

    @program.app.action("remind_from_thread")
    def remind_from_thread(reminder: Reminder, context: Context) -> None:
        program.tell(reminder, context)

    return program


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """The url of a stage: none, a file, a server."""
    if request.param == "memory":
        return None
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/stage.db"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


@pytest.fixture
def on(program: Program, place: str | None) -> Iterator[Stage]:
    """The program on its stage."""
    with stage(program.app, url=place) as staged:
        yield staged
