"""What everything takes in statements, in the usual form and in the distributed one.

Tests own the clock, so that nobody asks for the time: in distributed form each transition takes one statement more
where the server's own clock is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from matrixsched import App
from matrixsched.store.postgresql.connection import BEGIN
from support.counting import form_of

OF_A_TRANSACTION = {BEGIN: 1, "commit": 1}
IN_A_TRANSACTION = OF_A_TRANSACTION | {"patience": 1}


@dataclass(frozen=True)
class Costs:
    thousand_actions: Mapping[int, int]
    """By the number of shards, from the incoming queue to the recorded outcome, at most."""
    batch: Mapping[str, int]
    """Of one shard: taken, moved and claimed in passing, released, recorded."""
    vain_look: Mapping[str, int]
    """For a shard with work, where there is none."""
    recording: Mapping[str, int]
    """Outcomes of several shards together."""
    lone_start: Mapping[str, int]
    """For whoever is told of an action: taken, moved and claimed at once, released, recorded."""
    call: Mapping[str, int]
    """To schedule an action, or many of one shard; `per_shard` of it for each."""
    per_shard: str
    changes: Mapping[str, Mapping[str, int]]
    """By the call."""
    tidying_max: int
    """A turn of tidying, of which there is one in half a minute: take the chore, look for each kind, end. And a report
    of what the worker did: what is due, how the minute stands, how the last one ended."""

    def calls(self, batches: int, *, shards: int) -> Counter[str]:
        """To schedule batches of actions that are in all shards."""
        return Counter(
            {name: batches * each * (shards if name == self.per_shard else 1) for name, each in self.call.items()}
        )

    def callers_calls(self, batches: int, *, shards: int) -> Counter[str]:
        """In a transaction of theirs, beside its begin and its commit."""
        ours = self.calls(batches, shards=shards)
        return Counter({name: each for name, each in ours.items() if name not in IN_A_TRANSACTION})

    def batches(self, shards: int) -> Counter[str]:
        """To do what waits in so many shards, and to see that there is no more."""
        return Counter({name: shards * each for name, each in self.batch.items()}) + Counter(self.vain_look)


USUAL = Costs(
    # A shard is a batch unless it has more than 500; then what there was no room for is claimed apart.
    thousand_actions={1: 10, 4: 17, 64: 257},
    batch={"acquire_shard": 1, "move": 1, "release_shard": 1, "record": 1},
    vain_look={"acquire_shard": 1},
    recording={"record": 1},
    lone_start={"move": 1, "release_shard": 1, "record": 1},
    call={"schedule": 1},
    per_shard="",
    changes={"reschedule": {"reschedule": 1}, "run_now": {"reschedule": 1}, "cancel": {"cancel": 1}},
    tidying_max=15,
)
_LOOK = {"now": 1, "acquire_shard.gates": 1, "acquire_shard.look": 1}
"""It asks for the time by itself: whether the server takes writes is told with it."""
DISTRIBUTED = Costs(
    thousand_actions={1: 13, 4: 32, 64: 452},
    batch=_LOOK | {"acquire_shard.take": 1, "move": 1, "release_shard": 1, "record": 1},
    vain_look=_LOOK | {"acquire_shard.rest": 1},
    recording=OF_A_TRANSACTION | {"record": 1},
    lone_start={"move": 1, "release_shard": 1, "record": 1},
    call=IN_A_TRANSACTION | {"schedule.write": 1, "tell": 1},
    per_shard="schedule.write",
    changes={
        "reschedule": IN_A_TRANSACTION | {"reschedule": 1, "tell": 1},
        "run_now": IN_A_TRANSACTION | {"reschedule": 1, "tell": 1},
        "cancel": IN_A_TRANSACTION | {"cancel": 1},
    },
    tidying_max=16,
)


def costs_of(app: App) -> Costs:
    return DISTRIBUTED if form_of(app) == "distributed" else USUAL
