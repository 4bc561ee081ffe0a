"""Templates and the quota's settings: created, changed, paused, stopped and removed while everything runs."""

from datetime import datetime, time, timedelta

import pytest
from support.drivers import connect_asyncpg
from support.scene import Scene

from matrixsched import App, State, call
from matrixsched.clock import ManualClock
from matrixsched.errors import (
    BadInput,
    InvalidDuration,
    InvalidId,
    InvalidNumber,
    InvalidRate,
    InvalidTime,
    InvalidWindow,
    TemplateInUse,
    UnknownTemplate,
    UnknownZone,
)
from matrixsched.rules.quota import QuotaSettings, Spare
from matrixsched.rules.rates import Rate
from matrixsched.rules.templates import Distribution, SendWindow, Template
from matrixsched.templates import BATCH

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
MORNING = SendWindow(time(8), time(12))


@pytest.fixture
def scene(app: App, clock: ManualClock) -> Scene:
    return Scene(app.store, clock)


# What a template is.


async def test_a_new_template_is_uniform_in_utc_with_no_limit(app: App):
    assert await app.templates.set("promo") == Template(name="promo")
    assert await app.templates.get("promo") == Template(name="promo")


async def test_only_what_is_given_is_changed(app: App):
    await app.templates.set("promo", windows=["08:00-12:00"], zone="Europe/Berlin", weight=2, max_speed="100/min")
    await app.templates.set("other")
    changed = await app.templates.set("promo", weight=0.5)
    assert changed == Template(
        name="promo",
        distribution=Distribution.OWN,
        windows=(MORNING,),
        zone="Europe/Berlin",
        weight=0.5,
        max_speed=Rate(100, MINUTE),
    )
    assert await app.templates.list() == [Template(name="other"), changed]


async def test_windows_belong_to_the_distribution_own(app: App):
    promo = await app.templates.set("promo", distribution="own", windows=["22:00-06:00"])
    assert promo.windows == (SendWindow(time(22), time(6)),)
    assert (await app.templates.set("promo", distribution="own")).windows == promo.windows
    assert (await app.templates.set("promo", distribution=Distribution.EVENING)).windows == ()
    with pytest.raises(BadInput, match="needs windows"):
        await app.templates.set("promo", distribution="own")
    assert (await app.templates.get("promo")).distribution is Distribution.EVENING


async def test_the_maximum_speed_is_the_limit_of_the_template(app: App):
    await app.templates.set("promo", max_speed="100/min")
    do = app.store.transitions
    (limit,) = await app.store.run(do.find_limits(["template:promo"]))
    assert limit.rate == Rate(100, MINUTE)
    await app.store.run(do.set_limit("template:promo", Rate(5, timedelta(seconds=1)), pool=3))
    assert (await app.templates.get("promo")).max_speed == Rate(5, timedelta(seconds=1))
    assert (await app.templates.set("promo", max_speed="7/s")).max_speed == Rate(7, timedelta(seconds=1))
    (limit,) = await app.store.run(do.find_limits(["template:promo"]))
    assert limit.pool == 3
    assert (await app.templates.set("promo", max_speed="none")).max_speed is None
    assert await app.store.run(do.find_limits(["template:promo"])) == []


@pytest.mark.undistributed("such an installation keeps them out from its beginning")
async def test_workers_that_know_no_templates_are_kept_out_from_the_first_one_on(app: App):
    do = app.store.transitions
    assert (await app.store.run(do.installation())).oldest_library < 3
    await app.templates.set("promo")
    assert (await app.store.run(do.installation())).oldest_library == 3


