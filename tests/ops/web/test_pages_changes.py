"""Every change asks first, does what it said, says what happened and is written down; no other form does anything."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from html import unescape

import pytest
from support.away import leaving
from support.visits import Visitor, fields_of, visiting
from support.web_api import OPERATOR, VIEWER

from matrixsched import App, Retry, every
from matrixsched.clock import ManualClock
from matrixsched.ops.queues import storage_of
from matrixsched.ops.web.access import Tokens
from matrixsched.ops.web.pages import bulk_changes
from matrixsched.rules.action import State
from matrixsched.rules.audit import AuditOutcome, Via
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
Seen = Callable[[App], Awaitable[object]]


async def state_of(app: App, id: str) -> State:
    return (await app.get(id)).status.state


@dataclass(frozen=True)
class Case:
    path: str
    verb: str
    seen: Seen
    before: object
    after: object
    said: str


async def dead(app: App) -> int:
    return (await storage_of(app).stat())[7].dead


CASES = [
    Case(
        "cancel?id=remind:40",
        "cancel",
        lambda app: state_of(app, "remind:40"),
        State.LIVE,
        State.CANCELLED,
        "Cancelled",
    ),
    Case("run_now?id=remind:40", "run_now", lambda app: is_due(app, "remind:40"), False, True, "It is due now"),
    Case(
        "redrive?id=sms:order-1001",
        "redrive",
        lambda app: state_of(app, "sms:order-1001"),
        State.FAILED,
        State.LIVE,
        "due now",
    ),
    Case("reschedule?id=remind:40&when=2h", "reschedule", lambda app: minutes_away(app, "remind:40"), 40, 120, "moved"),
    Case(
        "reschedule?id=remind:40&when=2030-01-01T03:00",
        "reschedule",
        lambda app: minutes_away(app, "remind:40"),
        40,
        180,
        "moved",
    ),
    Case(
        "bulk_cancel?q=remind:4",
        "cancel",
        lambda app: count(app, State.CANCELLED, "remind:4"),
        0,
        10,
        "10 of 10 were cancelled",
    ),
    Case("bulk_run_now?q=remind:4", "run_now", lambda app: due(app), 0, 10, "10 of 10 were made due"),
    Case(
        "bulk_redrive?state=failed&handler=send_sms",
        "redrive",
        lambda app: count(app, State.FAILED, "sms"),
        7,
        0,
        "7 of 7 were redriven",
    ),
    Case("release_shard?shard=2", "release_shard", lambda app: is_held(app, 2), True, False, "Shard 2 is free"),
    Case(
        "pause_template?name=spring-sale",
        "pause_template",
        lambda app: is_paused(app, "spring-sale"),
        False,
        True,
        "is paused",
    ),
    Case(
        "pause_template?name=spring-sale&until=30m",
        "pause_template",
        lambda app: is_paused(app, "spring-sale"),
        False,
        True,
        "is paused",
    ),
    Case(
        "resume_template?name=win-back",
        "resume_template",
        lambda app: is_paused(app, "win-back"),
        True,
        False,
        "goes on",
    ),
    Case(
        "stop_template?name=spring-sale",
        "stop_template",
        lambda app: app.templates.count("spring-sale"),
        40,
        0,
        "40 messages",
    ),
    Case(
        "remove_template?name=receipts",
        "remove_template",
        lambda app: has_template(app, "receipts"),
        True,
        False,
        "is removed",
    ),
    Case(
        "set_limit?name=global&rate=5/s&pool=3",
        "set_limit",
        lambda app: rate(app, "global"),
        "10000/min",
        "5/s",
        "holds now: at 5/s",
    ),
    Case("remove_limit?name=global", "remove_limit", lambda app: has_limit(app, "global"), True, False, "is removed"),
    Case(
        "resume_limit?name=handler:send_sms",
        "resume_limit",
        lambda app: is_slowed(app, "handler:send_sms"),
        True,
        False,
        "is over",
    ),
    Case(
        "update_semaphore?key=accounts&active=5&try_release=2",
        "update_semaphore",
        lambda app: active(app),
        (3, 1),
        (5, 2),
        "is changed",
    ),
    Case(
        "release_task?key=accounts&task=account-4",
        "release_tasks",
        lambda app: holds(app, "account-4"),
        True,
        False,
        "is released",
    ),
    Case("pause_queue?queue=7", "pause_queue", lambda app: is_queue_paused(app), False, True, "It is paused"),
    Case("redrive_queue?queue=7", "redrive_queue", dead, 3, 0, "3 went back"),
    Case("purge_queue_dead?queue=7", "purge_queue_dead", dead, 3, 0, "3 were deleted"),
]


LOOKED_AT = (
    "/actions?state=failed",
    "/action?id=remind:40",
    "/shards",
    "/template?name=spring-sale",
    "/limits",
    "/semaphore?key=accounts",
    "/queue?queue=7",
)


async def is_due(app: App, id: str) -> bool:
    return (await app.get(id)).status.scheduled_at <= app.clock.now()


async def minutes_away(app: App, id: str) -> int:
    return ((await app.get(id)).status.scheduled_at - app.clock.now()) // timedelta(minutes=1)


async def count(app: App, state: State, prefix: str) -> int:
    return len(await app.list(state=state, id_prefix=prefix, limit=1000))


async def due(app: App) -> int:
    soon = app.clock.now() + timedelta(microseconds=1)
    return len(await app.list(state=State.LIVE, id_prefix="remind", due_before=soon, limit=1000))


async def is_held(app: App, shard: int) -> bool:
    return (await app.shards())[shard].locked


async def is_paused(app: App, name: str) -> bool:
    return (await app.templates.get(name)).is_paused(app.clock.now())


async def has_template(app: App, name: str) -> bool:
    return name in [template.name for template in await app.templates.list()]


async def has_limit(app: App, name: str) -> bool:
    return name in [limit.name for limit in await app.limits.list()]


async def rate(app: App, name: str) -> str:
    return str((await app.limits.get(name)).rate)


async def is_slowed(app: App, name: str) -> bool:
    return (await app.limits.get(name)).is_slowed(app.clock.now())


async def active(app: App) -> tuple[int, int]:
    found = await app.semaphores.settings("accounts")
    return found.active, found.try_release


async def holds(app: App, id: str) -> bool:
    return id in [task.id for task in await (await app.semaphores.get("accounts")).holders()]


async def is_queue_paused(app: App) -> bool:
    return next(one.paused for one in await storage_of(app).settings() if one.queue == 7)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
async def test_a_change_asks_does_it_says_so_and_is_written_down(furnished: Visitor, case: Case) -> None:
    app, known = furnished.app, len(await furnished.audited())
    assert await case.seen(app) == case.before
    path = f"/change/{case.path}"
    asked = await furnished.read(path)
    assert "No, go back" in asked
    fields = fields_of(asked)

    for wrong in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
        refused = await furnished.send(
            path.partition("?")[0], {name: v for name, v in fields.items() if name != "csrf"} | wrong
        )
        assert refused.status_code == 403
        assert "nothing was done" in refused.text
    assert await case.seen(app) == case.before
    assert len(await furnished.audited()) == known

    done = await furnished.send(path.partition("?")[0], fields)
    assert done.status_code == 200, done.text
    assert case.said in unescape(done.text)
    assert await case.seen(app) == case.after
    entries = await furnished.audited()
    assert len(entries) == known + 1
    (entry,) = [one for one in entries if one.who == "local (127.0.0.1)"]
    assert (entry.verb, entry.via, entry.outcome) == (case.verb, Via.DASHBOARD, AuditOutcome.DONE)


async def test_who_may_only_look_sees_no_button_and_changes_nothing(furnished: Visitor) -> None:
    tokens = Tokens(viewer=VIEWER, operator=OPERATOR)
    async with visiting(furnished.app, tokens) as viewer:
        await viewer.send("/sign-in", {"token": VIEWER, "name": "vera"})
        for path in LOOKED_AT:
            page = await viewer.read(path)
            assert "vera (127.0.0.1)" in page
            assert "/change/" not in page, path
            assert "Show payload" not in page
        assert (await viewer.open("/action?id=remind:40&payload=1")).status_code == 403
        csrf = fields_of(await viewer.read("/"))["csrf"]
        for case in CASES:
            path, _, query = case.path.partition("?")
            assert (await viewer.open(f"/change/{case.path}")).status_code == 403
            fields = dict(pair.split("=") for pair in query.split("&")) | {"csrf": csrf}
            refused = await viewer.send(f"/change/{path}", fields)
            assert refused.status_code == 403
            assert "for looking only" in refused.text
            assert await case.seen(furnished.app) == case.before


async def test_what_has_changed_since_it_was_shown_stays_as_it_is(furnished: Visitor) -> None:
    fields = fields_of(await furnished.read("/change/cancel?id=remind:40"))
    await furnished.app.reschedule("remind:40", delay=HOUR)
    refused = await furnished.send("/change/cancel", fields)
    assert refused.status_code == 412
    assert await state_of(furnished.app, "remind:40") is State.LIVE


@pytest.mark.parametrize("verb", ["run_now", "redrive"])
async def test_what_ran_since_it_was_shown_is_not_run_once_more(visitor: Visitor, app: App, verb: str) -> None:
    runs: list[str] = []

    @app.action("work")
    async def work() -> None:
        runs.append("work")

    await app.schedule("work", id="a", repeat=every(HOUR))
    fields = fields_of(await visitor.read(f"/change/{verb}?id=a"))
    await Worker(app).run_due()
    refused = await visitor.send(f"/change/{verb}", fields)
    assert refused.status_code == 409
    assert "it was changed since it was shown to you" in refused.text
    await Worker(app).run_due()
    assert runs == ["work"]
    assert "It is due now" in (await visitor.confirm(f"/change/{verb}?id=a")).text


async def test_a_shard_that_changed_hands_is_not_released(furnished: Visitor, clock: ManualClock) -> None:
    fields = fields_of(await furnished.read("/change/release_shard?shard=2"))
    fields["guid"] = "00000000-0000-0000-0000-000000000001"
    answer = await furnished.send("/change/release_shard", fields)
    assert "changed hands" in answer.text
    assert await is_held(furnished.app, 2)


async def test_the_form_of_one_visitor_is_nothing_in_the_hands_of_another(furnished: Visitor) -> None:
    tokens = Tokens(operator=OPERATOR)
    async with visiting(furnished.app, tokens) as ann, visiting(furnished.app, tokens) as bob:
        for one, name in ((ann, "ann"), (bob, "bob")):
            await one.send("/sign-in", {"token": OPERATOR, "name": name})
        fields = fields_of(await ann.read("/change/cancel?id=remind:40"))
        assert (await bob.send("/change/cancel", fields)).status_code == 403
        assert await state_of(furnished.app, "remind:40") is State.LIVE
        assert (await ann.send("/change/cancel", fields)).status_code == 200


async def test_many_are_changed_so_many_at_a_time(app: App, visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_changes, "AT_ONCE_MAX", 4)
    for number in range(10):
        await app.schedule("remind", id=f"a:{number}", delay=HOUR)
    path, rounds = "/change/bulk_cancel?q=a:", []
    while path:
        answer = await visitor.confirm(path)
        rounds.append(await count(app, State.CANCELLED, "a:"))
        part = answer.text.rpartition('class="button main" href="')[2] if "Go on with" in answer.text else ""
        path = unescape(part.partition('"')[0])
    assert rounds == [4, 8, 10]


async def test_a_question_is_shown_before_all_that_fit_are_counted(
    app: App, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_changes, "SHOW_MAX", 4)
    for number in range(10):
        await app.schedule("remind", id=f"a:{number}", delay=HOUR)
    asked = await visitor.read("/change/bulk_cancel?q=a:")
    assert "4 or more fit" in asked
    assert 'data-live="says" data-once' in asked
    part = await visitor.read("/change/bulk_cancel?q=a:&fragment=says")
    assert part.count("<p>") == 2, "what it says, and nothing else"
    assert "10 fit" in part
    assert "or more" not in part
    few = await visitor.read("/change/bulk_cancel?q=a:1")
    assert "1 fit" in few
    assert "data-live" not in few


@pytest.mark.parametrize(
    ("path", "done"),
    [("bulk_cancel?q=a:", "3 of 8 were cancelled"), ("bulk_run_now?q=a:", "3 of 8 were made due")],
)
async def test_what_came_after_the_question_is_left_and_told(
    app: App, visitor: Visitor, clock: ManualClock, path: str, done: str
) -> None:
    for number in range(3):
        await app.schedule("remind", id=f"a:{number}", delay=HOUR)
    fields = fields_of(await visitor.read(f"/change/{path}"))
    clock.advance(timedelta(seconds=1))
    for number in range(3, 8):
        await app.schedule("remind", id=f"a:{number}", delay=HOUR)
    happened = await visitor.send(f"/change/{path.partition('?')[0]}", fields)
    assert done in happened.text
    assert "5 were left as they are: they came, or were changed, after you were asked" in happened.text
    assert [(await app.get(f"a:{number}")).meta.revision for number in range(8)] == [2] * 3 + [1] * 5
    (entry,) = await visitor.audited()
    assert entry.after["left_newer"] == 5


async def test_what_is_run_once_more_is_written_down_as_it_was_offered(app: App, visitor: Visitor) -> None:
    await app.schedule("remind", id="a")
    await app.cancel("a")
    await visitor.confirm("/change/run_now?id=a")
    (entry,) = await visitor.audited()
    assert entry.verb == "run_now"


async def test_a_long_list_of_ids_is_shortened_on_the_page_of_the_audit_log(app: App, visitor: Visitor) -> None:
    for number in range(30):
        await app.schedule("remind", id=f"a:{number:02}", delay=HOUR)
    await visitor.confirm("/change/bulk_cancel?q=a:")
    page = await visitor.read("/audit")
    assert len(re.findall(r"a:\d\d", page)) == 20
    assert "and 10 more" in page
    (entry,) = await visitor.audited()
    assert (entry.before["filter"], len(entry.after["ids"])) == ("state live, id begins with a:", 30)  # type: ignore[arg-type]


async def test_what_was_changed_after_the_question_is_left(app: App, visitor: Visitor, clock: ManualClock) -> None:
    for number in range(3):
        await app.schedule("remind", id=f"a:{number}", delay=HOUR)
    fields = fields_of(await visitor.read("/change/bulk_cancel?q=a:"))
    clock.advance(timedelta(seconds=1))
    await app.schedule("remind", {"text": "another"}, id="a:1", delay=HOUR)
    happened = await visitor.send("/change/bulk_cancel", fields)
    assert "2 of 3 were cancelled" in happened.text
    assert await state_of(app, "a:1") is State.LIVE


async def test_no_more_are_changed_than_were_told(app: App, visitor: Visitor) -> None:
    """What a transaction writes that was under way when it was asked bears an earlier time."""
    for number in range(3):
        await app.schedule("remind", id=f"a:{number}", delay=HOUR)
    fields = fields_of(await visitor.read("/change/bulk_cancel?q=a:"))
    await app.schedule("remind", id="a:4", delay=HOUR)  # in the very same moment
    assert "3 of 4 were cancelled" in (await visitor.send("/change/bulk_cancel", fields)).text


async def test_what_failed_after_the_question_is_not_redriven(app: App, visitor: Visitor, clock: ManualClock) -> None:
    @app.action("fail", retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise RuntimeError("no")

    await app.schedule("fail", id="a:1")
    await app.schedule("fail", id="a:2", delay=HOUR)
    await Worker(app).run_due()
    path = "/change/bulk_redrive?state=failed&q=a:"
    fields = fields_of(await visitor.read(path))
    clock.advance(HOUR)
    await Worker(app).run_due()
    assert "1 of 2 were redriven" in (await visitor.send("/change/bulk_redrive", fields)).text
    assert await state_of(app, "a:2") is State.FAILED


async def test_what_repeats_is_cancelled_also_if_it_ran_after_the_question(
    app: App, visitor: Visitor, clock: ManualClock
) -> None:
    @app.action("remind")
    async def remind() -> None: ...

    await app.schedule("remind", id="a:1", repeat=every(timedelta(minutes=1)), delay=HOUR)
    fields = fields_of(await visitor.read("/change/bulk_cancel?q=a:"))
    clock.advance(HOUR)
    await Worker(app).run_due()
    assert "1 of 1 were cancelled" in (await visitor.send("/change/bulk_cancel", fields)).text


async def test_a_question_that_was_not_asked_is_not_answered(app: App, visitor: Visitor) -> None:
    await app.schedule("remind", id="a:1", delay=HOUR)
    fields = fields_of(await visitor.read("/change/bulk_cancel?q=a:"))
    for asked_at in ("", "yesterday"):
        assert (await visitor.send("/change/bulk_cancel", fields | {"asked_at": asked_at})).status_code == 400
    assert await state_of(app, "a:1") is State.LIVE


async def test_a_bulk_change_that_nobody_narrowed_down_is_refused(furnished: Visitor) -> None:
    fields = fields_of(await furnished.read("/change/cancel?id=remind:40"))
    answer = await furnished.send("/change/bulk_cancel", {"csrf": fields["csrf"]})
    assert answer.status_code == 400
    assert await count(furnished.app, State.CANCELLED, "") == 1


async def test_of_a_long_campaign_as_much_is_cancelled_as_fits_into_a_request(
    app: App, visitor: Visitor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.templates.set("long")
    for number in range(5):
        await app.schedule("remind", id=f"m:{number}", template="long", delay=HOUR)
    monkeypatch.setattr("matrixsched.templates.BATCH", 2)
    monkeypatch.setattr("matrixsched.ops.web.pages.templates.STOP_WITHIN", timedelta(seconds=-1))
    answer = await visitor.confirm("/change/stop_template?name=long")
    assert "Go on with the next ones" in answer.text
    assert 0 < await app.templates.count("long") < 5
    (entry,) = await visitor.audited()
    assert (entry.outcome, entry.after["complete"]) == (AuditOutcome.DONE, False)


@dataclass(frozen=True)
class Meanwhile:
    """What somebody else does between the page that asks and the answer."""

    path: str
    done: Callable[[App], Awaitable[object]]
    seen: Seen
    stays: object
    said: str


async def one_more_message(app: App) -> None:
    await app.schedule("remind", id="another", template="spring-sale", delay=HOUR)


async def another_holder(app: App) -> None:
    accounts = await app.semaphores.get("accounts")
    await accounts.release("account-4")
    app.clock.advance(timedelta(seconds=1))  # type: ignore[attr-defined]
    await accounts.enqueue("account-4")


async def is_known(app: App, id: str) -> bool:
    accounts = await app.semaphores.get("accounts")
    return id in [task.id for task in [*await accounts.holders(), *await accounts.waiting()]]


MEANWHILE = [
    Meanwhile(
        "set_limit?name=global&rate=5/s",
        lambda app: app.limits.set("global", "7/s"),
        lambda app: rate(app, "global"),
        "7/s",
        "rate from 10000/min to 7/s",
    ),
    Meanwhile(
        "set_limit?name=handler:new&rate=5/s",
        lambda app: app.limits.set("handler:new", "7/s"),
        lambda app: rate(app, "handler:new"),
        "7/s",
        "rate from none to 7/s",
    ),
    Meanwhile(
        "remove_limit?name=global",
        lambda app: app.limits.set("global", "7/s"),
        lambda app: rate(app, "global"),
        "7/s",
        "rate from 10000/min to 7/s",
    ),
    Meanwhile(
        "resume_limit?name=handler:send_sms",
        lambda app: app.limits.slow_down("handler:send_sms", timedelta(days=2)),
        lambda app: is_slowed(app, "handler:send_sms"),
        True,
        "slowed until from",
    ),
    Meanwhile(
        "update_semaphore?key=accounts&active=5&try_release=2",
        lambda app: app.semaphores.update("accounts", 4),
        lambda app: active(app),
        (4, 1),
        "active from 3 to 4",
    ),
    Meanwhile(
        "release_task?key=accounts&task=account-4",
        another_holder,
        lambda app: is_known(app, "account-4"),
        True,
        "enqueued at from",
    ),
    Meanwhile(
        "stop_template?name=spring-sale",
        one_more_message,
        lambda app: app.templates.count("spring-sale"),
        41,
        "40 messages of spring-sale were shown to you, and there are 41 now",
    ),
]


@pytest.mark.parametrize("case", MEANWHILE, ids=lambda case: case.path)
async def test_what_was_changed_since_it_was_shown_is_left_with_an_explanation(
    furnished: Visitor, case: Meanwhile
) -> None:
    app = furnished.app
    fields = fields_of(await furnished.read(f"/change/{case.path}"))
    await case.done(app)
    known = len(await furnished.audited())
    refused = await furnished.send(f"/change/{case.path.partition('?')[0]}", fields)
    assert refused.status_code == 409
    assert "nothing was done" in refused.text
    assert case.said.lower() in unescape(refused.text).lower()
    assert await case.seen(app) == case.stays
    assert len(await furnished.audited()) == known
    again = await furnished.confirm(f"/change/{case.path}")
    assert again.status_code == 200


@pytest.mark.parametrize("seen", ["", "{", "[]", "{}", '{"rate": "5/s"}'])
async def test_a_form_that_does_not_say_what_was_shown_does_nothing(furnished: Visitor, seen: str) -> None:
    fields = fields_of(await furnished.read("/change/remove_limit?name=global"))
    assert (await furnished.send("/change/remove_limit", fields | {"seen": seen})).status_code == 400
    assert await has_limit(furnished.app, "global")


@pytest.mark.parametrize("verb", ["redrive_queue", "purge_queue_dead"])
async def test_letters_that_died_after_they_were_shown_stay(
    furnished: Visitor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr("matrixsched.ops.queues.BATCH", 2)
    app, storage = furnished.app, storage_of(furnished.app)
    first = await storage.put(7, b"an old task, which dies late")
    known = await dead(app)
    fields = fields_of(await furnished.read(f"/change/{verb}?queue=7"))
    clock.advance(timedelta(seconds=1))
    while first not in [letter.id for letter in await storage.dead_letters(7)]:
        await storage.set_aside([(task, "late") for task in await storage.get(7, 10)])
    late = await dead(app) - known
    answer = await furnished.send(f"/change/{verb}", fields)
    assert answer.status_code == 200
    assert await dead(app) == late > 0
    assert first in [letter.id for letter in await storage.dead_letters(7)]


async def test_where_the_database_goes_away_half_way_the_page_tells_what_is_done(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matrixsched.templates.BATCH", 2)
    await app.templates.set("long")
    for number in range(5):
        await app.schedule("remind", id=f"m:{number}", template="long", delay=HOUR)
    async with visiting(leaving(app, "cancel_template_batch", times=1)) as visitor:
        answer = await visitor.confirm("/change/stop_template?name=long")
    assert answer.status_code == 504
    assert "What is done stays done (cancelled 2)" in answer.text
    assert await app.templates.count("long") == 3


async def test_what_runs_is_left_as_it_is_by_run_all_now(app: App, visitor: Visitor) -> None:
    said: list[str] = []

    @app.action("long")
    async def long() -> None:
        said.append(await visitor.read("/change/bulk_run_now?q=a:"))
        said.append((await visitor.confirm("/change/bulk_run_now?q=a:")).text)

    await app.schedule("long", id="a:1")
    await app.schedule("remind", id="a:2", delay=HOUR)
    await Worker(app).run_due()
    assert "1 of them are under way: these are left as they are" in said[0]
    assert "1 of 2 were made due" in said[1]
    assert "1 were left as they are: they run already" in said[1]
    assert (await app.get("a:1")).meta.revision == 1
