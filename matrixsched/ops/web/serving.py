"""`matrixsched serve`: the site in a process of its own."""

from __future__ import annotations

import gc
import signal
import socket
import sys

import anyio

from matrixsched.app import App
from matrixsched.config import Settings, variable_of
from matrixsched.errors import ConfigurationError, WebExtraMissing
from matrixsched.ops.exits import DONE
from matrixsched.ops.render import say

try:
    import uvicorn
    from starlette.types import ASGIApp

    from matrixsched.ops.web.connections import connections
    from matrixsched.ops.web.guard import is_local
    from matrixsched.ops.web.site import dashboard
except ImportError as error:
    raise WebExtraMissing(error.name or "unknown") from None

HEADER_BYTES_MAX = 16_384
CONNECTIONS_MAX = 200
HEAD_MAX_S = 10.0
KEEP_ALIVE_S = 5
STOP_S = 5


def run_server(app: App, settings: Settings) -> None:
    """Until SIGTERM or SIGINT; requests under way are finished first."""
    check_reach(settings)
    site = dashboard(
        app,
        viewer_token=settings.web_viewer_token,
        operator_token=settings.web_operator_token,
        public_url=settings.web_public_url,
    )
    anyio.run(check_database, app)
    config = server_config(site)
    for kind in (signal.SIGTERM, signal.SIGINT):
        # uvicorn ends by raising again what it was told by: to be told to end is no failure.
        signal.signal(kind, lambda *_: sys.exit(DONE))
    with listening(settings) as listener:
        host = f"[{settings.web_host}]" if ":" in settings.web_host else settings.web_host
        port = listener.getsockname()[1]
        keep_what_is_there()
        say(f"the dashboard of {app.store.description} is at http://{host}:{port}/; stop it with Ctrl-C.")
        uvicorn.Server(config).run(sockets=[listener])


def keep_what_is_there() -> None:
    """Modules stay for good, and long lists make much garbage: all there is would be looked through after some ten of
    them, which takes longer than a list."""
    gc.collect()
    gc.freeze()


def server_config(site: ASGIApp, *, head_max_s: float = HEAD_MAX_S) -> uvicorn.Config:
    """`head_max_s`: within that time a connection must say what it wants."""
    return uvicorn.Config(
        site,
        http=connections(head_max_s),
        ws="none",
        log_level="warning",
        access_log=False,  # an id in a path may be somebody's name
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        proxy_headers=False,  # anybody can send them: how browsers reach it says web_public_url
    )


def listening(settings: Settings) -> socket.socket:
    """Whoever connects from now on is answered, though perhaps in a moment."""
    family = socket.AF_INET6 if ":" in settings.web_host else socket.AF_INET
    try:
        return socket.create_server((settings.web_host, settings.web_port), family=family)
    except OSError as error:
        where = f"port {settings.web_port} of {settings.web_host}"
        raise ConfigurationError(
            [f"nothing can listen on {where} ({error.strerror}): choose another web_port"]
        ) from None


async def check_database(app: App) -> None:
    """Whoever starts it is told at once what every visitor would be told later."""
    async with app:
        pass


def check_reach(settings: Settings) -> None:
    """Beyond this machine nobody is answered without a token."""
    has_token = settings.web_viewer_token is not None or settings.web_operator_token is not None
    if has_token or is_local(settings.web_host):
        return
    raise ConfigurationError(
        [
            f"web_host is {settings.web_host}, which others can reach, and there is no token: set "
            f"{variable_of('web_operator_token')} (and {variable_of('web_viewer_token')} for those who may only look), "
            "or listen on 127.0.0.1"
        ]
    )
