"""The protocol in the form that the installation has: as ever, or distributed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from matrixsched.clock import Clock
from matrixsched.store.postgresql.distributed.timing import timed
from matrixsched.store.postgresql.distributed.transitions import DistributedTransitions
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.transition import Ask, Transition
from matrixsched.store.transitions import Transitions

T = TypeVar("T")

_TRANSITIONS = frozenset(name for name in dir(Transitions) if not name.startswith("_"))


class _Form(Transitions, Protocol):
    """What each of the two has to be; that they are is seen where they are made, for what passes on is not checked."""

    def asking_now(self) -> Ask: ...


class EitherForm:
    """Passes on what it is asked. The form is known once the store is open; many keep this since before."""

    def __init__(self, installation: str, *, clock: Clock | None) -> None:
        self._installation = installation
        self._clock = clock
        self._form: _Form = PostgresTransitions(installation, clock=clock)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._form, name)
        if self.is_distributed and name in _TRANSITIONS:
            return partial(self._timed, found)
        return found

    def _timed(self, transition: Callable[..., Transition[T]], *args: Any, **kwargs: Any) -> Transition[T]:
        return timed(transition(*args, **kwargs), self._form.asking_now())

    @property
    def is_distributed(self) -> bool:
        return isinstance(self._form, DistributedTransitions)

    def become(self, *, is_distributed: bool) -> None:
        if is_distributed != self.is_distributed:
            form = DistributedTransitions if is_distributed else PostgresTransitions
            self._form = form(self._installation, clock=self._clock)
