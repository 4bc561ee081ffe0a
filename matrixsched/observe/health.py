"""A small HTTP server for probes and Prometheus: /metrics, /healthz, /readyz.

It has threads of its own, so that it answers also while a handler blocks the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST

from matrixsched.errors import ConfigurationError

REQUEST_MAX_S = 10.0


class Readiness(NamedTuple):
    ready: bool
    why: str


@contextmanager
def serve_health(
    port: int, *, exposition: Callable[[], bytes], readiness: Callable[[], Readiness], host: str = ""
) -> Iterator[int]:
    """Serve for the length of the block; the port that was bound (port 0 takes any free one)."""
    try:
        server = _Server((host, port), _handler(exposition, readiness))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "not a port"
        raise ConfigurationError([f"metrics port {port} cannot be opened: {reason}"]) from None
    thread = threading.Thread(target=server.serve_forever, name="matrixsched health", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A probe that hangs must not hold up the end of the process.
    block_on_close = False


def _handler(
    exposition: Callable[[], bytes], readiness: Callable[[], Readiness]
) -> Callable[..., BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        timeout = REQUEST_MAX_S
        server_version = "matrixsched"
        sys_version = ""

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._tell_metrics()
                case "/healthz":
                    self._say(HTTPStatus.OK, "alive")
                case "/readyz":
                    ready, why = readiness()
                    self._say(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, why)
                case _:
                    self._say(HTTPStatus.NOT_FOUND, "try /metrics, /healthz or /readyz")

        def _tell_metrics(self) -> None:
            try:
                body = exposition()
            except Exception as error:
                self._say(HTTPStatus.INTERNAL_SERVER_ERROR, f"the metrics could not be read ({type(error).__name__})")
            else:
                self._answer(HTTPStatus.OK, body, CONTENT_TYPE_LATEST)

        def _say(self, status: HTTPStatus, text: str) -> None:
            self._answer(status, f"{text}\n".encode(), "text/plain; charset=utf-8")

        def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Probes come every few seconds: they are not worth a line."""

    return Answers
