"""`matrixsched actions`."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from matrixsched.app import App
from matrixsched.clock import SystemClock
from matrixsched.errors import MatrixSchedError, WrongUse
from matrixsched.lookups import LIST_LIMIT_MAX
from matrixsched.ops import actions, bulk, changes
from matrixsched.ops.bulk import FINISHED_BADLY, Selection, Tally, Verb
from matrixsched.ops.commands.repeating import (
    CronOption,
    EveryOption,
    ExcludeOption,
    JitterOption,
    MisfireOption,
    RepeatedOption,
    SkippedOption,
    ZoneOption,
    read_repeat,
)
from matrixsched.ops.commands.toolkit import (
    AsJson,
    Given,
    Yes,
    by_command,
    end_unconfirmed,
    is_confirmed,
    progress,
    run,
    taking,
)
from matrixsched.ops.reading import read_time
from matrixsched.ops.render import as_argument, say, show_facts, show_rows, show_sections
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.rules.action import Action, State
from matrixsched.rules.schedule import PREVIEW_MAX, upcoming

commands = typer.Typer(help="See actions, and change them.", no_args_is_help=True)


def register(cli: typer.Typer) -> None:
    cli.add_typer(commands, name="actions")


Handler = Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this handler.", show_default=False)]
Prefix = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only those whose id begins with this.", show_default=False)
]
DueBefore = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only those due before this time (ISO 8601).", show_default=False)
]
WithPayload = Annotated[bool, typer.Option("--payload", help="Show payloads too; they may hold secrets.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="These very actions.", show_default=False)]


@commands.command("list")
@taking(*OF_THE_DATABASE)
def list_actions(
    given: Given,
    state: Annotated[State | None, typer.Option(help="Only those in this state.", show_default=False)] = None,
    handler: Handler = None,
    template: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of this template.", show_default=False)
    ] = None,
    prefix: Prefix = None,
    due_before: DueBefore = None,
    limit: Annotated[int, typer.Option(min=1, max=LIST_LIMIT_MAX, help="How many at most.")] = 100,
    after: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Go on after this one, as the page before says.", show_default=False),
    ] = None,
    payload: WithPayload = False,
    as_json: AsJson = False,
) -> None:
    """A page of actions, in an order that stays the same."""
    before = _time("--due-before", due_before)

    async def page(app: App) -> list[Action]:
        async with app:
            return await app.list(
                state=state,
                handler=handler,
                template=template,
                id_prefix=prefix,
                due_before=before,
                after=after,
                limit=limit,
            )

    found = run(partial(page, given.app()))
    show_rows([actions.row(action, with_payload=payload) for action in found], as_json=as_json)
    if len(found) == limit:
        say(f"there may be more: `{given.again('--after', found[-1].id)}`.")
    elif found:
        say(f"that is all. More about one of them: `matrixsched actions show{given.options()} ID`.")
    else:
        say("no action fits. `matrixsched schedule --help` shows how to write one.")


@commands.command("show")
@taking(*OF_THE_DATABASE)
def show_action(
    given: Given,
    id: Annotated[str, typer.Argument(metavar="ID", help="The action's id.")],
    runs: Annotated[int, typer.Option(min=0, max=1000, help="How many of its next runs to show.")] = 5,
    payload: WithPayload = False,
    as_json: AsJson = False,
) -> None:
    """All about an action: what it is, how it stands, when it runs next, which attempts went wrong."""
    sections = run(partial(actions.shown, given.app(), id, runs=runs, with_payload=payload))
    show_sections(sections, as_json=as_json)
    say(actions.next_move(sections, given.options()))


@commands.command("next")
@taking(*OF_THE_DATABASE)
def next_runs(
    given: Given,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The action's id; or a rule, by --cron or --every.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=PREVIEW_MAX, help="How many runs.")] = 5,
    every: EveryOption = None,
    cron: CronOption = None,
    zone: ZoneOption = None,
    skipped: SkippedOption = None,
    repeated: RepeatedOption = None,
    misfire: MisfireOption = None,
    jitter: JitterOption = None,
    exclude: ExcludeOption = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With a rule: runs after this time; default: now.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The next runs: of an action, or of a rule that is still to be scheduled, which needs no database."""
    repeat = read_repeat(every, cron, zone, skipped, repeated, misfire, jitter, exclude)
    if (id is None) == (repeat is None):
        raise WrongUse("name either an action or a rule, by --cron or --every")
    if repeat is not None:
        begin = SystemClock().now() if after is None else read_time("--after", after)
        runs = actions.run_rows(upcoming(repeat, begin, count), repeat)
    elif after is not None:
        raise WrongUse("--after goes with a rule, not with an action")
    else:
        runs = run(partial(actions.next_runs, given.app(), str(id), count))
    show_rows(runs, as_json=as_json)
    if repeat is not None:
        what_next = "to have it so: `matrixsched schedule HANDLER` with the same options."
        say(what_next if runs else f"the rule has no run after {begin}: choose an earlier --after.")
        return
    action = f"{given.options()} {as_argument(str(id))}"
    if not runs:
        say(f"it does not run again. To run it now: `matrixsched actions run-now{action}`.")
    else:
        say(f"{'' if len(runs) == count else 'there are no more; '}more about it: `matrixsched actions show{action}`.")


