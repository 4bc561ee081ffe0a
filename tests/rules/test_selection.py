"""What a window is planned from: counted no further than matters, it makes the same plan as if all were counted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta

from hypothesis import given
from hypothesis import strategies as st

from matrixsched.rules.lanes import Lane
from matrixsched.rules.quota import Group, QuotaSettings, Spare, plan
from matrixsched.rules.selection import Kind, Selection
from matrixsched.rules.templates import Distribution, SendWindow, Template

NOW = datetime(2030, 1, 1, tzinfo=UTC)
# At midnight in UTC it is nine in the morning in Tokyo, and one at night in Berlin.
TOKYO, BERLIN = "Asia/Tokyo", "Europe/Berlin"
PLACES = {True: TOKYO, False: BERLIN}


def lane(template: str, *, priority: int = 0, zone: str | None = None) -> str:
    return Lane(handler="send", template=template, priority=priority, zone=zone).name


def selection(*templates: Template, max_to_send: int | None = 100, **options: object) -> Selection:
    usual = {"settings": QuotaSettings(), "template_max": {}, "now": NOW}
    return Selection(
        templates={one.name: one for one in templates},
        max_to_send=max_to_send,
        **(usual | options),  # type: ignore[arg-type]
    )


def count_all(made: Selection, waiting: Mapping[Kind, int]) -> int:
    """Count as a store does; how many rows were looked at."""
    looked = 0
    while asked := made.uncounted():
        counts = {kind: min(waiting[kind], waiting[kind] if most is None else most) for kind, most in asked.items()}
        looked += sum(counts.values())
        made.note(counts, asked)
    return looked


templates = st.lists(
    st.builds(
        Template,
        name=st.sampled_from("abcdefgh"),
        distribution=st.sampled_from([Distribution.UNIFORM, Distribution.MORNING]),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        last_served_at=st.none() | st.integers(0, 5).map(lambda ago: NOW - timedelta(minutes=ago)),
    ),
    unique_by=lambda template: template.name,
    min_size=1,
    max_size=8,
)


@given(
    templates=templates,
    counts=st.lists(st.integers(0, 30), min_size=32, max_size=32),
    max_to_send=st.none() | st.integers(0, 60),
    own=st.lists(st.none() | st.integers(0, 20), min_size=8, max_size=8),
    spare=st.sampled_from(Spare),
)
def test_the_plan_is_the_same_as_if_all_were_counted(templates, counts, max_to_send, own, spare):
    settings = QuotaSettings(spare=spare)
    template_max = {template.name: most for template, most in zip(templates, own, strict=False)}
    made = selection(*templates, max_to_send=max_to_send, settings=settings, template_max=template_max)
    waiting: dict[Kind, int] = {}
    for number, template in enumerate(templates):
        for place, (priority, inside) in enumerate([(0, True), (0, False), (1, True), (1, False)]):
            is_inside = inside and template.distribution is Distribution.MORNING
            made.add([lane(template.name, priority=priority, zone=PLACES[inside])])
            kind = Kind(template.name, priority, is_inside)
            waiting[kind] = waiting.get(kind, 0) + counts[4 * number + place]
    count_all(made, waiting)
    groups = [
        Group(
            template=template,
            priority=priority,
            inside=waiting.get(Kind(template.name, priority, True), 0),
            outside=waiting.get(Kind(template.name, priority, False), 0),
            last_served_at=template.last_served_at,
        )
        for template in templates
        for priority in (0, 1)
    ]
    everything = plan(groups, settings, max_to_send=max_to_send, template_max=template_max, now=NOW)
    found = made.plan()
    assert found.templates == everything.templates
    assert _granted(found.grants) == _granted(everything.grants)


def _granted(grants):
    return {(one.template, one.priority, one.inside): one.granted for one in grants if one.granted}


def test_once_the_window_is_full_the_rest_is_not_counted():
    many = [Template(name=f"t{number:03}") for number in range(200)]
    made = selection(*many, max_to_send=1000)
    made.add([lane(one.name) for one in many])
    looked = count_all(made, {Kind(one.name, 0, False): 1_000_000 for one in many})
    assert sum(grant.granted for grant in made.plan().grants) == 1000
    assert looked <= 200 + 2 * 1000 + 30


def test_lanes_of_templates_that_are_paused_or_gone_have_no_part_in_it():
    paused = Template(name="paused", paused_at=NOW - timedelta(hours=1))
    over = Template(name="over", paused_at=NOW - timedelta(hours=1), paused_until=NOW)
    made = selection(paused, over)
    made.add([lane("paused"), lane("over"), lane("gone")])
    assert set(made.messages) == {Kind("over", 0, False)}


def test_recipients_without_a_zone_have_the_time_of_their_template():
    tokyo = Template(name="tokyo", distribution=Distribution.OWN, windows=(SendWindow(time(9), time(10)),), zone=TOKYO)
    utc = Template(name="utc", distribution=Distribution.OWN, windows=(SendWindow(time(9), time(10)),))
    made = selection(tokyo, utc)
    made.add([lane("tokyo"), lane("tokyo", zone=BERLIN), lane("utc"), lane("utc", zone=TOKYO)])
    assert {kind: len(found.lanes) for kind, found in made.messages.items()} == {
        Kind(name, 0, inside): 1 for name in ("tokyo", "utc") for inside in (True, False)
    }
    assert made.zones_inside == {"tokyo": {""}, "utc": {TOKYO}}
