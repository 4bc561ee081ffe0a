"""From a database URL to a store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from matrixsched.clock import Chance, Clock, SystemClock
from matrixsched.errors import BadDatabaseUrl
from matrixsched.rules.names import check_installation
from matrixsched.store.failpoints import armed
from matrixsched.store.postgresql.hosts import TARGETS, WRITABLE, addresses_of
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.sqlite.store import SqliteStore
from matrixsched.store.store import Store

_OWN_OPTIONS = {"prepared_statements", "listen"}


def open_store(
    url: str, installation: str = "default", *, clock: Clock | None = None, chance: Chance | None = None
) -> Store:
    """A store for `sqlite:///file.db`, `sqlite://` (in memory) or `postgresql://user@host/database`; not connected yet.

    `clock` replaces the database's own time; for tests. A PostgreSQL URL may say `prepared_statements=off` and
    `listen=off`, for poolers that hand out another session for each transaction; and it may name several servers:
    `postgresql://user@host1:5432,host2:5432/database?target_session_attrs=read-write`.
    """
    check_installation(installation)
    if not isinstance(url, str) or "://" not in url:
        raise BadDatabaseUrl("it has no scheme")
    try:
        parts = urlsplit(url)
        scheme = parts.scheme.lower().partition("+")[0]
        if scheme == "sqlite":
            return armed(SqliteStore(_sqlite_path(url), installation, clock=clock or SystemClock()))
        if scheme in ("postgresql", "postgres"):
            if "@" in parts.path + parts.query + parts.fragment:
                raise BadDatabaseUrl("a slash, question mark or hash in the password must be percent-encoded")
            _check_ports(parts.netloc)
            options = _options(parts.query)
            own = {name: _switch(name, options.pop(name)) for name in _OWN_OPTIONS & options.keys()}
            plain = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
            return armed(PostgresStore(plain, installation, clock=clock, chance=chance, **own))
    except ValueError as error:
        if isinstance(error, BadDatabaseUrl):
            raise
        raise BadDatabaseUrl("it is malformed") from None
    raise BadDatabaseUrl(f"the scheme {scheme!r} is not supported")


def is_in_memory(url: str) -> bool:
    """Whether the URL is of a database that ends with the process."""
    return url.lower().startswith("sqlite") and "://" in url and _sqlite_path(url) is None


def unguided_hosts(url: str) -> int:
    """How many servers the URL names without saying that the one is meant that takes writes; 0: it is clear."""
    if not url.lower().startswith("postgres"):
        return 0
    options = _options(urlsplit(url).query)
    count = len(addresses_of(urlsplit(url)._replace(query=urlencode(options)).geturl()))
    # asyncpg heeds the variable where the URL does not say it.
    target = options.get("target_session_attrs", os.environ.get("PGTARGETSESSIONATTRS"))
    return count if count > 1 and target not in WRITABLE else 0


def _options(query: str) -> dict[str, str]:
    """The last of each name counts, but a host that is named again is one more, as for SQLAlchemy."""
    given = parse_qsl(query)
    hosts = [value for name, value in given if name == "host"]
    options = dict(given) | ({"host": ",".join(hosts)} if hosts else {})
    if options.get("target_session_attrs", TARGETS[0]) not in TARGETS:
        raise BadDatabaseUrl(f"target_session_attrs must be one of {', '.join(TARGETS)}")
    return options


def _sqlite_path(url: str) -> str | None:
    rest, _, options = url.partition("://")[2].partition("?")
    if options:
        raise BadDatabaseUrl("sqlite takes no options: remove the question mark and what follows it")
    if rest in ("", "/", "/:memory:"):
        return None
    if not rest.startswith("/"):
        raise BadDatabaseUrl("sqlite takes three slashes before a relative path, four before an absolute one")
    return str(Path(unquote(rest[1:])))


def _check_ports(netloc: str) -> None:
    for host in netloc.rpartition("@")[2].split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise BadDatabaseUrl("a port is not a number between 1 and 65535")


def _switch(name: str, value: str) -> bool:
    match value.lower():
        case "on" | "true" | "1":
            return True
        case "off" | "false" | "0":
            return False
    raise BadDatabaseUrl(f"{name} must be on or off")
