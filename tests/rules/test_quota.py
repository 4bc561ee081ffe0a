"""The quota of templates: its arithmetic in numbers worked out by hand, and the laws that hold for all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import BadInput, InvalidDuration, InvalidNumber, InvalidWindow
from matrixsched.rules.quota import (
    Caps,
    Grant,
    Group,
    Held,
    Plan,
    QuotaSettings,
    Spare,
    caps,
    check_weight,
    most,
    plan,
    window_at,
)
from matrixsched.rules.rates import Rate, parse_rate
from matrixsched.rules.templates import Distribution, SendWindow, Template

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MANY = 1_000_000


def a_template(name: str = "promo", kind: str = "morning", **facts: object) -> Template:
    return Template(name=name, distribution=Distribution(kind), **facts)  # type: ignore[arg-type]


def a_group(template: Template | None = None, inside: int = 0, outside: int = 0, priority: int = 0) -> Group:
    template = template or a_template()
    return Group(
        template=template,
        priority=priority,
        inside=inside,
        outside=outside,
        last_served_at=template.last_served_at,
    )


def others(count: int) -> list[Group]:
    """Templates with one message each, in a lower priority: they are there, and take nothing before the one at hand."""
    return [a_group(a_template(f"other{i:03}"), inside=1, priority=9) for i in range(count)]


def planned(
    *groups: Group,
    max_to_send: int | None = 10_000,
    own: dict[str, int | None] | None = None,
    rules: QuotaSettings | None = None,
) -> Plan:
    return plan(groups, rules or QuotaSettings(), max_to_send=max_to_send, template_max=own or {}, now=NOW)


def granted(plan: Plan, template: str = "promo", priority: int | None = None) -> tuple[int, int]:
    """(inside, outside) of a template."""
    counts = {True: 0, False: 0}
    for grant in plan.grants:
        if grant.template == template and priority in (None, grant.priority):
            counts[grant.inside] += grant.granted
    return counts[True], counts[False]


def total(plan: Plan) -> int:
    return sum(grant.granted for grant in plan.grants)


# The counts: MaxToSend = 10000/min × 1 min.


@pytest.mark.parametrize(
    ("n", "inside", "outside", "uniform"),
    [
        pytest.param(1, 10_000, 10_000, 10_000, id="n=1: max(c, 1/1) = 1 → 10000 of each"),
        pytest.param(2, 5_000, 5_000, 5_000, id="n=2: 1/2 → 5000"),
        pytest.param(3, 3_333, 3_333, 3_333, id="n=3: floor(10000/3) = 3333"),
        pytest.param(20, 500, 500, 500, id="n=20: max(0.05, 0.05) = 0.05 → 500; 1/20 = 0.05 → 500; 500"),
        pytest.param(25, 500, 400, 400, id="n=25: 0.05 → 500; 1/25 = 0.04 → 400; max(0.03, 0.04) → 400"),
        pytest.param(33, 500, 303, 303, id="n=33: 500; floor(10000/33) = 303; max(0.03, 0.0303) → 303"),
        pytest.param(34, 500, 294, 300, id="n=34: 500; floor(10000/34) = 294; 0.03 → 300"),
        pytest.param(50, 500, 200, 300, id="n=50: 0.05 → 500; max(0.01, 0.02) → 200; 0.03 → 300"),
        pytest.param(100, 500, 100, 300, id="n=100: 500; 0.01 → 100; 300"),
        pytest.param(200, 500, 100, 300, id="n=200: 500; max(0.01, 0.005) → 100; 300"),
    ],
)
def test_a_template_has_the_share_of_the_formula(n: int, inside: int, outside: int, uniform: int) -> None:
    rest = others(n - 1)
    assert granted(planned(a_group(inside=MANY), *rest)) == (inside, 0)
    assert granted(planned(a_group(outside=MANY), *rest)) == (0, outside)
    assert granted(planned(a_group(a_template(kind="uniform"), outside=MANY), *rest)) == (0, uniform)
    assert planned(a_group(inside=MANY), *rest).templates == n


@pytest.mark.parametrize(
    ("own", "inside", "outside"),
    [
        pytest.param(None, 500, 200, id="no maximum of its own: 500, 200"),
        pytest.param(1_000, 500, 200, id="min(500, 1000), min(200, 1000)"),
        pytest.param(300, 300, 200, id="min(500, 300), min(200, 300)"),
        pytest.param(7, 7, 7, id="min(500, 7), min(200, 7)"),
        pytest.param(0, 0, 0, id="a template that may send nothing in this window"),
    ],
)
def test_a_template_never_sends_more_than_its_maximum(own: int | None, inside: int, outside: int) -> None:
    rest = others(49)
    assert granted(planned(a_group(inside=MANY), *rest, own={"promo": own})) == (inside, 0)
    assert granted(planned(a_group(outside=MANY), *rest, own={"promo": own})) == (0, outside)


# The flow chart, with 50 templates: 500 for inside, 200 for outside.


@pytest.mark.parametrize(
    ("inside", "outside", "taken"),
    [
        pytest.param(0, 0, (0, 0), id="nothing waits"),
        pytest.param(0, 50, (0, 50), id="no priority messages: up to 200 of the others: all 50"),
        pytest.param(0, 900, (0, 200), id="no priority messages: 200 of the others"),
        pytest.param(900, 900, (500, 0), id="900 ≥ 500: the maximum is reached, the end"),
        pytest.param(500, 900, (500, 0), id="500 ≥ 500: the maximum is reached, the end"),
        pytest.param(499, 900, (499, 0), id="499 < 500, but 499 ≥ 200: the end"),
        pytest.param(200, 900, (200, 0), id="200 < 500, but 200 ≥ 200: the end"),
        pytest.param(199, 900, (199, 1), id="199 < 200: one more"),
        pytest.param(1, 900, (1, 199), id="1 < 200: 199 more"),
        pytest.param(1, 10, (1, 10), id="1 < 200: up to 199 more: all 10"),
    ],
)
def test_a_template_with_a_window_follows_the_flow_chart(inside: int, outside: int, taken: tuple[int, int]) -> None:
    rest = others(50 if inside + outside == 0 else 49)
    assert granted(planned(a_group(inside=inside, outside=outside), *rest)) == taken


@pytest.mark.parametrize(
    ("own", "inside", "outside", "taken"),
    [
        pytest.param(150, 100, 900, (100, 50), id="both counts are 150: 100 < 150, 50 more"),
        pytest.param(150, 150, 900, (150, 0), id="both counts are 150: reached"),
        pytest.param(300, 250, 900, (250, 0), id="300 and 200: 250 < 300, but 250 ≥ 200: the end"),
        pytest.param(300, 100, 900, (100, 100), id="300 and 200: 100 more"),
    ],
)
def test_the_flow_chart_knows_the_maximum_of_the_template(
    own: int, inside: int, outside: int, taken: tuple[int, int]
) -> None:
    assert granted(planned(a_group(inside=inside, outside=outside), *others(49), own={"promo": own})) == taken


# Settings.


@pytest.mark.parametrize(
    ("rules", "inside", "outside", "uniform"),
    [
        pytest.param(QuotaSettings(inside_share=0.29), 2_900, 200, 300, id="0.29 × 10000 = 2900"),
        pytest.param(QuotaSettings(outside_share=0.07), 500, 700, 300, id="0.07 × 10000 = 700"),
        pytest.param(QuotaSettings(uniform_share=0.1), 500, 200, 1_000, id="0.1 × 10000 = 1000"),
        pytest.param(QuotaSettings(inside_times_outside=5), 500, 200, 300, id="5 × 0.01 = 0.05 → 500"),
        pytest.param(
            QuotaSettings(inside_times_outside=2.5, outside_share=0.03), 750, 300, 300, id="2.5 × 0.03 = 0.075 → 750"
        ),
        pytest.param(
            QuotaSettings(inside_times_outside=1000, outside_share=0.01), 10_000, 200, 300, id="10 times all: all"
        ),
        pytest.param(QuotaSettings(inside_share=1.0), 10_000, 200, 300, id="1 × 10000"),
    ],
)
def test_the_constants_can_be_set(rules: QuotaSettings, inside: int, outside: int, uniform: int) -> None:
    rest = others(49)
    assert granted(planned(a_group(inside=MANY), *rest, rules=rules)) == (inside, 0)
    assert granted(planned(a_group(outside=MANY), *rest, rules=rules)) == (0, outside)
    assert granted(planned(a_group(a_template(kind="uniform"), outside=MANY), *rest, rules=rules)) == (0, uniform)


@pytest.mark.parametrize("argument", ["inside_share", "outside_share", "uniform_share"])
@pytest.mark.parametrize("wrong", [0, -0.1, 1.01, float("nan"), float("inf"), "0.05", True, None])
def test_a_share_is_above_nothing_and_at_most_all(argument: str, wrong: object) -> None:
    with pytest.raises(InvalidNumber, match=argument):
        QuotaSettings(**{argument: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 1001])
def test_a_ratio_is_above_nothing_and_within_reason(wrong: float) -> None:
    with pytest.raises(InvalidNumber, match="inside_times_outside"):
        QuotaSettings(inside_times_outside=wrong)


@pytest.mark.parametrize(
    "wrong", [timedelta(0), -MINUTE, timedelta(milliseconds=999), timedelta(days=1, seconds=1), 60]
)
def test_an_interval_is_between_a_second_and_a_day(wrong: object) -> None:
    with pytest.raises(InvalidDuration, match="interval .*(between a second and a day|must be a timedelta)"):
        QuotaSettings(interval=wrong)  # type: ignore[arg-type]


def test_the_parts_of_the_day_are_windows() -> None:
    with pytest.raises(InvalidWindow):
        QuotaSettings(morning=SendWindow(NOW.time(), NOW.time()))


def test_settings_are_also_read_from_text() -> None:
    written = QuotaSettings(spare="share", evening="17:00-21:00")  # type: ignore[arg-type]
    assert written == QuotaSettings(spare=Spare.SHARE, evening=SendWindow(time(17), time(21)))
    assert written.spare is Spare.SHARE


def test_spare_is_one_of_its_words() -> None:
    with pytest.raises(BadInput, match="spare"):
        QuotaSettings(spare="waste")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 1001, "heavy", True])
def test_a_weight_is_a_number_above_nothing(wrong: object) -> None:
    with pytest.raises(InvalidNumber, match="weight"):
        check_weight(wrong)


# Small numbers, and none.


@pytest.mark.parametrize(
    ("max_to_send", "n", "inside"),
    [
        pytest.param(10, 50, 1, id="0.05 × 10 = 0.5 → at least 1"),
        pytest.param(39, 50, 1, id="0.05 × 39 = 1.95 → 1"),
        pytest.param(40, 50, 2, id="0.05 × 40 = 2"),
        pytest.param(1, 50, 1, id="0.05 × 1 → at least 1"),
        pytest.param(0, 50, 0, id="0.05 × 0 = 0: nothing is nothing"),
    ],
)
def test_a_share_is_rounded_down_but_not_to_nothing(max_to_send: int, n: int, inside: int) -> None:
    assert granted(planned(a_group(inside=MANY), *others(n - 1), max_to_send=max_to_send)) == (inside, 0)


@pytest.mark.parametrize(
    ("max_to_send", "n", "single"),
    [
        pytest.param(50, 60, (2, 1, 1), id="0.05 × 50 = 2.5 → 2; 50/60 = 0.83 → 1, not 0; 0.03 × 50 = 1.5 → 1"),
        pytest.param(30, 60, (1, 1, 1), id="0.05 × 30 = 1.5 → 1; 0.5 → 1, not 0; 0.03 × 30 = 0.9 → 1, not 0"),
        pytest.param(10, 60, (1, 1, 1), id="0.5, 0.17, 0.3: all are nothing, and single messages go"),
    ],
)
def test_with_more_templates_than_messages_each_kind_has_its_turn(
    max_to_send: int, n: int, single: tuple[int, int, int]
) -> None:
    inside, outside, uniform = single
    rest = others(n - 1)
    assert granted(planned(a_group(inside=MANY), *rest, max_to_send=max_to_send)) == (inside, 0)
    assert granted(planned(a_group(outside=MANY), *rest, max_to_send=max_to_send)) == (0, outside)
    evenly = a_group(a_template(kind="uniform"), outside=MANY)
    assert granted(planned(evenly, *rest, max_to_send=max_to_send)) == (0, uniform)


def test_single_messages_go_to_those_served_longest_ago() -> None:
    """All counts are nothing: 10 of 60 templates send one each, and the next window goes on behind them."""
    served: dict[str, datetime | None] = {}
    sent: list[str] = []
    for k in range(6):
        groups = [
            replace(a_group(a_template(f"t{i:02}"), outside=MANY), last_served_at=served.get(f"t{i:02}"))
            for i in range(60)
        ]
        result = plan(groups, QuotaSettings(), max_to_send=10, template_max={}, now=NOW + k * MINUTE)
        assert {grant.granted for grant in result.grants} == {0, 1}
        served |= {grant.template: grant.last_served_at for grant in result.grants}
        sent += [grant.template for grant in result.grants if grant.granted]
    assert sent == [f"t{i:02}" for i in range(60)]


def test_without_a_total_a_template_sends_up_to_its_own_maximum() -> None:
    groups = [a_group(inside=300, outside=300), a_group(a_template("free", "uniform"), outside=MANY)]
    result = planned(*groups, max_to_send=None, own={"promo": 400})
    assert (granted(result), granted(result, "free")) == ((300, 100), (0, MANY))
    assert [(held.template, held.count, held.by) for held in result.held] == [("promo", 200, Held.TEMPLATE_MAX)]


def test_with_nothing_waiting_nothing_is_planned() -> None:
    assert planned() == planned(a_group()) == Plan(grants=(), held=(), templates=0, max_to_send=10_000)


# Paused templates.


def test_a_paused_template_is_not_in_the_selection() -> None:
    paused = a_template("paused", paused_at=NOW - MINUTE)
    result = planned(a_group(inside=MANY), a_group(paused, inside=7, outside=8))
    assert (granted(result), granted(result, "paused"), result.templates) == ((10_000, 0), (0, 0), 1)
    assert ("paused", 15, Held.PAUSED) in [(held.template, held.count, held.by) for held in result.held]


def test_a_template_goes_on_by_itself_when_its_pause_ends() -> None:
    paused = a_template("paused", paused_at=NOW - MINUTE, paused_until=NOW)
    assert granted(planned(a_group(paused, inside=7)), "paused") == (7, 0)


# Who is served first.


def test_the_lower_number_of_priority_goes_first() -> None:
    late = [a_group(a_template(f"a{i}"), inside=MANY, priority=1) for i in range(20)]
    early = [a_group(a_template(f"z{i}"), inside=MANY, priority=0) for i in range(20)]
    result = planned(*late, *early)
    assert {grant.template for grant in result.grants if grant.granted} == {f"z{i}" for i in range(20)}


def test_with_more_shares_than_room_those_served_longest_ago_go_first_and_the_last_one_gets_the_rest() -> None:
    # 50 templates inside, 500 each: room for 20.5 of them
    groups = [a_group(a_template(f"t{i:02}", last_served_at=NOW - i * MINUTE), inside=MANY) for i in range(49)]
    never = a_group(a_template("z-never"), inside=MANY)
    result = planned(*groups, never, max_to_send=10_250)
    served = [(grant.template, grant.granted) for grant in result.grants if grant.granted]
    assert served == [("z-never", 512), *((f"t{i:02}", 512) for i in range(48, 29, -1)), ("t29", 10)]
    assert set(result.last_served) == {name for name, _ in served}


def test_templates_served_at_the_same_time_go_by_name() -> None:
    groups = [a_group(a_template(name, last_served_at=NOW), inside=MANY) for name in "cab"]
    assert [grant.template for grant in planned(*groups).grants] == ["a", "b", "c"]


def test_the_maximum_of_a_template_holds_over_all_its_priorities_together() -> None:
    groups = [a_group(inside=100, priority=2), a_group(inside=100, priority=0), a_group(outside=100, priority=1)]
    result = planned(*groups, own={"promo": 250})
    assert [granted(result, priority=priority) for priority in (0, 1, 2)] == [(100, 0), (0, 100), (50, 0)]


def test_what_is_held_says_by_what() -> None:
    slow, second = a_template("slow"), a_template("second", "uniform")
    result = planned(
        a_group(slow, inside=900), a_group(inside=4_000, outside=5), a_group(second, outside=9_000), own={"slow": 6}
    )
    # three templates: 3333 each
    assert {held.template: (held.count, held.by) for held in result.held} == {
        "slow": (894, Held.TEMPLATE_MAX),
        "promo": (672, Held.SHARE),
        "second": (5_667, Held.SHARE),
    }


# Weights.


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        pytest.param([1, 1], [5_000, 5_000], id="1:1"),
        pytest.param([3, 1], [7_500, 2_500], id="3/4, 1/4"),
        pytest.param([0.1, 0.2], [3_333, 6_666], id="1/3, 2/3"),
        pytest.param([1000, 1], [10_000, 0], id="min(1, 0.05 × 1000) = 1: no room for the other"),
        pytest.param([2] * 4, [2_500] * 4, id="2/8 each"),
        pytest.param([2] * 40, [1_000] * 10 + [0] * 30, id="max(0.05 × 2, 2/80) = 0.1 each, room for ten"),
        pytest.param([0.5] * 40, [250] * 40, id="max(0.05 × 0.5, 0.5/20) = 0.025 each"),
    ],
)
def test_weights_shift_the_shares(weights: list[float], shares: list[int]) -> None:
    groups = [a_group(a_template(f"t{i:02}", weight=weight), inside=MANY) for i, weight in enumerate(weights)]
    assert [grant.granted for grant in planned(*groups).grants] == shares


# Spare room.


SHARING = QuotaSettings(spare=Spare.SHARE)


def test_spare_room_is_left_unless_told_otherwise() -> None:
    groups = [a_group(inside=MANY), *others(49)]
    assert total(planned(*groups)) == 500 + 49


def test_spare_room_goes_to_messages_inside_then_to_uniform_ones_then_to_the_rest() -> None:
    # n=3: 3333 each at first; 6000 in all for priority 0 when "small" has two
    small = a_group(a_template("small"), inside=2)
    inside, uniform = a_group(inside=4_000, outside=9_000), a_group(a_template("even", "uniform"), outside=4_000)
    result = planned(small, inside, uniform, rules=SHARING)
    assert granted(result) == (4_000, 10_000 - 2 - 4_000 - 4_000)
    assert granted(result, "even") == (0, 4_000)
    assert [(held.template, held.by) for held in result.held] == [("promo", Held.TOTAL)]


def test_spare_room_is_shared_out_in_one_priority_before_the_next() -> None:
    first, second = a_group(outside=9_000, priority=0), a_group(a_template("late"), inside=9_000, priority=1)
    result = planned(first, second, rules=SHARING)  # 5000 each, and nothing is left
    assert (granted(result), granted(result, "late")) == ((0, 5_000), (5_000, 0))
    small = a_group(a_template("small"), inside=1, priority=5)
    result = planned(first, second, small, rules=SHARING)  # 3333 each, 1 for small, 3333 to share out
    assert (granted(result), granted(result, "late")) == ((0, 6_666), (3_333, 0))


def test_spare_room_is_shared_out_by_weight_and_within_the_maximum_of_each() -> None:
    heavy, light, capped = (
        a_template("heavy", weight=2),
        a_template("light", weight=1),
        a_template("capped", weight=7),
    )
    groups = [a_group(template, inside=MANY) for template in (heavy, light, capped)]
    result = planned(*groups, max_to_send=1_000, own={"capped": 100}, rules=SHARING)
    # 2/10, 1/10 and 100; then 600 by 2:1
    assert [granted(result, name)[0] for name in ("heavy", "light", "capped")] == [600, 300, 100]


def test_single_messages_that_cannot_be_divided_go_by_turns() -> None:
    groups = [a_group(a_template(f"t{i}", last_served_at=NOW - i * MINUTE), inside=9) for i in range(3)]
    assert {grant.template: grant.granted for grant in planned(*groups, max_to_send=5, rules=SHARING).grants} == {
        "t2": 2,
        "t1": 2,
        "t0": 1,
    }


# Windows of time, and how much fits into them.


@pytest.mark.parametrize(
    ("now", "interval", "previous_end", "window"),
    [
        ("09:30:31", 60, None, ("09:30:00", "09:31:00")),
        ("09:30:00", 60, "09:30:00", ("09:30:00", "09:31:00")),
        ("09:30:31", 300, None, ("09:30:00", "09:35:00")),
        pytest.param("09:31:10", 300, "09:31:00", ("09:31:00", "09:35:00"), id="the interval was a minute before"),
        pytest.param("09:35:01", 60, "09:35:00", ("09:35:00", "09:36:00"), id="the interval was five minutes before"),
        pytest.param("09:31:10", 20, "09:31:07", ("09:31:07", "09:31:20"), id="a window may be short, never doubled"),
        pytest.param("09:40:00", 60, "09:31:00", ("09:40:00", "09:41:00"), id="nobody was there for a while"),
        pytest.param("09:30:00", 60, "09:32:00", ("09:32:00", "09:33:00"), id="the clock was set back"),
    ],
)
def test_windows_lie_on_the_grid_of_the_interval_and_never_overlap(
    now: str, interval: int, previous_end: str | None, window: tuple[str, str]
) -> None:
    def moment(clock: str) -> datetime:
        return datetime.fromisoformat(f"2026-11-16T{clock}+00:00")

    previous = None if previous_end is None else moment(previous_end)
    assert window_at(moment(now), timedelta(seconds=interval), previous) == tuple(map(moment, window))


@pytest.mark.parametrize(
    ("rate", "interval", "count"),
    [
        pytest.param("10000/min", MINUTE, 10_000, id="MaxSendSpeed × interval = 10000 × 1"),
        pytest.param("10000/min", 5 * MINUTE, 50_000, id="10000 × 5"),
        pytest.param("100/s", MINUTE, 6_000, id="100/s × 60 s"),
        pytest.param("1/h", 60 * MINUTE, 1, id="1"),
        pytest.param("7/100ms", timedelta(seconds=1), 70, id="7 × 10"),
    ],
)
def test_the_most_of_a_window_is_speed_times_interval(rate: str, interval: timedelta, count: int) -> None:
    begins, ends = window_at(NOW, interval, None)
    assert most(parse_rate(rate), begins, ends) == count


def test_no_rate_allows_any_number() -> None:
    assert most(None, NOW, NOW + MINUTE) is None


@given(
    requests=st.integers(1, 1_000_000),
    per=st.timedeltas(timedelta(milliseconds=1), timedelta(days=3)),
    cuts=st.lists(st.timedeltas(timedelta(0), timedelta(days=3)), min_size=2, max_size=20),
)
def test_over_a_row_of_windows_the_most_adds_up_to_the_rate(
    requests: int, per: timedelta, cuts: list[timedelta]
) -> None:
    rate = Rate(requests, per)
    edges = [NOW + cut for cut in sorted(cuts)]
    whole = sum(most(rate, begins, ends) or 0 for begins, ends in zip(edges, edges[1:], strict=False))
    exact = Fraction((edges[-1] - edges[0]) // timedelta(microseconds=1) * requests, rate.per_us)
    assert floor(exact) <= whole <= floor(exact) + 1


@pytest.mark.parametrize(
    ("rate", "slow_until", "slow_rate", "count"),
    [
        pytest.param("60/min", 30, None, 30, id="closed for half of the window"),
        pytest.param("60/min", 30, "6/min", 33, id="30 s at 6/min, 30 s at 60/min"),
        pytest.param("60/min", 90, None, 0, id="closed for all of it"),
        pytest.param("60/min", 90, "6/min", 6, id="slow for all of it"),
        pytest.param("60/min", -5, None, 60, id="over before it begins"),
        pytest.param("60/min", 90, "600/min", 60, id="slow is never faster than it is anyway"),
        pytest.param(None, 60, "6/min", 6, id="no rate but the slow one"),
        pytest.param(None, 30, "6/min", None, id="no rate from the middle on"),
    ],
)
def test_a_limit_told_to_slow_down_allows_less(
    rate: str | None, slow_until: int, slow_rate: str | None, count: int | None
) -> None:
    assert (
        most(
            None if rate is None else parse_rate(rate),
            NOW,
            NOW + MINUTE,
            slow_until=NOW + timedelta(seconds=slow_until),
            slow_rate=None if slow_rate is None else parse_rate(slow_rate),
        )
        == count
    )


# Laws.

names = st.sampled_from([f"t{i}" for i in range(8)])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Group], QuotaSettings, int | None, dict[str, int | None]]:
    """Groups of some templates in some priorities, settings, the total and the maximum of each template."""
    templates = {
        name: Template(
            name=name,
            distribution=draw(st.sampled_from([Distribution.UNIFORM, Distribution.MORNING])),
            weight=draw(st.sampled_from([1.0, 1.0, 0.3, 2.5, 100.0])),
            paused_at=draw(st.sampled_from([None, None, None, NOW - MINUTE])),
        )
        for name in draw(st.sets(names, min_size=1))
    }
    keys = draw(st.sets(st.tuples(st.sampled_from(sorted(templates)), st.integers(0, 2)), min_size=1))
    counts = st.one_of(st.integers(0, 5), st.integers(0, 3_000))
    groups = [
        Group(
            template=templates[name],
            priority=priority,
            inside=0 if templates[name].distribution is Distribution.UNIFORM else draw(counts),
            outside=draw(counts),
            last_served_at=draw(st.sampled_from([None, NOW - MINUTE, NOW - 2 * MINUTE])),
        )
        for name, priority in sorted(keys)
    ]
    rules = QuotaSettings(
        inside_share=draw(st.sampled_from([0.05, 0.29, 1.0])),
        outside_share=draw(st.sampled_from([0.01, 0.07])),
        spare=draw(st.sampled_from(Spare)),
    )
    maxima = {name: draw(st.one_of(st.none(), st.integers(0, 500))) for name in templates}
    return groups, rules, draw(st.one_of(st.none(), st.integers(0, 5_000))), maxima


any_world = worlds()


def of_world(world: tuple[list[Group], QuotaSettings, int | None, dict[str, int | None]]) -> Plan:
    groups, rules, max_to_send, maxima = world
    return plan(groups, rules, max_to_send=max_to_send, template_max=maxima, now=NOW)


@given(any_world)
def test_never_more_than_max_to_send_than_a_templates_maximum_or_than_waits(world):
    groups, _, max_to_send, maxima = world
    result = of_world(world)
    assert max_to_send is None or total(result) <= max_to_send
    for name, own in maxima.items():
        assert own is None or sum(granted(result, name)) <= own
    waiting = {(group.template.name, group.priority): group for group in groups}
    for grant in result.grants:
        group = waiting[grant.template, grant.priority]
        assert 0 <= grant.granted <= grant.waiting == (group.inside if grant.inside else group.outside)
        assert not group.template.is_paused(NOW)
    held = {(held.template, held.priority): held.count for held in result.held}
    for key, group in waiting.items():
        assert held.get(key, 0) == group.waiting - sum(granted(result, *key)), "all are granted or held"


@given(any_world)
def test_messages_outside_wait_for_those_inside_of_the_same_group(world):
    _, rules, max_to_send, maxima = world
    kinds: dict[tuple[str, int], dict[bool, Grant]] = defaultdict(dict)
    for grant in of_world(world).grants:
        kinds[grant.template, grant.priority][grant.inside] = grant
    for both in kinds.values():
        if True in both and False in both and both[False].granted:
            assert both[True].granted == both[True].waiting


@given(any_world)
def test_no_priority_takes_room_from_a_more_important_one(world):
    groups, rules, max_to_send, maxima = world
    if rules.spare is Spare.SHARE:
        rules = replace(rules, spare=Spare.LEAVE)
    result = plan(groups, rules, max_to_send=max_to_send, template_max=maxima, now=NOW)
    names_only = [replace(group, inside=min(group.inside, 1), outside=min(group.outside, 1)) for group in groups]
    for priority in (0, 1):
        # The less important shrink to a message each, so that the same templates are in the selection.
        less = [group if group.priority <= priority else small for group, small in zip(groups, names_only, strict=True)]
        alone = plan(less, rules, max_to_send=max_to_send, template_max=maxima, now=NOW)
        for group in groups:
            if group.priority <= priority:
                key = group.template.name, group.priority
                assert granted(result, *key) == granted(alone, *key)


def guaranteed(group: Group, n_weights: Fraction, rules: QuotaSettings, max_to_send: int, own: int | None) -> int:
    """What the formulas grant a group, written once more as they stand in the description."""
    weight = Fraction(repr(group.template.weight))

    def count(constant: float) -> int:
        share = min(Fraction(1), max(Fraction(repr(constant)) * weight, weight / n_weights))
        exact = floor(share * max_to_send) or min(1, max_to_send)
        return exact if own is None else min(exact, own)

    if group.template.distribution is Distribution.UNIFORM:
        return min(group.outside, count(rules.uniform_share))
    inside = min(group.inside, count(rules.inside_share))
    if inside == count(rules.inside_share) or inside >= count(rules.outside_share):
        return inside
    return inside + min(group.outside, count(rules.outside_share) - inside)


@given(any_world.filter(lambda world: world[2] is not None))
def test_nobody_is_below_the_guaranteed_share_while_others_exceed_theirs(world):
    groups, rules, max_to_send, maxima = world
    result = of_world(world)
    selection = {g.template.name: g.template for g in groups if g.waiting and not g.template.is_paused(NOW)}
    weights = sum((Fraction(repr(template.weight)) for template in selection.values()), Fraction(0))
    above, below = [], []
    for group in groups:
        name = group.template.name
        if name not in selection:
            continue
        share = guaranteed(group, weights, rules, max_to_send, maxima[name])
        got = sum(granted(result, name, group.priority))
        if got > share:
            above.append(name)
        elif got < share and sum(granted(result, name)) != maxima[name]:
            below.append(name)
    if rules.spare is Spare.LEAVE:
        assert not above
    assert not (above and below)
    if below:
        assert total(result) == max_to_send, "a share is cut only where the window is full"


@given(any_world.filter(lambda world: world[2] is not None))
def test_shared_out_no_room_is_left_while_somebody_could_use_it(world):
    groups, rules, max_to_send, maxima = world
    result = of_world((groups, replace(rules, spare=Spare.SHARE), max_to_send, maxima))
    if total(result) < max_to_send:
        for held in result.held:
            assert held.by in (Held.PAUSED, Held.TEMPLATE_MAX)


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.sampled_from(["morning", "uniform"]), st.sampled_from(Spare))
def test_a_single_template_fills_everything(inside, outside, kind, spare):
    if kind == "uniform":
        inside, outside = 0, inside + outside
    result = planned(
        a_group(a_template(kind=kind), inside, outside), max_to_send=4_000, rules=QuotaSettings(spare=spare)
    )
    assert total(result) == min(4_000, inside + outside)


@given(any_world)
def test_counting_further_than_the_caps_changes_no_grant(world):
    groups, rules, max_to_send, maxima = world
    present = {group.template.name: group.template for group in groups if group.waiting}.values()
    limits = caps(present, rules, max_to_send=max_to_send, template_max=maxima, now=NOW)

    def counted(group: Group) -> Group:
        cap = limits.get(group.template.name, Caps(0, 0))
        inside, outside = (
            count if most_ is None else min(count, most_)
            for count, most_ in ((group.inside, cap.inside), (group.outside, cap.outside))
        )
        return replace(group, inside=inside, outside=outside)

    before = of_world(world)
    after = of_world(([counted(group) for group in groups], rules, max_to_send, maxima))
    for group in groups:
        key = group.template.name, group.priority
        assert granted(before, *key) == granted(after, *key)
    assert before.templates == after.templates


# Fairness over time.


@pytest.mark.parametrize("spare", Spare)
@pytest.mark.parametrize(
    ("count", "max_to_send"), [(50, 10_000), (50, 37), (200, 100), (7, 3), (100, 1)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("set_back", [timedelta(0), timedelta(hours=1)])
def test_no_template_starves_over_a_hundred_intervals(
    count: int, max_to_send: int, spare: Spare, set_back: timedelta
) -> None:
    templates = [a_template(f"t{i:03}", ("morning", "uniform", "evening")[i % 3]) for i in range(count)]
    sent: dict[str, list[int]] = {template.name: [] for template in templates}
    served: dict[str, datetime | None] = {}
    rules = QuotaSettings(spare=spare)
    for k in range(100):
        # Mornings and evenings come and go, and everybody always has more than enough.
        groups = [
            Group(
                template=template,
                priority=0,
                inside=MANY if template.distribution is Distribution.MORNING and k % 50 < 25 else 0,
                outside=MANY,
                last_served_at=served.get(template.name),
            )
            for template in templates
        ]
        now = NOW + k * MINUTE - (set_back if k >= 10 else timedelta(0))
        result = plan(groups, rules, max_to_send=max_to_send, template_max={}, now=now)
        assert total(result) <= max_to_send
        for grant in result.grants:
            served[grant.template] = grant.last_served_at
            if grant.granted:
                sent[grant.template].append(k)
    longest = -(-count // min(max_to_send, 20))  # at least 20 templates are served in a window, or MaxToSend of them
    for name, windows in sent.items():
        edges = [-1, *windows, 100]
        assert max(after - before for before, after in zip(edges, edges[1:], strict=False)) <= longest + 1, name


def test_messages_of_a_template_do_not_starve_because_its_more_important_ones_are_served() -> None:
    keys = [("a", 0), ("a", 1), ("b", 1), ("c", 1)]
    served: dict[tuple[str, int], datetime | None] = {}
    sent = Counter[tuple[str, int]]()
    for k in range(12):
        groups = [
            replace(
                a_group(a_template(name), outside=MANY, priority=priority), last_served_at=served.get((name, priority))
            )
            for name, priority in keys
        ]
        # Of three it is a third: one message, so there is room for one of those with priority 1.
        result = plan(groups, QuotaSettings(), max_to_send=2, template_max={}, now=NOW + k * MINUTE)
        served |= {(grant.template, grant.priority): grant.last_served_at for grant in result.grants}
        sent.update({(grant.template, grant.priority): grant.granted for grant in result.grants})
    assert sent == {("a", 0): 12, ("a", 1): 4, ("b", 1): 4, ("c", 1): 4}
