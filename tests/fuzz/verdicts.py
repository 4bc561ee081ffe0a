"""What is said of an input, and what must not be: the values that all parts of the fuzz share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from matrixsched.semaphores import TaskSemaphore
from matrixsched.sync_semaphores import SyncTaskSemaphore

Signature = tuple[str, str, str]


@dataclass(frozen=True)
class Verdict:
    kind: str
    """accepted, refused, or unhandled."""
    what: Any
    """The answer, or the error with its text."""
    error: BaseException | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.kind}: {self.what!r:.600}"


@dataclass(frozen=True)
class Violation:
    rule: str
    surface: str
    facts: str
    is_about: str = ""
    """What tells it from others of the same rule and surface."""

    @property
    def signature(self) -> Signature:
        return self.rule, self.surface, self.is_about

    def __str__(self) -> str:
        return f"{self.surface}: {self.rule}: {self.facts}"


class Found(AssertionError):
    """Something that must not be; the message is a test that shows it, to be pasted into tests/fuzz/test_found.py."""

    def __init__(self, violation: Violation, steps: Sequence[Any], player: str) -> None:
        shown = "\n".join(f"            {step!r}," for step in steps)
        test = f"def test_found({player}):\n    {player}.play(\n        [\n{shown}\n        ]\n    )\n"
        super().__init__(f"{violation}\n\n{test}")
        self.violation, self.steps = violation, list(steps)


@dataclass
class Tally:
    """How many inputs there were on a surface, and what became of them."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    violations: Counter[str] = field(default_factory=Counter)

    def count(self, verdict: Verdict, violations: Sequence[Violation]) -> None:
        self.inputs += 1
        self.refused += verdict.kind != "accepted"
        self.accepted += verdict.kind == "accepted"
        self.violations.update({violation.rule for violation in violations})

    def add(self, more: Tally) -> None:
        self.inputs += more.inputs
        self.refused += more.refused
        self.accepted += more.accepted
        self.violations.update(more.violations)


def plain(answer: Any) -> Any:
    """An answer as it is compared: by what is in it."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return type(answer).__name__, {one.name: plain(getattr(answer, one.name)) for one in fields(answer)}
    if isinstance(answer, Enum):
        return answer.value
    if isinstance(answer, dict):
        return {plain(key): plain(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    if isinstance(answer, TaskSemaphore | SyncTaskSemaphore):
        return repr(answer)
    return answer


def difference(one: Any, other: Any) -> str:
    """Where two values begin to differ."""
    first, second = repr(one), repr(other)
    same = next((n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    begin = max(0, same - 100)
    return f"SQLite …{first[begin : begin + 300]} · PostgreSQL …{second[begin : begin + 300]}"
