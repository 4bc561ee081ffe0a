"""A TCP proxy before PostgreSQL that knows enough of its protocol to lose the answer to a commit.

Each connection is named by its client (`chaos.writer` in the startup packet) and by its backend. Faults are asked for
from other threads: cut, reset, delay, black hole for one connection; and the loss of an answer to a commit of a given
kind, which is withheld until the server has said that it is done.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from matrixsched.store.statements import load, load_distributed

SSL_REQUEST, CANCEL_REQUEST = 80877103, 80877102
GOODBYE = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
NOTICE = b"SNOTICE\0VNOTICE\0C00000\0Mthat was all\0\0"
WRITES = re.compile(rb"\b(insert into|update|delete from) \w+\.(\w+)", re.IGNORECASE)
"""With the schema before the name of the table: `for update` alone writes nothing."""
KINDS = {
    "count_held": "claim_gated",  # with which its transaction begins
    "take_chore": "chores",
    "keep_chore": "chores",
    "leave_chore": "chores",
    "end_chore": "chores",
}
"""What is committed is named after the file of its statement, in a transaction of the first one; but these."""
OTHERS = "others"
PRELUDES = {"installation", "now", "patience", OTHERS}
"""What any transaction may begin with; the others are what drivers ask about types."""


def message(kind: bytes, body: bytes) -> bytes:
    """A message of the protocol, of the client or the server."""
    return kind + struct.pack("!I", len(body) + 4) + body


FAREWELL = message(b"E", GOODBYE) + message(b"N", NOTICE)
"""What a server says to an idle connection that it is about to end."""


@dataclass(frozen=True)
class Lost:
    """An answer that was withheld, and what it was to."""

    writer: str
    what: str
    at: float


@dataclass
class Wish:
    """That the answer to a commit be lost: of one of which kinds, and after how many others of them."""

    kinds: frozenset[str]
    skip: int
    reset: bool
    """Whether the connection is reset then, or closed."""
    granted: threading.Event = field(default_factory=threading.Event)
    kind: str = ""
    """The one that it was granted for."""
    lost: Lost | None = None


class Requests:
    """What a client has asked, read from what it sends: whether the next answer is that to a commit."""

    def __init__(self) -> None:
        self._rest = b""
        self._texts: dict[bytes, bytes] = {}
        self._bound = b""
        self._in_transaction = False
        self._first_asked: str | None = None
        """In the transaction, but for its prelude; the next one is of the transaction, too."""
        self._has_written = False

    def read(self, data: bytes) -> str | None:
        """Take what was sent; of which kind of commit the answer is awaited then, if it is one."""
        self._rest += data
        commit: str | None = None
        while len(self._rest) >= 5:
            (length,) = struct.unpack("!I", self._rest[1:5])
            if len(self._rest) < length + 1:
                break
            kind, body = self._rest[:1], self._rest[5 : length + 1]
            self._rest = self._rest[length + 1 :]
            commit = self._message(kind, body) or commit
        return commit

    def _message(self, kind: bytes, body: bytes) -> str | None:
        match kind:
            case b"P":  # Parse: a name, a text
                name, text = body.split(b"\0", 2)[:2]
                self._texts[name] = text
            case b"B":  # Bind: a portal, the name of a statement
                self._bound = self._texts.get(body.split(b"\0", 2)[1], b"")
            case b"Q":
                return self._query(body.rstrip(b"\0").strip().lower())
            case b"S":  # Sync: what was bound is committed, unless a transaction is open
                bound, self._bound = self._bound, b""
                return self._asked(bound) if bound else None
        return None

    def _asked(self, text: bytes) -> str | None:
        writes = WRITES.search(text) is not None
        if not self._in_transaction:
            return kind_of(text) if writes else None
        kind = kind_of(text)
        if kind not in PRELUDES:
            self._first_asked = self._first_asked or kind
        self._has_written |= writes
        return None

    def _query(self, text: bytes) -> str | None:
        if text.startswith((b"begin", b"start")):
            self._in_transaction, self._first_asked, self._has_written = True, None, False
        elif text.startswith((b"commit", b"rollback")):
            self._in_transaction = False
            return (self._first_asked or OTHERS) if text.startswith(b"commit") and self._has_written else None
        return None


@cache
def _files() -> dict[bytes, str]:
    """The files of our statements, by the text that is sent: in either form."""
    found = (*load("postgresql", "default").values(), *load_distributed("default").values())
    return {one.positional.encode(): one.name.partition(".")[0] for one in found}


def kind_of(text: bytes) -> str:
    """The kind of transition to which a statement belongs."""
    name = _files().get(text, OTHERS)
    return KINDS.get(name, name)


class Answers:
    """Reads what a server sends only so far as to know when it has answered: ReadyForQuery, and its own number."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_ready = self.is_error = False
        self.backend: int | None = None

    def expect(self) -> None:
        """The next answer is looked at."""
        self.is_ready = self.is_error = False

    def read(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= 5:
            kind, (length,) = self._rest[:1], struct.unpack("!I", self._rest[1:5])
            if len(self._rest) < length + 1:
                break
            if kind == b"Z":
                self.is_ready = True
            elif kind == b"E":
                self.is_error = True
            elif kind == b"K":
                (self.backend,) = struct.unpack("!i", self._rest[5:9])
            self._rest = self._rest[length + 1 :]


class Link:
    """One connection through the proxy."""

    def __init__(self, writer: str, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.client = client
        self.server = server
        self.requests = Requests()
        self.answers = Answers()
        self.awaited: Wish | None = None
        """Its answer is withheld, and then the connection is cut."""
        self.was_welcomed = False
        """Whether the server has said that it is ready for the first question."""
        self.delay_s = 0.0
        self.open_again = asyncio.Event()
        self.open_again.set()

    def cut(self, *, reset: bool = False) -> None:
        for end in (self.client, self.server):
            if reset and (connection := end.get_extra_info("socket")) is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort() if reset else end.close()


class Proxy:
    """Runs in a thread with a loop of its own; `port` is where clients connect to."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._links: dict[int, Link] = {}
        self._wishes: list[Wish] = []
        self.commits: Counter[str] = Counter()
        """How many of each kind were asked for."""
        self._unwelcome = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # What others ask, from their threads.

    def links(self) -> list[Link]:
        return list(self._links.values())

    def cut(self, link: Link, *, reset: bool = False) -> None:
        self._loop.call_soon_threadsafe(lambda: link.cut(reset=reset))

    def delay(self, link: Link, seconds: float) -> None:
        """From now on each piece of data comes so much later, in both directions; zero ends it."""
        link.delay_s = seconds

    def black_hole(self, link: Link) -> None:
        """Nothing gets through any more, and nobody is told."""
        self._loop.call_soon_threadsafe(link.open_again.clear)

    def open_again(self, link: Link) -> None:
        self._loop.call_soon_threadsafe(link.open_again.set)

    def lose_answer(self, kinds: Iterable[str], *, skip: int, reset: bool, within_s: float) -> Lost | None:
        """Lose the answer to a commit of one of these kinds, after `skip` others of them; None if there was none in
        time, or it had failed."""
        wish = Wish(frozenset(kinds), skip, reset)
        self._loop.call_soon_threadsafe(self._wishes.append, wish)
        if not wish.granted.wait(within_s):
            self._loop.call_soon_threadsafe(lambda: self._wishes.remove(wish) if wish in self._wishes else None)
            wish.granted.wait(0.1)
        return wish.lost

    def say_goodbye(self, link: Link) -> None:
        """The words of a server that shuts down, without the end of the connection that follows."""
        self._loop.call_soon_threadsafe(link.client.write, FAREWELL)

    def turn_away(self, connections: int) -> None:
        """So many of the next connections are told goodbye in the very packet that welcomes them."""
        self._loop.call_soon_threadsafe(setattr, self, "_unwelcome", connections)

    @property
    def unwelcome(self) -> int:
        """How many are still to be turned away."""
        return self._unwelcome

    # The loop.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            startup = await self._startup(client, back)
            server, forth = await asyncio.open_connection(*self._target)
        except (OSError, asyncio.IncompleteReadError):
            back.close()
            return
        link = Link(_writer_in(startup), back, forth)
        self._links[id(link)] = link
        forth.write(startup)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(link, client, forth, self._forth))
                group.create_task(self._pass(link, server, back, self._back))
        except* (OSError, EOFError):
            pass
        finally:
            del self._links[id(link)]
            link.cut()

    async def _startup(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> bytes:
        while True:
            head = await client.readexactly(8)
            length, code = struct.unpack("!II", head)
            if code != SSL_REQUEST:
                return head + await client.readexactly(length - 8)
            back.write(b"N")

    async def _pass(
        self,
        link: Link,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        look: Callable[[Link, bytes], bool],
    ) -> None:
        while data := await source.read(65536):
            if link.delay_s:
                await asyncio.sleep(link.delay_s)
            await link.open_again.wait()
            if look(link, data):
                sink.write(data + self._parting(link) if sink is link.client else data)
                await sink.drain()
        raise EOFError

    def _parting(self, link: Link) -> bytes:
        if link.was_welcomed or not link.answers.is_ready:
            return b""
        link.was_welcomed = True
        if self._unwelcome == 0:
            return b""
        self._unwelcome -= 1
        return FAREWELL

    def _forth(self, link: Link, data: bytes) -> bool:
        kind = link.requests.read(data)
        if kind is not None:
            self.commits[kind] += 1
        if kind is not None and link.awaited is None:
            link.awaited = self._granted(kind)
            link.answers.expect()
        return True

    def _granted(self, kind: str) -> Wish | None:
        for wish in self._wishes:
            if kind in wish.kinds:
                if wish.skip == 0:
                    wish.kind = kind
                    self._wishes.remove(wish)
                    return wish
                wish.skip -= 1
                return None
        return None

    def _back(self, link: Link, data: bytes) -> bool:
        link.answers.read(data)
        if link.awaited is None:
            return True
        if link.answers.is_ready:
            wish, link.awaited = link.awaited, None
            if not link.answers.is_error:
                wish.lost = Lost(link.writer, wish.kind, time.time())
            wish.granted.set()
            link.cut(reset=wish.reset)
        return False


def _writer_in(startup: bytes) -> str:
    words = startup[8:].split(b"\0")
    return words[words.index(b"chaos.writer") + 1].decode() if b"chaos.writer" in words else "?"
