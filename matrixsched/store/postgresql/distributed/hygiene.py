"""Chores and operators' work in distributed form: looked for over the shards, done shard after shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from matrixsched.rules.action import State
from matrixsched.rules.gates import LOOK_AGAIN
from matrixsched.rules.outcome import EXPIRED_UNSTARTED
from matrixsched.store.gating import Spent
from matrixsched.store.postgresql.distributed.grouping import rows_by_shard
from matrixsched.store.postgresql.gating import PostgresGating
from matrixsched.store.postgresql.hygiene import PostgresHygiene
from matrixsched.store.postgresql.templates import PostgresTemplates
from matrixsched.store.transition import Conversation, Row, transaction, transition
from matrixsched.store.values import Expiry, Stopped, SweepPosition, Swept, mark_of, took_effect


class DistributedHygiene(PostgresHygiene, PostgresGating, PostgresTemplates):
    @transition
    def prune_actions(self, state: State, *, keep: timedelta, limit: int) -> Conversation[int]:
        gone, since, met = 0, None, list[str]()
        while True:
            old = yield self._ask("prune_actions.old", state=state, keep=keep, since=since, met=met, limit=limit)
            gone += yield from self._delete_old(old, state, keep, limit - gone)
            # What somebody holds now is looked at and stays: fewer than the limit must mean that there is no more.
            if gone >= limit or len(old) < limit:
                return gone
            last = old[-1]["finished_at"]
            met = [*(met if last == since else ()), *_ids([row for row in old if row["finished_at"] == last])]
            since = last

    def _delete_old(self, old: Sequence[Row], state: State, keep: timedelta, limit: int) -> Conversation[int]:
        gone = 0
        for shard, rows in rows_by_shard(old):
            if gone < limit:
                (row,) = yield self._ask(
                    "prune_actions.delete",
                    shard_id=shard,
                    action_ids=_ids(rows),
                    state=state,
                    keep=keep,
                    limit=limit - gone,
                )
                gone += row["gone"]
        return gone

    @transition
    def prune_requests(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("prune_requests", keep=keep, limit=limit)
        gone = int(row["gone"])
        for found in (yield self._ask("prune_action_requests.shards", keep=keep)):
            if gone < limit:
                (row,) = yield self._ask(
                    "prune_action_requests.delete", shard_id=found["shard_id"], keep=keep, limit=limit - gone
                )
                gone += row["gone"]
        return gone

    @transition
    def carried_out(self, guids: Sequence[UUID]) -> Conversation[set[UUID]]:
        asked = [*guids, *map(mark_of, guids)]
        of_actions = yield self._ask("carried_out.of_actions", guids=asked)
        of_others = yield self._ask("carried_out.of_others", guids=asked)
        return took_effect(guids, {row["request_guid"] for row in (*of_actions, *of_others)})

    @transition
    def call_off(self, shard: int, change_guid: UUID) -> Conversation[None]:
        yield self._ask("call_off", shard_id=shard, change_guid=change_guid, mark=mark_of(change_guid))

    @transition
    def sweep_dead(self, position: SweepPosition, *, limit: int, reach: timedelta) -> Conversation[Swept]:
        looked = yield self._ask(
            "sweep_dead.look",
            after_shard=position.shard,
            after_id=position.action_id,
            after_guid=position.guid,
            limit=limit,
            reach=reach,
        )
        gone = shortened = 0
        for shard, rows in rows_by_shard(looked):
            (row,) = yield self._ask("sweep_dead.dead", shard_id=shard, **_versions(rows))
            gone += row["gone"]
            if stranded := [one for one in rows if one["stranded"]]:
                (row,) = yield self._ask("sweep_dead.shorten", shard_id=shard, reach=reach, **_versions(stranded))
                shortened += row["shortened"]
        following = SweepPosition()
        if len(looked) == limit:
            following = SweepPosition(looked[-1]["shard_id"], looked[-1]["action_id"], looked[-1]["action_guid"])
        return Swept(gone, following, shortened)

    @transition
    def sweep_history(self, position: SweepPosition, *, limit: int, history_max: int) -> Conversation[Swept]:
        looked = yield self._ask(
            "sweep_history.look", after_shard=position.shard, after_id=position.action_id, limit=limit
        )
        gone = 0
        for shard, rows in rows_by_shard(looked):
            ids = list(dict.fromkeys(_ids(rows)))
            (row,) = yield self._ask("sweep_history.delete", shard_id=shard, action_ids=ids, history_max=history_max)
            gone += row["gone"]
        if len(looked) < limit:
            return Swept(gone, SweepPosition())
        return Swept(gone, SweepPosition(looked[-1]["shard_id"], looked[-1]["action_id"]))

    @transition
    def expire_waiting(self, *, limit: int) -> Conversation[Expiry]:
        late = yield self._ask("expire_waiting.late", limit=limit)
        gone = expired = 0
        templates = Counter[str]()
        for shard, rows in rows_by_shard(late):
            (row,) = yield self._ask("expire_waiting.write", shard_id=shard, error=EXPIRED_UNSTARTED, **_versions(rows))
            gone += row["gone"]
            expired += row["expired"]
            templates.update(row["templates"])
        return Expiry(len(late), gone, expired, dict(templates))

    @transition
    def cancel_template_batch(
        self, name: str, *, guids: Sequence[UUID], after: tuple[int, str]
    ) -> Conversation[Stopped]:
        after_shard, after_id = after
        looked = yield self._ask(
            "cancel_template.look", template=name, after_shard=after_shard, after_id=after_id, limit=len(guids)
        )
        cancelled, unused = 0, iter(guids)
        for shard, rows in rows_by_shard(looked):
            (row,) = yield self._ask(
                "cancel_template.write",
                shard_id=shard,
                template=name,
                fresh_guids=[next(unused) for _ in rows],
                **_versions(rows),
            )
            cancelled += row["cancelled"]
        is_last = len(looked) < len(guids)
        return Stopped(cancelled, None if is_last else (looked[-1]["shard_id"], looked[-1]["action_id"]))

    # Gates.

    def _spend(self, spent: Spent) -> Conversation[None]:
        filled: set[str] = set()
        if spent.emptied:
            filled = {row["lane"] for row in (yield self._ask("spend.filled", lanes=spent.emptied))}
        yield self._ask("spend.slots", limits=list(spent.next_slots), next_slots=list(spent.next_slots.values()))
        yield self._ask(
            "spend.grants",
            begins_at=spent.begins_at,
            templates=[used.template for used in spent.allowances],
            priorities=[used.priority for used in spent.allowances],
            insides=[used.inside for used in spent.allowances],
            used=[used.used for used in spent.allowances],
        )
        yield self._ask(
            "spend.lanes",
            lanes=[note.lane for note in spent.notes],
            lane_priorities=[note.priority for note in spent.notes],
            handlers=[note.handler for note in spent.notes],
            ready_at=[note.ready_at for note in spent.notes],
            emptied=[lane for lane in spent.emptied if lane not in filled],
        )

    @transaction
    def relist_lanes(self, *, every: timedelta, look_again: timedelta = LOOK_AGAIN) -> Conversation[int | None]:
        turns = yield self._ask("relist_lanes.turn", every=every)
        if not turns:
            return None
        listed = yield self._ask("relist_lanes.listed")
        heads = yield self._ask("relist_lanes.heads")
        filled = {head["lane"] for head in heads}
        empty = [one for one in listed if one["lane"] not in filled]
        (row,) = yield self._ask(
            "relist_lanes.lanes",
            lanes=[head["lane"] for head in heads],
            scheduled_at=[head["scheduled_at"] for head in heads],
            open=[head["is_open"] for head in heads],
            empty=[one["lane"] for one in empty],
            empty_ready_at=[one["ready_at"] for one in empty],
            was_set_back=turns[0]["was_set_back"],
            look_again=look_again,
        )
        yield self._ask("relist_lanes.buckets")
        yield self._ask("relist_lanes.done")
        return int(row["listed"])


def _ids(rows: Sequence[Row]) -> list[str]:
    return [row["action_id"] for row in rows]


def _versions(rows: Sequence[Row]) -> Mapping[str, object]:
    return {"action_ids": _ids(rows), "action_guids": [row["action_guid"] for row in rows]}
