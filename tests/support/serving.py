"""The dashboard, served by a real server in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

STOP_S = 10.0


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()


@contextmanager
def served(site: ASGIApp, config: uvicorn.Config | None = None) -> Iterator[str]:
    """Its address, until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    plain = uvicorn.Config(site, log_level="error", access_log=False, ws="none", timeout_graceful_shutdown=2)
    server = _Server(config or plain)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    assert server.listens.wait(STOP_S)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(STOP_S)
        listener.close()
