"""What can be wrong with an installation, what each fault means, and how it is mended.

Only what no constraint of the tables rules out, and what no work, however it is interrupted, leaves behind; but for
litter, which is left behind all the time and which workers clear away by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    # Of the whole installation.
    NO_LOCK = "no-lock"
    EXTRA_LOCK = "extra-lock"
    LOCK_TIME = "lock-time"
    CHORE = "chore"
    QUOTA = "quota"
    TEMPLATE = "template"
    SEMAPHORE = "semaphore"
    UNBALANCED = "unbalanced"
    TASK_LEASE = "task-lease"
    TASK_TWICE = "task-twice"
    # Of an action, in its shard.
    MISPLACED = "misplaced"
    LOST = "lost"
    TWICE = "twice"
    TIME = "time"
    LANE = "lane"
    LEASE = "lease"
    COUNTERS = "counters"
    STRAY = "stray"
    # Litter.
    DEAD = "dead"
    ORPHAN = "orphan"
    FINISHED = "finished"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Meaning:
    what: str
    """What is wrong, and what comes of it."""
    mend: str | None
    """What a repair does; None: somebody has to decide, `what` says by which command."""
    command: str | None = None
    """By which somebody ends it who has decided; its argument is what the finding is about."""
    is_litter: bool = False
    """Harmless, part of any healthy installation, and cleared away by workers."""


MEANINGS: Mapping[Fault, Meaning] = {
    Fault.NO_LOCK: Meaning("the shard has no lock, so that no worker ever takes it", "the lock is put back, free"),
    Fault.EXTRA_LOCK: Meaning("a lock of a shard that does not exist", "the lock is removed"),
    Fault.LOCK_TIME: Meaning(
        "the times of the shard's lock lie in the future: it is served after all others", "the times are set to now"
    ),
    Fault.CHORE: Meaning("the row of a chore is missing, so that no worker ever does it", "the row is put back"),
    Fault.QUOTA: Meaning(
        "the settings of the quota are missing, so that no window is planned",
        "those of a new installation are put in their place: `matrixsched quota set` changes them",
    ),
    Fault.TEMPLATE: Meaning(
        "live actions are of a template that does not exist, and wait until it does: `matrixsched templates set NAME`",
        None,
        "templates set",
    ),
    Fault.SEMAPHORE: Meaning(
        "tasks wait for a semaphore that does not exist, until it does: `matrixsched semaphores set KEY`",
        None,
        "semaphores set",
    ),
    Fault.UNBALANCED: Meaning(
        "a semaphore has free places, tasks wait for them, and nothing tells a worker to give them out",
        "a mark is put there that has it balanced",
    ),
    Fault.TASK_LEASE: Meaning(
        "a task of a queue is taken for longer than anybody may ask for", "it is cut to the longest visibility timeout"
    ),
    Fault.TASK_TWICE: Meaning("a task stands in its queue and among its dead letters", "the dead letter is removed"),
    Fault.MISPLACED: Meaning(
        "the action is not in the shard of its id: nobody finds it, to change or cancel it",
        "it is put into its shard, unless an attempt at it is under way; if an action of its id is there, the one that "
        "was changed last stays",
    ),
    Fault.LOST: Meaning("no row stands for the live action: it would never run", "its row is put back"),
    Fault.TWICE: Meaning("several rows stand for one version of a live action", "all but one are removed"),
    Fault.TIME: Meaning(
        "the row of a live action is due, or expires, at another time than the action",
        "the row is given the action's times",
    ),
    Fault.LANE: Meaning(
        "the row of a live action is in a lane in which nobody looks for it", "it is put into the lane of what is new"
    ),
    Fault.LEASE: Meaning(
        "an attempt's lease ends later than any lease can: nobody runs the action until then",
        "the lease is cut to the longest one",
    ),
    Fault.COUNTERS: Meaning(
        "an action's counters say less than its history, or than each other", "the counters are raised"
    ),
    Fault.STRAY: Meaning("rows in a shard that does not exist, without an action", "the rows are removed"),
    Fault.DEAD: Meaning(
        "rows of a version that was replaced, moved or cancelled", "the rows are removed", is_litter=True
    ),
    Fault.ORPHAN: Meaning("rows without an action", "the rows are removed", is_litter=True),
    Fault.FINISHED: Meaning("rows of an action that has finished", "the rows are removed", is_litter=True),
    Fault.FORGOTTEN: Meaning("history of an action that is gone", "the history is removed", is_litter=True),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault at one place."""

    fault: Fault
    shard: int | None
    """None: it is in none."""
    subject: str
    """The id of the action, or the name or number of what else it is of."""
    guid: str | None
    """Of the version of the action, or of the lock's last holder."""
    seen: str
    """What was seen, in words."""

    @property
    def key(self) -> tuple[Fault, int | None, str, str | None]:
        """By which it is recognised when it is looked at again."""
        return self.fault, self.shard, self.subject, self.guid
