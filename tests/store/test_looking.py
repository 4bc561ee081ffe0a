"""A look at actions is bounded, whatever it is for, and says where to go on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.rules.action import Action, State
from matrixsched.store.looking import Found, Place
from matrixsched.store.values import ActionFilter

pytestmark = pytest.mark.anyio

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
BEGAN = ManualClock().now()


async def look(
    app: App, wanted: ActionFilter, after: Place | None = None, *, limit: int = 5, look_max: int = 7
) -> Found:
    return await app.store.run(app.store.transitions.page_bounded(wanted, after=after, limit=limit, look_max=look_max))


async def all_of(app: App, wanted: ActionFilter, **bounds: int) -> tuple[list[Action], int]:
    """Everything that fits, look after look; and how many looks it took."""
    seen: list[Action] = []
    after, looks = None, 0
    while True:
        found = await look(app, wanted, after, **bounds)
        assert len(found.actions) <= bounds.get("limit", 5)
        seen += found.actions
        looks += 1
        if (after := found.goes_on) is None:
            return seen, looks


@pytest.fixture
async def filled(app: App, clock: ManualClock) -> App:
    """Thirty that wait, of two handlers and a template, and twelve that were cancelled one after the other."""
    await app.templates.set("t")
    for number in range(30):
        template = "t" if number % 5 == 0 else None
        handler = "rare" if number % 10 == 0 else "often"
        await app.schedule(
            handler, id=f"{'a' if number < 20 else 'b'}:{number:02}", template=template, delay=HOUR * number
        )
    for number in range(12):
        await app.schedule("often" if number % 4 else "rare", id=f"c:{number:02}", delay=HOUR)
        if number % 3 == 0:
            clock.advance(timedelta(seconds=1))
        await app.cancel(f"c:{number:02}")
    return app


LIVE = [f"{'a' if number < 20 else 'b'}:{number:02}" for number in range(30)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ActionFilter(), [*LIVE, *(f"c:{number:02}" for number in range(12))]),
        (ActionFilter(state=State.LIVE), LIVE),
        (ActionFilter(id_prefix="b:"), LIVE[20:]),
        (ActionFilter(id_prefix="b:2"), LIVE[20:]),
        (ActionFilter(id_prefix="zz"), []),
        (ActionFilter(handler="rare", state=State.LIVE), ["a:00", "a:10", "b:20"]),
        (ActionFilter(template="t"), [id for id in LIVE if int(id[2:]) % 5 == 0]),
        (ActionFilter(template="t", state=State.LIVE), [id for id in LIVE if int(id[2:]) % 5 == 0]),
        (ActionFilter(template="t", state=State.LIVE, id_prefix="b", handler="often"), ["b:25"]),
        (ActionFilter(state=State.CANCELLED), [f"c:{number:02}" for number in range(12)]),
        (ActionFilter(state=State.CANCELLED, handler="rare", id_prefix="c"), ["c:00", "c:04", "c:08"]),
        (ActionFilter(state=State.CANCELLED, template="t"), []),
        (
            ActionFilter(state=State.CANCELLED, due_before=BEGAN + HOUR + 2 * SECOND),
            [f"c:{number:02}" for number in range(4)],
        ),
        (ActionFilter(state=State.FAILED), []),
    ],
)
@pytest.mark.parametrize(("limit", "look_max"), [(5, 7), (1, 1), (3, 100), (100, 3), (100, 100)])
async def test_looks_one_after_the_other_find_all_that_fit_once(
    filled: App, wanted: ActionFilter, expected: list[str], limit: int, look_max: int
) -> None:
    seen, _ = await all_of(filled, wanted, limit=limit, look_max=look_max)
    assert sorted(action.id for action in seen) == sorted(expected)


async def test_a_look_that_finds_nothing_goes_on_behind_what_it_looked_at(filled: App) -> None:
    for number in range(200):
        await filled.schedule("often", id=f"d:{number:03}", delay=HOUR)
    found = await look(filled, ActionFilter(handler="nobody"), limit=5, look_max=40)
    assert (list(found.actions), found.goes_on is None) == ([], False)
    seen, looks = await all_of(filled, ActionFilter(handler="nobody"), limit=5, look_max=40)
    assert seen == []
    assert 6 <= looks <= 20, "242 actions, at most forty at a time"


async def test_what_ended_comes_newest_first(filled: App) -> None:
    seen, _ = await all_of(filled, ActionFilter(state=State.CANCELLED), limit=2, look_max=3)
    ended = [action.status.finished_at for action in seen]
    assert ended == sorted(ended, key=lambda at: at.timestamp() if at else 0.0, reverse=True)


async def test_what_waits_comes_by_id(filled: App) -> None:
    seen, _ = await all_of(filled, ActionFilter(state=State.LIVE), limit=4, look_max=6)
    assert [action.id for action in seen] == LIVE


async def test_what_lives_of_a_template_comes_by_shard_and_id(filled: App) -> None:
    seen, _ = await all_of(filled, ActionFilter(state=State.LIVE, template="t"), limit=2, look_max=3)
    keys = [(action.meta.shard, action.id) for action in seen]
    assert keys == sorted(keys)


async def test_a_prefix_may_be_of_any_letters(app: App) -> None:
    for id in ("ü", "üb", "u", "v", "\U0010ffff", "\U0010ffffx", "a%", "a_", "ab"):
        await app.schedule("work", id=id, delay=HOUR)
    for prefix, expected in (
        ("ü", ["ü", "üb"]),
        ("a%", ["a%"]),
        ("a_", ["a_"]),
        ("\U0010ffff", ["\U0010ffff", "\U0010ffffx"]),
    ):
        seen, _ = await all_of(app, ActionFilter(id_prefix=prefix))
        assert sorted(action.id for action in seen) == expected
