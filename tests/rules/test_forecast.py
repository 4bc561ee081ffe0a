"""The forecast: numbers worked out by hand, and the laws that hold for every stock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixsched.rules import forecast as forecast_rules
from matrixsched.rules.forecast import HOURS_MAX, Forecast, Outlook, foresee
from matrixsched.rules.lanes import template_limit
from matrixsched.rules.limits import Limit, in_nanoseconds
from matrixsched.rules.lots import Lot
from matrixsched.rules.play import PresentWindow
from matrixsched.rules.quota import Held, QuotaSettings, Spare
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.templates import Distribution, Template

NOW = WINDOW = datetime(2026, 11, 16, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def a_template(name: str = "promo", kind: str = "uniform", **facts: object) -> Template:
    return Template(name=name, distribution=Distribution(kind), **facts)  # type: ignore[arg-type]


def a_lot(
    count: int,
    template: str | None = "promo",
    zone: str | None = None,
    priority: int = 0,
    due: timedelta = -MINUTE,
    expires: timedelta | None = None,
    handler: str = "send",
    key: str | None = None,
) -> Lot:
    return Lot(
        template=template,
        zone=zone,
        priority=priority,
        handler=handler,
        key=key,
        due_at=NOW + due,
        expires_at=None if expires is None else NOW + expires,
        count=count,
    )


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
        finishes_at=WINDOW + 90 * MINUTE - 0.6 * SECOND,  # the last of 9,000 slots
        expires=0,
        left=0,
    )


def test_of_a_window_that_lasts_a_day_the_hours_that_are_gone_are_not_foreseen():
    # It began at midnight, six hours ago, and lasts for another eighteen: so long there are slots for 750.
    forecast = foreseen(
        [a_lot(2_000)], under=limits(total="1000/day"), hours=36, rules=QuotaSettings(interval=24 * HOUR)
    )
    found = outlook(forecast)
    assert (forecast.begins_at, forecast.since) == (WINDOW - 6 * HOUR, WINDOW)
    assert (len(found.sent), sum(found.sent[:18]), sum(found.sent[18:]), found.left) == (36, 750, 750, 500)


def test_what_does_not_fit_into_the_hours_foreseen_is_left():
    found = outlook(foreseen([a_lot(30_000)], under=limits(total="100/min")))
    assert (found.sent, found.finishes_at, found.left) == ((6_000,) * 4, None, 6_000)


def test_the_maximum_of_a_template_holds_it_back():
    found = outlook(foreseen([a_lot(9_000)], under=limits(total="100/min", promo="30/min")))
    assert (found.planned, found.held, found.sent) == (30, {Held.TEMPLATE_MAX: 8_970}, (1_800,) * 4)


def test_without_any_limit_everything_goes_now():
    found = outlook(foreseen([a_lot(9_000)], under={}))
    assert (found.planned, found.held, found.finishes_at) == (9_000, {}, NOW)


def test_what_is_not_due_yet_goes_when_it_is():
    found = outlook(foreseen([a_lot(10), a_lot(50, due=90 * MINUTE)], under=limits(total="100/min")))
    assert (found.waiting, found.planned, found.held) == (60, 10, {Held.NOT_DUE: 50})
    assert found.sent == (10, 50, 0, 0)
    assert found.finishes_at == WINDOW + 90 * MINUTE + 49 * 0.6 * SECOND  # at once: no window was planned before


def test_what_comes_due_while_others_go_waits_for_the_next_window():
    found = outlook(
        foreseen([a_lot(1_000), a_lot(1, "late", due=30 * SECOND)], a_template(), a_template("late"), under={}), "late"
    )
    assert found.finishes_at == WINDOW + MINUTE


def test_what_expires_before_its_turn_is_foretold():
    stock = [a_lot(1_000, expires=30 * MINUTE), a_lot(7, expires=-MINUTE), a_lot(5, due=2 * HOUR, expires=HOUR)]
    found = outlook(foreseen(stock, under=limits(total="10/min")))
    assert (found.waiting, found.sent, found.expires, found.left) == (1_012, (300, 0, 0, 0), 700 + 7 + 5, 0)
    assert found.finishes_at == WINDOW + HOUR


def test_a_pause_ends_when_it_was_said_to():
    paused = a_template(paused_at=NOW - HOUR, paused_until=NOW + 2 * HOUR)
    found = outlook(foreseen([a_lot(5_000)], paused, under=limits(total="100/min")))
    assert (found.planned, found.held) == (0, {Held.PAUSED: 5_000})
    assert found.sent == (0, 0, 5_000, 0)
    assert found.finishes_at == WINDOW + timedelta(minutes=170) - 0.6 * SECOND


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
    assert found.finishes_at == WINDOW + 14 * MINUTE - 0.6 * SECOND


def test_what_was_due_first_goes_first_and_of_that_what_expires_first():
    """Also over zones: their messages are of one template."""
    urgent = a_lot(300, zone="Asia/Tokyo", expires=30 * MINUTE)
    patient = a_lot(300, zone="Europe/London", expires=2 * HOUR)
    for stock in ([urgent, patient], [patient, urgent]):
        found = outlook(foreseen(stock, under=limits(total="10/min")))
        assert (found.sent, found.expires) == ((600, 0, 0, 0), 0)
    older = a_lot(290, zone="Europe/London", expires=2 * HOUR, due=-HOUR)
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


# Limits of handlers and keys, and actions without a template.


def under(now: datetime = NOW, **rates: str) -> dict[str, Limit]:
    """Limits by name, `__` for the colon; the first slot of each is now."""
    names = {name: name.replace("__", ":").replace("any", "*") for name in rates}
    return {names[name]: Limit(name=names[name], rate=parse_rate(rate), updated_at=now) for name, rate in rates.items()}


def test_the_limit_of_a_handler_holds_its_messages_back():
    found = outlook(foreseen([a_lot(1_000)], under=under(handler__send="60/min")))
    assert (found.planned, found.held) == (60, {Held.LIMIT: 940})
    assert found.finishes_at == WINDOW + 999 * SECOND


def test_the_messages_of_other_handlers_go_meanwhile():
    stock = [a_lot(600, "slow"), a_lot(50_000, "free", handler="other")]
    templates = [a_template("slow"), a_template("free")]
    forecast = foreseen(stock, *templates, under=under(handler__send="10/min", **{"global": "1000/min"}))
    assert outlook(forecast, "slow").finishes_at == WINDOW + 599 * 6 * SECOND
    assert outlook(forecast, "free").sent[:2] == (30_000, 20_000)  # its half of the limit


def test_every_key_goes_at_its_own_pace():
    stock = [a_lot(300, key="tenant"), a_lot(30, "small", key="other"), a_lot(60, "small", key="own")]
    templates = [a_template(), a_template("small")]
    forecast = foreseen(stock, *templates, under=under(key__any="6/min", key__own="60/min"))
    assert outlook(forecast).finishes_at == WINDOW + 2_990 * SECOND
    assert outlook(forecast, "small").finishes_at == WINDOW + 290 * SECOND
    assert (outlook(forecast).held, outlook(forecast).planned) == ({Held.LIMIT: 294}, 6)


def test_a_key_shares_its_slots_among_templates_and_what_has_none():
    stock = [a_lot(30, "a", key="k"), a_lot(30, "b", key="k"), a_lot(30, None, key="k")]
    forecast = foreseen(stock, a_template("a"), a_template("b"), under=under(key__k="1/min"), hours=2)
    assert forecast.others == 30
    for name in ("a", "b"):
        assert abs(outlook(forecast, name).finishes_at - WINDOW - 90 * MINUTE) <= 5 * MINUTE


def test_slots_that_were_taken_are_gone_and_a_pool_is_at_hand():
    limits = under(handler__send="1/min")
    limits["handler:send"] = replace(limits["handler:send"], next_slot_ns=in_nanoseconds(NOW + 30 * SECOND))
    assert outlook(foreseen([a_lot(3)], under=limits)).finishes_at == NOW + 150 * SECOND
    limits["handler:send"] = replace(limits["handler:send"], next_slot_ns=0, pool=3)
    assert outlook(foreseen([a_lot(4)], under=limits)).finishes_at == NOW + MINUTE


def test_a_handler_that_was_told_to_slow_down_goes_on_at_its_rate():
    limits = under(handler__send="60/min")
    slow_until = NOW + 10 * MINUTE
    limits["handler:send"] = replace(
        limits["handler:send"], slow_until=slow_until, slow_rate=parse_rate("6/min"), next_slot_ns=in_nanoseconds(NOW)
    )
    found = outlook(foreseen([a_lot(180)], under=limits))
    assert abs(found.finishes_at - slow_until - 2 * MINUTE) <= SECOND
    limits["handler:send"] = replace(limits["handler:send"], slow_rate=None, next_slot_ns=in_nanoseconds(slow_until))
    assert outlook(foreseen([a_lot(60)], under=limits)).finishes_at == slow_until + 59 * SECOND


@pytest.mark.parametrize(("priority", "minutes"), [(0, 30), (1, 20), (2, 10)])
def test_actions_without_a_template_take_their_part_of_the_global_limit(priority: int, minutes: int):
    """1,200 of them beside 600 messages: before them, in turns with them, after them."""
    stock = [a_lot(1_200, None, priority=priority, handler="work"), a_lot(600, priority=1)]
    forecast = foreseen(stock, under=limits(total="60/min"))
    assert forecast.others == 1_200
    assert abs(outlook(forecast).finishes_at - WINDOW - minutes * MINUTE) <= 2 * SECOND
    assert outlook(forecast).waiting == 600


def test_lanes_take_turns_one_by_one_where_slots_are_rare():
    stock = [a_lot(30, None), a_lot(30)]
    found = outlook(foreseen(stock, under=limits(total="1/min")))
    assert found.sent == (30, 0, 0, 0)
    assert abs(found.finishes_at - WINDOW - 60 * MINUTE) <= 2 * MINUTE


def test_what_has_no_template_and_comes_later_is_in_the_way_later():
    stock = [a_lot(120, None, due=10 * MINUTE), a_lot(900, priority=1)]
    found = outlook(foreseen(stock, under=limits(total="60/min")))
    assert abs(found.finishes_at - WINDOW - 17 * MINUTE) <= 2 * SECOND


# In the middle of a window.

LATER = NOW + 45 * SECOND


def in_the_window(stock: list[Lot], *templates: Template, rates: dict[str, Limit], **window: object) -> Forecast:
    present = PresentWindow(at=LATER, begins_at=WINDOW, ends_at=WINDOW + MINUTE, **window)  # type: ignore[arg-type]
    return foresee(stock, templates or [a_template()], QuotaSettings(), rates, now=LATER, hours=4, window=present)


def test_of_a_window_that_is_not_planned_the_slots_of_the_rest_are_left():
    forecast = in_the_window([a_lot(1_000)], rates=limits(total="100/min"))
    found = outlook(forecast)
    assert (forecast.max_to_send, forecast.is_planned) == (100, False)
    assert (found.planned, found.held) == (25, {Held.TOTAL: 900, Held.LIMIT: 75})
    assert found.finishes_at == LATER + 999 * 0.6 * SECOND


def test_of_a_window_that_is_planned_what_is_left_of_the_grants_goes():
    left = {("promo", 0, False): 7, ("other", 0, False): 0}
    stock = [a_lot(100), a_lot(50, "other"), a_lot(3, "new")]
    templates = [a_template(), a_template("other"), a_template("new")]
    forecast = in_the_window(stock, *templates, rates=limits(total="100/min"), left=left)
    assert (forecast.is_planned, forecast.templates) == (True, 2)
    assert (outlook(forecast).planned, outlook(forecast).held) == (7, {Held.QUOTA: 93})
    assert (outlook(forecast, "other").planned, outlook(forecast, "new").held) == (0, {Held.QUOTA: 3})


def test_of_a_planned_window_no_more_goes_than_there_are_slots_for():
    forecast = in_the_window([a_lot(100)], rates=limits(total="100/min"), left={("promo", 0, False): 60})
    assert (outlook(forecast).planned, outlook(forecast).held) == (25, {Held.QUOTA: 40, Held.LIMIT: 35})


def test_in_a_planned_window_the_time_of_the_day_is_that_of_the_plan():
    stock = [a_lot(10, zone="Asia/Karachi"), a_lot(10, zone="Europe/London"), a_lot(10)]
    left = {("promo", 0, True): 4, ("promo", 0, False): 2}
    zones = {"promo": frozenset({"", "Asia/Karachi"})}
    morning = a_template(kind="morning")
    found = outlook(in_the_window(stock, morning, rates=limits(total="1000/min"), left=left, zones_inside=zones))
    assert (found.inside, found.planned, found.held) == (20, 6, {Held.QUOTA: 24})


def test_a_pause_also_holds_in_a_window_that_was_planned_before():
    paused = a_template(paused_at=NOW)
    found = outlook(in_the_window([a_lot(9)], paused, rates={}, left={("promo", 0, False): 9}))
    assert (found.planned, found.held) == (0, {Held.PAUSED: 9})


# How far ahead, and how much.


def test_the_finish_does_not_depend_on_how_far_is_foreseen():
    templates = [a_template(f"t{number}") for number in range(7)]
    stock = [a_lot(150 + number, f"t{number}") for number in range(7)]
    finishes = [
        [
            outlook.finishes_at
            for outlook in foreseen(stock, *templates, under=limits(total="10/min"), hours=hours).outlooks
        ]
        for hours in (4, 24, HOURS_MAX)
    ]
    assert None not in finishes[0]
    assert finishes[0] == finishes[1] == finishes[2]


def test_far_ahead_several_windows_are_taken_as_one(monkeypatch: pytest.MonkeyPatch):
    """The finish is later by a hundredth of the time until then at the most."""
    stock = [a_lot(50_000), a_lot(70_000, "second"), a_lot(20_000, due=5 * HOUR)]
    templates = [a_template(), a_template("second", "evening", zone="Asia/Tokyo")]
    exact = foreseen(stock, *templates, under=limits(total="300/min"), hours=24)
    monkeypatch.setattr(forecast_rules, "WORK_MAX", 0)
    coarse = foreseen(stock, *templates, under=limits(total="300/min"), hours=24)
    for name in ("promo", "second"):
        one, other = outlook(exact, name), outlook(coarse, name)
        assert one.planned == other.planned
        assert abs(one.finishes_at - other.finishes_at) <= (one.finishes_at - NOW) / 50
        assert all(abs(a - b) <= 0.05 * a + 300 for a, b in zip(one.sent, other.sent, strict=True))


def test_nothing_is_played_while_nothing_is_due():
    found = outlook(foreseen([a_lot(5, due=300 * HOUR)], under=limits(total="1/min"), hours=HOURS_MAX))
    assert found.finishes_at == NOW + 300 * HOUR + 4 * MINUTE


lots = st.builds(
    a_lot,
    st.integers(0, 3_000),
    st.sampled_from(["promo", "second", "third", "gone", None]),
    st.sampled_from([None, "Asia/Tokyo", "Europe/London", "America/Caracas"]),
    st.integers(0, 1),
    st.integers(-60, 300).map(lambda minutes: minutes * MINUTE),
    st.one_of(st.none(), st.integers(-10, 300).map(lambda minutes: minutes * MINUTE)),
    st.sampled_from(["send", "post"]),
    st.sampled_from([None, "k", "l"]),
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
        under=limits(total=speed, second=own) | under(handler__post="20/min", key__any="9/min"),
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
