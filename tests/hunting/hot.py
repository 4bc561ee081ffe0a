"""Which statements are hot, their mutants, and how one is planted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simulation.gates import GatesPart
from simulation.parts import Part
from simulation.queues import Queues
from simulation.semaphores import Semaphores
from simulation.sql_mutants import mutants

from matrixsched.store.statements import Dialect, Statement, load, statement

DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Hot:
    """A file of statements."""

    name: str
    moves: tuple[str, ...]
    """Of the interleaver, those that ask it."""
    part: type[Part] | None = None
    """Of the simulator, the one that asks it; None: every run does."""


HOT = {
    hot.name: hot
    for hot in (
        Hot("claim", ("claim", "run", "sync")),
        Hot("move", ("move", "move-free", "run", "sync")),
        Hot("record", ("record", "record-retry", "run")),
        Hot("unblock", ("record", "record-retry", "run")),
        Hot("extend", ("extend",)),
        Hot("acquire_shard", ("acquire", "sync")),
        Hot("beat_shard", ("beat",)),
        Hot("release_shard", ("release", "sync")),
        Hot("close_fence", ("close-fence",)),
        Hot("schedule", ("schedule", "schedule-twice", "keep", "schedule-two", "schedule-other")),
        Hot("reschedule", ("reschedule", "run-now", "run-now-as-seen", "reschedule-named")),
        Hot("call_off", ("call-off",)),
        Hot("cancel", ("cancel", "cancel-read")),
        Hot("replace_expected", ("replace",)),
        Hot("give_back", ("give-back",)),
        Hot("sweep_dead", ("sweep",)),
        Hot("prune_actions", ("prune",)),
        Hot("prune_requests", ("prune-requests",)),
        Hot("take_tasks", ("take", "take-one"), Queues),
        Hot("done_tasks", ("done", "done-again", "done-late"), Queues),
        Hot("retry_tasks", ("retry",), Queues),
        Hot("extend_tasks", ("extend-tasks",), Queues),
        Hot("put_tasks", ("put",), Queues),
        Hot("set_aside_tasks", ("set-aside",), Queues),
        Hot("dead_letters", ("redrive", "purge-dead"), Queues),
        Hot("balance", ("balance",), Semaphores),
        Hot("enqueue_tasks", ("enqueue",), Semaphores),
        Hot("release_tasks", ("let-go", "let-all-go"), Semaphores),
        Hot("renew_tasks", ("renew",), Semaphores),
        Hot("step_back", ("step-back",), Semaphores),
        Hot("lock_limits", ("claim-gated",), GatesPart),
        Hot("lock_grants", ("claim-gated",), GatesPart),
        Hot("spend", ("claim-gated",), GatesPart),
        Hot("expire_waiting", ("expire",), GatesPart),
        Hot("plan_window", ("plan",), GatesPart),
        Hot("relist_lanes", ("relist",), GatesPart),
    )
}
"""By the names of their files; those come first where a mistake costs most."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mutant of a statement."""

    dialect: Dialect
    statement: str
    what: str
    text: str

    @property
    def hot(self) -> Hot:
        return HOT[file_of(self.statement)]

    @property
    def name(self) -> tuple[str, str, str]:
        return self.dialect, self.statement, self.what

    @property
    def mutated(self) -> Statement:
        return statement(self.dialect, "default", self.statement, self.text)


def file_of(name: str) -> str:
    return name.partition(".")[0]


def hot_statements(dialect: Dialect) -> list[str]:
    """By name, file by file."""
    found = [name for name in load(dialect, "default") if file_of(name) in HOT]
    return sorted(found, key=lambda name: (list(HOT).index(file_of(name)), name))


def mutations(dialect: Dialect, names: list[str]) -> list[Mutation]:
    """All mutants of these statements."""
    statements = load(dialect, "default")
    return [
        Mutation(dialect, name, mutant.what, mutant.text)
        for name in names
        for mutant in mutants(statements[name].text, dialect)
    ]


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """Whoever opens a store meanwhile gets the mutant for the statement."""
    statements = load(mutation.dialect, "default")
    sound = statements[mutation.statement]
    statements[mutation.statement] = mutation.mutated
    try:
        yield
    finally:
        statements[mutation.statement] = sound
