"""`matrixsched check`: everything that can be wrong before anything is started, found in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from matrixsched.app import App
from matrixsched.config import DEFAULT, Reading, Settings, misspelt_variables
from matrixsched.errors import (
    BadInput,
    ConfigurationError,
    DatabaseFileMissing,
    DatabaseNotNamed,
    MatrixSchedError,
    SchemaMismatch,
    SchemaMissing,
)
from matrixsched.ops.findings import Finding, fault, ok
from matrixsched.ops.hosts import judge_hosts
from matrixsched.ops.remedies import spoken
from matrixsched.ops.settings import policy_of
from matrixsched.rules.action import Action, State
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION
from matrixsched.store.opening import is_in_memory
from matrixsched.store.values import ActionFilter

SAMPLE = 1000
"""How many live actions are looked at for handlers that the App does not have."""
LOOK_MAX, LOOKS = 10_000, 20
"""They are looked for among so many actions at a time, about, and so many times: in a second or two."""


async def check(reading: Reading[Settings], load: Callable[[], App] | None) -> list[Finding]:
    """`load` imports the user's App; without one, or if it cannot be had, the settings say which database is meant."""
    findings = [*_settings(reading), *_variables()]
    theirs = None if load is None else _loaded(load, reading, findings)
    if theirs is not None:
        findings.append(ok("app", f"found, with the database {theirs.store.description}"))
        findings += _handlers(theirs)
    app = theirs or _of_settings(reading, findings, is_needed=load is None)
    if app is not None:
        findings += [finding async for finding in _database(app, knows_handlers=theirs is not None)]
    return findings


def _loaded(load: Callable[[], App], reading: Reading[Settings], findings: list[Finding]) -> App | None:
    try:
        return load()
    except (BadInput, ConfigurationError) as error:
        faults = set(getattr(error, "faults", ()))
        is_told = bool(faults) and faults <= set(reading.faults)
        findings.append(
            fault("app", "it takes its database or installation from the settings: correct those first")
            if is_told
            else _told("app", error)
        )
        return None


def _of_settings(reading: Reading[Settings], findings: list[Finding], *, is_needed: bool) -> App | None:
    """An App on the database of the settings, however faulty the others are."""
    settings = reading.settings
    if reading.doubtful & {"database", "installation"} or (settings.database is None and not is_needed):
        return None
    try:
        if settings.database is None:
            raise DatabaseNotNamed
        return App(settings.database, installation=settings.installation)
    except (BadInput, ConfigurationError) as error:
        findings.append(_told("database", error))
        return None


def _told(check: str, error: MatrixSchedError) -> Finding:
    return fault(check, spoken(error))


def _settings(reading: Reading[Settings]) -> Iterator[Finding]:
    try:
        policy_of(reading)
    except ConfigurationError as error:
        for one in error.faults:
            yield fault("settings", one)
        return
    made = sorted({origin for origin in reading.origins.values() if origin != DEFAULT})
    yield ok("settings", f"from {', '.join(made)}" if made else "all at their defaults")


def _variables() -> Iterator[Finding]:
    for one in misspelt_variables():
        yield fault("settings", one)


def _handlers(app: App) -> Iterator[Finding]:
    for one in app.handlers.faults():
        yield fault("handlers", one)
    queues = [handler.queue.name for handler in app.queues.handlers]
    if not len(app.handlers) and not queues:
        yield fault("handlers", 'the App has no handlers: register some with @app.action("name")')
    elif len(app.handlers) and not app.handlers.faults():
        yield ok("handlers", ", ".join(app.handlers.names))
    if queues:
        yield ok("queues", ", ".join(queues))


async def _database(app: App, *, knows_handlers: bool) -> AsyncIterator[Finding]:
    if is_in_memory(app.url):
        yield fault("database", "it is in memory, where no other process sees it: name a file")
        return
    for one in judge_hosts(app.url):
        yield one
    try:
        await app.store.open()
    except SchemaMissing as error:
        yield _told("schema", error)
        return
    except MatrixSchedError as error:
        yield _told("database", error)
        return
    answers = ok("database", f"{app.store.description} answers")
    try:
        schema = await _schema(app)
        yield answers
        yield schema
        if knows_handlers:
            yield await _waiting(app)
    except DatabaseFileMissing as error:
        yield _told("schema", error)
    except (SchemaMissing, SchemaMismatch) as error:
        yield answers
        yield _told("schema", error)
    except MatrixSchedError as error:
        yield _told("database", error)
    finally:
        await app.store.close()


async def _schema(app: App) -> Finding:
    shards = await app.store.run(app.scheduler.installing())
    found = await app.store.run(app.store.transitions.installation())
    detail = f"installation {app.installation!r} with {shards} shards is at schema {found.schema_version}"
    if found.schema_version < LIBRARY_SCHEMA_VERSION:
        return fault("schema", f"{detail}, the newest is {LIBRARY_SCHEMA_VERSION}: run `matrixsched upgrade`")
    return ok("schema", detail)


async def _waiting(app: App) -> Finding:
    """Actions that no handler of this App can run wait until somebody has one."""
    looked_at, unknown = await unknown_handlers(app)
    if not unknown:
        return ok("waiting", f"{looked_at:,} live actions looked at, all with a handler here")
    names = ", ".join(f"{name} ({count:,})" for name, count in unknown.items())
    return fault(
        "waiting",
        f"live actions wait for handlers that this App does not have: {names}; register them here, or run a worker "
        "of the App that has them",
    )


async def unknown_handlers(app: App) -> tuple[int, dict[str, int]]:
    """How many live actions were looked at, and how many of them are for handlers that the App does not have."""
    handlers = Counter([action.spec.handler async for action in _some_live(app)])
    unknown = {name: count for name, count in sorted(handlers.items()) if app.handlers.find(name) is None}
    return handlers.total(), unknown


async def _some_live(app: App) -> AsyncIterator[Action]:
    """Of many; and where they are few among millions that have finished, those that are found before long."""
    ask = partial(app.store.transitions.page_bounded, ActionFilter(state=State.LIVE), look_max=LOOK_MAX)
    after, wanted = None, SAMPLE
    for _ in range(LOOKS):
        found = await app.store.run(ask(after=after, limit=wanted))
        for action in found.actions:
            yield action
        after, wanted = found.goes_on, wanted - len(found.actions)
        if after is None or not wanted:
            return
