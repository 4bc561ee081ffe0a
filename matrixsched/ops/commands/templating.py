"""`matrixsched templates` and `matrixsched quota`."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

import typer

from matrixsched.errors import MatrixSchedError, WrongUse
from matrixsched.ops import changes, templates
from matrixsched.ops.commands.toolkit import (
    AsJson,
    Given,
    Yes,
    carry_out,
    end_unconfirmed,
    is_confirmed,
    progress,
    run,
    taking,
    text_option,
)
from matrixsched.ops.reading import read_duration, read_time
from matrixsched.ops.render import Count, as_argument, differences, say, show_facts, show_rows
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.ops.templates import COUNT_MAX, Standing
from matrixsched.rules.durations import parse_duration
from matrixsched.rules.templates import Distribution, TemplateChange
from matrixsched.templates import check_change, check_quota_change

commands = typer.Typer(
    help="See campaigns, whose messages share what may be sent, and change them while they run.", no_args_is_help=True
)
quota = typer.Typer(help="See how what may be sent is shared among templates, and change it.", no_args_is_help=True)


def register(cli: typer.Typer) -> None:
    cli.add_typer(commands, name="templates")
    cli.add_typer(quota, name="quota")


Name = Annotated[str, typer.Argument(metavar="NAME", help="The template's name.")]


@commands.command("list")
@taking(*OF_THE_DATABASE)
def list_templates(given: Given, as_json: AsJson = False) -> None:
    """All templates, with how many of their messages are not finished; counts stop at 10,000."""
    found = run(partial(templates.listed, given.app()))
    show_rows([one.row for one in found], as_json=as_json)
    if found:
        say(f"that is all. To change one: `matrixsched templates set{given.options()} NAME`.")
    else:
        say(f"there is no template. To create one: `matrixsched templates set{given.options()} NAME`.")


@commands.command("show")
@taking(*OF_THE_DATABASE)
def show_template(given: Given, name: Name, as_json: AsJson = False) -> None:
    """One template as it stands."""
    found = run(partial(templates.standing, given.app(), name))
    show_facts(found.row, as_json=as_json)
    if found.is_paused:
        say(f"it is paused {found.pause}. To let it go on: `{_command(given, 'resume', name)}`.")
    else:
        say(f"see its messages: `matrixsched actions list{given.options()} --template {as_argument(name)}`.")


@commands.command("set")
@taking(*OF_THE_DATABASE)
def set_template(
    given: Given,
    name: Name,
    distribution: Annotated[
        str | None,
        text_option("WORD", "When its messages have priority: uniform, morning, day, evening, or own by --window."),
    ] = None,
    window: Annotated[
        list[str] | None,
        text_option(
            "TIMES", "A part of the recipient's day, as in 08:00-12:00, or 22:00-06:00 over midnight; repeatable."
        ),
    ] = None,
    max_speed: Annotated[
        str | None, text_option("RATE", "Never faster than this, as in 100/min; none: as fast as others leave room.")
    ] = None,
    zone: Annotated[
        str | None, text_option("ZONE", "Of recipients that have none, as in Europe/Berlin; at first: UTC.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Its share beside others; at first: 1.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Change a template that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a template, or change what is given of one. It holds for all workers from the next window on."""
    app = given.app()
    change = check_change(distribution, window or None, max_speed, zone, weight)
    before = run(partial(templates.standing_or_none, app, name))
    if change.distribution is Distribution.OWN and not window and not (before and before.template.windows):
        raise WrongUse("--distribution own needs windows: give some, as in --window 08:00-12:00")
    if before is not None:
        if change == TemplateChange():
            raise WrongUse(f"the template {name!r} exists, and {_NOTHING_GIVEN}, as in --weight 2")
        told = differences(before.row, before.after(change).row)
        if not told:
            show_facts(before.row, as_json=as_json)
            say(f"nothing to do: it is so already. See all: `matrixsched templates list{given.options()}`.")
            return
        _confirm(given, f"the template {name!r} will be changed: {told}.", before, yes=yes, as_json=as_json)
    carry_out(
        app,
        lambda operator: changes.set_template(
            operator,
            name,
            distribution=distribution,
            windows=window or None,
            max_speed=max_speed,
            zone=zone,
            weight=weight,
        ),
    )
    found = run(partial(templates.standing, app, name))
    show_facts(found.row, as_json=as_json)
    say(f"{'created' if before is None else 'changed'}. See all: `matrixsched templates list{given.options()}`.")


