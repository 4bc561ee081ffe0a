"""`matrixsched prune`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

import typer

from matrixsched.app import App
from matrixsched.config import Settings
from matrixsched.errors import MatrixSchedError
from matrixsched.ops.commands.toolkit import AsJson, Given, Yes, end_unconfirmed, is_confirmed, progress, run, taking
from matrixsched.ops.render import Count, Facts, say, show_facts
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.pruning import COUNT_MAX
from matrixsched.rules.action import State
from matrixsched.rules.durations import duration_text
from matrixsched.rules.retention import FINISHED

_SETTINGS = {state: f"keep_{state.value}" for state in FINISHED}


def register(cli: typer.Typer) -> None:
    cli.command()(prune)


@taking(*OF_THE_DATABASE, *_SETTINGS.values())
def prune(given: Given, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete actions that ended long ago, with their history. Workers do so by themselves, a little at a time."""
    app, keep = given.app(), _keep(given.reading.checked())
    counted = run(partial(_counted, app, keep))
    if not any(counted.values()):
        show_facts(_facts(counted), as_json=as_json)
        say(f"nothing to do: {_ages(keep)}. To prune more, keep less, as in `--keep-done 1h`.")
        return
    is_more = any(number >= COUNT_MAX for number in counted.values())
    total = sum(counted.values())
    plan = f"{total:,}{' or more' if is_more else ''} actions will be deleted for good: {_ages(keep)}."
    if not is_confirmed(plan, yes=yes):
        show_facts(_facts(counted), as_json=as_json)
        raise end_unconfirmed(given)
    gone: list[int] = [0]
    try:
        pruned = run(partial(_pruned, app, keep, None if is_more else total, gone.append))
    except (KeyboardInterrupt, MatrixSchedError):
        say(f"stopped half-way: {gone[-1]:,} actions are gone, the others stand. To go on: `{given.again('--yes')}`.")
        raise
    show_facts({state.value: number for state, number in pruned.items()}, as_json=as_json)
    say(f"{sum(pruned.values()):,} actions are gone. See what is left: `matrixsched actions list{given.options()}`.")


def _keep(settings: Settings) -> dict[State, timedelta]:
    return {state: getattr(settings, name) for state, name in _SETTINGS.items()}


async def _counted(app: App, keep: Mapping[State, timedelta]) -> Mapping[State, int]:
    async with app:
        return await app.prune(keep, dry_run=True)


async def _pruned(
    app: App, keep: Mapping[State, timedelta], total: int | None, note: Callable[[int], object]
) -> Mapping[State, int]:
    """Prune all of it; `note` is told how many are gone so far."""
    async with app:
        with progress("prune", total) as told:
            return await app.prune(keep, progress=lambda gone: (note(gone), told(gone)))


def _facts(numbers: Mapping[State, int]) -> Facts:
    return {state.value: Count(number, COUNT_MAX) for state, number in numbers.items()}


def _ages(keep: Mapping[State, timedelta]) -> str:
    return ", ".join(f"{state.value} for {duration_text(age)}" for state, age in keep.items()) + " are kept"
