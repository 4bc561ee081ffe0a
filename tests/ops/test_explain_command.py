"""`matrixsched explain`: why an action has not run yet, told to an operator; every kind of reason."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import typer.main
from support.command import Matrixsched, on
from support.scene import GATES, Scene

from matrixsched import App, Retry
from matrixsched.clock import ManualClock, SystemClock
from matrixsched.errors import ActionNotFound, InvalidId
from matrixsched.ops.cli import cli
from matrixsched.rules.explanation import Why
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.installed

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
FAR = timedelta(days=1)
SECRET = "canary"
LEASE = WorkerPolicy().attempt_lease

Work = Callable[[App, ManualClock], Awaitable[object]]


def play(url: str, work: Work, *, ago: timedelta = timedelta(0)) -> datetime:
    """Let something happen, that long ago, on a clock that stands still; when it began."""
    clock = ManualClock(SystemClock().now() - ago)
    began = clock.now()

    async def played(app: App) -> None:
        await work(app, clock)

    on(url, played, clock=clock)
    return began


async def meet(app: App, *known: str) -> None:
    """A worker that knows these handlers, and no other, looks at everything once."""
    for name in known or ("other",):
        if name not in app.handlers.names:
            app.action(name)(lambda: None)
    await Worker(app).run_due()


class Explained:
    def __init__(self, matrixsched: Matrixsched, url: str) -> None:
        answer = matrixsched("explain", "a", "--json", "--database", url)
        assert answer.code == 0, answer.err
        self.action: dict[str, Any] = answer.json["action"]
        self.reasons: list[dict[str, Any]] = answer.json["reasons"]
        self.said = answer.err
        for reason in self.reasons:
            self._check_that_it_can_be_typed(reason["next_move"])

    def _check_that_it_can_be_typed(self, move: str) -> None:
        for command in re.findall("`matrixsched ([^`]+)`", move):
            name, *words = command.split()
            found: Any = typer.main.get_command(cli)
            for word in (name, *words[: hasattr(found.commands[name], "commands")]):
                found = found.commands[word]
            assert callable(found.callback)

    @property
    def kinds(self) -> list[str]:
        return [reason["reason"] for reason in self.reasons]


Explain = Callable[[], Explained]


@pytest.fixture
def explain(matrixsched: Matrixsched, database_url: str) -> Explain:
    return lambda: Explained(matrixsched, database_url)


# Without gates.


def test_the_table_shows_the_same_as_the_json_and_ends_with_the_next_move(
    matrixsched: Matrixsched, database_url: str, explain: Explain
) -> None:
    play(database_url, lambda app, _: app.schedule("send", {"text": SECRET}, id="a", delay=HOUR))
    found = explain()
    shown = matrixsched("explain", "a", "--database", database_url)
    for title in ("action", "reasons"):
        assert f"{title.upper()}\n" in shown.out
    for name in (*found.action, *found.reasons[0]):
        assert name.replace("_", " ") in shown.out.lower()
    command = f"matrixsched actions run-now --database {shlex.quote(database_url)} a"
    assert f"to run it now: `{command}`" in shown.out
    assert shown.err.startswith("it is not due yet, for another 59 min ")
    assert shown.err.endswith(
        f"To run it now: `matrixsched actions run-now --database {shlex.quote(database_url)} a`.\n"
    )
    assert SECRET not in shown.out + shown.err + found.said


def test_an_action_that_does_not_exist_cannot_be_explained(matrixsched: Matrixsched, database_url: str) -> None:
    on(database_url, lambda app: app.schedule("send", id="a"))
    answer = matrixsched("explain", "b", "--database", database_url)
    assert (answer.code, answer.out) == (2, "")
    assert "there is no action 'b'" in answer.err


def test_what_is_not_due_yet(database_url: str, explain: Explain) -> None:
    began = play(database_url, lambda app, _: app.schedule("send", id="a", delay=HOUR))
    found = explain()
    assert found.kinds == ["not_due"]
    assert found.reasons[0]["until"] == found.action["due_at"] == (began + HOUR).isoformat()


def test_what_finished_and_how(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.schedule("send", id="a")
        await app.cancel("a")

    began = play(database_url, work)
    found = explain()
    assert found.kinds == ["finished"]
    assert (found.action["state"], found.reasons[0]["since"]) == ("cancelled", began.isoformat())
    assert "matrixsched actions run-now" in found.reasons[0]["next_move"]


def test_what_failed_and_is_tried_again(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        @app.action("send", retry=Retry(max_attempts=3, first_delay=HOUR, jitter=0))
        async def send() -> None:
            raise ValueError(SECRET)

        await app.schedule(send, id="a")
        await Worker(app).run_due()

    play(database_url, work)
    found = explain()
    assert found.kinds == ["retry"]
    assert SECRET not in str(found.reasons) + found.said


def test_what_no_worker_has_come_for(database_url: str, explain: Explain) -> None:
    began = play(database_url, lambda app, _: app.schedule("send", id="a"), ago=HOUR)
    found = explain()
    assert found.kinds == ["no_worker", "incoming"]
    assert found.action["worker_seen_at"] is None
    assert "has no holder now" in found.reasons[1]["explained"]
    assert found.reasons[1]["since"] == began.isoformat()
    assert found.said.startswith("it has been due for 1 h 0 min: no worker has ever run here. ")
    assert found.said.endswith("Start a worker: `matrixsched worker MODULE:APP`.\n")


def test_what_waits_to_be_moved_although_workers_are_there(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.schedule("other")
        await meet(app, "other")
        await app.schedule("send", id="a")

    play(database_url, work)
    found = explain()
    assert found.kinds == ["incoming"]
    assert found.action["worker_seen_at"] is not None


def test_a_lock_that_stands_without_a_heartbeat(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        app.action("send")(lambda: None)
        await app.schedule("send", id="a")
        do, guid = app.store.transitions, app.chance.guid()
        held = await app.store.run(do.acquire_shard(sync_guid=guid, holder="host/1", lease=SECOND, lanes=()))
        assert held.shard is not None

    play(database_url, work, ago=HOUR)
    found = explain()
    assert found.kinds == ["no_worker", "stale_lock", "incoming"]
    assert "host/1" in found.reasons[1]["explained"]
    assert "matrixsched shards release" in found.reasons[1]["next_move"]


def test_a_handler_that_no_worker_has(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.schedule("send", id="a")
        await meet(app, "other")

    play(database_url, work)
    found = explain()
    assert found.kinds == ["no_handler"]
    assert "'send'" in found.said


async def claimed_and_heard_of_no_more(app: App) -> None:
    """A worker claims what is due, and dies."""
    await Worker(app).intake.step()


def test_an_attempt_under_way_and_what_waits_for_its_end(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        app.action("send")(lambda: None)
        await app.schedule("send", id="a")
        await claimed_and_heard_of_no_more(app)

    play(database_url, work)
    assert explain().kinds == ["running"]
    play(database_url, lambda app, _: app.run_now("a"))
    assert explain().kinds == ["blocked"]
    play(database_url, lambda app, _: app.cancel("a"))
    assert explain().kinds == ["finished", "running"]


def interrupted(times: int) -> Work:
    async def work(app: App, clock: ManualClock) -> None:
        app.action("send")(lambda: None)
        await app.schedule("send", id="a")
        for _ in range(times):
            await claimed_and_heard_of_no_more(app)
            clock.advance(LEASE)

    return work


def test_what_is_due_and_held_by_nothing(database_url: str, explain: Explain) -> None:
    play(database_url, interrupted(1), ago=LEASE)
    found = explain()
    assert found.kinds == ["due"]
    assert "matrixsched shards list" in found.reasons[0]["next_move"]


def test_a_suspect(database_url: str, explain: Explain) -> None:
    play(database_url, interrupted(2), ago=2 * LEASE)
    found = explain()
    assert found.kinds == ["suspect"]
    assert "interrupted 2 times" in found.said


def test_what_expired_and_what_will(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.schedule("send", id="a", expires_at=clock.now() + SECOND)

    play(database_url, work, ago=HOUR)
    assert explain().kinds == ["expired"]
    play(database_url, lambda app, clock: app.schedule("send", id="a", delay=FAR, expires_at=clock.now() + HOUR))
    found = explain()
    assert found.kinds == ["not_due", "expires"]
    assert "never runs" in found.reasons[1]["explained"]


def test_what_expired_is_run_again_without_an_end(
    matrixsched: Matrixsched, database_url: str, explain: Explain
) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.schedule("send", id="a", expires_at=clock.now() + SECOND)
        clock.advance(HOUR)
        await meet(app, "send")

    play(database_url, work, ago=HOUR)
    command = f"matrixsched actions redrive --database {shlex.quote(database_url)} a"
    found = explain()
    assert (found.kinds, found.action["state"]) == (["finished"], "expired")
    assert found.said.endswith(f"To run it again, without an end: `{command}`.\n")
    show = ("actions", "show", "a", "--database", database_url)
    assert f"To run it again, without an end: `{command}`." in matrixsched(*show).err
    redriven = matrixsched("actions", "redrive", "a", "--database", database_url, "--yes")
    assert "an end (expires_at) that they had does not apply any more" in redriven.err
    after = matrixsched(*show, "--json").json
    assert (after["status"]["state"], after["spec"]["expires_at"]) == ("live", None)


# Before gates. Workers come, find them shut, and go.


def test_a_limit_without_a_slot_and_those_before(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.limits.set("handler:send", "1/h")
        clock.advance(HOUR)
        for number in range(3):
            await app.schedule("send", id=f"before:{number}")
        await meet(app, "send")
        clock.advance(SECOND)
        await app.schedule("send", id="a")
        await meet(app, "send")

    play(database_url, work, ago=HOUR + SECOND)
    found = explain()
    assert found.kinds == ["turn", "limit"]
    assert (
        "2 of the same kind were due before it, and the limit handler:send is 1/h, for another 2 h 59 min" in found.said
    )
    assert "the limit handler:send is 1/h and has no slot left" in found.reasons[1]["explained"]
    assert found.reasons[1]["next_move"].endswith(" handler:send RATE`")


def test_a_limit_that_was_told_to_slow_down(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.limits.slow_down("global", HOUR, reason="HTTP 429")
        await app.schedule("send", id="a")
        await meet(app, "send")

    began = play(database_url, work)
    found = explain()
    assert found.kinds == ["slowed"]
    assert found.reasons[0]["until"] == (began + HOUR).isoformat()
    assert "because: HTTP 429" in found.said
    assert "matrixsched limits resume" in found.said


def test_a_template_that_is_paused(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.templates.set("promo")
        await app.schedule("send", id="a", template="promo")
        await app.templates.pause("promo", HOUR)
        await meet(app, "send")

    began = play(database_url, work)
    found = explain()
    assert found.kinds == ["paused"]
    assert (found.reasons[0]["since"], found.reasons[0]["until"]) == (began.isoformat(), (began + HOUR).isoformat())
    assert "matrixsched templates resume" in found.said


def test_a_share_that_is_used_up_outside_of_the_hours(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        away = f"{(clock.now().hour + 11) % 24:02}:00-{(clock.now().hour + 12) % 24:02}:00"
        await app.quota.set(interval=FAR)
        await app.limits.set("global", "24/day", pool=100)
        clock.advance(FAR)
        await app.templates.set("promo", windows=[away])
        for number in range(30):
            await app.schedule("send", id=f"before:{number}", template="promo")
        await meet(app, "send")
        clock.advance(SECOND)
        await app.schedule("send", id="a", template="promo")
        await meet(app, "send")

    play(database_url, work, ago=FAR + SECOND)
    found = explain()
    assert found.kinds == ["quota", "outside", "turn", "limit"]  # the day's slots went with the day's share
    assert "'promo' in the present window of the quota is used up (" in found.reasons[0]["explained"]
    assert "`matrixsched plan --database" in found.reasons[0]["next_move"]
    assert found.reasons[1]["until"] is not None


def test_a_window_that_nobody_has_planned(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.schedule("other")
        await meet(app, "other")
        await app.templates.set("promo")
        await app.schedule("send", id="a", template="promo")

    play(database_url, work)
    assert explain().kinds == ["incoming", "unplanned"]


def test_a_template_that_is_gone(database_url: str, explain: Explain) -> None:
    """Removing one that is in use is refused; but tables can be emptied by hand."""

    async def work(app: App, clock: ManualClock) -> None:
        await app.templates.set("promo")
        await app.schedule("send", id="a", template="promo")
        await Scene(app.store, clock).sql("delete from matrixsched.templates")
        await meet(app, "send")

    play(database_url, work)
    found = explain()
    assert found.kinds == ["no_template"]
    assert "matrixsched templates set" in found.said


@pytest.mark.parametrize(
    ("table", "delay"), [("incoming_queue", HOUR), ("incoming_queue", FAR), ("processing_queue", HOUR)]
)
def test_a_row_that_is_gone_is_no_row_that_is_new(
    matrixsched: Matrixsched, database_url: str, explain: Explain, table: str, delay: timedelta
) -> None:
    """Only a hand in the tables does that."""

    async def work(app: App, clock: ManualClock) -> None:
        await app.schedule("send", id="a", delay=delay)
        if table == "processing_queue":
            await meet(app, "send")
        scene = Scene(app.store, clock)
        assert len(await scene.table(table)) == 1
        await scene.sql(f"delete from matrixsched.{table}")

    play(database_url, work, ago=2 * HOUR)
    found = explain()
    assert found.kinds == ["lost"]
    assert "no row stands for it" in found.said
    assert f"Put its row back: `matrixsched fsck --repair --database {shlex.quote(database_url)}`.\n" in found.said
    shown = matrixsched("actions", "show", "a", "--database", database_url, "--json")
    assert shown.json["status"]["queue"] is None
    assert "it has no row that stands for it in the queues, so that it would never run. To put it back: " in shown.err
    assert "worker" not in shown.err
    assert matrixsched("fsck", "--repair", "--yes", "--database", database_url).code == 3
    assert "lost" not in explain().kinds


def test_looking_changes_nothing(database_url: str, explain: Explain) -> None:
    async def work(app: App, clock: ManualClock) -> None:
        await app.limits.set("key:*", "1/h")
        await app.templates.set("promo")
        await app.schedule("send", id="a", template="promo", limit="acme")
        await meet(app, "send")

    async def everything(app: App) -> object:
        scene = Scene(app.store, ManualClock())
        return await scene.contents() | {name: await scene.table(name) for name in GATES}

    play(database_url, work)
    before = on(database_url, everything)
    assert explain().reasons
    assert on(database_url, everything) == before


@pytest.mark.anyio
async def test_programs_are_told_the_same(app: App, clock: ManualClock) -> None:
    await app.schedule("send", id="a", delay=HOUR)
    found = await app.explain("a")
    assert (found.reason.why, found.reason.until) == (Why.NOT_DUE, clock.now() + HOUR)
    assert (found.id, found.handler, found.due_at) == ("a", "send", clock.now() + HOUR)
    with pytest.raises(ActionNotFound):
        await app.explain("b")
    with pytest.raises(InvalidId):
        await app.explain("")


def test_synchronous_programs_too(database_url: str) -> None:
    app = App(database_url)
    app.sync.init(shards=4)
    with app.sync:
        app.sync.schedule("send", id="a", delay=HOUR)
        assert app.sync.explain("a").reason.why is Why.NOT_DUE
