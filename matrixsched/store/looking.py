"""The part of the protocol that looks for actions among millions: a look is bounded, whatever it is for.

A filter that fits little must not read everything in one go. So a look goes through so many actions at most, and says
where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from matrixsched.rules.action import Action, State
from matrixsched.rules.names import NAME_BYTES_MAX
from matrixsched.store.transition import Row, Transition
from matrixsched.store.values import ActionFilter

EACH_MIN = 10
_HIGHEST = "\U0010ffff"
"""No text is above it: it is the last character there is, in the order of bytes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a look goes on: behind this action, by its key or, newest first, by when it ended."""

    shard: int
    id: str
    finished_at: datetime | None = None


BEGINNING = Place(-1, "")
LATEST = Place(2**31 - 1, "", datetime(9999, 12, 31, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Found:
    actions: Sequence[Action]
    goes_on: Place | None
    """None: there are no more."""


class Looking(Protocol):
    def page_bounded(
        self, wanted: ActionFilter, *, after: Place | None, limit: int, look_max: int
    ) -> Transition[Found]:
        """Those of the next `look_max` actions, about, that fit, at most `limit`: what ended in a state newest first,
        what lives of a template by shard and id, all others by id."""
        ...


def is_by_end(wanted: ActionFilter) -> bool:
    """Whether they come in the order in which they ended."""
    return wanted.state not in (None, State.LIVE)


def order_of(wanted: ActionFilter) -> Literal["by end", "by shard and id", "by id"]:
    """In which order they come: a place in one says nothing about another."""
    if is_by_end(wanted):
        return "by end"
    return "by shard and id" if is_of_template(wanted) else "by id"


def bounds_of(prefix: str | None) -> tuple[str, str]:
    """The least and the greatest text that begins so, of the length that ids have."""
    return prefix or "", (prefix or "") + _HIGHEST * (NAME_BYTES_MAX // len(_HIGHEST.encode()))


def is_of_template(wanted: ActionFilter) -> bool:
    """Whether the index of what lives of a template serves them."""
    return wanted.template is not None and wanted.state is State.LIVE


def each_of(wanted: ActionFilter, shards: int, limit: int, look_max: int) -> int:
    """How many are read of each shard: as many as a page may hold of it where all fit that are read."""
    share = max(look_max // shards, EACH_MIN)
    fits_all = wanted == ActionFilter(id_prefix=wanted.id_prefix)
    return min(share, limit) if fits_all else share


def goes_on(keys: Sequence[Row], limit: int, place: Callable[[Row], Place]) -> Place | None:
    """Behind the last one if there may be more, else where the look ended before all were seen."""
    fitting = [row for row in keys if not row["is_last"]]
    if len(fitting) == limit:
        return place(fitting[-1])
    return next((place(row) for row in keys if row["is_last"]), None)


def in_order(keys: Sequence[Row], actions: Sequence[Action]) -> list[Action]:
    """As the keys stand; what is gone since is left out."""
    found = {(action.meta.shard, action.id): action for action in actions}
    wanted = ((row["shard_id"], row["action_id"]) for row in keys if not row["is_last"])
    return [found[key] for key in wanted if key in found]
