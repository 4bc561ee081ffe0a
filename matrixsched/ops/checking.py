"""`matrixsched check`: everything that can be wrong before anything is started, found in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

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
from matrixsched.ops.remedies import spoken
from matrixsched.ops.render import Facts
from matrixsched.ops.settings import policy_of
from matrixsched.rules.action import State
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION
from matrixsched.store.opening import is_in_memory

SAMPLE = 1000
"""How many live actions are looked at for handlers that the App does not have."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    is_ok: bool
    detail: str

    @property
    def row(self) -> Facts:
        return {"check": self.check, "verdict": "ok" if self.is_ok else "fault", "detail": self.detail}


async def check(reading: Reading[Settings], load: Callable[[], App] | None) -> list[Finding]:
    """`load` imports the user's App; without one, or if it cannot be had, the settings say which database is meant."""
    findings = [*_settings(reading), *_variables()]
    theirs = None if load is None else _loaded(load, reading, findings)
    if theirs is not None:
        findings.append(Finding("app", True, f"found, with the database {theirs.store.description}"))
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
            Finding("app", False, "it takes its database or installation from the settings: correct those first")
            if is_told
            else _fault("app", error)
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
        findings.append(_fault("database", error))
        return None


def _fault(check: str, error: MatrixSchedError) -> Finding:
    return Finding(check, False, spoken(error))


def _settings(reading: Reading[Settings]) -> Iterator[Finding]:
    try:
        policy_of(reading)
    except ConfigurationError as error:
        for fault in error.faults:
            yield Finding("settings", False, fault)
        return
    made = sorted({origin for origin in reading.origins.values() if origin != DEFAULT})
    yield Finding("settings", True, f"from {', '.join(made)}" if made else "all at their defaults")


def _variables() -> Iterator[Finding]:
    for fault in misspelt_variables():
        yield Finding("settings", False, fault)


def _handlers(app: App) -> Iterator[Finding]:
    for fault in app.handlers.faults():
        yield Finding("handlers", False, fault)
    queues = [handler.queue.name for handler in app.queues.handlers]
    if not len(app.handlers) and not queues:
        yield Finding("handlers", False, 'the App has no handlers: register some with @app.action("name")')
    elif len(app.handlers) and not app.handlers.faults():
        yield Finding("handlers", True, ", ".join(app.handlers.names))
    if queues:
        yield Finding("queues", True, ", ".join(queues))


async def _database(app: App, *, knows_handlers: bool) -> AsyncIterator[Finding]:
    if is_in_memory(app.url):
        yield Finding("database", False, "it is in memory, where no other process sees it: name a file")
        return
    try:
        await app.store.open()
    except SchemaMissing as error:
        yield _fault("schema", error)
        return
    except MatrixSchedError as error:
        yield _fault("database", error)
        return
    answers = Finding("database", True, f"{app.store.description} answers")
    try:
        schema = await _schema(app)
        yield answers
        yield schema
        if knows_handlers:
            yield await _waiting(app)
    except DatabaseFileMissing as error:
        yield _fault("schema", error)
    except (SchemaMissing, SchemaMismatch) as error:
        yield answers
        yield _fault("schema", error)
    except MatrixSchedError as error:
        yield _fault("database", error)
    finally:
        await app.store.close()


async def _schema(app: App) -> Finding:
    shards = await app.store.run(app.scheduler.installing())
    found = await app.store.run(app.store.transitions.installation())
    detail = f"installation {app.installation!r} with {shards} shards is at schema {found.schema_version}"
    if found.schema_version < LIBRARY_SCHEMA_VERSION:
        return Finding("schema", False, f"{detail}, the newest is {LIBRARY_SCHEMA_VERSION}: run `matrixsched upgrade`")
    return Finding("schema", True, detail)


async def _waiting(app: App) -> Finding:
    """Actions that no handler of this App can run wait until somebody has one."""
    handlers = Counter(action.spec.handler for action in await app.list(state=State.LIVE, limit=SAMPLE))
    unknown = {name: count for name, count in sorted(handlers.items()) if app.handlers.find(name) is None}
    if not unknown:
        return Finding("waiting", True, f"{handlers.total():,} live actions looked at, all with a handler here")
    names = ", ".join(f"{name} ({count:,})" for name, count in unknown.items())
    return Finding(
        "waiting",
        False,
        f"live actions wait for handlers that this App does not have: {names}; register them here, or run a worker "
        "of the App that has them",
    )
