"""A PostgreSQL server and its settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from matrixsched.ops.doctor.words import of_sql
from matrixsched.ops.findings import Finding, fault, note, ok, warning
from matrixsched.ops.render import age
from matrixsched.store.facts import Connections, PostgresFacts

OLDEST_SUPPORTED = 15
STATEMENT_MAX = timedelta(seconds=30)
"""Our own limit for a statement: what the server ends before that is of unknown outcome to us."""
TOO_SHORT = timedelta(seconds=1)
"""No statement of ours may take so long every time, but any may now and then."""
CONNECTIONS_WARN, CONNECTIONS_FAULT = 0.8, 0.95

_LOSSES = {
    "fsync": "what was written may be lost, and the database be damaged, when the machine stops",
    "full_page_writes": "the database may be damaged when the machine stops while a page is written",
    "synchronous_commit": "calls are answered before what they wrote is safe: the last of it is lost when the server "
    "crashes",
}


def judge_server(facts: PostgresFacts) -> Iterator[Finding]:
    yield _version(facts)
    yield from _writable(facts)
    encoding = facts.settings["server_encoding"].value
    if encoding != "UTF8":
        yield fault(
            "encoding",
            f"the database is encoded in {encoding}: ids, names and errors that it cannot spell are refused",
            f"dump it and restore it into a database made with `create database {of_sql(facts.database)}_utf8 "
            "encoding 'UTF8' template template0;`",
        )
    yield from _durability(facts)
    yield _isolation(facts)
    yield from _timeouts(facts)


def _version(facts: PostgresFacts) -> Finding:
    detail = f"PostgreSQL {facts.version_text}, database {facts.database}, role {facts.role}"
    if facts.version // 10_000 < OLDEST_SUPPORTED:
        return fault("server", f"{detail}: older than {OLDEST_SUPPORTED}", f"upgrade it to {OLDEST_SUPPORTED} or newer")
    return ok("server", detail)


def _writable(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.is_standby:
        yield fault(
            "writable",
            "the server is a standby: it takes no writes",
            "name the primary in the URL; with several hosts, add target_session_attrs=read-write",
        )
    elif facts.settings["default_transaction_read_only"].value == "on":
        yield fault(
            "writable",
            f"transactions are read-only unless they say otherwise ({_origin(facts, 'default_transaction_read_only')})",
            _although_read_only(reset(facts, "default_transaction_read_only", "off")),
        )


def _although_read_only(remedy: str) -> str:
    """What is typed is under the same setting."""
    return remedy.replace("`alter ", "`set default_transaction_read_only = off; alter ", 1)


def _durability(facts: PostgresFacts) -> Iterator[Finding]:
    lost = [name for name in _LOSSES if facts.settings[name].value == "off"]
    for name in lost:
        yield fault("durability", f"{name} is off ({_origin(facts, name)}): {_LOSSES[name]}", reset(facts, name, "on"))
    if not lost:
        value = facts.settings["synchronous_commit"].value
        yield ok("durability", f"fsync and full_page_writes are on, synchronous_commit is {value}")


def _isolation(facts: PostgresFacts) -> Finding:
    name = "default_transaction_isolation"
    level = facts.settings[name].value
    if level == "read committed":
        return ok("isolation", "read committed, as our statements need it")
    return note(
        "isolation",
        f"transactions are {level} by default ({_origin(facts, name)}): our statements need read committed and say so "
        "with a BEGIN and a COMMIT around each, two round trips more; transactions of your own stay as you set them",
        reset(facts, name, "'read committed'"),
    )


def _timeouts(facts: PostgresFacts) -> Iterator[Finding]:
    short = [*_too_short(facts, "statement_timeout"), *_too_short(facts, "transaction_timeout")]
    for name, why in (
        ("lock_timeout", "calls that wait for a row in somebody's hands fail as DatabaseBusy"),
        ("idle_in_transaction_session_timeout", "a transaction between two of its statements is ended, and unknown"),
    ):
        limit = _milliseconds(facts, name)
        if limit is not None and limit < TOO_SHORT:
            text = f"{name} is {_limit(limit)} ({_origin(facts, name)}): {why}"
            short.append(warning("timeouts", text, reset(facts, name, "0")))
    if not short:
        yield ok("timeouts", "none that would end our statements")
    yield from short


def _too_short(facts: PostgresFacts, name: str) -> Iterator[Finding]:
    limit = _milliseconds(facts, name)
    if limit is None or limit >= STATEMENT_MAX:
        return
    text = (
        f"{name} is {_limit(limit)} ({_origin(facts, name)}): what takes longer is ended by the server, and its "
        f"outcome unknown to us, who would wait for {age(STATEMENT_MAX)}"
    )
    told = fault if limit < TOO_SHORT else warning
    yield told("timeouts", text, reset(facts, name, "'30s'"))


def _milliseconds(facts: PostgresFacts, name: str) -> timedelta | None:
    """None: there is no such limit, or the server is too old to know it."""
    found = facts.settings.get(name)
    return None if found is None or found.value == "0" else timedelta(milliseconds=int(found.value))


def _limit(limit: timedelta) -> str:
    return f"{limit / timedelta(milliseconds=1):.0f} ms" if limit < TOO_SHORT else age(limit)


def _origin(facts: PostgresFacts, name: str) -> str:
    match facts.settings[name].origin:
        case "role":
            return f"set for the role {facts.role}"
        case "database":
            return f"set for the database {facts.database}"
        case "connection":
            return "set by the URL"
        case "default":
            return "by default"
    return "set for the whole server"


def reset(facts: PostgresFacts, name: str, value: str) -> str:
    """What makes a setting as it should be, where it was made as it is."""
    match facts.settings[name].origin:
        case "role":
            # The same setting may stand for the role in all databases, or in this one alone.
            role, database = of_sql(facts.role), of_sql(facts.database)
            return f"`alter role {role} reset {name}; alter role {role} in database {database} reset {name};`"
        case "database":
            return f"`alter database {of_sql(facts.database)} reset {name};`"
        case "connection":
            return f"take {name} out of the URL"
    return f"`alter system set {name} = {value}; select pg_reload_conf();`"


# Connections.


def judge_connections(found: Connections) -> Finding:
    limits = [("the server", found.used, found.most - found.reserved)]
    if found.role_most is not None:
        limits.append(("the role", found.role_used, found.role_most))
    if found.database_most is not None:
        limits.append(("the database", found.database_used, found.database_most))
    whose, used, most = max(limits, key=lambda limit: limit[1] / max(1, limit[2]))
    detail = f"{used} of the {most} connections of {whose} are in use"
    share = used / max(1, most)
    if share < CONNECTIONS_WARN:
        return ok("connections", detail)
    told = fault if share >= CONNECTIONS_FAULT else warning
    return told(
        "connections",
        f"{detail}: a worker process may open a dozen, and new ones are refused when none is left",
        "run fewer processes, put a pooler before the server, or raise max_connections: `select application_name, "
        "count(*) from pg_stat_activity group by 1 order by 2 desc;` shows who has them",
    )


# A pooler.


def judge_pooler(facts: PostgresFacts) -> Finding:
    if facts.pooler is None:
        return ok("pooler", "none between us and the server")
    if not facts.pooler.is_shared:
        return ok("pooler", "there is one, which keeps a session of the server for each of ours")
    wrong = [
        name for name, is_on in (("prepared_statements", facts.is_preparing), ("listen", facts.is_listening)) if is_on
    ]
    if not wrong:
        return note(
            "pooler",
            "there is one, which hands out sessions of the server for each transaction: nobody hears a NOTIFY through "
            "it, so workers find new work by looking, at least once in rest_max (1 s)",
            "to start actions sooner, give workers a URL that goes past it, or lower --rest-max",
        )
    options = "&".join(f"{name}=off" for name in wrong)
    return fault(
        "pooler",
        "there is one, which hands out sessions of the server for each transaction (as pgbouncer does with pool_mode = "
        f"transaction), but the URL does not say {' nor '.join(f'{name}=off' for name in wrong)}: prepared statements "
        "are looked for in sessions that never saw them, how we plan is handed on to others, and nobody hears a NOTIFY",
        f"add `?{options}` to the URL, or let the pooler keep sessions (pool_mode = session)",
    )
