"""The part of the protocol about templates. One implementation for each database, the same promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from matrixsched.rules.templates import Template
from matrixsched.store.transition import Transition


class Templates(Protocol):
    def existing_templates(self, names: Sequence[str]) -> Transition[set[str]]:
        """Those of the names that are templates."""
        ...

    def templates(self) -> Transition[list[Template]]:
        """All of them by name, each with its maximum speed."""
        ...

    def find_template(self, name: str) -> Transition[Template | None]: ...
