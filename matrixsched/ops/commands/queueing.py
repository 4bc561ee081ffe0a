"""`matrixsched queues`."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from matrixsched.app import App
from matrixsched.errors import WrongUse
from matrixsched.ops import changes, queues
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
from matrixsched.ops.exits import WRONG_USE
from matrixsched.ops.operator import Operator
from matrixsched.ops.queues import COUNT_MAX, DIGITS_MAX, Inside, Named, SettingsChange, Standing
from matrixsched.ops.reading import read_duration, read_payload, read_time
from matrixsched.ops.render import Count, Id, as_argument, differences, say, show_facts, show_rows, show_sections
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.queues.contracts import load_contract
from matrixsched.rules.contract import QueueContract
from matrixsched.rules.queues import ID_MAX, PAGE_MAX

commands = typer.Typer(
    help="See what waits in typed queues and what was set aside, and change it while workers run.", no_args_is_help=True
)

WORKERS_OWN = "default"
"""Typed where a setting of each worker shall count again."""


def register(cli: typer.Typer) -> None:
    cli.add_typer(commands, name="queues")


Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Its number, or its name if a contract tells it.")]
ContractFile = Annotated[
    str | None, text_option("FILE", "The contract, in YAML: it tells names and fields.", "--contract")
]
Target = Annotated[
    str | None, text_option("MODULE:APP", "The App that knows the queues: its database and contracts.", "--app")
]
Tasks = Annotated[
    list[int] | None, typer.Argument(metavar="[TASK]...", help="These very tasks, by id.", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help=f"All of them, {COUNT_MAX:,} at a time.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the queues are, and what is known of them."""

    given: Given
    app: App
    contracts: Sequence[QueueContract]
    options: str
    """What a suggested command needs to find the same."""

    def named(self, queue: str) -> Named:
        return run(partial(queues.named, self.app, self.contracts, queue))

    def standing(self, queue: Named) -> Standing:
        return run(partial(queues.standing, self.app, queue))

    def command(self, verb: str, queue: Named, *more: str) -> str:
        words = " ".join([verb, *more])
        return f"matrixsched queues {words}{self.options} {as_argument(queue.argument)}"


def _place(given: Given, contract: str | None, target: str | None) -> Place:
    if contract is not None and target is not None:
        raise WrongUse("--contract and --app are both given: the App brings its contracts, so leave out --contract")
    if target is not None:
        if given.flags:
            raise WrongUse("--app brings its own database and installation: leave out --database and --installation")
        app = given.load_app(target)
        return Place(given, app, queues.declared(app), f" --app {shlex.quote(target)}")
    app = given.app()
    if contract is None:
        return Place(given, app, (), given.options())
    return Place(given, app, load_contract(contract).queues, f"{given.options()} --contract {shlex.quote(contract)}")


# What is seen.


@commands.command("list")
@taking(*OF_THE_DATABASE)
def list_queues(given: Given, contract: ContractFile = None, target: Target = None, as_json: AsJson = False) -> None:
    """All queues: how many tasks are ready, taken, delayed and dead (each up to 10,000), and their settings."""
    place = _place(given, contract, target)
    found = run(partial(queues.listed, place.app, place.contracts))
    show_rows([one.facts for one in found], as_json=as_json)
    if dead := [one for one in found if one.stat.dead]:
        say(f"some were set aside. To see why: `{place.command('show', dead[0].queue)}`.")
    elif found:
        say(f"that is all. To see what is in one: `matrixsched queues show{place.options} QUEUE`.")
    else:
        put = f"matrixsched queues put{given.options()} --contract FILE --data JSON QUEUE"
        say(f"there is no queue yet: the first task makes one. To put it: `{put}`.")


