"""What the doctor says of a pooler: a real pgbouncer, before a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from support.command import Matrixsched, on
from support.pgbouncer import start_pgbouncer
from support.postgres import PostgresServer

from matrixsched import App

pytestmark = pytest.mark.direct("it brings poolers of its own")


@contextmanager
def pooled(server: PostgresServer, dsn: str, mode: str) -> Iterator[str]:
    """The URL of the same database, through a pooler."""
    with start_pgbouncer(server, mode) as port:
        yield urlsplit(dsn)._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()


def said_of_the_pooler(matrixsched: Matrixsched, url: str) -> tuple[str, str, str | None]:
    rows = matrixsched("doctor", "--database", url, "--json").json
    (found,) = [row for row in rows if row["check"] == "pooler"]
    return found["verdict"], found["detail"], found["remedy"]


async def nothing(app: App) -> None:
    pass


@pytest.mark.slow
def test_a_pool_of_transactions_is_recognised_and_says_what_the_url_lacks(
    matrixsched: Matrixsched, postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    on(postgres_dsn, nothing)
    assert said_of_the_pooler(matrixsched, postgres_dsn)[0] == "ok"
    with pooled(postgres_server, postgres_dsn, "transaction") as url:
        verdict, detail, remedy = said_of_the_pooler(matrixsched, url)
        assert (verdict, "pool_mode = transaction" in detail) == ("fault", True)
        assert remedy is not None
        assert "`?prepared_statements=off&listen=off`" in remedy
        well = matrixsched("doctor", "--database", f"{url}?prepared_statements=off&listen=off", "--json").json
        found = {row["check"]: row["verdict"] for row in well}
        assert found["pooler"] == "note"
        assert (found["shards"], found["drift"]) == ("ok", "ok"), "the rest is looked at through it, too"


@pytest.mark.slow
def test_a_pool_of_sessions_does_no_harm(
    matrixsched: Matrixsched, postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    on(postgres_dsn, nothing)
    with pooled(postgres_server, postgres_dsn, "session") as url:
        verdict, detail, _ = said_of_the_pooler(matrixsched, url)
    assert (verdict, detail) == ("ok", "there is one, which keeps a session of the server for each of ours")