async def test_a_change_lets_workers_look_at_once_at_the_lanes_that_wait(app: App, scene: Scene):
    await app.templates.set("promo")
    for change in (
        lambda: app.templates.set("promo", weight=2),
        lambda: app.templates.resume("promo"),
    ):
        await scene.sql("delete from matrixsched.held_lanes")
        await scene.sql(
            "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values ('quota|x', 0, 'h', :at)",
            at=scene.now + MINUTE,
        )
        await change()
        (lane,) = await scene.table("held_lanes")
        assert lane["ready_at"] == scene.now


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": ""}, InvalidId),
        ({"name": 5}, InvalidId),
        ({"distribution": "noon"}, BadInput),
        ({"distribution": "own"}, BadInput),
        ({"distribution": "morning", "windows": ["08:00-12:00"]}, BadInput),
        ({"windows": []}, InvalidWindow),
        ({"windows": "08:00-12:00"}, InvalidWindow),
        ({"windows": 8}, InvalidWindow),
        ({"windows": ["12:00-12:00"]}, InvalidWindow),
        ({"windows": ["25:00-26:00"]}, InvalidWindow),
        ({"zone": "Europe/Atlantis"}, UnknownZone),
        ({"max_speed": "0/min"}, InvalidRate),
        ({"max_speed": "-5/min"}, InvalidRate),
        ({"max_speed": "NaN/min"}, InvalidRate),
        ({"max_speed": 100}, InvalidRate),
        ({"weight": 0}, InvalidNumber),
        ({"weight": -1}, InvalidNumber),
        ({"weight": float("nan")}, InvalidNumber),
        ({"weight": 10**400}, InvalidNumber),
    ],
)
async def test_what_no_template_can_be_is_refused_and_nothing_is_written(app: App, options, error):
    before = await app.store.run(app.store.transitions.installation())
    with pytest.raises(error):
        await app.templates.set(**({"name": "promo"} | options))
    assert await app.templates.list() == []
    assert await app.store.run(app.store.transitions.installation()) == before


async def test_a_template_that_is_not_there_is_named_with_those_close_to_it(app: App):
    await app.templates.set("promo")
    for refused in (
        app.templates.get("prmo"),
        app.templates.pause("prmo"),
        app.templates.pause("prmo", timedelta(hours=1)),
        app.templates.resume("prmo"),
        app.templates.stop("prmo"),
        app.templates.remove("prmo"),
        app.schedule("greet", template="prmo"),
        app.schedule_many([call("greet", template="promo"), call("greet", template="prmo")]),
    ):
        with pytest.raises(UnknownTemplate) as caught:
            await refused
        assert (caught.value.name, caught.value.close) == ("prmo", ("promo",))
    assert await app.list() == []


# Messages of a template.


async def test_a_message_keeps_its_template_zone_and_limit(app: App, scene: Scene):
    await app.templates.set("promo")
    await app.schedule("greet", id="a", template="promo", zone="Asia/Tokyo", limit="smtp", priority=2)
    await app.schedule_many([call("greet", id="b", template="promo"), call("greet", id="c")])
    spec = (await app.get("a")).spec
    assert (spec.template, spec.zone, spec.limit) == ("promo", "Asia/Tokyo", "smtp")
    assert {action.id for action in await app.list(template="promo")} == {"a", "b"}
    lanes = {row["action_id"]: row["lane"] for row in await scene.table("scheduled_actions")}
    assert lanes == {"a": "quota|promo|Asia/Tokyo|2|smtp|greet", "b": "quota|promo||0||greet", "c": ""}


async def test_a_message_can_be_given_another_template_by_replacing_it(app: App):
    await app.templates.set("promo")
    first = await app.schedule("greet", id="a", template="promo")
    await app.schedule("greet", id="a", expected_guid=first.guid)
    assert (await app.get("a")).spec.template is None
    with pytest.raises(UnknownTemplate):
        await app.schedule("greet", id="a", template="news", expected_guid=(await app.get("a")).meta.guid)


async def test_a_template_seen_a_moment_ago_is_not_asked_for_again(app: App, clock: ManualClock):
    await app.templates.set("promo")
    await app.schedule("greet", template="promo")
    served = app.store.pool.served
    await app.schedule("greet", template="promo")
    assert app.store.pool.served == served + 1
    await app.templates.stop("promo")
    await app.templates.remove("promo")
    clock.advance(timedelta(seconds=6))
    with pytest.raises(UnknownTemplate):
        await app.schedule("greet", template="promo")


