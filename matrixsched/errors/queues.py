"""What is wrong with contracts of queues, and with their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matrixsched.errors.roots import BadInput, MatrixSchedError, shown
from matrixsched.errors.surroundings import ConfigurationError


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a file, where it is, and what to do about it. Lines and columns are counted from 1."""

    file: str
    line: int | None
    column: int | None
    what: str

    @property
    def place(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


class InvalidContract(BadInput):
    """A contract of queues that cannot be used; all mistakes at once."""

    remedy = "Correct the contract."

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.mistakes: tuple[Mistake, ...] = ()


class InvalidContractFile(InvalidContract):
    """A file that was to be a contract and is none; all mistakes at once, each with its place."""

    remedy = "Correct the file; `matrixsched contract check FILE` says what is left."

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)

    def with_remedy(self, remedy: str) -> str:
        return "\n".join([*map(str, self.mistakes), remedy])


class UnknownQueue(BadInput):
    """The contract has no queue of that name or number."""

    remedy = "Check the spelling, or add the queue to the contract."

    def __init__(self, queue: object, known: Sequence[str]) -> None:
        super().__init__(f"the contract has no queue {shown(queue)}; it has: {', '.join(known)}")
        self.queue, self.known = queue, tuple(known)


class QueueContradiction(BadInput):
    """Two contracts in one application say different things of the same queue."""

    remedy = "Give each queue a number and a name of its own, and use one version of its contract."

    def __init__(self, queue: str, why: str) -> None:
        super().__init__(f"queue {queue!r} contradicts what is declared already: {why}")
        self.queue, self.why = queue, why


class InvalidTask(BadInput):
    """A task that cannot be stored, for it is not as its contract says. The value at fault is not repeated."""

    remedy = "Give the field a value as the contract says; nothing was put."

    def __init__(self, queue: str, field: str, why: str) -> None:
        super().__init__(f"the task for queue {queue!r} cannot be written: its field {field!r} {why}")
        self.queue, self.field, self.why = queue, field, why


class TaskTooLarge(BadInput):
    """A task with more bytes than a queue takes."""

    remedy = "Store the bulk elsewhere and put a reference to it."

    def __init__(self, queue: str | int, size: int, size_max: int, why: str = "") -> None:
        reason = f": {why}" if why else ""
        super().__init__(f"a task for queue {queue!r} has {size:,} bytes, {size_max:,} are allowed{reason}")
        self.queue, self.size, self.size_max, self.why = queue, size, size_max, why


class TaskUnreadable(MatrixSchedError):
    """A stored task that is not as its contract says. Nothing of what it holds is repeated."""

    remedy = "See who puts such tasks; `matrixsched contract diff OLD NEW` says if the contract was changed too much."

    def __init__(self, queue: str, task_id: int | None, field: str | None, why: str) -> None:
        where = "it" if field is None else f"its field {field!r}"
        super().__init__(f"{_named(task_id)} of queue {queue!r} cannot be read: {where} {why}")
        self.queue, self.task_id, self.field, self.why = queue, task_id, field, why


class TaskTooNew(MatrixSchedError):
    """A stored task with more fields than the contract has: a newer contract wrote it."""

    remedy = "Deploy the newer contract here, too; until then leave the task to workers that have it."

    def __init__(self, queue: str, task_id: int | None, fields: int, known: int) -> None:
        super().__init__(
            f"{_named(task_id)} of queue {queue!r} was written by a newer contract: it has {fields:,} fields, "
            f"this contract has {known:,}"
        )
        self.queue, self.task_id, self.fields, self.known = queue, task_id, fields, known


def _named(task_id: int | None) -> str:
    return "a task" if task_id is None else f"task {task_id}"


class ExtraMissing(ConfigurationError):
    """A part of matrixsched that needs libraries which only come with an extra."""

    remedy = "Install them: pip install 'matrixsched[queues]'."

    needed_by = "typed queues need"

    def __init__(self, library: str) -> None:
        super().__init__([f"{self.needed_by} libraries that are not installed ({library})"])
        self.library = library


class WebExtraMissing(ExtraMissing):
    """The dashboard and the API need libraries which only come with an extra."""

    remedy = "Install them: pip install 'matrixsched[web]'."
    needed_by = "dashboard and API need"
