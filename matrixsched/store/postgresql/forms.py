"""The protocol in the form that the installation has: as ever, or distributed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matrixsched.clock import Clock
from matrixsched.store.postgresql.distributed.timing import timed
from matrixsched.store.postgresql.distributed.transitions import DistributedTransitions
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.transition import Conversation, Transaction, Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Installation


class EitherForm(PostgresTransitions):
    """Passes on what it is asked to the form that the installation has.

    Whoever asks while nobody knows it reads it first, in the same conversation: a program may begin with a transaction
    of its own, on a connection that is not ours, and what it writes in the wrong form is not found again.
    """

    def __init__(self, installation: str, *, clock: Clock | None = None) -> None:
        super().__init__(installation, clock=clock)
        self._installation = installation
        self._form: PostgresTransitions | None = None

    @property
    def is_distributed(self) -> bool | None:
        """None while it is not known."""
        return None if self._form is None else isinstance(self._form, DistributedTransitions)

    def forget(self) -> None:
        """Let it be read anew: the installation may be another one."""
        self._form = None

    def _passed_on(self, name: str, /, *args: Any, **kwargs: Any) -> Transition[Any]:
        if self._form is None:
            # Of which kind it is, the form would say: in one transaction it is right in both.
            return Transaction(name, lambda: self._reading_first(name, *args, **kwargs))
        return _asked(self._form, name, *args, **kwargs)

    def _reading_first(self, name: str, /, *args: Any, **kwargs: Any) -> Conversation[Any]:
        facts = yield from PostgresTransitions.installation(self).begin()
        form = self._form = self._form_of(facts)
        if name == "installation":
            return facts
        return (yield from _asked(form, name, *args, **kwargs).begin())

    def _form_of(self, facts: Installation) -> PostgresTransitions:
        form = DistributedTransitions if facts.is_distributed else PostgresTransitions
        return form(self._installation, clock=self._clock)


def _asked(form: PostgresTransitions, name: str, /, *args: Any, **kwargs: Any) -> Transition[Any]:
    transition: Transition[Any] = getattr(form, name)(*args, **kwargs)
    return timed(transition, form.asking_now()) if isinstance(form, DistributedTransitions) else transition


def _passing_on(name: str) -> Callable[..., Transition[Any]]:
    def ask(self: EitherForm, /, *args: Any, **kwargs: Any) -> Transition[Any]:
        return self._passed_on(name, *args, **kwargs)

    return ask


# To the type checker they are those of the usual form, which the distributed one takes on with their types.
for _name in dir(Transitions):
    if not _name.startswith("_"):
        setattr(EitherForm, _name, _passing_on(_name))
