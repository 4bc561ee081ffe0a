"""The protocol in the form that the installation has: as ever, or distributed."""

from __future__ import annotations

from typing import Any

from matrixsched.clock import Clock
from matrixsched.store.postgresql.distributed.transitions import DistributedTransitions
from matrixsched.store.postgresql.transitions import PostgresTransitions


class EitherForm:
    """Passes on what it is asked. The form is known once the store is open; many keep this since before."""

    def __init__(self, installation: str, *, clock: Clock | None) -> None:
        self._installation = installation
        self._clock = clock
        self._form = PostgresTransitions(installation, clock=clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._form, name)

    @property
    def is_distributed(self) -> bool:
        return isinstance(self._form, DistributedTransitions)

    def take(self, *, is_distributed: bool) -> None:
        if is_distributed != self.is_distributed:
            form = DistributedTransitions if is_distributed else PostgresTransitions
            self._form = form(self._installation, clock=self._clock)
