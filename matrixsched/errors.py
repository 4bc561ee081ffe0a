"""Every error a user can meet, each with its facts and a remedy.

    MatrixSchedError
    ├── BadInput (ValueError)           the call was refused before anything was written
    │   ├── InvalidId
    │   │   └── InvalidInstallation
    │   ├── InvalidTime
    │   ├── InvalidDuration
    │   │   └── InvalidDurationText
    │   ├── InvalidRate
    │   ├── InvalidWindow
    │   ├── InvalidLimit
    │   ├── InvalidCron
    │   ├── UnknownZone
    │   ├── NeverRuns
    │   ├── InvalidNumber
    │   ├── InvalidPayload
    │   │   ├── UpcasterMissing
    │   │   ├── UpcastFailed
    │   │   └── PayloadTooNew
    │   ├── PayloadTooLarge
    │   ├── UnknownHandler
    │   ├── UnknownTemplate
    │   └── WrongUse                    a command line that cannot be carried out
    ├── ActionNotFound (LookupError)
    ├── ActionExists
    ├── ActionFinished
    ├── LimitNotFound (LookupError)
    ├── TemplateInUse
    ├── GuidMismatch                    compare-and-set lost against another change
    ├── ConfigurationError
    │   ├── BadDatabaseUrl
    │   ├── DatabaseNotNamed
    │   ├── AppNotFound
    │   └── ModuleBroken
    ├── NotOpen
    ├── AlreadyOpen
    ├── StageError                      the stage of a test cannot do what it was asked
    │   └── NeverIdle
    ├── SchemaMissing
    │   └── DatabaseFileMissing
    ├── SchemaMismatch
    ├── DatabaseError
    │   ├── DatabaseUnavailable         nothing was done
    │   │   └── DatabaseFileUnusable
    │   ├── OutcomeUnknown              may or may not have been done: the statement was sent, the answer never came
    │   └── DatabaseBusy                a lock was held too long: nothing was done
    └── WorkerError
        └── HandlersLeaked

A message never holds a payload, a password or a whole database URL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID


class MatrixSchedError(Exception):
    """The root: catch it to catch everything that matrixsched raises on purpose."""

    remedy: ClassVar[str] = "See the message."

    def __str__(self) -> str:
        return self.with_remedy(self.remedy)

    def with_remedy(self, remedy: str) -> str:
        """What happened, and this next move."""
        message = super().__str__()
        return f"{message}{'' if message.endswith('?') else '.'} {remedy}"


class BadInput(MatrixSchedError, ValueError):
    """The call was refused before anything was written."""

    remedy = "Correct the argument and call again; nothing was written."


class InvalidId(BadInput):
    """An id that cannot name an action (or a handler, an installation) on every database alike."""

    remedy = "Use 1 to 256 bytes of UTF-8 without control characters."

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} {why}")
        self.what, self.why = what, why


class InvalidInstallation(InvalidId):
    """A name that cannot be part of the names of tables."""

    remedy = "Use at most 40 of a-z, 0-9 and _, beginning with a letter."

    def __init__(self, name: object) -> None:
        super().__init__("installation", f"is {name!r:.80}")
        self.name = name


class InvalidTime(BadInput):
    """A point in time that cannot be scheduled."""

    remedy = "Pass an aware datetime (for example datetime.now(timezone.utc)) between the years 1970 and 2200."

    def __init__(self, argument: str, why: str) -> None:
        super().__init__(f"{argument} {why}")
        self.argument, self.why = argument, why


class InvalidDuration(BadInput):
    """A duration that is negative, absurd or none at all."""

    remedy = "Pass a timedelta that fits, for example timedelta(minutes=5)."

    def __init__(self, argument: str, why: str) -> None:
        super().__init__(f"{argument} {why}")
        self.argument, self.why = argument, why


class InvalidDurationText(InvalidDuration):
    """A text that was to be a duration and is none."""

    remedy = "Write it as 250ms, 10s, 5m, 1h30m, 7d, as ISO 8601 (PT10S) or as a number of seconds."

    def __init__(self, argument: str, text: str) -> None:
        super().__init__(argument, f"is {text!r:.80}")
        self.text = text


class InvalidRate(BadInput):
    """A rate that nothing can go at."""

    remedy = "Write a whole number above zero and a time, for example 10000/min, 5/s or 7/100ms."

    def __init__(self, given: object, why: str) -> None:
        super().__init__(f"the rate {given!r:.80} cannot be used: {why}")
        self.given, self.why = given, why


class InvalidWindow(BadInput):
    """A part of the day in which nothing can be sent, or that is none."""

    remedy = "Write when it begins and when it ends, for example 08:00-12:00, or 22:00-06:00 over midnight."

    def __init__(self, given: object, why: str) -> None:
        super().__init__(f"the window {given!r:.80} cannot be used: {why}")
        self.given, self.why = given, why


class InvalidLimit(BadInput):
    """A name that is not that of a limit, or of one that cannot do what was asked of it."""

    remedy = (
        "A limit is called global, handler:<name>, template:<name>, key:<key>, or key:* for every key without its own."
    )

    def __init__(self, name: object, why: str) -> None:
        super().__init__(f"the limit {name!r:.80} cannot be used: {why}")
        self.name, self.why = name, why


class InvalidCron(BadInput):
    """A cron expression that cannot be read, or names no time at all."""

    remedy = (
        'Use five fields, minute hour day month weekday, for example "30 6 * * MON-FRI"; upcoming() shows the runs.'
    )

    def __init__(self, expression: str, why: str) -> None:
        super().__init__(f"cron expression {expression!r:.80} {why}")
        self.expression, self.why = expression, why


class UnknownZone(BadInput):
    """A time zone that this machine does not know."""

    remedy = "Use an IANA name such as Europe/Berlin; for a zone made recently, update the tzdata package."

    def __init__(self, zone: str, close: Sequence[str]) -> None:
        super().__init__(
            f"there is no time zone {zone!r:.80}" + (f"; close to it: {', '.join(close)}" if close else "")
        )
        self.zone, self.close = zone, tuple(close)


class NeverRuns(BadInput):
    """A repetition that has no tick from its beginning on."""

    remedy = "Exclude less, or begin earlier; upcoming() shows what a repetition leaves."

    def __init__(self, start: str) -> None:
        super().__init__(f"the repetition has no tick from {start} on: all of them are excluded or too late")
        self.start = start


class InvalidNumber(BadInput):
    """A number outside of what makes sense for it."""

    remedy = "Choose such a number."

    def __init__(self, argument: str, value: object, why: str) -> None:
        super().__init__(f"{argument} is {value!r}, but {why}")
        self.argument, self.value, self.why = argument, value, why


class InvalidPayload(BadInput):
    """A payload that is not of the model its handler takes, or cannot be written as JSON."""

    remedy = "Pass an instance of the handler's model; NaN and infinite numbers cannot be stored."

    def __init__(self, handler: str, why: str) -> None:
        super().__init__(f"payload for handler {handler!r}: {why}")
        self.handler, self.why = handler, why


class UpcasterMissing(InvalidPayload):
    """Nothing leads from an older version of a payload to the one its handler takes."""

    remedy = "Register it with @handler.upcast(version); then `matrixsched actions redrive` what was quarantined."

    def __init__(self, handler: str, version: int, missing: Sequence[range]) -> None:
        super().__init__(handler, f"nothing leads to version {version} from version {in_words(missing)}")
        self.version, self.missing = version, tuple(missing)


def in_words(versions: Sequence[range]) -> str:
    """Versions for a person to read: 1, 3 to 5."""
    return ", ".join(f"{span[0]}" if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in versions)


class UpcastFailed(InvalidPayload):
    """An upcaster could not make the next version of a payload."""

    remedy = "Correct the upcaster; then `matrixsched actions redrive` what was quarantined."

    def __init__(self, handler: str, from_version: int, why: str) -> None:
        super().__init__(handler, f"the upcaster from version {from_version} failed: {why}")
        self.from_version = from_version


class PayloadTooNew(InvalidPayload):
    """A payload of a version that this process does not know yet."""

    remedy = "Deploy the newer handler here, too; until then its workers run the action."

    def __init__(self, handler: str, version: int, known: int) -> None:
        super().__init__(handler, f"it is of version {version}, this process knows versions up to {known}")
        self.version, self.known = version, known


class PayloadTooLarge(BadInput):
    """A payload over the limit of this application."""

    remedy = "Store the bulk elsewhere and schedule a reference to it, or raise payload_bytes_max."

    def __init__(self, handler: str, size: int, size_max: int) -> None:
        super().__init__(f"payload for handler {handler!r} has {size:,} bytes, {size_max:,} are allowed")
        self.handler, self.size, self.size_max = handler, size, size_max


class UnknownHandler(BadInput):
    """No handler of that name is registered with this application."""

    remedy = "Register it with @app.action(name), or check the spelling."

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no handler named {name!r}; registered: {', '.join(known) or 'none'}")
        self.name, self.known = name, tuple(known)


class UnknownTemplate(BadInput):
    """No template of that name is in the database."""

    remedy = "Create it with `await app.templates.set(name)`, or check the spelling."

    def __init__(self, name: str, close: Sequence[str]) -> None:
        super().__init__(f"there is no template {name!r:.80}" + (f"; close to it: {', '.join(close)}" if close else ""))
        self.name, self.close = name, tuple(close)


class WrongUse(BadInput):
    """A command line whose parts are each understood, but that cannot be carried out as a whole."""

    remedy = "See the command's --help; nothing was changed."


class ActionNotFound(MatrixSchedError, LookupError):
    """No action has that id in this installation."""

    remedy = "Check the id and the installation; finished actions are pruned after a time."

    def __init__(self, action_id: str) -> None:
        super().__init__(f"there is no action {action_id!r}")
        self.action_id = action_id


class ActionExists(MatrixSchedError):
    """schedule(exists="error") found an action of that id."""

    remedy = 'Use exists="replace" to overwrite it or exists="keep" to leave it.'

    def __init__(self, action_id: str, guid: UUID) -> None:
        super().__init__(f"action {action_id!r} exists already (guid {guid})")
        self.action_id, self.guid = action_id, guid


class ActionFinished(MatrixSchedError):
    """A finished action has no next run that could be moved."""

    remedy = "Use run_now() to run it once more, or schedule() to begin anew."

    def __init__(self, action_id: str, state: str) -> None:
        super().__init__(f"action {action_id!r} is finished ({state})")
        self.action_id, self.state = action_id, state


class LimitNotFound(MatrixSchedError, LookupError):
    """No limit of that name is set in this installation."""

    remedy = "`matrixsched limits list` shows those that are."

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no limit {name!r:.80}")
        self.name = name


class TemplateInUse(MatrixSchedError):
    """A template whose messages still wait cannot be removed: nobody would know any more when to send them."""

    remedy = "Let them go out, or cancel them with `await app.templates.stop(name)`; then remove it."

    def __init__(self, name: str) -> None:
        super().__init__(f"the template {name!r:.80} has messages that are not finished")
        self.name = name


class GuidMismatch(MatrixSchedError):
    """Somebody changed the action since its guid was read."""

    remedy = "Read the action again with get() and decide anew."

    def __init__(self, action_id: str, expected: UUID, found: UUID | None) -> None:
        super().__init__(f"action {action_id!r} was expected at guid {expected} but is at {found or 'none'}")
        self.action_id, self.expected, self.found = action_id, expected, found


class ConfigurationError(MatrixSchedError):
    """Settings that contradict each other or do not make sense; all faults at once."""

    remedy = "Change the settings named above."

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


class BadDatabaseUrl(ConfigurationError):
    """A database URL that cannot be understood; it is not repeated, for it may hold a password."""

    remedy = "Use sqlite:///path/to/file.db or postgresql://user@host/database."

    def __init__(self, why: str) -> None:
        super().__init__([f"database URL: {why}"])


class DatabaseNotNamed(ConfigurationError):
    """Neither the code nor the settings say where the database is."""

    remedy = (
        'Name it in one place: --database on the command line, App("sqlite:///my.db") in code, MATRIXSCHED_DATABASE in '
        "the environment, or database in matrixsched.toml."
    )

    def __init__(self) -> None:
        super().__init__(["no database is named"])


class AppNotFound(ConfigurationError):
    """MODULE:APP on the command line names nothing that a worker could run."""

    remedy = "Name it as in `matrixsched worker tasks:app`, from the folder that holds tasks.py."

    def __init__(self, why: str) -> None:
        super().__init__([why])


class ModuleBroken(ConfigurationError):
    """The module on the command line raised an exception while it was imported, which is the cause of this one."""

    remedy = "Correct the module, then start the worker again."

    def __init__(self, module: str, kind: str, place: str) -> None:
        super().__init__([f"module {module!r} cannot be imported: {kind} at {place}"])
        self.module, self.kind, self.place = module, kind, place


class NotOpen(MatrixSchedError):
    """The application has no connection yet, or no longer."""

    remedy = "Use it inside `async with app:`, or the synchronous calls inside `with app.sync:`."


class AlreadyOpen(MatrixSchedError):
    """The application is connected, so a test cannot put another database in the place of its own."""

    remedy = "Enter the stage before `async with app:`, and call app.sync.close() if synchronous code has connected."


class StageError(MatrixSchedError):
    """The stage of a test cannot do what it was asked."""

    remedy = "Let one test at a time use the stage, and let no handler call it."


class NeverIdle(StageError):
    """So many attempts were made in one go that it would most likely never end."""

    remedy = "Travel less far at once, or raise attempts_max if so many are meant."

    def __init__(self, attempts: int, busiest: str, times: int) -> None:
        super().__init__(f"{attempts:,} attempts were made in one go, {times:,} of them at action {busiest!r}")
        self.attempts, self.busiest, self.times = attempts, busiest, times


class SchemaMissing(MatrixSchedError):
    """The database holds no installation of that name."""

    remedy = "Run `matrixsched init` (or await app.init()) once."

    def __init__(self, installation: str) -> None:
        super().__init__(f"the database has no matrixsched installation {installation!r}")
        self.installation = installation


class DatabaseFileMissing(SchemaMissing):
    """There is no such SQLite file; only init creates one."""

    remedy = "Correct the path, or create the file: Run `matrixsched init` (or await app.init()) once."

    def __init__(self, installation: str, path: str) -> None:
        MatrixSchedError.__init__(self, f"there is no SQLite database {path}")
        self.installation, self.path = installation, path


class SchemaMismatch(MatrixSchedError):
    """The database's schema and this version of the library cannot work together."""

    remedy = "Run `matrixsched upgrade` with the newest version of the library in use, then start the others."

    def __init__(self, why: str) -> None:
        super().__init__(why)


