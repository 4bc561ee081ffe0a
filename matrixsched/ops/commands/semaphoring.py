"""`matrixsched semaphores`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from matrixsched.errors import WrongUse
from matrixsched.ops import changes, semaphores
from matrixsched.ops.commands.toolkit import (
    AsJson,
    Given,
    Yes,
    carry_out,
    end_unconfirmed,
    is_confirmed,
    run,
    taking,
    text_option,
)
from matrixsched.ops.reading import read_duration
from matrixsched.ops.render import Count, as_argument, differences, say, show_facts, show_rows, show_sections
from matrixsched.ops.semaphores import COUNT_MAX, Crowd, Standing
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.rules.names import check_name
from matrixsched.rules.semaphore import (
    ACTIVE_DEFAULT,
    Semaphore,
    Task,
    TaskState,
    changed_semaphore,
    check_hold_for,
    check_semaphore_key,
    usual_try_release,
)
from matrixsched.semaphores import BATCH, PAGE_MAX

commands = typer.Typer(
    help="See which tasks may be active, who waits for that, and change it while they run.", no_args_is_help=True
)

NAMED_MAX = 5
"""So many tasks are named in a sentence; the table shows all."""


def register(cli: typer.Typer) -> None:
    cli.add_typer(commands, name="semaphores")


Key = Annotated[str, typer.Argument(metavar="KEY", help="The semaphore's key.")]


@commands.command("list")
@taking(*OF_THE_DATABASE)
def list_semaphores(
    given: Given,
    counts: Annotated[
        bool, typer.Option("--counts", help="How many hold, were asked, and wait (up to 10,000); a statement for each.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="How many at most.")] = 100,
    after: Annotated[str | None, text_option("KEY", "Go on after this one, as the page before says.")] = None,
    as_json: AsJson = False,
) -> None:
    """The semaphores by key: how many may be active, how many of them be asked to make room, and for how long."""
    app, begin = given.app(), "" if after is None else check_name("after", after)
    if counts:
        standings = run(partial(semaphores.counted, app, after=begin, limit=limit))
        keys, rows = [one.semaphore.key for one in standings], [one.facts for one in standings]
    else:
        found = run(partial(semaphores.listed, app, after=begin, limit=limit))
        keys, rows = [one.key for one in found], [semaphores.settings_facts(one) for one in found]
    show_rows(rows, as_json=as_json)
    if len(keys) == limit:
        say(f"there may be more: `{given.again('--after', keys[-1])}`.")
    elif keys:
        say(f"that is all. To see who holds and who waits: `matrixsched semaphores show{given.options()} KEY`.")
    else:
        where = "there is no semaphore" if after is None else "no more semaphores"
        say(f"{where}. To create one: `matrixsched semaphores set{given.options()} KEY --active 1000`.")


@commands.command("show")
@taking(*OF_THE_DATABASE)
def show_semaphore(
    given: Given,
    key: Key,
    holders: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="So many holders, the most important first.")] = 10,
    waiting: Annotated[
        int, typer.Option(min=1, max=PAGE_MAX, help="So many of those that wait, the most important first.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """One semaphore as it stands: counts (up to 10,000 of those that wait), holders, and who is next."""
    found = run(partial(semaphores.crowd, given.app(), key, holders=holders, waiting=waiting))
    show_sections(found.sections, as_json=as_json)
    say(_next_move(given, found))


@commands.command("set")
@taking(*OF_THE_DATABASE)
def set_semaphore(
    given: Given,
    key: Key,
    active: Annotated[
        int | None, typer.Option(help="How many may be active; at first: 1000.", show_default=False)
    ] = None,
    try_release: Annotated[
        int | None,
        typer.Option(
            help="How many of them, the least important, may be asked to make room; at first: 900, or all.",
            show_default=False,
        ),
    ] = None,
    hold_for: Annotated[
        str | None, text_option("DURATION", "A place that is not renewed for so long is lost, as in 10m.")
    ] = None,
    for_good: Annotated[bool, typer.Option("--for-good", help="Places are held until they are released.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Change a semaphore that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a semaphore, or change what is given of one. With fewer places holders are asked, and nobody loses one."""
    app = given.app()
    check_semaphore_key(key)
    if hold_for is not None and for_good:
        raise WrongUse("--hold-for and --for-good are both given: choose one")
    duration = None if hold_for is None else check_hold_for(read_duration("--hold-for", hold_for), "--hold-for")
    before = run(partial(semaphores.standing_or_none, app, key))
    if before is None:
        places = ACTIVE_DEFAULT if active is None else active
        asked = usual_try_release(places) if try_release is None else try_release
        wanted = Semaphore(key=key, active=places, try_release=asked, hold_for=duration)
        found = carry_out(app, lambda operator: changes.create_semaphore(operator, wanted))
        done = "created" if found.semaphore == wanted else "somebody else has just created it otherwise"
    else:
        if active is None and try_release is None and duration is None and not for_good:
            raise WrongUse(
                f"the semaphore {key!r} exists, and nothing is given that shall be changed: name it, as in --active 100"
            )
        wanted = changed_semaphore(before.semaphore, active, try_release, duration, holds_for_good=for_good)
        if wanted == before.semaphore:
            show_facts(before.facts, as_json=as_json)
            say(f"nothing to do: it is so already. See it: `{_command(given, 'show', key)}`.")
            return
        if not is_confirmed(_plan(before, wanted), yes=yes):
            show_facts(before.facts, as_json=as_json)
            raise end_unconfirmed(given)
        change = partial(changes.update_semaphore, hold_for=duration, holds_for_good=for_good)
        found = carry_out(app, lambda operator: change(operator, key, active=active, try_release=try_release))
        done = "changed"
    show_facts(found.facts, as_json=as_json)
    say(f"{done}. See who holds and who waits: `{_command(given, 'show', key)}`.")


