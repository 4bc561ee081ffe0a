"""The part of the protocol about templates and their quota. One implementation for each database, the same promises.

A template is locked before its limit, so that nobody waits for somebody who waits for him.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.templates import Template, TemplateChange
from matrixsched.store.transition import Transition
from matrixsched.store.values import Stopped


class Templates(Protocol):
    def existing_templates(self, names: Sequence[str]) -> Transition[set[str]]:
        """Those of the names that are templates."""
        ...

    def templates(self) -> Transition[list[Template]]:
        """All of them by name, each with its maximum speed."""
        ...

    def find_template(self, name: str) -> Transition[Template | None]: ...

    def put_template(self, name: str, change: TemplateChange) -> Transition[Template]:
        """Create a template or change it, and its limit with it; it holds from the next window on."""
        ...

    def pause_template(self, name: str, until: datetime | timedelta | None) -> Transition[bool]:
        """Send nothing more of it, at once, until then or until it is resumed; False: no such template, or too late."""
        ...

    def resume_template(self, name: str) -> Transition[bool]:
        """Let it go on, with what it has left in the present window, if any; False if there is no such template."""
        ...

    def remove_template(self, name: str) -> Transition[bool]:
        """Remove it and its limit; False if there is none. TemplateInUse while live actions are of it."""
        ...

    def count_template(self, name: str, *, count_max: int) -> Transition[int]:
        """How many live actions are of it; counting stops at `count_max`."""
        ...

    def cancel_template_batch(self, name: str, *, guids: Sequence[UUID], after: tuple[int, str]) -> Transition[Stopped]:
        """Finish as cancelled the next actions of a template in key order, as many as there are new guids for them.

        Attempts under way go on, and what a user's transaction holds is left for another round.
        """
        ...

    def quota_settings(self) -> Transition[QuotaSettings]: ...

    def set_quota_settings(self, change: Callable[[QuotaSettings], QuotaSettings]) -> Transition[QuotaSettings]:
        """Change the settings as they stand; a window that is planned already stays as it is."""
        ...
