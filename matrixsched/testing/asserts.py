"""What tests say about actions, and what they are told when it is not so.

Payloads are shown: they are the test's own, and without them a message would not tell what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from matrixsched.app import App
from matrixsched.errors import ActionNotFound, BadInput, UnknownHandler
from matrixsched.handlers import Handler
from matrixsched.rules.action import Action, Outcome, Spec, State
from matrixsched.testing.steps import Ran, decoded

ANY: Any = object()
"""Stands for whatever a test does not care about; None is a payload like any other."""
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A live action as a test looks at it; `action` has the rest."""

    id: str
    handler: str
    payload: object
    """As the handler will get it."""
    at: datetime
    """When it runs next."""
    action: Action

    def __str__(self) -> str:
        return f"{self.id!r} (handler {self.handler!r}, at {self.at}, payload {self.payload!r:.200})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a test says of one action."""

    handler: str | None
    id: str | None
    at: datetime | None = None
    payload: object = ANY

    def __str__(self) -> str:
        said = [
            f"{name} {value!r}" for name, value in (("handler", self.handler), ("id", self.id)) if value is not None
        ]
        said += [f"at {self.at}"] if self.at is not None else []
        said += [f"payload {self.payload!r:.200}"] if self.payload is not ANY else []
        return ", ".join(said) or "anything at all"

    def misfits(self, one: Waiting) -> list[str]:
        """In what it differs."""
        found = []
        if self.handler is not None and one.handler != self.handler:
            found.append(f"its handler is {one.handler!r}")
        if self.id is not None and one.id != self.id:
            found.append(f"its id is {one.id!r}")
        if self.at is not None and one.at != self.at:
            found.append(f"it runs at {one.at}, {_apart(one.at - self.at)}")
        if self.payload is not ANY and one.payload != self.payload:
            found.append(f"its payload is {one.payload!r:.500}")
        return found


