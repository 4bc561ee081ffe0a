"""Contracts of queues: one with everything, and arbitrary ones."""

from __future__ import annotations

from hypothesis import strategies as st

from matrixsched.queues import Contract, Field, FieldType, QueueContract
from matrixsched.rules.contract import INT_MAX, INT_MIN, Value, field_name_fault

integers = st.integers(INT_MIN, INT_MAX)
texts = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[FieldType, st.SearchStrategy[Value]] = {
    FieldType.INT: integers,
    FieldType.INT64: integers,
    FieldType.STRING: texts,
    FieldType.BOOL: st.booleans(),
    FieldType.BYTES: st.binary(),
    FieldType.INTS: st.lists(integers).map(tuple),
    FieldType.INT64S: st.lists(integers).map(tuple),
}
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}(_[a-z0-9]{1,5})?", fullmatch=True).filter(lambda n: not field_name_fault(n))
DESCRIPTIONS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]) | st.sampled_from("\n\t\"'\\"))


@st.composite
def fields(draw: st.DrawFn, names: st.SearchStrategy[str] = NAMES) -> tuple[Field, ...]:
    chosen = draw(st.lists(names, unique=True, max_size=6))
    needed = draw(st.integers(0, len(chosen)))
    return tuple(_field(draw, name, place >= needed) for place, name in enumerate(chosen))


def _field(draw: st.DrawFn, name: str, has_default: bool) -> Field:
    type = draw(st.sampled_from(FieldType))
    return Field(
        name=name,
        type=type,
        default=draw(VALUES[type]) if has_default else None,
        description=draw(DESCRIPTIONS),
    )


@st.composite
def queues(draw: st.DrawFn, names: st.SearchStrategy[str] = NAMES) -> QueueContract:
    return QueueContract(id=1, name="jobs", description=draw(DESCRIPTIONS), fields=draw(fields(names)))


contracts = st.builds(
    Contract, version=st.integers(1, 9), description=DESCRIPTIONS, queues=st.tuples(queues())
)  # of one queue
