"""What is about many shards is asked of one after the other, always in the same order: lest two wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from matrixsched.store.transition import Row

T = TypeVar("T")


def by_shard(values: Iterable[T], shard_of: Callable[[T], int]) -> Iterator[tuple[int, list[T]]]:
    """Those of each shard, the lowest first; of each shard in the order in which they came."""
    for shard, found in groupby(sorted(values, key=shard_of), key=shard_of):
        yield shard, list(found)


def rows_by_shard(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    return by_shard(rows, _shard)


def _shard(row: Row) -> int:
    shard: int = row["shard_id"]
    return shard
