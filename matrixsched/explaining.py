"""Why an action has not run yet: what is known about it is read, and the rule says what follows."""

from __future__ import annotations

from collections.abc import Callable

from matrixsched.errors import ActionNotFound
from matrixsched.rules.explanation import Explanation, explain
from matrixsched.rules.names import check_name
from matrixsched.store.transition import Conversation, Transition
from matrixsched.store.transitions import Transitions


def explaining(do: Transitions, shard: Callable[[str], Conversation[int]], action_id: str) -> Transition[Explanation]:
    check_name("id", action_id)

    def conversation() -> Conversation[Explanation]:
        standing = yield from do.standing((yield from shard(action_id)), action_id).begin()
        if standing is None:
            raise ActionNotFound(action_id)
        return explain(standing)

    return Transition("explain", conversation)
