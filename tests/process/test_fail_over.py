"""The short form of `./tools/dev ha`: two servers, of which one is killed, or stops to take writes, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from chaos.campaign import Campaign, Plan, Stage
from chaos.fail_over import FailOvers, accounts
from chaos.nemeses import Amounts
from chaos.place import Place
from support.pair import Pair, start_pair

from matrixsched import App
from matrixsched.errors import DatabaseUnavailable
from matrixsched.store.news import News

pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgresql,
    pytest.mark.direct("servers take each other's place, which clients know by their addresses"),
]

DEADLINE_S = 30
AGAIN_S = 10.0


@pytest.fixture
def pair() -> Iterator[Pair]:
    with start_pair() as pair:
        yield pair


def test_nothing_acknowledged_is_lost_when_the_primary_is_killed(pair: Pair, tmp_path: Path) -> None:
    def kill() -> None:
        pair.kill_first()
        pair.promote_second()

    place = Place(pair.url, pair.url)
    plan = Plan("1", seconds=2, actions=100, amounts=Amounts(), workers=3, clients=1, patience_s=20)
    fail_overs = FailOvers(place, {"kill": kill}, ["kill"], lambda: True, rest_s=0.5, tell=lambda _: None)
    result = Campaign(Stage(place), plan, tmp_path, lambda _: None, haunt=lambda _: fail_overs).run()
    assert {one.name: one.objections for one in result.broken} == {}
    (account,) = accounts(result.facts)
    assert (account.kind, account.lost) == ("kill", 0)
    assert account.acknowledged >= 50
    assert account.idle_s is not None
    assert account.idle_s - account.away_s < AGAIN_S


@pytest.mark.anyio
async def test_a_primary_that_stops_to_take_writes_and_still_answers_is_left_for_the_new_one(pair: Pair) -> None:
    app = App(pair.url)
    await app.init(shards=1)
    send, receive = anyio.create_memory_object_stream[News](100)
    async with app, send, receive, anyio.create_task_group() as group:
        group.start_soon(app.store.watch, lambda news, _=None: send.send_nowait(news))
        with anyio.fail_after(DEADLINE_S):
            assert await receive.receive() == News.ANYTHING
            await app.schedule("send", id="before")
            assert await receive.receive() == News.ACTIONS
            pair.make_first_read_only()
            pair.promote_second()
            while not await is_scheduled(app, "after"):
                await anyio.lowlevel.checkpoint()
            while await receive.receive() != News.ANYTHING:  # heard anew, at another place
                pass
            await app.schedule("send", id="heard")
            while await receive.receive() != News.ACTIONS:
                pass
        group.cancel_scope.cancel()
    assert await found_on_second(pair) == {"before", "after", "heard"}


async def is_scheduled(app: App, id: str) -> bool:
    try:
        await app.schedule("send", id=id)
    except DatabaseUnavailable:
        return False
    return True


async def found_on_second(pair: Pair) -> set[str]:
    async with App(pair.second.admin_dsn) as app:
        return {action.id for action in await app.list(limit=10)}
