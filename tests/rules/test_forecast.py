"""The forecast: numbers worked out by hand, and the laws that hold for every stock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from matrixsched.rules.forecast import Forecast, Lot, Outlook, foresee
from matrixsched.rules.lanes import template_limit
from matrixsched.rules.limits import Limit
from matrixsched.rules.quota import Held, QuotaSettings, Spare
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.templates import Distribution, Template

NOW = datetime(2026, 11, 16, 6, 0, 12, tzinfo=UTC)
WINDOW = NOW.replace(second=0)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def a_template(name: str = "promo", kind: str = "uniform", **facts: object) -> Template:
    return Template(name=name, distribution=Distribution(kind), **facts)  # type: ignore[arg-type]


def a_lot(
    count: int,
    template: str = "promo",
    zone: str | None = None,
    priority: int = 0,
    due: timedelta = -MINUTE,
    expires: timedelta | None = None,
) -> Lot:
    expires_at = None if expires is None else NOW + expires
    return Lot(template=template, zone=zone, priority=priority, due_at=NOW + due, expires_at=expires_at, count=count)


def limits(**rates: str) -> dict[str, Limit]:
    """Of everything, `total`, and of templates by their names."""
    names = {name: "global" if name == "total" else template_limit(name) for name in rates}
    return {names[name]: Limit(name=names[name], rate=parse_rate(rate), updated_at=NOW) for name, rate in rates.items()}


def foreseen(
    stock: list[Lot],
    *templates: Template,
    under: dict[str, Limit],
    hours: int = 4,
    rules: QuotaSettings | None = None,
) -> Forecast:
    return foresee(stock, templates or [a_template()], rules or QuotaSettings(), under, now=NOW, hours=hours)


def outlook(forecast: Forecast, template: str = "promo") -> Outlook:
    (found,) = [outlook for outlook in forecast.outlooks if outlook.template == template]
    return found


def test_a_campaign_goes_out_at_the_speed_of_the_limit():
    forecast = foreseen([a_lot(9_000)], under=limits(total="100/min"))
    assert (forecast.begins_at, forecast.ends_at) == (WINDOW, WINDOW + MINUTE)
    assert (forecast.templates, forecast.max_to_send) == (1, 100)
    assert outlook(forecast) == Outlook(
        template="promo",
        waiting=9_000,
        inside=0,
        planned=100,
        held={Held.TOTAL: 8_900},
        sent=(6_000, 3_000, 0, 0),
        finishes_at=WINDOW + 90 * MINUTE,
        expires=0,
        left=0,
    )


def test_of_a_window_that_lasts_a_day_the_hours_that_are_gone_are_not_foreseen():
    # It began at midnight, six hours ago, and lasts for another eighteen: a thousand go in it, and in the next.
    forecast = foreseen(
        [a_lot(2_000)], under=limits(total="1000/day"), hours=36, rules=QuotaSettings(interval=24 * HOUR)
    )
    found = outlook(forecast)
    assert (forecast.begins_at, forecast.since) == (WINDOW - 6 * HOUR, WINDOW)
    assert (len(found.sent), sum(found.sent[:18]), sum(found.sent[18:]), found.left) == (36, 1_000, 750, 250)


def test_what_does_not_fit_into_the_hours_foreseen_is_left():
    found = outlook(foreseen([a_lot(30_000)], under=limits(total="100/min")))
    assert (found.sent, found.finishes_at, found.left) == ((6_000,) * 4, None, 6_000)


def test_the_maximum_of_a_template_holds_it_back():
    found = outlook(foreseen([a_lot(9_000)], under=limits(total="100/min", promo="30/min")))
    assert (found.planned, found.held, found.sent) == (30, {Held.TEMPLATE_MAX: 8_970}, (1_800,) * 4)


def test_without_any_limit_everything_goes_now():
    found = outlook(foreseen([a_lot(9_000)], under={}))
    assert (found.planned, found.held, found.finishes_at) == (9_000, {}, WINDOW + MINUTE)


def test_what_is_not_due_yet_goes_when_it_is():
    found = outlook(foreseen([a_lot(10), a_lot(50, due=90 * MINUTE)], under=limits(total="100/min")))
    assert (found.waiting, found.planned, found.held) == (60, 10, {Held.NOT_DUE: 50})
    assert found.sent == (10, 50, 0, 0)
    assert found.finishes_at == WINDOW + 92 * MINUTE  # due at 07:30:12, planned at 07:31


def test_what_expires_before_its_turn_is_foretold():
    stock = [a_lot(1_000, expires=30 * MINUTE), a_lot(7, expires=-MINUTE), a_lot(5, due=2 * HOUR, expires=HOUR)]
    found = outlook(foreseen(stock, under=limits(total="10/min")))
    # 06:00 to 06:30 are planned before 06:30:12
    assert (found.waiting, found.sent, found.expires, found.left) == (1_012, (310, 0, 0, 0), 690 + 7 + 5, 0)
    assert found.finishes_at == WINDOW + HOUR + MINUTE


def test_a_pause_ends_when_it_was_said_to():
    paused = a_template(paused_at=NOW - HOUR, paused_until=NOW + 2 * HOUR)
    found = outlook(foreseen([a_lot(5_000)], paused, under=limits(total="100/min")))
    assert (found.planned, found.held) == (0, {Held.PAUSED: 5_000})
    assert (found.sent, found.finishes_at) == ((0, 0, 5_000, 0), WINDOW + timedelta(minutes=171))  # from 08:01 on


def test_a_pause_without_end_does_not_end():
    found = outlook(foreseen([a_lot(5_000)], a_template(paused_at=NOW - HOUR), under=limits(total="100/min")))
    assert (found.sent, found.finishes_at, found.left) == ((0,) * 4, None, 5_000)


def test_a_limit_that_was_told_to_slow_down_opens_again():
    under = limits(total="100/min")
    under["global"] = replace(under["global"], slow_until=WINDOW + 90 * MINUTE)
    found = outlook(foreseen([a_lot(9_000)], under=under))
    assert (found.planned, found.sent) == (0, (0, 3_000, 6_000, 0))


def test_messages_of_a_template_that_is_gone_wait():
    forecast = foreseen([a_lot(9, "gone"), a_lot(3, "gone", due=HOUR)], under={})
    assert outlook(forecast, "gone").held == {Held.NO_TEMPLATE: 9, Held.NOT_DUE: 3}
    assert outlook(forecast, "gone").left == 12
    assert outlook(forecast) == Outlook(
        template="promo", waiting=0, inside=0, planned=0, held={}, sent=(0,) * 4, finishes_at=None, expires=0, left=0
    )


def test_it_speeds_up_when_the_morning_reaches_the_recipients():
    """40 templates, 10000/min: max(0.05, 1/40) → 500 inside, max(0.01, 1/40) → 250 outside, a minute."""
    names = [f"slow{i:02}" for i in range(39)]
    templates = [a_template("promo", "morning", zone="Europe/Berlin"), *map(a_template, names)]
    stock = [a_lot(10**6), *(a_lot(1_000, name) for name in names)]
    slow = dict.fromkeys(names, "1/min")
    found = outlook(foreseen(stock, *templates, under=limits(total="10000/min", **slow)))
    # 06:00 UTC is 07:00 in Berlin: from the second hour on inside, up to 12:00
    assert (found.inside, found.planned, found.held) == (0, 250, {Held.SHARE: 10**6 - 250})
    assert found.sent == (60 * 250, 60 * 500, 60 * 500, 60 * 500)


def test_messages_go_inside_first_and_by_their_recipients_zones():
    # Two templates: 50 each of 100. For Karachi it is 11:00 now, for London 06:00.
    stock = [a_lot(200, zone="Asia/Karachi"), a_lot(500, zone="Europe/London"), a_lot(10**6, "other")]
    forecast = foreseen(stock, a_template(kind="morning"), a_template("other"), under=limits(total="100/min"))
    found = outlook(forecast)
    assert (found.inside, found.planned, found.held) == (200, 50, {Held.SHARE: 650})
    assert found.finishes_at == WINDOW + 14 * MINUTE


def test_what_was_due_first_goes_first_and_of_that_what_expires_first():
    """Also over zones: their messages are of one template."""
    urgent = a_lot(300, zone="Asia/Tokyo", expires=30 * MINUTE)
    patient = a_lot(300, zone="Europe/London", expires=2 * HOUR)
    for stock in ([urgent, patient], [patient, urgent]):
        found = outlook(foreseen(stock, under=limits(total="10/min")))
        assert (found.sent, found.expires) == ((600, 0, 0, 0), 0)
    older = a_lot(300, zone="Europe/London", expires=2 * HOUR, due=-HOUR)
    assert outlook(foreseen([urgent, older], under=limits(total="10/min"))).expires == 290  # one window is left for it


def test_an_important_priority_goes_before_the_others():
    stock = [a_lot(100, "late", priority=1), a_lot(250, priority=0)]
    forecast = foreseen(stock, a_template(), a_template("late"), under=limits(total="100/min"))
    assert (outlook(forecast).planned, outlook(forecast, "late").planned) == (50, 50)
    assert forecast.templates == 2


def test_templates_take_turns_where_there_is_no_room_for_all():
    names = ["a", "b", "c"]
    forecast = foreseen([a_lot(1_000, name) for name in names], *map(a_template, names), under=limits(total="1/min"))
    assert [outlook(forecast, name).planned for name in names] == [1, 0, 0]
    assert [outlook(forecast, name).sent for name in names] == [(20,) * 4] * 3


def test_several_windows_taken_as_one_come_to_the_same():
    """Two weeks of minutes are too many to play one by one."""
    templates = [a_template(), a_template("second", "evening", zone="Asia/Tokyo")]
    stock = [a_lot(50_000), a_lot(70_000, "second"), a_lot(20_000, due=5 * HOUR)]
    short = foreseen(stock, *templates, under=limits(total="300/min"), hours=4)
    long = foreseen(stock, *templates, under=limits(total="300/min"), hours=24 * 14)
    for name in ("promo", "second"):
        for before, after in zip(outlook(short, name).sent, outlook(long, name).sent, strict=False):
            assert abs(before - after) <= before * 0.05
        assert outlook(short, name).planned == outlook(long, name).planned
    # 140,000 at 300/min
    last = max(outlook(long, name).finishes_at for name in ("promo", "second"))
    assert abs(last - (WINDOW + 140_000 // 300 * MINUTE)) <= 3 * HOUR


lots = st.builds(
    a_lot,
    st.integers(0, 3_000),
    st.sampled_from(["promo", "second", "third", "gone"]),
    st.sampled_from([None, "Asia/Tokyo", "Europe/London", "America/Caracas"]),
    st.integers(0, 1),
    st.integers(-60, 300).map(lambda minutes: minutes * MINUTE),
    st.one_of(st.none(), st.integers(-10, 300).map(lambda minutes: minutes * MINUTE)),
)


@settings(max_examples=60, deadline=None)
@given(
    stock=st.lists(lots, max_size=12),
    speed=st.sampled_from(["7/min", "100/min", "1000/h", "5/s"]),
    own=st.sampled_from(["3/min", "50/min", "10/h"]),
    spare=st.sampled_from(Spare),
    interval=st.sampled_from([MINUTE, 5 * MINUTE, 7 * MINUTE, 2 * HOUR]),
    hours=st.integers(1, 8),
)
def test_nothing_is_lost_and_no_limit_is_exceeded(stock, speed, own, spare, interval, hours):
    templates = [
        a_template(),
        a_template("second", "morning", weight=2.5),
        a_template("third", "evening", zone="Asia/Tokyo", paused_at=NOW, paused_until=NOW + HOUR),
    ]
    forecast = foreseen(
        stock,
        *templates,
        under=limits(total=speed, second=own),
        hours=hours,
        rules=QuotaSettings(spare=spare, interval=interval),
    )
    for found in forecast.outlooks:
        assert found.waiting == sum(lot.count for lot in stock if lot.template == found.template)
        assert found.waiting == sum(found.sent) + found.expires + found.left
        assert (found.finishes_at is None) == (found.left > 0 or found.waiting == 0)
        expired = sum(
            lot.count for lot in stock if lot.template == found.template and lot.expires_at and lot.expires_at <= NOW
        )
        assert found.waiting == found.planned + sum(found.held.values()) + expired
    long_enough = max(HOUR, interval)
    for hour in range(hours):
        # A window longer than an hour may be sent evenly over all of it: one more than the rate for rounding each.
        total = sum(found.sent[hour] for found in forecast.outlooks)
        assert total <= parse_rate(speed).per_minute * (long_enough / MINUTE) + 3
        assert outlook(forecast, "second").sent[hour] <= parse_rate(own).per_minute * (long_enough / MINUTE) + 3
