"""Contracts of queues, for operators and for whoever writes them: judged, made into a module, compared."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from matrixsched.errors import Mistake, WrongUse
from matrixsched.ops.render import Facts
from matrixsched.queues.compare import Change
from matrixsched.queues.generate import MARK


class ModuleState(StrEnum):
    """How the file on disk is to what would be generated."""

    SAME = "same"
    DIFFERENT = "different"
    MISSING = "missing"
    FOREIGN = "foreign"
    """It was not generated, so it is not overwritten."""


def module_state(output: Path, text: str) -> ModuleState:
    try:
        found = output.read_bytes()
    except FileNotFoundError:
        return ModuleState.MISSING
    except OSError as error:
        raise WrongUse(f"{output} cannot be read ({error.strerror}): name another file") from None
    if found == text.encode():
        return ModuleState.SAME
    return ModuleState.DIFFERENT if not found or found.startswith(MARK.encode()) else ModuleState.FOREIGN


def write_module(output: Path, text: str) -> None:
    try:
        output.write_bytes(text.encode())
    except OSError as error:
        raise WrongUse(f"{output} cannot be written ({error.strerror}): see to it, or name another file") from None


def counted(mistakes: Sequence[Mistake]) -> str:
    return f"{len(mistakes)} {'mistake' if len(mistakes) == 1 else 'mistakes'}"


def mistake_facts(mistake: Mistake) -> Facts:
    return {"file": mistake.file, "line": mistake.line, "column": mistake.column, "mistake": mistake.what}


def change_facts(change: Change) -> Facts:
    return {
        "queue": change.queue,
        "field": change.field,
        "compatible": change.is_compatible,
        "change": change.what,
        "why": change.why,
    }