@commands.command("show")
@taking(*OF_THE_DATABASE)
def show_queue(
    given: Given,
    queue: Queue,
    tasks: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="So many tasks, the next due first.")] = 10,
    dead: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="So many dead letters, by id.")] = 10,
    after: Annotated[int, typer.Option(min=0, max=ID_MAX, help="Dead letters after this id, for the next page.")] = 0,
    data: Annotated[
        bool, typer.Option("--data", help="Show what is in the tasks, too; they may hold secrets.")
    ] = False,
    contract: ContractFile = None,
    target: Target = None,
    as_json: AsJson = False,
) -> None:
    """One queue as it stands: counts (each up to 10,000), settings, its next tasks, what was set aside and why, and who
    works on it."""
    place = _place(given, contract, target)
    looking = partial(queues.inside, place.app, place.named(queue), tasks=tasks, dead=dead, after=after, with_data=data)
    found = run(looking)
    show_sections(found.sections, as_json=as_json)
    say(_next_move(place, found, dead))


# What is put.


@commands.command("put")
@taking(*OF_THE_DATABASE)
def put_task(
    given: Given,
    queue: Queue,
    data: Annotated[
        str, text_option("JSON", "The fields: JSON, - for stdin, @FILE for a file; bytes are in base64 there.")
    ],
    at: Annotated[
        str | None, text_option("TIME", "When it can be taken, as in 2026-03-29T09:00:00Z; default: now.")
    ] = None,
    delay: Annotated[str | None, text_option("DURATION", "How long from now it can be taken, as in 5m.")] = None,
    contract: ContractFile = None,
    target: Target = None,
    as_json: AsJson = False,
) -> None:
    """Put one task into a queue, checked by its contract."""
    if at is not None and delay is not None:
        raise WrongUse("--at and --delay are both given: choose one")
    start_at = None if at is None else read_time("--at", at)
    wait = timedelta(0) if delay is None else read_duration("--delay", delay)
    fields = read_payload(data, "--data")
    place = _place(given, contract, target)
    found = place.named(queue)
    encoded = queues.data_of(found, fields)
    task = run(partial(queues.put, place.app, found, encoded, at=start_at, delay=wait))
    show_facts(
        {"task": Id(task), "queue": Id(found.number), "name": found.name, "bytes": len(encoded)}, as_json=as_json
    )
    say(f"put. See what is before it: `{place.command('show', found)}`.")


# What is changed.


