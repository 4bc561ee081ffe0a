"""What a wake-up is of. It only shortens a rest: whoever cannot tell says ANYTHING, and whoever missed it finds out."""

from __future__ import annotations

from enum import Flag, auto
from typing import Protocol


class News(Flag):
    ACTIONS = auto()
    """Actions, or what lets them go: limits, templates, semaphores."""
    QUEUES = auto()
    """Tasks of typed queues, or what was set for them."""
    ANYTHING = ACTIONS | QUEUES


class Hearing(Protocol):
    """Who is told."""

    def __call__(self, news: News, shard: int | None = None) -> None:
        """With `shard`, it is of new actions in that one, and of nothing else."""
        ...


def tell(hearing: Hearing, payload: str) -> None:
    """Pass on what a database's notification says; older releases say nothing there."""
    kind, _, shard = payload.partition(":")
    news = {"actions": News.ACTIONS, "queues": News.QUEUES}.get(kind, News.ANYTHING)
    hearing(news, int(shard) if shard.isdecimal() else None)
