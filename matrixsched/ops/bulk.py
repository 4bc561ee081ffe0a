"""Changing many actions, a few dozen in a transaction: each only as it was seen, so that nobody's newer change is
undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeVar
from uuid import UUID

from matrixsched.app import App
from matrixsched.calls import Scheduled
from matrixsched.errors import ActionNotFound, DatabaseBusy, MatrixSchedError
from matrixsched.operations import NOT_AS_ASKED, Operation
from matrixsched.ops.render import Facts
from matrixsched.rules.action import Action, State
from matrixsched.store.looking import Found, Place
from matrixsched.store.values import ActionFilter, Seen

T = TypeVar("T")

PAGE = 1000
READ_TOGETHER = 100
"""So many are asked for by their ids in one statement: with each comes its payload."""
TOGETHER = 50
"""So many are changed in one transaction: more would keep others waiting for longer than a moment."""
LOOK_MAX = 10_000
"""At so many actions a part looks in one go, however few of them fit."""
CHANGED_IDS_MAX = 5_000
"""So many of those that were changed are told by name."""
Verb = Literal["cancel", "run_now", "redrive"]

FINISHED_BADLY = (State.FAILED, State.QUARANTINED, State.EXPIRED)
ALLOWED: dict[Verb, tuple[State, ...]] = {
    "cancel": (State.LIVE,),
    "run_now": tuple(State),
    "redrive": FINISHED_BADLY,
}
"""Actions in which states a verb changes; those in another one are skipped."""
DONE_WORD: dict[Verb, str] = {"cancel": "cancelled", "run_now": "made_due", "redrive": "redriven"}


class Chosen(Protocol):
    """Which actions are changed."""

    @property
    def ids(self) -> Sequence[str]:
        """Those that are named, if they are."""
        ...

    @property
    def in_words(self) -> str:
        """For the audit log."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether all were seen, once it was gone through."""
        ...

    def of(self, app: App) -> AsyncIterator[Sequence[Action]]:
        """A few at a time, which may be changed together."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which actions: those of these ids, or all that fit."""

    ids: Sequence[str] = ()
    states: Sequence[State] = ()
    handler: str | None = None
    prefix: str | None = None
    due_before: datetime | None = None
    finished_since: datetime | None = None

    @property
    def in_words(self) -> str:
        """For the audit log."""
        if self.ids:
            return ", ".join(self.ids)
        wanted = {
            "state": "/".join(state.value for state in self.states),
            "handler": self.handler,
            "prefix": self.prefix,
            "due_before": self.due_before,
            "finished_since": self.finished_since,
        }
        return ", ".join(f"{name} {value}" for name, value in wanted.items() if value)

    @property
    def is_complete(self) -> bool:
        return True  # it ends with the last one

    async def of(self, app: App) -> AsyncIterator[Sequence[Action]]:
        async for asked, found in named(app, list(dict.fromkeys(self.ids))):
            if missing := [id for id in asked if id not in found]:
                raise ActionNotFound(missing[0])
            for few in in_few(list(found.values())):
                yield few
        for state in () if self.ids else self.states:
            async for page in self._in_state(app, state):
                for few in in_few(page):
                    yield few

    async def _in_state(self, app: App, state: State) -> AsyncIterator[list[Action]]:
        after: Action | None = None
        while page := await app.list(
            state=state,
            handler=self.handler,
            id_prefix=self.prefix,
            due_before=self.due_before,
            after=after,
            limit=PAGE,
        ):
            after = page[-1]
            yield [action for action in page if self._is_recent(action)]

    def _is_recent(self, action: Action) -> bool:
        finished_at = action.status.finished_at
        return self.finished_since is None or (finished_at is not None and finished_at >= self.finished_since)

    def wanted_in(self, state: State) -> ActionFilter:
        return ActionFilter(state=state, handler=self.handler, id_prefix=self.prefix, due_before=self.due_before)

    def fits(self, action: Action) -> bool:
        """What a look does not ask for of those that ended."""
        is_due = self.due_before is None or action.status.scheduled_at < self.due_before
        return is_due and self._is_recent(action)


@dataclass(frozen=True, slots=True)
class GoesOn:
    """Where the next part of a selection begins."""

    began_at: datetime
    """When the first part did: what ended since then was live for it."""
    state: State | None = None
    """Of those that were looked at; None: those that are named, or nothing yet."""
    place: Place | None = None
    """Behind the last of them; None: before the first."""
    named: int = 0
    """So many of those that are named were seen."""


