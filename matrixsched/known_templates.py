"""Whether the templates of calls exist, asked of the database once for many calls."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from matrixsched.calls import Call
from matrixsched.clock import Clock
from matrixsched.errors import UnknownTemplate
from matrixsched.rules.names import check_name
from matrixsched.store.transition import Conversation, Transition
from matrixsched.store.transitions import Transitions

TRUST_S = 5.0
"""How long a template that was there is taken to be there still. One that is removed meanwhile has its late messages
wait, as all do that were scheduled at the moment of its removal."""


class KnownTemplates:
    def __init__(self, do: Transitions, clock: Clock) -> None:
        self._do = do
        self._clock = clock
        self._seen: dict[str, float] = {}

    def is_in_doubt(self, call: Call) -> bool:
        """Whether the call has a template that was not seen lately."""
        if not isinstance(call.template, str):
            return call.template is not None
        return self._clock.monotonic() - self._seen.get(call.template, float("-inf")) > TRUST_S

    def checking(self, calls: Sequence[Call]) -> Transition[None]:
        """Refuse templates that do not exist; one statement for all of them, none if no call has any."""
        return Transition("existing_templates", lambda: self._check(calls))

    def _check(self, calls: Sequence[Call]) -> Conversation[None]:
        wanted = sorted({check_name("template", call.template) for call in calls if call.template is not None})
        if not wanted:
            return
        existing = yield from self._do.existing_templates(wanted).begin()
        for name in wanted:
            if name not in existing:
                self._seen.pop(name, None)
                known = [template.name for template in (yield from self._do.templates().begin())]
                raise UnknownTemplate(name, get_close_matches(name, known))
        now = self._clock.monotonic()
        self._seen.update(dict.fromkeys(existing, now))
