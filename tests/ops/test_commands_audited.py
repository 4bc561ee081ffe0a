"""What operators change by commands stands in the audit log, as what they change on the dashboard."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from support.away import leaving
from support.command import Matrixsched, on
from support.damage import Site, lost

from matrixsched import App, State
from matrixsched.clock import ManualClock, SystemClock
from matrixsched.errors import DatabaseUnavailable
from matrixsched.ops import changes
from matrixsched.ops.operator import Operator, audit_page
from matrixsched.ops.queues import Named, storage_of
from matrixsched.rules.audit import AuditEntry, AuditOutcome, Via
from matrixsched.rules.queues import NewItem

pytestmark = pytest.mark.installed

HOUR = timedelta(hours=1)


async def furnish(app: App) -> None:
    await app.templates.set("promo")
    await app.templates.set("old")
    await app.limits.set("global", "5/s")
    await app.limits.slow_down("global", HOUR)
    semaphore = await app.semaphores.get_or_create("accounts", active=1)
    await semaphore.enqueue("t")
    await app.schedule("work", id="a", delay=HOUR)
    await app.schedule("work", id="m", delay=HOUR, template="promo")
    await storage_of(app).put_many([NewItem(queue=7, data=b"x")] * 3)
    await storage_of(app).set_aside([(task, "no luck") for task in await storage_of(app).get(7, 1)])
    await storage_of(app).put(7, b"x", delay=HOUR)


@dataclass(frozen=True)
class Case:
    typed: str
    verb: str
    subject: str


CASES = [
    Case("actions cancel a --yes", "cancel", "a"),
    Case("actions cancel --handler work --yes", "cancel", "state live, handler work"),
    Case("actions run-now a --yes", "run_now", "a"),
    Case("templates set new --weight 2", "set_template", "new"),
    Case("templates set promo --weight 2 --yes", "set_template", "promo"),
    Case("templates pause promo", "pause_template", "promo"),
    Case("templates stop promo --yes", "stop_template", "promo"),
    Case("templates remove old --yes", "remove_template", "old"),
    Case("quota set --interval 30s --yes", "set_quota", "quota"),
    Case("limits set handler:work 7/s", "set_limit", "handler:work"),
    Case("limits set global 7/s --yes", "set_limit", "global"),
    Case("limits remove global --yes", "remove_limit", "global"),
    Case("limits slow-down global --for 2h", "slow_down_limit", "global"),
    Case("limits resume global --yes", "resume_limit", "global"),
    Case("semaphores set new", "set_semaphore", "new"),
    Case("semaphores set accounts --active 5 --yes", "update_semaphore", "accounts"),
    Case("semaphores release accounts t --yes", "release_tasks", "accounts"),
    Case("queues pause 7", "pause_queue", "queue 7"),
    Case("queues set 7 --batch-size 5 --yes", "set_queue", "queue 7"),
    Case("queues retry 7 --all --yes", "retry_queue", "queue 7"),
    Case("queues redrive 7 --all --yes", "redrive_queue", "queue 7"),
    Case("queues purge 7 --dead --all --yes", "purge_queue_dead", "queue 7"),
    Case("queues purge 7 --waiting --all --yes", "purge_queue_waiting", "queue 7"),
]


def audited(url: str) -> list[AuditEntry]:
    return on(url, lambda app: audit_page(app))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.typed)
def test_a_command_that_changes_something_is_written_down(
    matrixsched: Matrixsched, database_url: str, case: Case
) -> None:
    on(database_url, furnish)
    answer = matrixsched(*case.typed.split(), "--database", database_url)
    assert answer.code == 0, answer.err
    (entry,) = audited(database_url)
    assert (entry.verb, entry.subject, entry.via, entry.outcome) == (
        case.verb,
        case.subject,
        Via.COMMAND,
        AuditOutcome.DONE,
    )
    assert entry.who == f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.mark.parametrize(
    ("first", "second", "verb"),
    [
        ("templates pause promo", "templates resume promo --yes", "resume_template"),
        ("queues pause 7", "queues resume 7 --yes", "resume_queue"),
        ("actions cancel a --yes", "actions run-now a --yes", "run_now"),
    ],
)
def test_what_undoes_a_command_is_written_down_as_well(
    matrixsched: Matrixsched, database_url: str, first: str, second: str, verb: str
) -> None:
    on(database_url, furnish)
    for typed in (first, second):
        assert matrixsched(*typed.split(), "--database", database_url).code == 0
    assert verb in {entry.verb for entry in audited(database_url)}
    assert len(audited(database_url)) == 2


@pytest.mark.parametrize("case", [one for one in CASES if "--yes" in one.typed], ids=lambda case: case.typed)
def test_what_was_not_confirmed_is_not_written_down(matrixsched: Matrixsched, database_url: str, case: Case) -> None:
    on(database_url, furnish)
    assert matrixsched(*case.typed.removesuffix(" --yes").split(), "--database", database_url).code == 2
    assert audited(database_url) == []


def test_a_shard_that_is_released_is_written_down(matrixsched: Matrixsched, database_url: str) -> None:
    async def hold(app: App) -> int:
        await app.schedule("work", id="a")
        do = app.store.transitions
        acquired = await app.store.run(
            do.acquire_shard(sync_guid=app.chance.guid(), holder="worker", lease=timedelta(seconds=10), lanes=[])
        )
        assert acquired.shard is not None
        return acquired.shard

    shard = str(on(database_url, hold))
    release = ("shards", "release", shard, "--database", database_url)
    assert matrixsched(*release).code == 2
    assert audited(database_url) == []
    assert matrixsched(*release, "--yes").code == 0
    (entry,) = audited(database_url)
    assert (entry.verb, entry.subject, entry.via) == ("release_shard", f"shard {shard}", Via.COMMAND)
    assert matrixsched(*release, "--yes").code == 0  # it is free: nothing is done
    assert len(audited(database_url)) == 1


def test_what_is_mended_is_written_down(matrixsched: Matrixsched, database_url: str) -> None:
    clock = ManualClock(SystemClock().now())

    async def damage(app: App) -> None:
        site = Site(app, clock)
        await site.build()
        await lost(site)

    on(database_url, damage, clock=clock)
    matrixsched("fsck", "--repair", "--yes", "--database", database_url)
    (entry,) = audited(database_url)
    assert (entry.verb, entry.via, entry.outcome, entry.after["mended"]) == (
        "repair",
        Via.COMMAND,
        AuditOutcome.DONE,
        1,
    )


def test_work_is_not_written_down(matrixsched: Matrixsched, database_url: str) -> None:
    on(database_url, furnish)
    schedule = ("schedule", "work", "--id", "new", "--database", database_url)
    assert matrixsched(*schedule).code == 0
    assert audited(database_url) == []
    assert matrixsched(*schedule).code == 2
    assert audited(database_url) == []


def test_an_action_that_is_replaced_is_written_down(matrixsched: Matrixsched, database_url: str) -> None:
    on(database_url, furnish)
    assert matrixsched("schedule", "work", "--id", "a", "--yes", "--database", database_url).code == 0
    (entry,) = audited(database_url)
    assert (entry.verb, entry.subject, entry.outcome) == ("replace", "a", AuditOutcome.DONE)


# Of several steps.

MANY = 5


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("transition", "change", "word", "count"),
    [
        ("cancel_template_batch", lambda one: changes.stop_template(one, "promo"), "cancelled", 2),
        ("redrive", lambda one: changes.redrive_queue(one, Named(7)), "redriven", 2),
        ("purge_dead", lambda one: changes.purge_queue_dead(one, Named(7)), "purged", 2),
    ],
)
async def test_what_stops_half_way_is_noted_as_failed_with_how_far_it_came(
    app: App,
    monkeypatch: pytest.MonkeyPatch,
    transition: str,
    change: Callable[[Operator], Awaitable[object]],
    word: str,
    count: int,
) -> None:
    monkeypatch.setattr("matrixsched.templates.BATCH", count)
    monkeypatch.setattr("matrixsched.ops.queues.BATCH", count)
    await app.templates.set("promo")
    for number in range(MANY):
        await app.schedule("work", id=f"m{number}", template="promo", delay=HOUR)
    await storage_of(app).put_many([NewItem(queue=7, data=b"x")] * MANY)
    await storage_of(app).set_aside([(task, "no luck") for task in await storage_of(app).get(7, MANY)])
    async with leaving(app, transition, times=1) as broken:
        with pytest.raises(DatabaseUnavailable):
            await change(Operator(broken, "ann", Via.COMMAND))
    (entry,) = await audit_page(app)
    assert (entry.outcome, entry.after[word]) == (AuditOutcome.FAILED, count)


@pytest.mark.anyio
async def test_what_was_refused_before_anything_was_done_is_noted_as_refused(app: App) -> None:
    await app.schedule("work", id="a", delay=HOUR)
    async with leaving(app, "cancel", times=0) as broken:
        with pytest.raises(DatabaseUnavailable):
            await changes.cancel(Operator(broken, "ann", Via.COMMAND), "a")
    (entry,) = await audit_page(app)
    assert entry.outcome is AuditOutcome.REFUSED
    assert (await app.get("a")).status.state is State.LIVE