@commands.command("release")
@taking(*OF_THE_DATABASE)
def release_tasks(
    given: Given,
    key: Key,
    tasks: Annotated[list[str], typer.Argument(metavar="TASK...", help="The ids of the tasks.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let tasks go by force, whether they hold places or wait: all, or none if one is unknown. They are not told."""
    app, ids = given.app(), list(dict.fromkeys(tasks))
    if len(ids) > BATCH:
        raise WrongUse(f"{len(ids):,} tasks are named, but {BATCH:,} at a time are released: name fewer")
    found = run(partial(semaphores.tasks, app, key, ids))
    if not is_confirmed(_loss(key, found), yes=yes):
        show_rows([semaphores.task_facts(task) for task in found], as_json=as_json)
        raise end_unconfirmed(given)
    released = carry_out(app, lambda operator: changes.release_tasks(operator, key, ids))
    show_rows([semaphores.task_facts(task) for task in found], as_json=as_json)
    say(f"{released:,} released. See who holds and who waits: `{_command(given, 'show', key)}`.")


def _plan(before: Standing, wanted: Semaphore) -> str:
    was = before.semaphore
    told = differences(semaphores.settings_facts(was), semaphores.settings_facts(wanted))
    plan = f"the semaphore {was.key!r} will be changed: {told}."
    surplus = before.counts.held - wanted.active
    if wanted.active < was.active and surplus > 0:
        plan += f" {before.counts.held:,} hold places: at least {surplus:,} of them, the least important, will be asked"
        plan += " to release theirs, and keep them until they do."
    return plan


def _loss(key: str, tasks: list[Task]) -> str:
    named = ", ".join(f"{task.id!r} ({_STATES[task.state]})" for task in tasks[:NAMED_MAX])
    others = f" and {len(tasks) - NAMED_MAX:,} more" if len(tasks) > NAMED_MAX else ""
    return f"of the semaphore {key!r} will be released: {named}{others}. Whoever works on them is not told."


_STATES = {
    TaskState.WAITING: "waits",
    TaskState.ACQUIRED: "holds a place",
    TaskState.ASKED: "holds a place, was asked to release it",
}


def _next_move(given: Given, found: Crowd) -> str:
    key, counts = found.standing.semaphore.key, found.standing.counts
    if len(found.waiting) < min(counts.waiting, PAGE_MAX):
        return (
            f"{Count(counts.waiting, COUNT_MAX)} wait. To see more: `{_with_more(given, '--waiting', found.waiting)}`."
        )
    if len(found.holders) < min(counts.held, PAGE_MAX):
        return f"{counts.held:,} hold places. To see more: `{_with_more(given, '--holders', found.holders)}`."
    if counts.held or counts.waiting:
        return f"that is all. To let one go by force: `{_command(given, 'release', key)} TASK`."
    return f"nobody holds or waits. To change it: `{_command(given, 'set --active N', key)}`."


def _with_more(given: Given, option: str, shown: list[Task]) -> str:
    return given.again(option, str(min(PAGE_MAX, 10 * max(1, len(shown)))))


def _command(given: Given, verb: str, key: str) -> str:
    return f"matrixsched semaphores {verb}{given.options()} {as_argument(key)}"