class DatabaseError(MatrixSchedError):
    """The database refused or could not be asked."""

    remedy = "See the database's log for the full message."


class DatabaseUnavailable(DatabaseError):
    """The database could not be reached, or refused for now: nothing was done."""

    remedy = "Check that it runs and that host, port, database and user are right; then try again."


class DatabaseFileUnusable(DatabaseUnavailable):
    """An SQLite file that cannot be opened, read or written: nothing was done."""

    remedy = "Check the path, the permissions of the file and its folder, and the space on the disk; then try again."


class OutcomeUnknown(DatabaseError):
    """The connection broke after a statement was sent: it may or may not have been done."""

    remedy = "Read the action with get(), or send the same call again with the same request_id: it is done once."


class DatabaseBusy(DatabaseError):
    """Another transaction held a lock for too long: nothing was done."""

    remedy = "End the transaction that holds it, then try again."


class WorkerError(MatrixSchedError):
    """The worker cannot go on."""

    remedy = "Start it again, best under a supervisor that does so by itself; no action is lost meanwhile."


class HandlersLeaked(WorkerError):
    """Too many handlers ignored their time limit; only a new process gets their slots back."""

    remedy = "Let a supervisor restart the worker, and give the handler's own calls a time limit."

    def __init__(self, leaked: int, concurrency: int) -> None:
        super().__init__(f"{leaked} of {concurrency} handler slots are held by handlers that ignored their time limit")
        self.leaked, self.concurrency = leaked, concurrency
