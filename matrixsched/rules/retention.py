"""How long actions are kept after they ended, by how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from matrixsched.errors import BadInput, shown
from matrixsched.rules.action import State
from matrixsched.rules.times import check_duration

FINISHED = tuple(state for state in State if state is not State.LIVE)

KEEP_DEFAULT: Mapping[State, timedelta] = MappingProxyType(
    {
        State.DONE: timedelta(days=7),
        State.CANCELLED: timedelta(days=7),
        State.EXPIRED: timedelta(days=7),
        # What somebody may want to look into, and to run again.
        State.FAILED: timedelta(days=30),
        State.QUARANTINED: timedelta(days=30),
    }
)

Keep = Mapping[State, timedelta] | timedelta | None
"""One duration for all that ended, or one for each state that is named; the others stay. None: the defaults."""


def retention(keep: Keep) -> Mapping[State, timedelta]:
    """What is pruned, and from which age on."""
    if keep is None:
        return KEEP_DEFAULT
    if isinstance(keep, Mapping):
        return {_finished(state): check_duration(f"keep[{state}]", age) for state, age in keep.items()}
    age = check_duration("keep", keep)
    return dict.fromkeys(FINISHED, age)


def _finished(state: object) -> State:
    names = ", ".join(FINISHED)
    try:
        found = State(state)  # type: ignore[arg-type]
    except ValueError:
        raise BadInput(f"keep names {shown(state)}, but actions end as {names}") from None
    if found is State.LIVE:
        raise BadInput(f"keep names live actions, which are never pruned: choose among {names}")
    return found
