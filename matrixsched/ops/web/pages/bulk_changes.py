"""Changing all actions that fit a search: so many at a time that the answer comes soon, and then going on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus

from matrixsched.app import App
from matrixsched.ops import actions, changes
from matrixsched.ops.bulk import DONE_WORD, FINISHED_BADLY, Question, Tally, Verb, in_few
from matrixsched.ops.operator import Operator
from matrixsched.ops.render import Facts
from matrixsched.ops.web.pages.actions import Search, look, place_text, read_place, read_search
from matrixsched.ops.web.pages.changing import Changes, Given, Happened, Proposal
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import Action, State
from matrixsched.store.looking import Place, is_by_end

COUNT_MAX = 10_000
SAMPLE = 20
AT_ONCE_MAX = 5_000
COUNT_WITHIN = timedelta(seconds=5)
SHOW_MAX = 1_000
"""A question is shown as soon as so many were found; how many more there are is counted while it is read."""
CHANGE_WITHIN = timedelta(seconds=15)
"""Well below what a request may take: what is under way then comes to its end, and is told."""
PAGE = 1_000
ASKED_FIELD, FITS_FIELD = "asked_at", "fits"
"""What the form carries of the question, so that nothing is done which it did not tell of."""

TITLES: dict[Verb, tuple[str, str]] = {
    "cancel": ("Cancel all that fit?", "They end as cancelled: nothing of them starts any more."),
    "run_now": ("Run all that fit now?", "They become due at once. Gates still apply."),
    "redrive": ("Redrive all that fit?", "They are run again, without the end that they had."),
}
BUTTONS: dict[Verb, str] = {"cancel": "Cancel them", "run_now": "Run them now", "redrive": "Redrive them"}

RUNNING: dict[Verb, str] = {
    "cancel": "these come to their end",
    "run_now": "these are left as they are, for they run already",
    "redrive": "these come to their end, and run again after it",
}


@dataclass(slots=True)
class Stretch:
    """The actions that fit, from a place on, up to a number and for a time."""

    search: Search
    after: Place | None
    count_max: int
    within: timedelta
    goes_on: Place | None = None
    """Where the next stretch begins; None: all were seen."""
    seen: list[Action] = field(default_factory=list)
    """The first of them."""
    count: int = 0

    @property
    def ids(self) -> Sequence[str]:
        return ()

    @property
    def in_words(self) -> str:
        return self.search.in_words

    @property
    def is_complete(self) -> bool:
        return self.goes_on is None

    async def of(self, app: App) -> AsyncIterator[Sequence[Action]]:
        ends, place = app.clock.monotonic() + self.within.total_seconds(), self.after
        while True:
            found = await look(app, self.search, place, limit=PAGE)
            for few in in_few(found.actions[: self.count_max - self.count]):
                self.count += len(few)
                self.seen += few[: SAMPLE - len(self.seen)]
                yield few
                if self.count >= self.count_max or app.clock.monotonic() > ends:
                    self.goes_on = place_of(self.search, few[-1])
                    return
            place = found.goes_on
            if place is None:
                return
            if app.clock.monotonic() > ends:
                self.goes_on = place
                return


def place_of(search: Search, action: Action) -> Place:
    return Place(action.meta.shard, action.id, action.status.finished_at if is_by_end(search.wanted) else None)


def _search(fields: Given, verb: Verb) -> Search:
    asked = read_search({name: fields.text_or_none(name) or "" for name in ("q", "state", "handler", "template")})
    if asked.is_empty:
        raise Refused(HTTPStatus.BAD_REQUEST, "all actions there are? Search for those that you mean first")
    if verb == "redrive":
        if asked.state not in FINISHED_BADLY:
            raise Refused(HTTPStatus.BAD_REQUEST, f"choose one of the states {', '.join(FINISHED_BADLY)} to redrive")
        return asked
    return Search(asked.text, State.LIVE, asked.handler, asked.template)


def sample_row(action: Action) -> Facts:
    row = actions.row(action)
    return {name: row[name] for name in ("id", "handler", "state", "scheduled_at")}


def proposing(verb: Verb) -> Callable[[Visit, Given], Awaitable[Proposal]]:
    async def propose(visit: Visit, given: Given) -> Proposal:
        search, after = _search(given, verb), given.text_or_none("after")
        count_max = COUNT_MAX if visit.fragment else SHOW_MAX
        asked_at = await visit.app.store.run(visit.app.store.transitions.now())
        stretch = Stretch(search, read_place(after or ""), count_max, COUNT_WITHIN)
        running = 0
        async for few in stretch.of(visit.app):
            running += sum(action.status.running for action in few)
        back = visit.to("actions", **search.query)
        if not stretch.count:
            more = " so far: there are too many to look through in one go" if stretch.goes_on else ""
            return Proposal(title="Nothing fits", says=[f"No action fits {search.in_words}{more}."], back=back)
        title, text = TITLES[verb]
        says = [f"{stretch.count:,}{'' if stretch.is_complete else ' or more'} fit: {search.in_words}.", text]
        if stretch.count > AT_ONCE_MAX or not stretch.is_complete:
            says.append(f"They are changed {AT_ONCE_MAX:,} at a time at most; you are asked to go on after that.")
        if running:
            says.append(f"Attempts of {running:,} of them are under way: {RUNNING[verb]}.")
        fits = str(stretch.count) if stretch.is_complete else None
        sends = {**search.query, "after": after, ASKED_FIELD: asked_at.isoformat(), FITS_FIELD: fits}
        return Proposal(
            title=title,
            says=says,
            goes_on_counting=not stretch.is_complete,
            sample=[sample_row(action) for action in stretch.seen],
            sends={name: value for name, value in sends.items() if value},
            button=BUTTONS[verb],
            is_grave=verb == "cancel",
            back=back,
        )

    return propose


def carrying_out(verb: Verb) -> Callable[[Visit, Operator, Given], Awaitable[Happened]]:
    async def carry_out(visit: Visit, operator: Operator, given: Given) -> Happened:
        search = _search(given, verb)
        stretch = Stretch(search, read_place(given.text_or_none("after") or ""), AT_ONCE_MAX, CHANGE_WITHIN)
        question = Question(given.moment(ASKED_FIELD), given.integer_or_none(FITS_FIELD))
        tally = Tally(verb, leaves_running=verb == "run_now", question=question)
        await changes.change_many(operator, verb, stretch, tally)
        facts: Facts = tally.facts
        says = [f"{tally.changed:,} of {tally.matched:,} were {DONE_WORD[verb].replace('_', ' ')}."]
        if tally.left_running:
            says.append(f"{tally.left_running:,} were left as they are: they run already.")
        if tally.left_newer:
            says.append(
                f"{tally.left_newer:,} were left as they are: they came, or were changed, after you were asked. "
                "Search for them again, if they are meant, too."
            )
        if others := tally.skipped - tally.left_running - tally.left_newer:
            says.append(f"{others:,} were skipped: they were started, or changed by somebody else, meanwhile.")
        next_step = None
        if stretch.goes_on is not None:
            says.append("There may be more that fit.")
            query = {**search.query, "after": place_text(stretch.goes_on)}
            next_step = (visit.to(f"change/bulk_{verb}", **query), "Go on with the next ones…")
        return Happened(
            title="Done" if stretch.goes_on is None else "Done so far",
            says=says,
            facts=facts,
            back=visit.to("actions", **search.query),
            is_done=tally.changed > 0,
            next_step=next_step,
        )

    return carry_out


_VERBS: tuple[Verb, ...] = ("cancel", "run_now", "redrive")
BULK_CHANGES: Changes = {f"bulk_{verb}": (proposing(verb), carrying_out(verb)) for verb in _VERBS}
