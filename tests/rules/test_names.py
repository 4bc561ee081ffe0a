"""What may name an action, and where it lives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import InvalidId, InvalidNumber
from matrixsched.rules.names import check_installation, check_name, check_shard_count, shard_of

GOLDEN = {"a": 3, "remind:1": 49, "Ω": 51, "daily report": 42, "x" * 256: 16}


def test_the_shard_of_an_id_is_the_same_for_ever():
    assert {name: shard_of(name, 64) for name in GOLDEN} == GOLDEN


@pytest.mark.parametrize("form", ["remind:{}", "{:08}", "user-{}-daily"])
def test_shards_are_filled_evenly_also_by_ids_that_count_up(form):
    counts = [0] * 64
    for number in range(64_000):
        counts[shard_of(form.format(number), 64)] += 1
    assert 700 < min(counts) <= max(counts) < 1300


@given(st.text(min_size=1, max_size=50))
def test_a_name_is_accepted_exactly_if_every_database_keeps_it(name):
    is_plain = all(ord(character) > 0x9F or 0x20 <= ord(character) < 0x7F for character in name)
    is_text = not any(0xD800 <= ord(character) <= 0xDFFF for character in name)
    if is_plain and is_text and len(name.encode()) <= 256:
        assert check_name("id", name) == name
    else:
        with pytest.raises(InvalidId):
            check_name("id", name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is empty"),
        ("x" * 257, "has 257 bytes"),
        ("é" * 129, "has 258 bytes"),
        ("a\x00b", "U+0000 at position 1"),
        ("tab\t", "U+0009"),
        ("\x85", "U+0085"),
        ("\ud800", "lone surrogate"),
        (7, "must be a string, not int"),
    ],
)
def test_a_name_that_cannot_be_stored_everywhere_is_refused_with_the_reason(name, why):
    with pytest.raises(InvalidId, match=why.replace("+", r"\+")) as refused:
        check_name("id", name)
    assert "Use 1 to 256 bytes" in str(refused.value)


@pytest.mark.parametrize("name", ["", "Default", "a-b", "1a", "a" * 41, 'x"; drop schema public; --'])
def test_an_installation_name_that_cannot_be_part_of_a_table_name_is_refused(name):
    with pytest.raises(InvalidId):
        check_installation(name)


@pytest.mark.parametrize("count", [0, -1, 4097])
def test_a_number_of_shards_out_of_bounds_is_refused(count):
    with pytest.raises(InvalidNumber):
        check_shard_count(count)