@commands.command("cancel")
@taking(*OF_THE_DATABASE)
def cancel(
    given: Given,
    ids: Ids = None,
    handler: Handler = None,
    prefix: Prefix = None,
    due_before: DueBefore = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End live actions: those named, or all that fit. An attempt under way is not stopped."""
    _check_selection(ids, handler, prefix, due_before)
    selection = Selection(
        ids=ids or (),
        states=(State.LIVE,),
        handler=handler,
        prefix=prefix,
        due_before=_time("--due-before", due_before),
    )
    _change(given, "cancel", selection, yes=yes, as_json=as_json)


@commands.command("run-now")
@taking(*OF_THE_DATABASE)
def run_now(
    given: Given,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="These very actions.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make actions due at once; finished ones are run again, without the end that they had."""
    _change(given, "run_now", Selection(ids=ids), yes=yes, as_json=as_json)


@commands.command("redrive")
@taking(*OF_THE_DATABASE)
def redrive(
    given: Given,
    ids: Ids = None,
    state: Annotated[
        list[State] | None,
        typer.Option(help="Those that ended so: failed, quarantined, expired; default: all three.", show_default=False),
    ] = None,
    handler: Handler = None,
    prefix: Prefix = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only those that ended at this time or later.", show_default=False),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run actions again that failed, were quarantined or expired: those named, or all that fit.

    An end (--expires-at) that they had does not apply any more.
    """
    _check_selection(ids, handler, prefix, since, *(state or ()))
    if strange := [one.value for one in state or () if one not in FINISHED_BADLY]:
        raise WrongUse(f"--state {strange[0]} cannot be redriven: choose failed, quarantined or expired")
    selection = Selection(
        ids=ids or (),
        states=state or FINISHED_BADLY,
        handler=handler,
        prefix=prefix,
        finished_since=_time("--since", since),
    )
    _change(given, "redrive", selection, yes=yes, as_json=as_json)


def _time(option: str, text: str | None) -> datetime | None:
    return None if text is None else read_time(option, text)


def _check_selection(ids: list[str] | None, *filters: object) -> None:
    """Nobody who forgot an argument means all there are."""
    if ids and any(filters):
        raise WrongUse("ids and filters are both given: choose one")
    if not ids and not any(filters):
        raise WrongUse("neither ids nor a filter are given: name some, or say which by --handler or --prefix")


_PLAN: dict[Verb, str] = {
    "cancel": "{many} will be cancelled; attempts under way ({running}) are not stopped.",
    "run_now": "{many} will be due at once; what is under way ({running}) ends first.",
    "redrive": "{many} will be run again, due at once; an end (expires_at) that they had does not apply any more.",
}
_ONLY: dict[Verb, str] = {
    "cancel": "only live ones can be cancelled",
    "run_now": "all can be run",
    "redrive": "only failed, quarantined and expired ones are redriven",
}
_NEXT = "See one of them: `matrixsched actions show{options} ID`."


def _change(given: Given, verb: Verb, selection: Selection, *, yes: bool, as_json: bool) -> None:
    app = given.app()
    # Those that are run now are named one by one, so that they fit in here: what begins or ends before the question is
    # answered is left, or it would run twice.
    shown: dict[str, bulk.Look] | None = {} if verb == "run_now" else None

    async def counted() -> Tally:
        async with app:
            return await bulk.count(app, verb, selection, shown=shown)

    expected = run(counted)
    many = expected.matched - expected.skipped
    if not many:
        show_facts(expected.facts, as_json=as_json)
        say(_nothing_to_do(verb, expected.matched, given.options()))
        return
    plan = _PLAN[verb].format(many=f"{many:,} {'action' if many == 1 else 'actions'}", running=expected.running)
    if not is_confirmed(plan, yes=yes):
        show_facts(expected.facts, as_json=as_json)
        raise end_unconfirmed(given)

    done = Tally(verb, shown=shown)

    async def changed() -> None:
        with progress(verb.replace("_", " "), expected.matched) as told:
            async with app:
                await changes.change_many(by_command(app), verb, selection, done, told)

    try:
        run(changed)
    except (KeyboardInterrupt, MatrixSchedError):
        show_facts(done.facts, as_json=as_json)
        say(f"stopped half-way: what is done stays done. To go on: `{given.again('--yes')}`.")
        raise
    show_facts(done.facts, as_json=as_json)
    skipped = (
        f" {done.skipped:,} were started, changed or locked by others, or in another state." if done.skipped else ""
    )
    say(f"done.{skipped} " + _NEXT.format(options=given.options()))


def _nothing_to_do(verb: Verb, matched: int, options: str) -> str:
    if not matched:
        return f"nothing to do: no action fits. See what there is: `matrixsched actions list{options}`."
    return f"nothing to do: {_ONLY[verb]}. {_NEXT.format(options=options)}"
