"""Two real PostgreSQL servers, of which one follows the other and confirms its commits, until it takes its place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import LiteralString
from urllib.parse import urlsplit

import psycopg

from support.postgres import (
    PostgresServer,
    PostgresUnavailable,
    ServerProcess,
    find_binaries,
    initialise,
    server_folder,
    server_identity,
    start_on_a_free_port,
)
from support.processes import until

STANDBY = "second"
DATABASE = "postgres"


@dataclass
class Pair:
    first: PostgresServer
    """The primary, at the beginning."""
    second: PostgresServer

    @property
    def url(self) -> str:
        """Of both: whoever uses it is led to the one that takes writes."""
        return url_of(*(urlsplit(one.admin_dsn).netloc.rpartition("@")[2] for one in (self.first, self.second)))

    def kill_first(self) -> None:
        """As with kill -9: its other processes notice, and go."""
        assert self.first.process is not None
        assert self.first.process.postmaster is not None
        self.first.process.postmaster.kill()
        self.first.process.postmaster.wait()

    def promote_second(self) -> None:
        with psycopg.connect(self.second.admin_dsn, autocommit=True) as connection:
            connection.execute("select pg_promote(true, 30)")

    def make_first_read_only(self) -> None:
        """It goes on to answer."""
        configure(self.first, "default_transaction_read_only", "on")


def configure(server: PostgresServer, name: LiteralString, value: LiteralString) -> None:
    """Also for those who are connected already: they notice with what they ask next."""
    with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        connection.execute(f"alter system set {name} = '{value}'")
        connection.execute("select pg_reload_conf()")


def url_of(*addresses: str) -> str:
    return f"postgresql://postgres@{','.join(addresses)}/{DATABASE}?target_session_attrs=read-write"


@contextlib.contextmanager
def start_pair() -> Iterator[Pair]:
    """Both durable enough for a server that is killed: what is lost with a machine is not what is tested."""
    identity = server_identity()
    with server_folder(identity) as one, server_folder(identity) as other, contextlib.ExitStack() as stack:
        binaries = find_binaries(identity, one)
        first = initialise(binaries, identity, one, durable=True)
        first.configure({"fsync": "off"})
        start_on_a_free_port(first)
        server = _server(first)
        stack.callback(server.stop)
        second = ServerProcess(binaries, identity, other)
        _copy(first, second)
        second.configure({"unix_socket_directories": str(other)})
        start_on_a_free_port(second)
        pair = Pair(server, _server(second))
        stack.callback(pair.second.stop)
        _make_synchronous(pair)
        yield pair


def _server(process: ServerProcess) -> PostgresServer:
    return PostgresServer(f"postgresql://postgres@127.0.0.1:{process.port}/{DATABASE}", process)


def _copy(first: ServerProcess, second: ServerProcess) -> None:
    source = f"host=127.0.0.1 port={first.port} user=postgres application_name={STANDBY}"
    options = ["-d", source, "-D", str(second.data), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
    with second.log.open("ab") as log:
        done = second.spawn("pg_basebackup", options, log).wait()
    if done != 0:
        raise PostgresUnavailable(f"pg_basebackup failed with exit code {done}: {second.last_words()}")


def _make_synchronous(pair: Pair) -> None:
    configure(pair.first, "synchronous_standby_names", STANDBY)
    with psycopg.connect(pair.first.admin_dsn, autocommit=True) as connection:
        states = "select from pg_stat_replication where sync_state = 'sync'"
        until(lambda: connection.execute(states).fetchall(), "the standby confirms what is committed")
