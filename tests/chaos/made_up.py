"""Logs of runs that never were, to show judges what is right and, spoilt, what is wrong."""

from __future__ import annotations

from typing import Any

from chaos.audit import Change
from chaos.facts import ActionRow, Facts, Operation, Parcel, Remembered, Run, Told
from chaos.nemeses import Fault
from chaos.setting import PLACES, SHARDS
from chaos.watching import Sample, Snapshot
from matrixsched.rules.names import shard_of

LEASE_S = 2.0
SHARD = shard_of("a", SHARDS)


def change(seq: int, at: float, place: str, op: str, **given: Any) -> Change:
    usual = dict.fromkeys(Change._fields) | {"writer": "w1", "id": "a", "succeeded": 0, "failed": 0, "interrupted": 0}
    return Change(**(usual | {"seq": seq, "at": at, "place": place, "op": op} | given))


def claimed(seq: int, at: float, attempt: int = 1, writer: str = "w1", **given: Any) -> Change:
    """A row is claimed; the first time as it is moved."""
    before: dict[str, Any] = {} if attempt == 1 else {"was_guid": "g", "was_attempt": attempt - 1}
    usual = {"guid": "g", "attempt": attempt, "claim": f"s{attempt}", "due": at + LEASE_S, "writer": writer}
    return change(seq, at, "row", "I" if attempt == 1 else "U", **(usual | before | given))


def locked(seq: int, at: float, guid: str, writer: str = "w1", shard: int = SHARD, state: str = "locked") -> Change:
    return change(seq, at, "lock", "U", id=f"{shard}", guid=guid, writer=writer, state=state)


def place(seq: int, at: float, task: str, state: str, **given: Any) -> Change:
    """A task of the semaphore waits for a place, or gets one."""
    was = {"was_state": "waiting", "was_due": at} if state == "acquired" else {}
    usual = {"id": task, "guid": task, "state": state, "due": 10.0, "note": "1"} | was
    return change(seq, at, "hold", "I" if state == "waiting" else "U", **(usual | given))


def recorded(seq: int, at: float, attempt: int = 1, writer: str = "w1", interrupted: int = 0) -> list[Change]:
    row = {"was_guid": "g", "was_attempt": attempt, "was_claim": f"s{attempt}", "was_due": at + 1}
    action = {"guid": "g", "was_guid": "g", "state": "done", "was_state": "live", "succeeded": 1}
    return [
        change(seq, at, "row", "D", writer=writer, **row),
        change(seq + 1, at, "action", "U", writer=writer, interrupted=interrupted, **action),
    ]


def called(name: str, at: float, what: str = "schedule", **given: Any) -> Operation:
    usual = {"not_before": at, "handler": "work", "payload": 0.1, "reply": "ok", "replied": at + 0.01, "guid": "g"}
    return Operation(name, what, given.pop("ids", ("a",)), at, **(usual | given))


def ran(begun: float, attempt: int = 1, writer: str = "w1", ending: str | None = "done", **given: Any) -> Run:
    usual = {"id": "a", "guid": "g", "tick": 0, "handler": "work", "due": 10.0, "ended": begun + 0.1}
    return Run(writer=writer, attempt=attempt, begun=begun, ending=ending, **(usual | given))


def quiet_run() -> Facts:
    """An action is scheduled, claimed, run and recorded; a task is put and handled, another one told of its place."""
    take = {"id": "7", "guid": "r1", "attempt": 0, "due": 12.0}
    return Facts(
        operations=[
            called("c1", 10.0),
            called("c2", 10.0, "put", ids=("p-1",), guid=None),
            called("c3", 10.0, "enqueue", ids=("s-1",), guid=None),
        ],
        runs=[ran(10.1)],
        changes=[
            *(locked(0, 5.0, "s1", shard=shard) for shard in range(SHARDS)),
            claimed(1, 10.05),
            *recorded(2, 10.3),
            change(4, 10.1, "task", "U", **take),
            change(5, 10.4, "task", "D", id="7", was_guid="r1", was_due=12.0),
            place(6, 10.0, "s-1", "waiting"),
            place(7, 10.1, "s-1", "acquired"),
            change(8, 10.5, "hold", "D", id="s-1", was_guid="s-1", was_state="acquired"),
            change(9, 10.0, "grant", "I", id="news", attempt=0, note="5"),
        ],
        actions={"a": ActionRow("a", "g", "done", 1, 0, 0)},
        told=[Told("s-1", 10.2, "w1")],
        parcels=[Parcel("p-1", "7", "r1", at, "w1", done) for at, done in ((10.2, False), (10.3, True))],
        snapshots=[Snapshot(10.2, [], PLACES)],
        samples={"w1": [Sample(10.0 + number, 20, 5) for number in range(60)]},
        incarnations=[("w1", 101, 0.0, 100.0), ("w2", 102, 0.0, 100.0)],
    )


def taken_over_run() -> Facts:
    """The same, but w1 is killed in its first attempt, and w2 makes the second one."""
    facts = quiet_run()
    facts.runs = [ran(10.1, ending=None, ended=None), ran(12.1, attempt=2, writer="w2", due=12.05)]
    again = claimed(2, 12.06, 2, "w2", was_claim="s1", was_due=12.05, interrupted=1)
    quiet = facts.changes
    facts.changes = [
        *quiet[:SHARDS],
        *(locked(0, 6.0, f"l{n}", f"w{n}", shard=(SHARD + n) % SHARDS) for n in (2, 3, 4)),
        quiet[SHARDS],
        locked(2, 12.05, "s2", "w2"),
        again,
        *recorded(3, 12.3, 2, "w2", interrupted=1),
        *quiet[SHARDS + 3 :],
    ]
    facts.faults = [Fault("kill", "w1", 10.2, 10.2)]
    facts.incarnations = [("w1", 101, 0.0, 10.2), ("w2", 102, 0.0, 100.0), ("w3", 103, 0.0, 100.0)]
    facts.incarnations += [("w4", 104, 0.0, 100.0)]
    facts.actions = {"a": ActionRow("a", "g", "done", 1, 0, 1)}
    facts.history = [Remembered("g", 1, "interrupted")]
    return facts


def spot(facts: Facts, place: str, number: int) -> int:
    """Where the so-manieth change of a kind is, counted from 0."""
    return [index for index, change in enumerate(facts.changes) if change.place == place][number]


def altered(facts: Facts, place: str, number: int, **given: Any) -> None:
    index = spot(facts, place, number)
    facts.changes[index] = facts.changes[index]._replace(**given)
