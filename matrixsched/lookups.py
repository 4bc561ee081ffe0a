"""What is asked of actions that are there: by their ids, in lists, as it was and as it will be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from matrixsched.calls import check_filter, next_runs_of
from matrixsched.errors import ActionNotFound
from matrixsched.explaining import explaining
from matrixsched.rules.action import Action, PastAttempt
from matrixsched.rules.explanation import Explanation
from matrixsched.rules.names import check_name, shard_of
from matrixsched.rules.times import check_integer
from matrixsched.store.migrations import check_version
from matrixsched.store.transition import Conversation, Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import ActionFilter

LIST_LIMIT_MAX = 10_000


class Lookups:
    def __init__(self, do: Transitions) -> None:
        self._do = do
        self._shard_count: int | None = None

    def finding(self, action_id: str) -> Transition[Action]:
        check_name("id", action_id)
        return Transition("get", lambda: self._found(action_id))

    def finding_many(self, action_ids: Sequence[str]) -> Transition[list[Action]]:
        """Those that are there, in no order, by one statement."""
        for action_id in action_ids:
            check_name("id", action_id)

        def conversation() -> Conversation[list[Action]]:
            shard_count = yield from self._shards()
            return (yield from self._do.find([(shard_of(id, shard_count), id) for id in action_ids]).begin())

        return Transition("get", conversation)

    def remembering(self, action_id: str) -> Transition[list[PastAttempt]]:
        check_name("id", action_id)

        def conversation() -> Conversation[list[PastAttempt]]:
            return (yield from self._do.history((yield from self._shard(action_id)), action_id).begin())

        return Transition("history", conversation)

    def foreseeing(self, action_id: str, count: int) -> Transition[list[datetime]]:
        check_name("id", action_id)
        check_integer("count", count, least=1, most=LIST_LIMIT_MAX)

        def conversation() -> Conversation[list[datetime]]:
            found = yield from self._found(action_id)
            return next_runs_of(found, (yield from self._do.now().begin()), count)

        return Transition("next_runs", conversation)

    def explaining(self, action_id: str) -> Transition[Explanation]:
        return explaining(self._do, self._shard, action_id)

    def listing(self, wanted: ActionFilter, after: Action | str | None, limit: int) -> Transition[list[Action]]:
        check_integer("limit", limit, least=1, most=LIST_LIMIT_MAX)
        wanted = check_filter(wanted)
        after_id = after.id if isinstance(after, Action) else after
        if after_id is not None:
            check_name("after", after_id)

        def conversation() -> Conversation[list[Action]]:
            key = None if after_id is None else ((yield from self._shard(after_id)), after_id)
            return (yield from self._do.page(wanted, after=key, limit=limit).begin())

        return Transition("list", conversation)

    def installing(self) -> Transition[int]:
        """The number of shards; refuses a schema that this library cannot work with."""
        return Transition("installation", self._shards)

    # Parts of conversations.

    def _shards(self) -> Conversation[int]:
        if self._shard_count is None:
            installation = yield from self._do.installation().begin()
            check_version(installation)
            self._shard_count = installation.shard_count
        return self._shard_count

    def _shard(self, action_id: str) -> Conversation[int]:
        return shard_of(action_id, (yield from self._shards()))

    def _found(self, action_id: str) -> Conversation[Action]:
        shard = yield from self._shard(action_id)
        found = yield from self._do.find([(shard, action_id)]).begin()
        if not found:
            raise ActionNotFound(action_id)
        return found[0]