# Pausing.


async def test_a_template_is_paused_until_it_is_resumed(app: App, clock: ManualClock):
    await app.templates.set("promo")
    paused = await app.templates.pause("promo")
    assert (paused.paused_at, paused.paused_until) == (clock.now(), None)
    assert paused.is_paused(clock.now() + timedelta(days=100))
    resumed = await app.templates.resume("promo")
    assert resumed == Template(name="promo")


@pytest.mark.parametrize("is_duration", [True, False])
async def test_a_pause_can_end_by_itself(app: App, clock: ManualClock, is_duration):
    await app.templates.set("promo")
    paused = await app.templates.pause("promo", MINUTE if is_duration else clock.now() + MINUTE)
    assert paused.paused_until == clock.now() + MINUTE
    assert paused.is_paused(clock.now())
    assert not paused.is_paused(clock.now() + MINUTE)


async def test_a_pause_that_ends_before_it_begins_is_refused(app: App, clock: ManualClock):
    await app.templates.set("promo")
    for until, error in (
        (clock.now(), InvalidTime),
        (clock.now() - MINUTE, InvalidTime),
        (datetime(2030, 1, 1), InvalidTime),  # noqa: DTZ001
        (timedelta(0), InvalidDuration),
        (-MINUTE, InvalidDuration),
        ("tomorrow", InvalidTime),
    ):
        with pytest.raises(error):
            await app.templates.pause("promo", until)
    assert await app.templates.get("promo") == Template(name="promo")


# Stopping a campaign.


async def test_stopping_a_campaign_cancels_all_that_waits_and_nothing_else(app: App, scene: Scene):
    await app.templates.set("promo")
    await app.templates.set("news")
    count = 2 * BATCH + 7
    later = timedelta(days=1)
    await app.schedule_many(call("greet", id=f"p{n}", template="promo", delay=later * (n % 2)) for n in range(count))
    await app.schedule_many([call("greet", id="n", template="news"), call("greet", id="free")])
    told: list[int] = []
    before = {action.id: action.meta for action in await app.list(limit=10_000)}
    assert await app.templates.stop("promo", progress=told.append) == count
    assert told == [BATCH, 2 * BATCH, count]
    for action in await app.list(template="promo", limit=10_000):
        assert action.status.state is State.CANCELLED
        assert action.status.finished_at == scene.now
        assert action.meta.guid != before[action.id].guid
        assert action.meta.version > before[action.id].version
    assert {action.id for action in await app.list(state=State.LIVE)} == {"n", "free"}
    assert await app.templates.stop("promo") == 0


async def test_rows_that_wait_in_processing_are_gone_with_their_campaign(app: App, scene: Scene):
    await app.templates.set("promo")
    await scene.put_in_processing("a", "b", template="promo")
    await scene.put_in_processing("c")
    assert await app.templates.stop("promo") == 2
    assert await scene.waiting("processing_queue") == {"c"}


async def test_attempts_under_way_are_left_to_come_to_their_end(app: App, scene: Scene):
    await app.templates.set("promo")
    attempt = await scene.start("a", template="promo")
    await scene.schedule("b", template="promo", delay=MINUTE)
    assert await app.templates.stop("promo") == 1
    assert (await scene.action("a")).status.running
    await scene.finish(attempt)
    assert (await scene.action("a")).status.state is State.DONE
    assert (await scene.action("b")).status.state is State.CANCELLED


async def test_what_a_user_holds_is_passed_over(postgres_dsn: str, clock: ManualClock):
    app = App(postgres_dsn, clock=clock)
    await app.init(shards=4)
    async with app:
        await app.templates.set("promo")
        await app.schedule_many(call("greet", id=f"p{n}", template="promo") for n in range(5))
        user = await connect_asyncpg(postgres_dsn)
        try:
            async with user.transaction():
                await app.reschedule("p3", delay=MINUTE, connection=user)
                assert await app.templates.stop("promo") == 4
            assert await app.templates.stop("promo") == 1
        finally:
            await user.close()


