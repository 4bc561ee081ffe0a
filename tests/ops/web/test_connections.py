"""Connections that want nothing, to a server as `matrixsched serve` runs it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import anyio.to_thread
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from support.serving import served

from matrixsched.ops.web.serving import CONNECTIONS_MAX, server_config

SOON_S = 0.5
LATER_S = 600.0
PATIENCE_S = 20.0
"""How long a test waits for what must happen."""
ASK = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Site:
    """It answers `/slow` when it is told to."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/slow":
            self.is_asked.set()
            await anyio.to_thread.run_sync(self.may_answer.wait, PATIENCE_S)
        if scope["path"] != "/unread":
            await Request(scope, receive).body()
        await PlainTextResponse("here")(scope, receive, send)


@contextmanager
def serving(head_max_s: float) -> Iterator[tuple[Site, str]]:
    site = Site()
    with served(site, server_config(site, head_max_s=head_max_s)) as at:
        yield site, at


def connected(at: str) -> socket.socket:
    where = urlsplit(at)
    assert where.hostname is not None
    return socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S)


def is_closed_by_the_server(connection: socket.socket) -> bool:
    """Waits until it is, or something comes."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def read_answer(connection: socket.socket) -> bytes:
    read = b""
    while not read.endswith(b"here"):
        more = connection.recv(65536)
        assert more, read
        read += more
    return read


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\n", ASK[:-2]])
def test_whoever_does_not_say_what_they_want_is_cut_off(sent: bytes) -> None:
    with serving(SOON_S) as (_, at), connected(at) as silent:
        silent.sendall(sent)
        assert is_closed_by_the_server(silent)


def test_so_is_who_asks_once_and_then_drips() -> None:
    """A byte now and then is no request; only uvicorn's own limit, of connections that are quite idle, ends with it."""
    with serving(SOON_S) as (_, at), connected(at) as dripping:
        dripping.sendall(ASK)
        assert b"200" in read_answer(dripping)
        dripping.sendall(b"GET / HTTP/1.1\r\n")
        assert is_closed_by_the_server(dripping)


def test_so_is_who_goes_on_with_a_body_that_nobody_reads() -> None:
    with serving(SOON_S) as (_, at), connected(at) as dripping:
        dripping.sendall(b"POST /unread HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\nx")
        assert b"200" in read_answer(dripping)
        assert is_closed_by_the_server(dripping)


def test_who_has_asked_is_answered_however_long_it_takes() -> None:
    with serving(SOON_S) as (site, at), ThreadPoolExecutor(1) as thread:
        slow = thread.submit(httpx.get, f"{at}/slow", timeout=PATIENCE_S)
        assert site.is_asked.wait(PATIENCE_S)
        with connected(at) as silent:  # it comes later, and its time is over before the answer is there
            assert is_closed_by_the_server(silent)
        site.may_answer.set()
        assert slow.result(PATIENCE_S).text == "here"


def test_a_connection_is_used_again_and_requests_may_follow_at_once() -> None:
    with serving(LATER_S) as (_, at), connected(at) as one:
        for _ in range(2):
            one.sendall(ASK)
            assert b"200" in read_answer(one)
        one.sendall(ASK + ASK)
        answers = b""
        while answers.count(b"here") < 2:
            answers += read_answer(one)


def test_silent_connections_keep_nobody_out() -> None:
    """Nor before their time is over: those that have been silent for the longest make room."""
    with serving(LATER_S) as (_, at), ExitStack() as silent:
        opened = [silent.enter_context(connected(at)) for _ in range(CONNECTIONS_MAX + 20)]
        assert httpx.get(at, timeout=PATIENCE_S).status_code == 200
        assert is_closed_by_the_server(opened[0])


def test_who_is_being_answered_makes_no_room() -> None:
    with serving(LATER_S) as (site, at), ExitStack() as silent, ThreadPoolExecutor(1) as thread:
        slow = thread.submit(httpx.get, f"{at}/slow", timeout=PATIENCE_S)
        assert site.is_asked.wait(PATIENCE_S)
        for _ in range(CONNECTIONS_MAX + 20):
            silent.enter_context(connected(at))
        assert httpx.get(at, timeout=PATIENCE_S).status_code == 200
        site.may_answer.set()
        assert slow.result(PATIENCE_S).text == "here"
