"""Contracts of queues: as values, and as texts that are cut, bent and filled with what does not belong there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz import values as v
from fuzz.inputs import Made

Strategy = st.SearchStrategy[Any]

FILE = str(Path(__file__).parent / "contract.yaml")
TEXT = Path(FILE).read_text()
NAMES = st.sampled_from(["emails", "sms", "a_1", "a1", "class", "Emails", "x" * 70, "é"])
PLAIN: Strategy = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def mostly(good: Strategy, odd: Strategy) -> Strategy:
    return st.integers(0, 9).flatmap(lambda chance: odd if chance == 0 else good)


def document(odd: Strategy) -> Strategy:
    """A contract as plain values, in which anything may be something else."""
    types = st.sampled_from(["int", "int64", "string", "bool", "[]byte", "[]int", "[]int64"])
    field = st.fixed_dictionaries(
        {"name": mostly(NAMES, odd), "type": mostly(types, odd)}, optional={"default": odd, "description": odd}
    )
    queue = st.fixed_dictionaries(
        {
            "id": mostly(st.integers(1, 9), odd),
            "name": mostly(NAMES, odd),
            "fields": mostly(st.lists(mostly(field, odd), max_size=3), odd),
        },
        optional={"description": st.just("Mail"), "colour": odd},
    )
    queues = mostly(st.lists(mostly(queue, odd), max_size=3), odd)
    return st.fixed_dictionaries({"queues": queues}, optional={"version": mostly(st.just(2), odd), "description": odd})


@st.composite
def bent(draw: st.DrawFn) -> str:
    """The text of a contract with a part cut out and something else put in."""
    begin = draw(st.integers(0, len(TEXT)))
    end = draw(st.integers(begin, min(len(TEXT), begin + 20)))
    signs = [
        "",
        "\t",
        "\x00",
        "\ud800",
        "&a ",
        "*a",
        "!!python/object:os.system ",
        "---\n",
        "{",
        "[",
        "? ",
        "- ",
        "'",
        "1.0",
    ]
    return TEXT[:begin] + draw(st.sampled_from(signs) | st.text(max_size=5)) + TEXT[end:]


texts: Strategy = st.just(TEXT) | document(PLAIN).map(json.dumps)
odd_texts: Strategy = bent() | bent().map(lambda text: text.encode(errors="surrogatepass")[1:]) | v.odd_names


def _made(plain: Any) -> Any:
    """The same as values of our own, as far as it is such."""
    if not isinstance(plain, dict):
        return plain
    inner = {name: tuple(map(_made, one)) if isinstance(one, list) else one for name, one in plain.items()}
    if isinstance(kind := inner.get("type"), str):
        inner["type"] = Made("FieldType", (kind,))
    return Made("Contract" if "queues" in plain else "QueueContract" if "fields" in plain else "Field", (), inner)


contracts: Strategy = document(v.wrong).map(_made)
