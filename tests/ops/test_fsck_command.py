"""`matrixsched fsck`: every kind of damage is found, named and mended, and nothing else is."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from support.command import Answer, Matrixsched, on
from support.damage import (
    HANDLER,
    LITTER,
    MENDABLE,
    UNMENDABLE,
    Damage,
    Site,
    dead,
    lost,
    misplaced,
    quota,
    template,
    unbalanced,
)
from support.scene import SHARDS

from matrixsched import App, State
from matrixsched.clock import ManualClock, SystemClock
from matrixsched.rules.faults import MEANINGS, Fault
from matrixsched.rules.names import shard_of
from matrixsched.worker import Worker

pytestmark = pytest.mark.installed

CLEAN, BROKEN, UNCONFIRMED, MENDED = 0, 1, 2, 3
EVERY_DAMAGE = [damage for alike in (MENDABLE | LITTER | UNMENDABLE).values() for damage in alike]
FAULT_OF = {damage: fault for fault, alike in (MENDABLE | LITTER | UNMENDABLE).items() for damage in alike}
FINDING = ["kind", "shard", "id", "guid", "seen", "outcome"]
KIND = ["kind", "is", "found", "mended", "gone", "left", "what", "repair"]


def damaged(url: str, *damages: Damage) -> None:
    clock = ManualClock(SystemClock().now())

    async def work(app: App) -> None:
        site = Site(app, clock)
        await site.build()
        for damage in damages:
            await damage(site)

    on(url, work, clock=clock)


def look(url: str, work: Callable[[Site], Awaitable[Any]], *, later: timedelta = timedelta(0)) -> Any:
    clock = ManualClock(SystemClock().now() + later)
    return on(url, lambda app: work(Site(app, clock)), clock=clock)


class Fsck:
    def __init__(self, matrixsched: Matrixsched, url: str) -> None:
        self._matrixsched = matrixsched
        self.url = url

    def __call__(self, *options: str) -> Answer:
        return self._matrixsched("fsck", "--database", self.url, *options)

    def told(self, *options: str) -> tuple[int, Any]:
        answer = self("--json", *options)
        return answer.code, answer.json

    def kinds(self, *options: str) -> Counter[str]:
        return Counter({row["kind"]: row["found"] for row in self.told(*options)[1]["kinds"]})


@pytest.fixture
def fsck(matrixsched: Matrixsched, database_url: str) -> Fsck:
    return Fsck(matrixsched, database_url)


def test_every_kind_has_its_damage_and_its_meaning() -> None:
    assert {*FAULT_OF.values()} == {*Fault} == {*MEANINGS}
    assert {fault for fault in Fault if MEANINGS[fault].mend is None} == {*UNMENDABLE}
    assert {fault for fault in Fault if MEANINGS[fault].is_litter} == {*LITTER}


def test_nothing_is_found_where_nothing_is_wrong(fsck: Fsck) -> None:
    damaged(fsck.url)
    code, told = fsck.told()
    assert code == CLEAN
    assert told["verdict"] == {"verdict": "clean", "actions": len(Fault), "damage": 0, "litter": 0, "damage_left": 0}
    assert told["kinds"] == told["findings"] == []
    assert fsck().err == "clean: nothing to do.\n"
    assert fsck("--repair").code == CLEAN


def test_a_database_that_is_damaged_in_every_way_is_found_out_mended_and_clean_afterwards(fsck: Fsck) -> None:
    every = [alike[0] for alike in (MENDABLE | LITTER).values()]
    assert len(every) >= 12
    damaged(fsck.url, *every)
    code, told = fsck.told()
    assert code == BROKEN
    assert {row["kind"] for row in told["kinds"]} == {fault.value for fault in MENDABLE | LITTER}
    code, told = fsck.told("--repair", "--yes")
    assert (code, told["verdict"]["verdict"], told["verdict"]["damage_left"]) == (MENDED, "mended", 0)
    assert [row for row in told["findings"] if row["outcome"] != "mended"] == []
    assert {row["kind"] for row in told["findings"]} == {fault.value for fault in MENDABLE | LITTER}
    code, told = fsck.told()
    assert (code, told["kinds"]) == (CLEAN, [])
    ran = look(fsck.url, run_all, later=timedelta(hours=2))
    assert ran >= {fault.value for fault in MENDABLE if fault not in (Fault.LEASE,)}


async def run_all(site: Site) -> set[str]:
    """A worker comes when everything is due; the actions that are done then."""
    site.app.action(HANDLER)(lambda: None)
    await Worker(site.app).run_due()
    return {action.id async for action in site.app.each(state=State.DONE)}


@pytest.mark.parametrize("damage", EVERY_DAMAGE, ids=lambda damage: damage.__name__)
def test_a_fault_is_found_alone_and_mended_once(fsck: Fsck, damage: Damage) -> None:
    fault = FAULT_OF[damage]
    meaning = MEANINGS[fault]
    damaged(fsck.url, damage)
    code, told = fsck.told()
    assert code == (CLEAN if meaning.is_litter else BROKEN)
    (row,), kinds = told["findings"], told["kinds"]
    assert list(row) == FINDING
    assert (row["kind"], row["outcome"]) == (fault.value, None)
    assert [list(kind) for kind in kinds] == [KIND]
    assert (kinds[0]["found"], kinds[0]["is"]) == (1, "litter" if meaning.is_litter else "damage")

    code, told = fsck.told("--repair", "--yes")
    (row,) = told["findings"]
    can_be_mended = meaning.mend is not None
    assert code == (CLEAN if meaning.is_litter else MENDED if can_be_mended else BROKEN)
    assert row["outcome"] == ("mended" if can_be_mended else "left")
    assert fsck.kinds() == ({} if can_be_mended else {fault.value: 1})
    code, told = fsck.told("--repair", "--yes")
    assert code == (CLEAN if can_be_mended else BROKEN)
    assert sum(kind["mended"] for kind in told["kinds"]) == 0


@pytest.mark.parametrize(
    "damage",
    [damage for fault, alike in MENDABLE.items() if fault not in (Fault.LEASE,) for damage in alike],
    ids=lambda damage: damage.__name__,
)
def test_what_was_mended_runs_once_and_at_its_time(fsck: Fsck, damage: Damage) -> None:
    damaged(fsck.url, damage)
    assert fsck("--repair", "--yes").code == MENDED
    assert look(fsck.url, run_all, later=timedelta(minutes=50)) == set()
    done = look(fsck.url, run_all, later=timedelta(hours=2))
    assert done == {*Fault}


def test_where_the_settings_of_the_quota_are_gone_every_door_says_how_to_put_them_back(
    matrixsched: Matrixsched, fsck: Fsck
) -> None:
    damaged(fsck.url, quota)
    for command in (
        ("quota", "show"),
        ("quota", "set", "--interval", "30s", "--yes"),
        ("templates", "list"),
        ("plan",),
    ):
        refused = matrixsched(*command, "--database", fsck.url)
        assert refused.code == 2, command
        assert "the row of the table quota_settings is missing" in refused.err
        assert "Put it back by `matrixsched fsck --repair`." in refused.err
    judged = matrixsched("doctor", "--database", fsck.url, "--json")
    (told,) = [row for row in judged.json if row["check"] == "quota"]
    assert told["verdict"] == "fault"
    assert f"`matrixsched fsck --repair --database {shlex.quote(fsck.url)}`" in told["remedy"]
    assert fsck("--repair", "--yes").code == MENDED
    assert matrixsched("quota", "set", "--interval", "30s", "--yes", "--database", fsck.url).code == 0


def test_a_semaphore_that_was_unbalanced_gives_out_its_places(fsck: Fsck) -> None:
    async def held(site: Site) -> list[str]:
        site.app.on_acquired("pool")(lambda event: None)
        await Worker(site.app).run_due()
        return sorted(task.id for task in await (await site.app.semaphores.get("pool")).holders())

    damaged(fsck.url, unbalanced)
    assert look(fsck.url, held) == []
    assert fsck("--repair", "--yes").code == MENDED
    assert look(fsck.url, held) == ["task1", "task2"]


def test_an_attempt_whose_lease_was_cut_is_run_again(fsck: Fsck) -> None:
    damaged(fsck.url, *MENDABLE[Fault.LEASE])
    assert "lease" not in look(fsck.url, run_all, later=timedelta(hours=2))
    assert fsck("--repair", "--yes").code == MENDED
    assert "lease" in look(fsck.url, run_all, later=timedelta(hours=2))


def test_nothing_is_changed_before_it_is_confirmed(fsck: Fsck) -> None:
    damaged(fsck.url, lost, dead)
    answer = fsck("--repair")
    assert answer.code == UNCONFIRMED
    assert answer.err.startswith("1 fault and 1 piece of litter will be mended where still there")
    assert f"To do it: `matrixsched fsck --database {shlex.quote(fsck.url)} --repair --yes`." in answer.err
    assert "no row stands for the live action" in answer.out
    assert fsck.kinds() == {"lost": 1, "dead": 1}


def test_more_than_are_named_are_counted(fsck: Fsck) -> None:
    async def lose(site: Site) -> None:
        await site.sql("delete from matrixsched.processing_queue")

    damaged(fsck.url, lose, dead)
    code, told = fsck.told("--limit", "2")
    assert (code, told["verdict"]["damage"], told["verdict"]["litter"]) == (BROKEN, len(Fault), 1)
    assert [row["kind"] for row in told["findings"]] == ["lost", "lost"]
    assert (
        f"To name more: `matrixsched fsck --database {shlex.quote(fsck.url)} --limit 10000`."
        in fsck("--limit", "2").err
    )
    assert fsck.told("--repair", "--yes", "--limit", "0")[1]["findings"] == []
    assert fsck.kinds() == {}


@pytest.mark.parametrize("damage", MENDABLE[Fault.MISPLACED], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("stays", ["home", "astray", "the one at home, of two as old"])
def test_of_an_action_at_the_wrong_place_and_its_namesake_the_one_that_was_changed_last_stays(
    fsck: Fsck, damage: Damage, stays: str
) -> None:
    async def write(site: Site) -> None:
        await damage(site)
        if stays == "astray":
            site.clock.advance(-timedelta(minutes=1))
        elif stays == "home":
            site.clock.advance(timedelta(minutes=1))
        await site.app.schedule("send", id="misplaced", delay=timedelta(hours=1), priority=7)

    async def found(site: Site) -> tuple[int, int, int, int]:
        action = await site.app.get("misplaced")
        rows = [row for table in ("incoming_queue", "processing_queue") for row in await site.scene.table(table)]
        of_it = [row for row in rows if row["action_id"] == "misplaced"]
        history = [row for row in await site.scene.table("attempt_history") if row["action_id"] == "misplaced"]
        return action.meta.shard, action.spec.priority, len(of_it), len(history)

    damaged(fsck.url, write)
    assert fsck.kinds() == {"misplaced": 1}
    code, told = fsck.told("--repair", "--yes")
    assert (code, told["verdict"]["verdict"]) == (MENDED, "mended")
    assert fsck.kinds() == {}
    history = 1 if damage is misplaced and stays == "astray" else 0
    priority = 0 if stays == "astray" else 7
    assert look(fsck.url, found) == (shard_of("misplaced", SHARDS), priority, 1, history)


def test_an_action_at_the_wrong_place_is_brought_home_with_its_history(fsck: Fsck) -> None:
    damaged(fsck.url, misplaced)
    assert fsck("--repair", "--yes").code == MENDED

    async def found(site: Site) -> tuple[int, int]:
        action = await site.app.get("misplaced")
        return action.meta.shard, len(await site.app.history("misplaced"))

    assert look(fsck.url, found) == (shard_of("misplaced", SHARDS), 1)


def test_a_fault_that_somebody_can_end_is_said_how(fsck: Fsck) -> None:
    damaged(fsck.url, template)
    answer = fsck()
    assert "`matrixsched templates set NAME`" in answer.out
    move = f"`matrixsched templates set --database {shlex.quote(fsck.url)} template`"
    assert answer.err == f"1 fault. For you to decide: {move}.\n"
    assert f"For you to decide: {move}." in fsck("--repair", "--yes").err
    look(fsck.url, lambda site: site.app.templates.set("template"))
    assert fsck().code == CLEAN


def test_the_help_says_what_the_exit_codes_mean(matrixsched: Matrixsched) -> None:
    assert "3 if all that was wrong is mended" in " ".join(matrixsched("fsck", "--help").out.split())