# Removing.


async def test_a_template_whose_messages_wait_is_not_removed(app: App):
    await app.templates.set("promo", max_speed="5/s")
    await app.schedule("greet", id="a", template="promo", delay=MINUTE)
    with pytest.raises(TemplateInUse):
        await app.templates.remove("promo")
    assert (await app.templates.get("promo")).max_speed is not None
    await app.cancel("a")
    await app.templates.remove("promo")
    assert await app.templates.list() == []
    await app.schedule("greet", id="b", template="promo")  # it was there a moment ago
    with pytest.raises(UnknownTemplate):
        await app.templates.remove("promo")
    assert await app.store.run(app.store.transitions.find_limits(["template:promo"])) == []


# How it is shared.


async def test_the_settings_of_the_quota_are_the_defaults_until_somebody_changes_them(app: App):
    assert await app.quota.settings() == QuotaSettings()


async def test_only_the_settings_that_are_given_are_changed(app: App, scene: Scene):
    await app.quota.set(interval=timedelta(seconds=30), spare="share", morning="07:00-11:30")
    changed = await app.quota.set(uniform_share=0.2)
    assert changed == await app.quota.settings()
    assert changed == QuotaSettings(
        interval=timedelta(seconds=30),
        spare=Spare.SHARE,
        morning=SendWindow(time(7), time(11, 30)),
        uniform_share=0.2,
    )
    await app.quota.set(interval=MINUTE, spare="leave", morning=MORNING, uniform_share=0.03)
    (row,) = await scene.table("quota_settings")
    assert row["settings"] == "{}"


async def test_the_share_inside_is_said_in_one_way_at_a_time(app: App):
    assert (await app.quota.set(inside_times_outside=5)).inside_times_outside == 5
    assert await app.quota.set(inside_share=0.1) == QuotaSettings(inside_share=0.1)
    with pytest.raises(BadInput, match="choose one"):
        await app.quota.set(inside_share=0.1, inside_times_outside=5)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"interval": timedelta(milliseconds=999)}, InvalidDuration),
        ({"interval": timedelta(days=2)}, InvalidDuration),
        ({"interval": 60}, InvalidDuration),
        ({"inside_share": 0}, InvalidNumber),
        ({"outside_share": 1.1}, InvalidNumber),
        ({"uniform_share": float("nan")}, InvalidNumber),
        ({"uniform_share": -0.1}, InvalidNumber),
        ({"inside_times_outside": 0}, InvalidNumber),
        ({"spare": "burn"}, BadInput),
        ({"day": "12:00-12:00"}, InvalidWindow),
        ({"evening": "late"}, InvalidWindow),
    ],
)
async def test_settings_that_make_no_sense_are_refused_and_change_nothing(app: App, options, error):
    with pytest.raises(error):
        await app.quota.set(**options)
    assert await app.quota.settings() == QuotaSettings()


# From synchronous code.


def test_synchronous_code_has_the_same(database_url: str):
    app = App(database_url)
    app.sync.init(shards=4)
    with app.sync:
        assert app.sync.templates.set("promo", weight=2).weight == 2
        assert [template.name for template in app.sync.templates.list()] == ["promo"]
        app.sync.schedule("greet", template="promo", delay=MINUTE)
        assert app.sync.templates.count("promo") == 1
        assert app.sync.templates.pause("promo", MINUTE).paused_until is not None
        assert app.sync.templates.resume("promo") == app.sync.templates.get("promo")
        assert app.sync.templates.stop("promo") == 1
        app.sync.templates.remove("promo")
        assert app.sync.quota.set(spare="share") == app.sync.quota.settings() == QuotaSettings(spare=Spare.SHARE)
