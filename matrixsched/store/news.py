"""What a wake-up is of. It only shortens a rest: whoever cannot tell says ANYTHING, and whoever missed it finds out."""

from __future__ import annotations

from enum import Flag, auto


class News(Flag):
    ACTIONS = auto()
    """Actions, or what lets them go: limits, templates, semaphores."""
    QUEUES = auto()
    """Tasks of typed queues, or what was set for them."""
    ANYTHING = ACTIONS | QUEUES


def news_of(payload: str) -> News:
    """From what a database's notification says; older releases say nothing there."""
    return {"actions": News.ACTIONS, "queues": News.QUEUES}.get(payload, News.ANYTHING)