class Assertions:
    """The part of a stage that looks and judges. It reads past the faults: what is in the database is what counts."""

    def __init__(self, app: App, observer: App, ran: Sequence[Ran], now: Callable[[], datetime]) -> None:
        self._app = app
        self._observer = observer
        self._past = ran
        self._now = now

    def scheduled(self, handler: Handler[..., Any] | str | None = None) -> list[Waiting]:
        """All live actions, or those of a handler, in the order in which they run."""
        return self._live(self._name(handler))

    def assert_scheduled(
        self,
        handler: Handler[..., Any] | str | None = None,
        *,
        id: str | None = None,
        at: datetime | None = None,
        payload: object = ANY,
    ) -> Waiting:
        """There is a live action of which all this is true; the first that fits."""
        wanted, live = self._wanted(handler, id, at, payload), self._live()
        for one in live:
            if not wanted.misfits(one):
                return one
        raise AssertionError("\n".join([f"nothing is scheduled with {wanted}", *self._instead(wanted, live)]))

    def assert_not_scheduled(
        self,
        handler: Handler[..., Any] | str | None = None,
        *,
        id: str | None = None,
        at: datetime | None = None,
        payload: object = ANY,
    ) -> None:
        """There is no live action of which all this is true; without arguments: none at all."""
        wanted = self._wanted(handler, id, at, payload)
        found = [one for one in self._live() if not wanted.misfits(one)]
        if found:
            raise AssertionError("\n".join([f"scheduled with {wanted}:", *_listed(found)]))

    def assert_nothing_due(self) -> None:
        """Whatever is live runs later than now."""
        due = [one for one in self._live() if one.at <= self._now()]
        if due:
            raise AssertionError("\n".join([f"due at {self._now()} and not run:", *_listed(due)]))

    def assert_ran(
        self,
        handler: Handler[..., Any] | str | None = None,
        *,
        id: str | None = None,
        outcome: Outcome | str | None = None,
        times: int | None = None,
    ) -> list[Ran]:
        """Attempts of which all this is true were made on this stage: so many, or at least one."""
        wanted = self._wanted(handler, id, None, ANY)
        expected = None if outcome is None else _outcome(outcome)
        fitting = [
            ran
            for ran in self._past
            if wanted.handler in (None, ran.handler) and id in (None, ran.id) and expected in (None, ran.outcome)
        ]
        if len(fitting) == times or (times is None and fitting):
            return fitting
        said = f"{wanted}" + (f", outcome {expected.value!r}" if expected else "")
        how_often = "nothing ran" if not fitting else f"{len(fitting)} attempts were made"
        asked = "" if times is None else f", {times} were expected"
        raise AssertionError("\n".join([f"{how_often} with {said}{asked}; these were made:", *_told(self._past)]))

    # How they look.

    def _wanted(
        self, handler: Handler[..., Any] | str | None, id: str | None, at: datetime | None, payload: object
    ) -> Wanted:
        name = self._name(handler)
        if payload is not ANY and name is not None:
            payload = self._as_stored(name, payload)
        return Wanted(handler=name, id=id, at=at, payload=payload)

    def _as_stored(self, handler: str, payload: object) -> object:
        """The payload as it would come back, so that a model and its plain values are the same."""
        _, encoded, version = self._app.handlers.encode(handler, payload)
        found = self._app.handlers.find(handler)
        return payload if found is None else found.decode(encoded, version)

    def _name(self, handler: Handler[..., Any] | str | None) -> str | None:
        name = handler.name if isinstance(handler, Handler) else handler
        # A misspelt name is not scheduled either: without this a test would be content with it.
        if name is not None and self._app.handlers.find(name) is None and not self._observer.sync.list(handler=name):
            raise UnknownHandler(name, self._app.handlers.names)
        return name

    def _live(self, handler: str | None = None) -> list[Waiting]:
        actions: list[Action] = []
        while page := self._observer.sync.list(
            state=State.LIVE, handler=handler, after=actions[-1] if actions else None, limit=1000
        ):
            actions += page
        return sorted((self._waiting(action) for action in actions), key=lambda one: (one.at, one.id))

    def _waiting(self, action: Action) -> Waiting:
        spec: Spec = action.spec
        payload = decoded(self._app.handlers, spec)
        return Waiting(
            id=action.id, handler=spec.handler, payload=payload, at=action.status.scheduled_at, action=action
        )

    def _instead(self, wanted: Wanted, live: list[Waiting]) -> list[str]:
        """What is there instead: the nearest, the finished one of that id, and the others."""
        lines = []
        if (finished := self._finished(wanted.id)) is not None:
            lines.append(f"{wanted.id!r} is {finished.status.state} since {finished.status.finished_at}")
        nearest = min(live, key=lambda one: (one.id != wanted.id, len(wanted.misfits(one))), default=None)
        if nearest is not None:
            lines.append(f"nearest is {nearest.id!r}: {'; '.join(wanted.misfits(nearest))}")
        heading = f"scheduled at {self._now()}:" if live else f"nothing at all is scheduled at {self._now()}"
        return [*lines, heading, *_listed(live)]

    def _finished(self, id: str | None) -> Action | None:
        try:
            action = None if id is None else self._observer.sync.get(id)
        except ActionNotFound:
            return None
        return action if action is not None and action.status.state is not State.LIVE else None


def _outcome(outcome: str) -> Outcome:
    try:
        return Outcome(outcome)
    except ValueError:
        raise BadInput(f"outcome is {outcome!r:.80}, but must be one of {', '.join(Outcome)}") from None


def _listed(waiting: Sequence[Waiting]) -> list[str]:
    more = [f"  and {len(waiting) - SHOWN_MAX} more"] if len(waiting) > SHOWN_MAX else []
    return [f"  {one}" for one in waiting[:SHOWN_MAX]] + more


def _told(past: Sequence[Ran]) -> list[str]:
    shown = [
        f"  {ran.at}  {ran.id!r} (handler {ran.handler!r}) attempt {ran.attempt}: {ran.outcome.value}"
        + (f", {ran.error:.200}" if ran.error else "")
        for ran in past[-SHOWN_MAX:]
    ]
    return shown or ["  none"]


def _apart(difference: timedelta) -> str:
    return f"{abs(difference)} {'later' if difference > timedelta(0) else 'earlier'}"
