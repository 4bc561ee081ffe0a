"""Pruning on request: all that is old, batch after batch, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matrixsched.rules.action import State
from matrixsched.rules.arguments import check_flag, check_function
from matrixsched.rules.retention import Keep, retention
from matrixsched.store.store import Store

BATCH = 500
"""Small, so that nobody waits for it; each is a transaction, so that what was pruned stays pruned if it is stopped."""
COUNT_MAX = 10_000
"""Where a dry run stops counting the actions of a state."""

Progress = Callable[[int], object]


async def prune(store: Store, keep: Keep, *, progress: Progress | None, dry_run: bool) -> Mapping[State, int]:
    """Delete, or in a dry run count, what ended longer ago than it is kept; how many by state."""
    check_flag("dry_run", dry_run)
    if progress is not None:
        check_function("progress", progress)
    do = store.transitions
    pruned: dict[State, int] = {}
    for state, age in retention(keep).items():
        if dry_run:
            pruned[state] = await store.run(do.count_old(state, keep=age, count_max=COUNT_MAX))
            continue
        pruned[state], gone = 0, BATCH
        while gone >= BATCH:
            gone = await store.run(do.prune_actions(state, keep=age, limit=BATCH))
            pruned[state] += gone
            if progress is not None and gone:
                progress(sum(pruned.values()))
    return pruned
