"""Where the servers of a database are, of which one at a time takes writes.

asyncpg knows URLs of several hosts and `target_session_attrs`, but gives all of them one time limit together: the first
that is silent, as a machine without power is, uses it up. So they are tried here, each within its share of the time,
and whatever a host answers, the others are tried as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from matrixsched.store.postgresql.connection import CONFUSED, connect

TARGETS = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")
"""What asyncpg knows as target_session_attrs, …"""
WRITABLE = ("read-write", "primary")
"""… and those of them with which a server that takes no writes is passed over."""


class Address(NamedTuple):
    host: str
    port: int | None
    """None: the usual one, or that of PGPORT."""


class Hosts:
    def __init__(self, url: str) -> None:
        self._url = url
        self._addresses = addresses_of(url)

    async def connect(self, *_: object, timeout: float, **how: Any) -> asyncpg.Connection:
        """A connection to the first that will do, beginning with the one that did last time."""
        if len(self._addresses) < 2:
            return await connect(self._url, timeout=timeout, **how)
        refusals: list[Exception] = []
        for address in tuple(self._addresses):
            share_s = timeout / len(self._addresses)
            try:
                connection = await connect(self._url, **address._asdict(), timeout=share_s, **how)
            except (OSError, asyncpg.PostgresError, *CONFUSED) as error:
                refusals.append(error)
            else:
                self._addresses.sort(key=lambda other: other != address)
                return connection
        # That none takes writes is only known if all have said so.
        raise next(
            (one for one in refusals if not isinstance(one, asyncpg.TargetServerAttributeNotMatched)), refusals[0]
        )

    def turn_away(self) -> None:
        """Let the one that did last time be the last to be tried."""
        self._addresses.append(self._addresses.pop(0))


def addresses_of(url: str) -> list[Address]:
    """As asyncpg reads them: those before the path, else those of the option `host`. At least one, if only ''."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    ports = options.get("port", [""])[-1].split(",")
    before_path = parts.netloc.rpartition("@")[2]
    specs = (before_path or options.get("host", [""])[-1]).split(",")
    found = [_address(spec, ports[number] if len(ports) > 1 else ports[0]) for number, spec in enumerate(specs)]
    return [Address(unquote(one.host), one.port) for one in found] if before_path else found


def _address(spec: str, usual_port: str) -> Address:
    if spec.startswith("/"):  # the folder of a socket
        host, port = spec, ""
    elif spec.startswith("["):
        host, _, port = spec[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = spec.partition(":")
    return Address(host, int(port or usual_port) if port or usual_port else None)
