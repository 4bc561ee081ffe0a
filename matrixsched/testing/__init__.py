"""Tests for your handlers: the real scheduler, worker and store, on a database in memory, at a time that you decide.

    from matrixsched.testing import stage
    from reminders import Reminder, app, remind

    async def test_reminds_after_three_days():
        with stage(app) as on:
            await app.schedule(remind, Reminder(user_id=1), id="remind:1", delay=timedelta(days=3))
            on.assert_scheduled(remind, id="remind:1", at=on.now + timedelta(days=3))
            ran = await on.advance(timedelta(days=3))
            assert [attempt.outcome for attempt in ran] == ["succeeded"]

**The stage** takes your own App off its database, however it was made and whoever imported it, and gives it back
afterwards. On it time stands still. `advance`, `travel_to` and `run_until_idle` go from due time to due time, so that
each handler runs at the very instant it was due at, and a repeating one at each of its ticks; `run_due` runs what is
due now. All of them answer with what was run (`Ran`). A synchronous test says `stage.sync.advance(...)`, and its code
under test `app.sync.schedule(...)`.

**Inline** (`stage(app, inline=True)`): what is scheduled, or put, for now runs before the call returns, and what its
handler raises is raised there. What is due later waits for a journey.

**Asserts** (`assert_scheduled`, `assert_not_scheduled`, `assert_nothing_due`, `assert_ran`) say what is there instead.

**Queues** (`stage.queues`): journeys also let batches be handled, each task at the instant it can be taken.
`tasks` tells what is left, `dead_letters` what was set aside, `handled` what handlers had and what became of it;
`assert_put`, `assert_not_put`, `assert_handled`, `assert_dead_letter` judge.

**Faults** (`stage.faults`) happen between your program and the database, or to the worker: a call that is refused
(`fail`), one whose request or answer is lost (`lose_request`, `lose_answer`), a database that is away for a while
(`database_away`), a worker that dies after your handler did its work and before anybody knows (`crash`).

With pytest there is a fixture `stage`; see the module `pytest_matrixsched`. Nothing here needs pytest.
"""

from __future__ import annotations

from matrixsched.testing.asserts import Waiting
from matrixsched.testing.batches import Handled, TaskFate
from matrixsched.testing.faults import Faults
from matrixsched.testing.queues import Dead, Queued, StageQueues
from matrixsched.testing.stage import Stage, SyncStage, stage
from matrixsched.testing.steps import Ran

__all__ = [
    "Dead",
    "Faults",
    "Handled",
    "Queued",
    "Ran",
    "Stage",
    "StageQueues",
    "SyncStage",
    "TaskFate",
    "Waiting",
    "stage",
]