@dataclass(slots=True)
class Part:
    """What can be done of a selection in a time, from where the part before ended.

    None is seen twice, also where what was done to it, or what came of that, lets it fit once more.
    """

    selection: Selection
    within: timedelta
    begins: GoesOn | None = None
    goes_on: GoesOn | None = None
    """Behind the last one that is done with, wherever this stopped; None: all were seen."""

    @property
    def ids(self) -> Sequence[str]:
        return self.selection.ids

    @property
    def in_words(self) -> str:
        return self.selection.in_words

    @property
    def is_complete(self) -> bool:
        return self.goes_on is None

    async def of(self, app: App) -> AsyncIterator[Sequence[Action]]:
        ends = app.clock.monotonic() + self.within.total_seconds()
        at = self.goes_on = self.begins or GoesOn(await app.store.run(app.store.transitions.now()))
        # A few behind others, and only between the two: what is in hand is done when this stops.
        async for few, behind in self._named(app, at) if self.selection.ids else self._fitting(app, at):
            if few:
                yield few
            self.goes_on = behind
            if app.clock.monotonic() > ends:
                return
        self.goes_on = None

    async def _named(self, app: App, at: GoesOn) -> AsyncIterator[tuple[Sequence[Action], GoesOn]]:
        """All were there when they were counted; who is gone since is left out."""
        seen, ids = at.named, list(dict.fromkeys(self.selection.ids))
        async for asked, found in named(app, ids[at.named :]):
            for few in in_few(asked):
                seen += len(few)
                yield [found[id] for id in few if id in found], replace(at, named=seen)

    async def _fitting(self, app: App, at: GoesOn) -> AsyncIterator[tuple[Sequence[Action], GoesOn]]:
        # Live ones first: whatever is run while this goes on ends in one of the other states.
        states = sorted(self.selection.states, key=lambda state: state is not State.LIVE)
        for state in states if at.state is None else states[states.index(at.state) :]:
            place = at.place if state is at.state else None
            while True:
                found = await self._look(app, state, place)
                fitting = [one for one in found.actions if self.selection.fits(one) and not _is_seen(one, at)]
                for few in in_few(fitting):
                    last = few[-1]
                    behind = Place(last.meta.shard, last.id, last.status.finished_at)
                    yield few, replace(at, state=state, place=behind)
                place = found.goes_on
                if place is None:
                    break
                yield (), replace(at, state=state, place=place)

    async def _look(self, app: App, state: State, place: Place | None) -> Found:
        wanted = self.selection.wanted_in(state)
        return await app.store.run(
            app.store.transitions.page_bounded(wanted, after=place, limit=PAGE, look_max=LOOK_MAX)
        )


def _is_seen(action: Action, at: GoesOn) -> bool:
    ended_at = action.status.finished_at
    return ended_at is not None and ended_at > at.began_at


async def named(app: App, ids: Sequence[str]) -> AsyncIterator[tuple[Sequence[str], dict[str, Action]]]:
    """So many of these at a time, and in their order those of them that are there."""
    for asked in _parts(ids, READ_TOGETHER):
        found = {action.id: action for action in await app.scheduler.read(app.scheduler.finding_many(asked), None)}
        yield asked, {id: found[id] for id in asked if id in found}


def in_few(many: Sequence[T]) -> Iterator[Sequence[T]]:
    return _parts(many, TOGETHER)


