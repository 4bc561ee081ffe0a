"""The names of gated lanes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from matrixsched.rules.lanes import GLOBAL, Lane, is_gated, lane_of, lanes_of_template

NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20) | st.text(
    st.sampled_from("|%25C7}~a"), min_size=1, max_size=8
)
ZONES = st.sampled_from(["Asia/Tokyo", "UTC", None])
LANES = st.one_of(
    st.builds(Lane, handler=NAMES, priority=st.integers(0, 10**6), key=st.none() | NAMES),
    st.builds(Lane, handler=NAMES, priority=st.integers(0, 10**6), key=st.none() | NAMES, template=NAMES, zone=ZONES),
)


@given(LANES)
def test_a_lane_is_told_by_its_name(lane: Lane):
    assert lane_of(lane.name) == lane
    assert is_gated(lane.name)
    # As the index over all gated lanes says it, which compares bytes.
    assert b"limit|" <= lane.name.encode() < b"quota}"


@given(LANES, LANES)
def test_two_lanes_have_two_names(one: Lane, other: Lane):
    assert (one.name == other.name) == (one == other)


@given(LANES, NAMES)
def test_the_lanes_of_a_template_lie_together(lane: Lane, template: str):
    begins, ends = (name.encode() for name in lanes_of_template(template))
    assert (begins <= lane.name.encode() < ends) == (lane.template == template)


def test_the_limits_of_a_lane_are_told_from_the_widest_to_the_narrowest():
    lane = Lane(handler="send", template="promo", zone="Asia/Tokyo", key="tenant-7")
    assert lane.limits == (GLOBAL, "handler:send", "template:promo", "key:tenant-7")
    assert Lane(handler="send").limits == (GLOBAL, "handler:send")


def test_names_that_no_gate_stands_before():
    assert not any(is_gated(name) for name in ("", "handler:send", "handler!send", "limited", "quotas"))