@commands.command("retry")
@taking(*OF_THE_DATABASE)
def retry_tasks(
    given: Given,
    queue: Queue,
    tasks: Tasks = None,
    everything: All = False,
    contract: ContractFile = None,
    target: Target = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let delayed tasks be taken at once, instead of when they are due. What is taken is left alone."""
    place = _place(given, contract, target)
    _Many(
        place, place.named(queue), tasks, everything, "delayed", "retried", "be ready at once", changes.retry_queue
    ).do(lambda one: one.stat.delayed, yes=yes, as_json=as_json)


@commands.command("redrive")
@taking(*OF_THE_DATABASE)
def redrive_tasks(
    given: Given,
    queue: Queue,
    tasks: Tasks = None,
    everything: All = False,
    contract: ContractFile = None,
    target: Target = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put dead letters back as if they were new: without attempts, ready now."""
    place = _place(given, contract, target)
    _Many(
        place,
        place.named(queue),
        tasks,
        everything,
        "dead",
        "redriven",
        "go back to the queue as new",
        changes.redrive_queue,
    ).do(lambda one: one.stat.dead, yes=yes, as_json=as_json)


@commands.command("purge")
@taking(*OF_THE_DATABASE)
def purge_tasks(
    given: Given,
    queue: Queue,
    tasks: Tasks = None,
    everything: All = False,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters.")] = False,
    waiting: Annotated[bool, typer.Option("--waiting", help="Tasks that nobody has, ready or delayed.")] = False,
    contract: ContractFile = None,
    target: Target = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters, or tasks that wait, for good. What is taken is left alone."""
    if dead == waiting:
        raise WrongUse("say what shall be deleted: either --dead or --waiting")
    place = _place(given, contract, target)
    purged: Changed = changes.purge_queue_dead if dead else changes.purge_queue_waiting
    state = "dead" if dead else "waiting"
    _Many(place, place.named(queue), tasks, everything, state, "purged", "be deleted for good", purged).do(
        lambda one: one.stat.dead if dead else one.stat.ready + one.stat.delayed, yes=yes, as_json=as_json
    )


@commands.command("pause")
@taking(*OF_THE_DATABASE)
def pause_queue(
    given: Given, queue: Queue, contract: ContractFile = None, target: Target = None, as_json: AsJson = False
) -> None:
    """Hand out nothing more of a queue, to no worker, at once. What is taken is finished."""
    place = _place(given, contract, target)
    found = place.named(queue)
    paused = carry_out(place.app, lambda operator: changes.pause_queue(operator, found))
    show_facts(paused.facts, as_json=as_json)
    say(f"it is paused. To let it go on: `{place.command('resume', found)}`.")


@commands.command("resume")
@taking(*OF_THE_DATABASE)
def resume_queue(
    given: Given,
    queue: Queue,
    contract: ContractFile = None,
    target: Target = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a paused queue go on."""
    place = _place(given, contract, target)
    found = place.named(queue)
    before = place.standing(found)
    if not before.settings.paused:
        show_facts(before.facts, as_json=as_json)
        say(f"nothing to do: it is not paused. See it: `{place.command('show', found)}`.")
        return
    if not is_confirmed(f"{Count(before.stat.ready, COUNT_MAX)} ready tasks of {found} may be taken again.", yes=yes):
        show_facts(before.facts, as_json=as_json)
        raise end_unconfirmed(given)
    resumed = carry_out(place.app, lambda operator: changes.resume_queue(operator, found))
    show_facts(resumed.facts, as_json=as_json)
    say(f"it goes on. See it: `{place.command('show', found)}`.")


@commands.command("set")
@taking(*OF_THE_DATABASE)
def set_queue(
    given: Given,
    queue: Queue,
    batch_size: Annotated[
        str | None, text_option("NUMBER", "Tasks at most in a batch, or `default`: as each worker was started.")
    ] = None,
    visibility: Annotated[
        str | None, text_option("DURATION", "How soon others have the tasks of a worker that died, or `default`.")
    ] = None,
    processors: Annotated[
        str | None, text_option("NUMBER", "Processors at most that a manager gives it, or `default`: as many as fit.")
    ] = None,
    contract: ContractFile = None,
    target: Target = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change settings of a queue for all workers, from their next batch on."""
    change = _change(batch_size, visibility, processors)
    if change.is_nothing:
        raise WrongUse("nothing is given that shall be changed: name it, as in --batch-size 100")
    place = _place(given, contract, target)
    found = place.named(queue)
    before = place.standing(found)
    told = differences(queues.settings_facts(before.settings), queues.settings_facts(change(before.settings)))
    if not told:
        show_facts(before.facts, as_json=as_json)
        say(f"nothing to do: it is so already. See it: `{place.command('show', found)}`.")
        return
    if not is_confirmed(f"of {found} will be changed: {told}.", yes=yes):
        show_facts(before.facts, as_json=as_json)
        raise end_unconfirmed(given)
    changed = carry_out(place.app, lambda operator: changes.set_queue(operator, found, change))
    show_facts(changed.facts, as_json=as_json)
    say(f"changed. See it: `{place.command('show', found)}`.")


def _change(batch_size: str | None, visibility: str | None, processors: str | None) -> SettingsChange:
    typed = {"batch_size": batch_size, "visibility": visibility, "processors": processors}
    unset = frozenset(name for name, text in typed.items() if text == WORKERS_OWN)
    return SettingsChange(
        batch_size=_number("--batch-size", batch_size),
        visibility=None if visibility in (None, WORKERS_OWN) else read_duration("--visibility", visibility),
        processors=_number("--processors", processors),
        unset=unset,
    )


def _number(option: str, text: str | None) -> int | None:
    if text is None or text == WORKERS_OWN:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise WrongUse(f"{option} is {text!r:.80}, but must be a whole number, or `{WORKERS_OWN}`")
    return int(text)


Changed = Callable[[Operator, Named, Sequence[int] | None, Callable[[int], object]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class _Many:
    """A change of many tasks of a queue: those that are named, or all."""

    place: Place
    queue: Named
    tasks: Sequence[int] | None
    everything: bool
    state: str
    """In which they must be."""
    done: str
    fate: str
    """What will become of them, in words."""
    change: Changed

    def do(self, count: Callable[[Standing], int], *, yes: bool, as_json: bool) -> None:
        ids = self._ids()
        before = self.place.standing(self.queue)
        there = Count(min(count(before), COUNT_MAX), COUNT_MAX)
        if not there.value:
            show_facts(self._facts(0), as_json=as_json)
            say(f"nothing to do: {self.queue} has no {self.state} tasks. See it: `{self._show}`.")
            if ids:
                raise typer.Exit(WRONG_USE)
            return
        which = f"{there} {self.state}" if ids is None else f"{len(ids):,} of {there} {self.state}"
        noun = "task" if there.value == 1 else "tasks"
        if not is_confirmed(f"{which} {noun} of {self.queue} will {self.fate}.", yes=yes):
            show_facts(self._facts(0), as_json=as_json)
            raise end_unconfirmed(self.place.given)
        with progress(self.done, there.value if ids is None else len(ids)) as told:
            done = carry_out(self.place.app, lambda operator: self.change(operator, self.queue, ids, told))
        show_facts(self._facts(done), as_json=as_json)
        self._end(done, ids)

    def _end(self, done: int, ids: Sequence[int] | None) -> None:
        if ids is not None and done < len(ids):
            say(f"{done:,} {self.done}: the others are no {self.state} tasks of {self.queue}. See it: `{self._show}`.")
            raise typer.Exit(WRONG_USE)
        if ids is None and done >= COUNT_MAX:
            say(f"{done:,} {self.done}, there may be more. To go on: `{self.place.given.again('--yes')}`.")
        else:
            say(f"{done:,} {self.done}. See what is left: `{self._show}`.")

    def _ids(self) -> Sequence[int] | None:
        if bool(self.tasks) == self.everything:
            raise WrongUse("say which tasks are meant: either their ids, or --all")
        ids = list(dict.fromkeys(self.tasks or ()))
        if strange := [id for id in ids if not 0 < id <= ID_MAX]:
            raise WrongUse(f"{strange[0]} is no id of a task: `{self._show}` shows them")
        return ids or None

    def _facts(self, done: int) -> dict[str, object]:
        return {"queue": Id(self.queue.number), "name": self.queue.name, self.done: done}

    @property
    def _show(self) -> str:
        return self.place.command("show", self.queue)


def _next_move(place: Place, found: Inside, dead: int) -> str:
    queue, stat = found.standing.queue, found.standing.stat
    if len(found.dead) == dead:
        return f"there may be more dead letters: `{place.given.again('--after', str(found.dead[-1].id))}`."
    if found.dead:
        return f"to put dead letters back: `{place.command('redrive', queue, '--all')}`."
    if found.standing.settings.paused:
        return f"it is paused. To let it go on: `{place.command('resume', queue)}`."
    if stat.ready and not found.workers:
        return "no worker that handles it was seen lately: start one by `matrixsched queue-worker MODULE:APP`."
    if len(found.tasks) < stat.total:
        more = str(min(PAGE_MAX, 10 * len(found.tasks)))
        return f"there are more tasks. To see them: `{place.given.again('--tasks', more)}`."
    contract = () if queue.contract is not None else ("--contract FILE",)
    return f"that is all. To put a task: `{place.command('put', queue, *contract, '--data JSON')}`."
