"""`matrixsched limits`."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

import typer

from matrixsched.errors import WrongUse
from matrixsched.limits import PAGE_MAX
from matrixsched.ops import changes, limits
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
from matrixsched.ops.limits import Standing
from matrixsched.ops.reading import read_duration, read_time
from matrixsched.ops.render import as_argument, say, show_facts, show_rows
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.rules.limits import check_pool
from matrixsched.rules.rates import Rate, parse_rate

commands = typer.Typer(help="See how fast the whole fleet may go, and change it while it runs.", no_args_is_help=True)


def register(cli: typer.Typer) -> None:
    cli.add_typer(commands, name="limits")


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="global, handler:NAME, template:NAME, key:KEY, or key:* for every key without its own."
    ),
]


@commands.command("list")
@taking(*OF_THE_DATABASE)
def list_limits(
    given: Given,
    keys: Annotated[bool, typer.Option("--keys", help="Those of single keys too; they may be many.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="How many at most.")] = 100,
    after: Annotated[str | None, text_option("NAME", "Go on after this one, as the page before says.")] = None,
    as_json: AsJson = False,
) -> None:
    """The limits in force: rate, pool, how many may start this very moment, and what was told to slow down."""
    listing = run(partial(limits.listed, given.app(), keys=keys, after=after or "", limit=limit))
    found = listing.standings
    show_rows([one.row for one in found], as_json=as_json)
    if len(found) == limit:
        say(f"there may be more: `{given.again('--after', found[-1].limit.name)}`.")
    elif listing.keys and not keys:
        say(f"{listing.keys_said}: `{given.again('--keys')}`.")
    elif found:
        say(f"that is all. To change one: `matrixsched limits set{given.options()} NAME RATE`.")
    else:
        say(f"nothing is limited. To limit all together: `matrixsched limits set{given.options()} global 10000/min`.")


@commands.command("show")
@taking(*OF_THE_DATABASE)
def show_limit(given: Given, name: Name, as_json: AsJson = False) -> None:
    """One limit as it stands; a key without a rate of its own has that of key:*."""
    found = run(partial(limits.standing, given.app(), name))
    show_facts(found.facts, as_json=as_json)
    if found.is_slowed:
        say(f"it was told to slow down. To let it go on: `{_command(given, 'resume', name)}`.")
    else:
        say(f"to change it: `matrixsched limits set{given.options()} NAME RATE`.")


@commands.command("set")
@taking(*OF_THE_DATABASE)
def set_limit(
    given: Given,
    name: Name,
    rate: Annotated[str, typer.Argument(metavar="RATE", help="So many in a time, as in 10000/min, 5/s or 7/100ms.")],
    pool: Annotated[int, typer.Option(help="How many may be saved up while nothing is due, to go at once.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Change a limit that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set a limit, or change it. It holds at once, for all workers on all machines."""
    app, wanted = given.app(), parse_rate(rate)
    check_pool(pool)
    before = run(partial(limits.standing_or_none, app, name))
    if before is not None and _differs(before, wanted, pool):
        was = before.limit
        plan = f"{name} is {was.rate} with a pool of {was.pool:,} and will be {wanted} with a pool of {pool:,}."
        _confirm(given, plan, before, yes=yes, as_json=as_json)
    carry_out(app, lambda operator: changes.set_limit(operator, name, wanted, pool=pool))
    found = run(partial(limits.standing, app, name))
    show_facts(found.facts, as_json=as_json)
    slowed = f", but it was told to slow down: {found.pace}" if found.is_slowed else ""
    say(f"set{slowed}. See all: `matrixsched limits list{given.options()}`.")


@commands.command("remove")
@taking(*OF_THE_DATABASE)
def remove_limit(given: Given, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Take a limit away, with what it was told: what it held back starts at once."""
    app = given.app()
    before = run(partial(limits.standing, app, name))
    plan = f"{name} ({before.pace}) will be removed: what it holds back starts at once."
    _confirm(given, plan, before, yes=yes, as_json=as_json)
    carry_out(app, lambda operator: changes.remove_limit(operator, name))
    show_facts(before.facts, as_json=as_json)
    say(f"removed. See what is left: `matrixsched limits list{given.options()}`.")


@commands.command("slow-down")
@taking(*OF_THE_DATABASE)
def slow_down(
    given: Given,
    name: Name,
    duration: Annotated[str | None, text_option("DURATION", "For so long, as in 5m.", "--for")] = None,
    until: Annotated[str | None, text_option("TIME", "Until then (ISO 8601).")] = None,
    rate: Annotated[str | None, text_option("RATE", "To this rate; default: nothing starts at all.")] = None,
    reason: Annotated[str | None, text_option("TEXT", "Why, for whoever looks.")] = None,
    as_json: AsJson = False,
) -> None:
    """Close a limit for a time, or slow it down to a rate. It never shortens or weakens what was told before."""
    app, end = given.app(), _end(duration, until)
    slower = None if rate is None else parse_rate(rate)
    carry_out(app, lambda operator: changes.slow_down_limit(operator, name, end, rate=slower, reason=reason or ""))
    found = run(partial(limits.standing, app, name))
    show_facts(found.facts, as_json=as_json)
    say(f"{name} is {found.pace}. To end that: `{_command(given, 'resume', name)}`.")


@commands.command("resume")
@taking(*OF_THE_DATABASE)
def resume_limit(given: Given, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """End a slow-down early."""
    app = given.app()
    before = run(partial(limits.standing, app, name))
    if not before.is_slowed:
        show_facts(before.facts, as_json=as_json)
        say(f"nothing to do: {name} is not slowed down. See all: `matrixsched limits list{given.options()}`.")
        return
    _confirm(given, f"{name} ({before.pace}) will go on at once.", before, yes=yes, as_json=as_json)
    carry_out(app, lambda operator: changes.resume_limit(operator, name))
    after = run(partial(limits.standing, app, name))
    show_facts(after.facts, as_json=as_json)
    say(f"{name} goes on {after.pace}. See all: `matrixsched limits list{given.options()}`.")


def _end(duration: str | None, until: str | None) -> datetime | timedelta:
    if (duration is None) == (until is None):
        raise WrongUse("say how long, either by --for or by --until")
    return read_time("--until", str(until)) if duration is None else read_duration("--for", duration, zero=False)


def _differs(before: Standing, rate: Rate, pool: int) -> bool:
    return before.limit.rate is not None and (before.limit.rate, before.limit.pool) != (rate, pool)


def _confirm(given: Given, plan: str, before: Standing, *, yes: bool, as_json: bool) -> None:
    if not is_confirmed(plan, yes=yes):
        show_facts(before.facts, as_json=as_json)
        raise end_unconfirmed(given)


def _command(given: Given, verb: str, name: str) -> str:
    return f"matrixsched limits {verb}{given.options()} {as_argument(name)}"