def _parts(many: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (many[first : first + size] for first in range(0, len(many), size))


Look = tuple[UUID, State, bool, datetime | None]
"""By which it is told whether an attempt began or ended, or somebody changed it."""


def look_of(action: Action) -> Look:
    status = action.status
    return action.meta.guid, status.state, status.running, status.last_ended_at


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody was shown before they said yes: nothing that came later is done."""

    asked_at: datetime
    """By the database's clock, before it was looked."""
    fits: int | None = None
    """How many fitted; None: not all were counted."""

    def covers(self, verb: Verb, action: Action, before: int) -> bool:
        """Whether it is one of those that were shown, of which so many came before it."""
        status = action.status
        # What repeats is the same action after it ran; but whoever lets it run now, or again, meant what they saw.
        ends = () if verb == "cancel" else (status.last_ended_at, status.finished_at)
        is_newer = any(at is not None and at > self.asked_at for at in (action.meta.updated_at, *ends))
        # What was on its way when it was asked has an earlier time, and was not seen all the same.
        return not is_newer and (self.fits is None or before < self.fits)


@dataclass(slots=True)
class Tally:
    """What became of them; also before anything was done."""

    verb: Verb
    leaves_running: bool = False
    """Those of which an attempt is under way stay as they are, instead of running once more after it."""
    matched: int = 0
    changed: int = 0
    running: int = 0
    skipped: int = 0
    left_running: int = 0
    """Of those that were skipped."""
    shown: dict[str, Look] | None = None
    """Only what still looks as it was shown to whoever decided is changed, if this is given."""
    question: Question | None = None
    left_newer: int = 0
    """Of those that were skipped: they came, or were changed, after the question."""
    changed_ids: list[str] = field(default_factory=list)
    """The first of them."""

    @property
    def facts(self) -> Facts:
        return {
            "matched": self.matched,
            DONE_WORD[self.verb]: self.changed,
            "running": self.running,
            "skipped": self.skipped,
            **({"left_running": self.left_running} if self.leaves_running else {}),
            **({"left_newer": self.left_newer} if self.question is not None else {}),
        }

    def is_changed(self, action: Action) -> bool:
        """Whether the verb changes it as it stands; if not, it is counted as skipped."""
        before = self.matched - self.left_newer
        if self.question is not None and not self.question.covers(self.verb, action, before):
            self.skipped += 1
            self.left_newer += 1
            return False
        is_left = self.leaves_running and action.status.running
        is_as_shown = self.shown is None or self.shown.get(action.id) == look_of(action)
        if action.status.state in ALLOWED[self.verb] and is_as_shown and not is_left:
            return True
        self.skipped += 1
        self.left_running += is_left
        return False

    def note(self, answer: Scheduled | MatrixSchedError) -> None:
        """What became of one that was to be changed; some have ended by themselves meanwhile."""
        if isinstance(answer, Scheduled) and answer.changed:
            self.changed += 1
            self.running += answer.running
            if len(self.changed_ids) < CHANGED_IDS_MAX:
                self.changed_ids.append(answer.id)
        else:
            self.skipped += 1

    def become(self, later: Tally) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(later, one.name))


async def count(
    app: App,
    verb: Verb,
    selection: Chosen,
    *,
    count_max: int | None = None,
    leaves_running: bool = False,
    shown: dict[str, Look] | None = None,
) -> Tally:
    """How many there are that the verb would change, which is nothing yet; counting stops at `count_max`. How they
    look is put into `shown`."""
    tally = Tally(verb, leaves_running)
    async for few in selection.of(app):
        for action in few:
            if tally.matched == count_max:
                return tally
            tally.is_changed(action)
            tally.matched += 1
            tally.running += action.status.running
            if shown is not None:
                shown[action.id] = look_of(action)
    return tally


async def change(app: App, selection: Chosen, tally: Tally, progress: Callable[[int], object]) -> None:
    """Change all of them; one that somebody changes or locks at the same time is skipped.

    The tally is the caller's, who can tell how far it came if this does not come to its end.
    """
    async for few in selection.of(app):
        try:
            await _change(app, few, tally)
        except DatabaseBusy:  # somebody has one of them, and nothing is done
            for action in few:
                await _change(app, [action], tally)
        progress(tally.matched)


async def _change(app: App, few: Sequence[Action], tally: Tally) -> None:
    chosen, told = [], replace(tally, changed_ids=[*tally.changed_ids])
    for action in few:
        if told.is_changed(action):
            chosen.append(action)
        elif tally.leaves_running:
            told.running += action.status.running
        told.matched += 1
    # In the order in which everybody locks several.
    chosen.sort(key=lambda action: (action.meta.shard, action.id.encode()))
    operations = [_operation(app, tally.verb, action) for action in chosen]
    if len(few) == 1:
        for operation in operations:
            told.note(await _alone(app, operation))
    elif operations:
        for answer in await app.scheduler.change_together(operations):
            told.note(answer)
    tally.become(told)  # else nothing of these is known to be done


async def _alone(app: App, operation: Operation[Scheduled]) -> Scheduled | MatrixSchedError:
    try:
        return await app.scheduler.change(operation, None)
    except (*NOT_AS_ASKED, DatabaseBusy) as refused:
        return refused


def _operation(app: App, verb: Verb, action: Action) -> Operation[Scheduled]:
    if verb == "cancel":
        return app.scheduler.cancelling(action.id, expected_guid=action.meta.guid)
    return _running_as_seen(app, action)


def _running_as_seen(app: App, action: Action) -> Operation[Scheduled]:
    status = action.status
    seen = None if status.running else Seen(status.state, status.last_ended_at)
    return app.scheduler.rescheduling(action.id, revive=True, expected_guid=action.meta.guid, seen=seen)


async def run_as_seen(app: App, action: Action) -> Scheduled:
    """Run it now, if it is still as it was read; while an attempt was under way then, once more after that.

    What was started since would run twice, though nobody who asked for it knew.
    """
    return await app.scheduler.change(_running_as_seen(app, action), None)