@commands.command("pause")
@taking(*OF_THE_DATABASE)
def pause_template(
    given: Given,
    name: Name,
    duration: Annotated[
        str | None, text_option("DURATION", "Go on by itself after so long, as in 2h.", "--for")
    ] = None,
    until: Annotated[str | None, text_option("TIME", "Go on by itself then (ISO 8601).")] = None,
    as_json: AsJson = False,
) -> None:
    """Send nothing more of a template, at once. Its messages stay, and expire where they have an end."""
    app, end = given.app(), _end(duration, until)
    carry_out(app, lambda operator: changes.pause_template(operator, name, end))
    found = run(partial(templates.standing, app, name))
    show_facts(found.row, as_json=as_json)
    say(f"it is paused {found.pause}. To let it go on: `{_command(given, 'resume', name)}`.")


@commands.command("resume")
@taking(*OF_THE_DATABASE)
def resume_template(given: Given, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Let a paused template go on."""
    app = given.app()
    before = run(partial(templates.standing, app, name))
    if not before.is_paused:
        show_facts(before.row, as_json=as_json)
        say(f"nothing to do: it is not paused. See all: `matrixsched templates list{given.options()}`.")
        return
    plan = f"{_messages(before)} of the template {name!r} may be sent again."
    _confirm(given, plan, before, yes=yes, as_json=as_json)
    carry_out(app, lambda operator: changes.resume_template(operator, name))
    after = run(partial(templates.standing, app, name))
    show_facts(after.row, as_json=as_json)
    say(f"it goes on. See all: `matrixsched templates list{given.options()}`.")


@commands.command("stop")
@taking(*OF_THE_DATABASE)
def stop_template(given: Given, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Stop a campaign: cancel all messages of a template that wait, due or not. Attempts under way are not stopped."""
    app = given.app()
    before = run(partial(templates.standing, app, name))
    facts: dict[str, object] = {"template": name, "cancelled": 0}
    if not before.unfinished:
        show_facts(facts, as_json=as_json)
        say(f"nothing to do: no message of it waits. See it: `{_command(given, 'show', name)}`.")
        return
    plan = f"{_messages(before)} of the template {name!r} will be cancelled; attempts under way are not stopped."
    _confirm(given, plan, before, yes=yes, as_json=as_json)
    try:
        with progress("stop", before.unfinished if before.unfinished < COUNT_MAX else None) as told:

            def note(cancelled: int) -> None:
                facts["cancelled"] = cancelled
                told(cancelled)

            carry_out(app, lambda operator: changes.stop_template(operator, name, progress=note))
    except (KeyboardInterrupt, MatrixSchedError):
        show_facts(facts, as_json=as_json)
        say(f"stopped half-way: what is cancelled stays cancelled. To go on: `{given.again('--yes')}`.")
        raise
    show_facts(facts, as_json=as_json)
    say(f"done. What was under way, or held by others, is left: `{_command(given, 'show', name)}` shows how many.")


@commands.command("remove")
@taking(*OF_THE_DATABASE)
def remove_template(given: Given, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a template that has no messages left, and its limit."""
    app = given.app()
    before = run(partial(templates.standing, app, name))
    _confirm(given, f"the template {name!r} will be removed.", before, yes=yes, as_json=as_json)
    carry_out(app, lambda operator: changes.remove_template(operator, name))
    show_facts(before.row, as_json=as_json)
    say(f"removed. See what is left: `matrixsched templates list{given.options()}`.")


@quota.command("show")
@taking(*OF_THE_DATABASE)
def show_quota(given: Given, as_json: AsJson = False) -> None:
    """How what may be sent is shared: at which interval, and which part of it a template has at least."""
    show_facts(templates.quota_facts(run(partial(templates.settings, given.app()))), as_json=as_json)
    say(f"to change it: `matrixsched quota set{given.options()} --interval 30s`.")


@quota.command("set")
@taking(*OF_THE_DATABASE)
def set_quota(
    given: Given,
    interval: Annotated[str | None, text_option("DURATION", "How long a window is, as in 1m.")] = None,
    inside_share: Annotated[
        float | None, text_option("NUMBER", "The least part for messages at the right time of the day, as in 0.05.")
    ] = None,
    outside_share: Annotated[float | None, text_option("NUMBER", "The same for those at another time.")] = None,
    uniform_share: Annotated[
        float | None, text_option("NUMBER", "The same for templates that have no better time.")
    ] = None,
    inside_times_outside: Annotated[
        float | None, text_option("NUMBER", "Instead of --inside-share: so many times the outside share.")
    ] = None,
    spare: Annotated[str | None, text_option("WORD", "What nobody has a share of: leave it, or share it out.")] = None,
    morning: Annotated[str | None, text_option("TIMES", "When it is morning, as in 08:00-12:00.")] = None,
    day: Annotated[str | None, text_option("TIMES", "When it is day.")] = None,
    evening: Annotated[str | None, text_option("TIMES", "When it is evening.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change what is given. It holds for all workers from the next window on."""
    asked: dict[str, object] = {
        "interval": None if interval is None else parse_duration(interval, "--interval"),
        "inside_share": inside_share,
        "outside_share": outside_share,
        "uniform_share": uniform_share,
        "inside_times_outside": inside_times_outside,
        "spare": spare,
        "morning": morning,
        "day": day,
        "evening": evening,
    }
    wanted = {name: value for name, value in asked.items() if value is not None}
    if not wanted:
        raise WrongUse(f"{_NOTHING_GIVEN}, as in --interval 30s")
    if inside_share is not None and inside_times_outside is not None:
        raise WrongUse("--inside-share and --inside-times-outside are both given: choose one")
    app = given.app()
    settings = run(partial(templates.settings, app))
    before, after = templates.quota_facts(settings), templates.quota_facts(check_quota_change(**wanted)(settings))
    told = differences(before, after)
    if not told:
        show_facts(before, as_json=as_json)
        say(f"nothing to do: it is so already. See it: `matrixsched quota show{given.options()}`.")
        return
    if not is_confirmed(f"for all templates will be changed: {told}.", yes=yes):
        show_facts(before, as_json=as_json)
        raise end_unconfirmed(given)
    written = carry_out(app, lambda operator: changes.set_quota(operator, **wanted))
    show_facts(templates.quota_facts(written), as_json=as_json)
    say(f"changed, from the next window on. See it: `matrixsched quota show{given.options()}`.")


_NOTHING_GIVEN = "nothing is given that shall be changed: name it"


def _end(duration: str | None, until: str | None) -> datetime | timedelta | None:
    if duration is not None and until is not None:
        raise WrongUse("--for and --until are both given: choose one")
    if until is not None:
        return read_time("--until", until)
    return None if duration is None else read_duration("--for", duration, zero=False)


def _messages(before: Standing) -> str:
    count = Count(before.unfinished, COUNT_MAX)
    return f"{count} {'message' if before.unfinished == 1 else 'messages'}"


def _confirm(given: Given, plan: str, before: Standing, *, yes: bool, as_json: bool) -> None:
    if not is_confirmed(plan, yes=yes):
        show_facts(before.row, as_json=as_json)
        raise end_unconfirmed(given)


def _command(given: Given, verb: str, name: str) -> str:
    return f"matrixsched templates {verb}{given.options()} {as_argument(name)}"
