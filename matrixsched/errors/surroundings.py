"""What is wrong around a call: settings, tables, the database, a worker."""

from __future__ import annotations

from collections.abc import Sequence

from matrixsched.errors.roots import MatrixSchedError


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


class BadFailpoint(ConfigurationError):
    """MATRIXSCHED_FAILPOINT, a variable for tests with real processes, cannot be understood."""

    remedy = (
        "Write <step>:<before|after>:<kill|stop|exit|delay>, and :<nth> where it is not to be the first time; "
        "outside of tests remove the variable."
    )

    def __init__(self, why: str) -> None:
        super().__init__([f"MATRIXSCHED_FAILPOINT: {why}"])


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

    def __init__(self, attempts: int, busiest: str, times: int, *, kind: str = "action") -> None:
        super().__init__(f"{attempts:,} attempts were made in one go, {times:,} of them at {kind} {busiest!r}")
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


class RowMissing(MatrixSchedError):
    """A row that a migration makes, and nothing of ours deletes, is gone."""

    remedy = "Put it back by `matrixsched fsck --repair`."

    def __init__(self, table: str) -> None:
        super().__init__(f"the row of the table {table} is missing: somebody has deleted it")
        self.table = table


class FormMismatch(MatrixSchedError):
    """The installation exists in another form than was asked for: distributed, or not."""

    remedy = (
        "The form is fixed at init: leave --distributed (distributed=…) out to take it as it is, or make another "
        "installation, under another name."
    )

    def __init__(self, installation: str, *, is_distributed: bool) -> None:
        form = "in distributed form" if is_distributed else "not in distributed form"
        super().__init__(f"the installation {installation!r} exists, {form}; nothing was changed")
        self.installation, self.is_distributed = installation, is_distributed


class DistributedUnsupported(MatrixSchedError):
    """A database that has no distributed form."""

    remedy = "Leave --distributed (distributed=True) out, or give the URL of a PostgreSQL database."

    def __init__(self) -> None:
        super().__init__("SQLite keeps an installation in one file and cannot distribute it; nothing was changed")


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


class UpgradeBlocked(DatabaseBusy):
    """An upgrade that did not get the tables for itself in all of its tries: nothing was changed."""

    remedy = (
        "End what holds them, or let it end (`matrixsched doctor --patience 0` names open transactions; it may be "
        "another upgrade), then run `matrixsched upgrade` again."
    )

    def __init__(self, installation: str, waited_s: float) -> None:
        super().__init__(
            f"the tables of installation {installation!r} were in use each time the upgrade wanted to change them, "
            f"for {waited_s:.0f} s; nothing was changed"
        )
        self.installation, self.waited_s = installation, waited_s


class WorkerError(MatrixSchedError):
    """The worker cannot go on."""

    remedy = "Start it again, best under a supervisor that does so by itself; no action is lost meanwhile."


class HandlersLeaked(WorkerError):
    """Too many handlers ignored their time limit; only a new process gets their slots back."""

    remedy = "Let a supervisor restart the worker, and give the handler's own calls a time limit."

    def __init__(self, leaked: int, concurrency: int) -> None:
        super().__init__(f"{leaked} of {concurrency} handler slots are held by handlers that ignored their time limit")
        self.leaked, self.concurrency = leaked, concurrency
