"""The protocol: every change of state, by name. One implementation for each database, the same promises.

What each statement locks, in which order and on which comparison it writes: schema/README.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from matrixsched.rules.action import Action, Attempt, PastAttempt
from matrixsched.store.fleet import FleetReporting
from matrixsched.store.fsck import Fsck
from matrixsched.store.gating import Gating
from matrixsched.store.hygiene import Hygiene
from matrixsched.store.limits import Limiting
from matrixsched.store.looking import Looking
from matrixsched.store.operators import Operators
from matrixsched.store.planning import Planning
from matrixsched.store.queueing import Queueing
from matrixsched.store.reports import Reporting
from matrixsched.store.semaphores import Semaphoring
from matrixsched.store.stock import Stock
from matrixsched.store.templates import Templates
from matrixsched.store.transition import Transition
from matrixsched.store.values import (
    Acquired,
    ActionFilter,
    Answer,
    Backlog,
    Change,
    Claimed,
    Ended,
    Extension,
    Holding,
    Installation,
    NewAction,
    ShardReport,
    Taking,
    Turn,
    WaitingRow,
    Written,
)


class Transitions(
    FleetReporting,
    Fsck,
    Hygiene,
    Gating,
    Limiting,
    Looking,
    Operators,
    Planning,
    Queueing,
    Reporting,
    Semaphoring,
    Stock,
    Templates,
    Protocol,
):
    # The library: what users change. `tell` asks for a wake-up of workers in the same transaction.

    def schedule(
        self,
        batch: Sequence[NewAction],
        request_guid: UUID,
        *,
        replace: bool,
        only_if_new: bool = False,
        lock_timeout: timedelta | None,
        tell: bool,
    ) -> Transition[list[Written]]:
        """Write actions, sorted by (shard, id), each request once; without `replace` those that exist stay.

        With `only_if_new` nothing is written if any of them exists; one created at this very moment stays, alone.
        Answers with the written ones.
        """
        ...

    def replace_expected(
        self,
        new: NewAction,
        request_guid: UUID,
        expected_guid: UUID,
        *,
        lock_timeout: timedelta | None = None,
        tell: bool,
    ) -> Transition[Written | None]:
        """Write an action over the version that was read; None if it is another one by now (or sent before)."""
        ...

    def reschedule(
        self, change: Change, *, revive: bool, lock_timeout: timedelta | None = None, tell: bool
    ) -> Transition[Written | None]:
        """Move the next run; with `revive` also of a finished action.

        None if the action is not as the change expects it (or it was sent before).
        """
        ...

    def cancel(self, change: Change, *, lock_timeout: timedelta | None = None) -> Transition[Written | None]:
        """Finish a live action as cancelled."""
        ...

    def find(self, keys: Sequence[tuple[int, str]]) -> Transition[list[Action]]:
        """The actions of these (shard, id)."""
        ...

    def page(self, wanted: ActionFilter, *, after: tuple[int, str] | None, limit: int) -> Transition[list[Action]]:
        """A page of actions in key order (shard, id) after a given one."""
        ...

    def history(self, shard: int, action_id: str) -> Transition[list[PastAttempt]]: ...

    def waiting_row(self, shard: int, action_id: str, guid: UUID) -> Transition[WaitingRow | None]:
        """Where this version of an action stands; None if no live action is at it, or is any more."""
        ...

    def installation(self) -> Transition[Installation]: ...

    def now(self) -> Transition[datetime]:
        """The database's time."""
        ...

    def wake(self) -> Transition[None]:
        """Let workers look for work at once, where the database can tell them."""
        ...

    # The worker: a shard is held for the move and the claim only.

    def acquire_shard(
        self,
        *,
        sync_guid: UUID,
        holder: str,
        lease: timedelta,
        lanes: Sequence[str],
        gated_handlers: Sequence[str] = (),
        ahead: timedelta = timedelta(0),
        turn: Turn = Turn.OLDEST,
        only_events: bool = False,
    ) -> Transition[Acquired]:
        """Lock the free shard with work whose turn it is; before all others, or only, one with events, due or new.

        Work are incoming rows, due rows that pass no gate, are on the way to one, or are in one of the special `lanes`,
        and rows of these handlers before a gate that may be open; one does `ahead` of its next slot.
        """
        ...

    def beat_shard(self, shard: int, sync_guid: UUID) -> Transition[bool]: ...

    def release_shard(self, shard: int, sync_guid: UUID, *, tell: bool = False) -> Transition[bool]:
        """Let it go; whether it was still ours. `tell` says that others may find work in it that we left to them."""
        ...

    def close_fence(self, shard: int, sync_guid: UUID, fresh_guid: UUID) -> Transition[bool]:
        """Make sure that nothing is moved or claimed under a guid any more, not even by what is under way.

        The shard is free then, with a fresh guid, unless somebody else holds it; whether it is.
        """
        ...

    def claim(
        self,
        shard: int,
        sync_guid: UUID,
        *,
        lane: str,
        handlers: Sequence[str],
        limit: int,
        claim_limit: int | None = None,
        attempt_lease: timedelta,
    ) -> Transition[Claimed]:
        """Reschedule due rows to the end of a lease and hand them out; settle those that cannot run here.

        `limit` rows are looked at, and at most `claim_limit` of them are handed out.
        """
        ...

    def move(
        self,
        shard: int,
        sync_guid: UUID,
        *,
        handlers: Sequence[str],
        move_limit: int,
        claim_limit: int,
        attempt_lease: timedelta,
        only_events: bool = False,
        taking: Taking | None = None,
    ) -> Transition[Claimed]:
        """Carry rows from incoming to processing, events first or alone; hand out those that are due, as well.

        Under a shard that is held; with `taking` under one that nobody holds, if it has incoming rows: it is held then.
        """
        ...

    def claimed_by(
        self, shard: int, sync_guid: UUID, *, lanes: Sequence[str], attempt_lease: timedelta
    ) -> Transition[list[Attempt]]:
        """What a sync iteration holds, asked after the answer to a claim was lost."""
        ...

    # The attempt: written only by whoever the row says holds it.

    def extend(self, held: Sequence[Holding], *, attempt_lease: timedelta) -> Transition[Mapping[UUID, Extension]]: ...

    def give_back(self, unstarted: Sequence[Attempt]) -> Transition[int]: ...

    def record(self, ended: Sequence[Ended], *, history_max: int) -> Transition[Mapping[UUID, Answer]]: ...

    # Operators.

    def shards(self, *, count_max: int) -> Transition[list[ShardReport]]: ...

    def backlog(self, *, count_max: int) -> Transition[Backlog]:
        """What is due now, over all shards and lanes; cheap however much is stored."""
        ...


TRANSITION_NAMES = tuple(
    sorted(
        {name for name, _ in inspect.getmembers(Transitions, inspect.isfunction) if not name.startswith("_")}
        - {"replace_expected", "find", "page"}
        | {"replace", "get", "list"}
    )
)
"""What they are called when they are carried out; the scheduler names some conversations after what users call."""
