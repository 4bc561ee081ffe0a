"""A worker of this version beside actions that a newer one wrote."""

from datetime import timedelta

import pytest

from matrixsched import State
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Transition
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio


async def write_terms(app, id: str, terms: str) -> None:
    table = "matrixsched." if app.store.dialect == "postgresql" else "matrixsched_"
    text = f"update {table}scheduled_actions set terms = :terms where action_id = :id returning action_id"
    asked = Ask(statement(app.store.dialect, "default", "test", text), {"terms": terms, "id": id})

    def conversation():
        yield asked

    await app.store.run(Transition("test", conversation))


@pytest.mark.parametrize(
    "terms",
    [
        '{"repeat":{"cron":"0 9 * * *"}}',
        '{"quota":1}',
        "not json",
        '{"retry":{"max_attempts":0}}',
        '{"payload_version":"2"}',
    ],
)
async def test_terms_that_cannot_be_read_wait_for_a_version_that_can_and_harm_no_neighbour(app, clock, terms):
    ran: list[str] = []

    @app.action("work")
    async def work(context) -> None:
        ran.append(context.id)

    for id in ("a", "newer", "z"):
        await app.schedule(work, id=id)
    await write_terms(app, "newer", terms)
    await Worker(app).run_due()
    assert sorted(ran) == ["a", "z"]
    newer = await app.get("newer")
    assert newer.status.state is State.LIVE
    assert newer.spec.terms.unreadable is not None
    assert newer.status.last_error is not None
    assert "this version" in newer.status.last_error
    assert (newer.status.failed, newer.status.interrupted) == (0, 0)
    await write_terms(app, "newer", "{}")
    clock.advance(timedelta(seconds=10))
    await Worker(app).run_due()
    assert "newer" in ran
