"""`matrixsched doctor`: the database and the fleet as they are, judged.

Facts are read in the store, by `Store.inspect` and a few transitions; each module here judges those of one subject, by
functions from facts to findings that ask nobody anything. What is wrong before anything starts is `check`'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

from anyio import fail_after

from matrixsched.app import App
from matrixsched.errors import MatrixSchedError, RowMissing
from matrixsched.ops.checking import unknown_handlers
from matrixsched.ops.doctor.clocks import judge_clock
from matrixsched.ops.doctor.file import judge_file
from matrixsched.ops.doctor.fleet import COUNT_MAX, FleetFacts, judge_fleet, judge_gates
from matrixsched.ops.doctor.schema import judge_privileges, judge_schema
from matrixsched.ops.doctor.server import judge_connections, judge_pooler, judge_server
from matrixsched.ops.doctor.sessions import judge_sessions
from matrixsched.ops.doctor.vacuuming import judge_vacuuming
from matrixsched.ops.findings import Finding, Verdict, fault
from matrixsched.ops.hosts import judge_hosts
from matrixsched.ops.remedies import spoken
from matrixsched.rules.action import State
from matrixsched.store.catalogue import expected_catalogue
from matrixsched.store.facts import DatabaseFacts, PostgresFacts
from matrixsched.store.migrations import load_migrations

PATIENCE = timedelta(minutes=1)
LANES_MAX = 1000
ANSWER_MAX_S = 10.0


async def diagnosed(
    app: App,
    *,
    knows_handlers: bool = False,
    patience: timedelta = PATIENCE,
    thorough: bool = False,
    options: str = "",
) -> list[Finding]:
    """What is found, the worst first. With `knows_handlers` those of the App are compared with what waits.

    `patience` is how long something may wait, or stay open, before it is told of; `options` make the commands that
    are suggested reach the same database.
    """
    found = [finding async for finding in _findings(app, knows_handlers, patience, thorough, options)]
    severity = list(Verdict)
    return sorted(found, key=lambda finding: severity.index(finding.verdict))


async def _findings(
    app: App, knows_handlers: bool, patience: timedelta, thorough: bool, options: str
) -> AsyncIterator[Finding]:
    for finding in judge_hosts(app.url):
        yield finding
    try:
        facts = await app.store.inspect(app.clock, thorough=thorough)
    except MatrixSchedError as error:
        yield fault("database", spoken(error))
        return
    for finding in _of_database(app, facts, patience, options):
        yield finding
    if not facts.schema.exists:
        return
    try:
        with fail_after(ANSWER_MAX_S):
            async with app:
                fleet = await _fleet_facts(app, knows_handlers=knows_handlers)
    except MatrixSchedError as error:
        yield fault("fleet", f"it could not be looked at: {spoken(error)}", "mend what else is found, then look again")
        return
    except TimeoutError:
        yield fault("fleet", f"no answer within {ANSWER_MAX_S:g} s: the database is overloaded, or a table is locked")
        return
    for finding in (*judge_fleet(fleet, patience, options), *judge_gates(fleet, options)):
        yield finding


def _of_database(app: App, facts: DatabaseFacts, patience: timedelta, options: str) -> Iterator[Finding]:
    dialect = app.store.dialect
    if isinstance(facts, PostgresFacts):
        yield from judge_server(facts)
        yield judge_connections(facts.connections)
        yield judge_pooler(facts)
        yield judge_clock(facts.clock)
        yield from judge_sessions(facts, patience)
        yield from judge_vacuuming(facts)
        yield from judge_privileges(facts)
    else:
        yield from judge_file(facts, options)
    yield from judge_schema(
        facts.schema,
        dialect=dialect,
        installation=app.installation,
        expected=expected_catalogue(dialect, is_distributed=facts.schema.is_distributed),
        library=load_migrations(dialect, app.installation),
        options=options,
    )


async def _is_quota_set(app: App) -> bool:
    try:
        await app.store.run(app.store.transitions.quota_settings())
    except RowMissing:
        return False
    return True


async def _fleet_facts(app: App, *, knows_handlers: bool) -> FleetFacts:
    run, do = app.store.run, app.store.transitions
    _, unknown = await unknown_handlers(app) if knows_handlers else (0, {})
    parked = await run(do.parked(count_max=COUNT_MAX))
    chores, workers = await run(do.chores()), await run(do.workers_seen())
    return FleetFacts(
        shards=await app.shards(count_max=1),
        backlog=await run(do.backlog(count_max=COUNT_MAX)),
        parked=parked,
        chores=chores,
        quarantined=await run(do.count_old(State.QUARANTINED, keep=timedelta(0), count_max=COUNT_MAX)),
        gates=await run(do.gate_report(lanes_max=LANES_MAX, count_max=COUNT_MAX)),
        templates=await app.templates.list(),
        limits=await app.limits.list(),
        known=set(app.handlers.names) if knows_handlers else None,
        unknown=unknown,
        workers=workers,
        is_quota_set=await _is_quota_set(app),
    )
