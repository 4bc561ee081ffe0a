"""A real pgbouncer before a server: the one that is installed, or Debian's, unpacked beside it and not installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from support.debian import ToolUnavailable, packages
from support.postgres import PostgresServer, die_with_parent, free_port, server_folder, server_identity
from support.processes import until
from support.refusing import REQUIRE_TOOLS, refuse

PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
SETTINGS = """\
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
auth_file =
pool_mode = {mode}
default_pool_size = {sessions}
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
"""
UNPACK_MAX_S = 60
SESSIONS = 20
"""Of the server, for each database: so many transactions at a time."""


@contextmanager
def start_pgbouncer(server: PostgresServer, mode: str) -> Iterator[int]:
    """Its port, for the length of the block. Whoever begins a transaction is given the session that has rested longest,
    and therefore hardly ever the one from before."""
    identity = server_identity()
    with server_folder(identity) as folder:
        require_pgbouncer()
        program, libraries = _program(folder)
        place, port = urlsplit(server.admin_dsn), free_port()
        user, _, _ = (place.username or "postgres").partition(":")
        text = SETTINGS.format(
            host=place.hostname, port=place.port or 5432, own_port=port, mode=mode, sessions=SESSIONS
        )
        settings = folder / "pgbouncer.ini"
        settings.write_text(text.replace("* =", f"* = user={user}"))
        settings.chmod(0o644)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, "-q", str(settings)],
                cwd=folder,
                env=os.environ | {"LD_LIBRARY_PATH": libraries},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
                **identity.switch,
            )
        try:
            until(lambda: _answers(port) or process.poll() is not None, "pgbouncer to listen")
            if process.poll() is not None:
                raise RuntimeError(f"pgbouncer does not start: {(folder / 'log').read_text()[-500:]}")
            yield port
        finally:
            process.terminate()
            process.wait(10)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def require_pgbouncer() -> None:
    """Leave the test out where there is none and it cannot be fetched, or fail where that is required."""
    try:
        if _installed() is None:
            packages(*PACKAGES)
    except ToolUnavailable as error:
        reason = str(error)
    else:
        return
    refuse(reason, unless=REQUIRE_TOOLS)


def _installed() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def _program(folder: Path) -> tuple[str, str]:
    """The program, and where it finds libraries that are not installed."""
    installed = _installed()
    if installed is not None:
        return installed, ""
    unpacked = folder / "debian"
    unpacked.mkdir()
    for archive in packages(*PACKAGES):
        command = ["dpkg-deb", "--extract", str(archive), str(unpacked)]
        subprocess.run(command, check=True, capture_output=True, timeout=UNPACK_MAX_S)
    for one in (unpacked, *unpacked.rglob("*")):
        if not one.is_symlink():
            one.chmod(one.stat().st_mode | (0o555 if one.is_dir() else 0o444))
    libraries = {str(one.parent) for one in unpacked.rglob("*.so.*")}
    return str(unpacked / "usr/sbin/pgbouncer"), ":".join(sorted(libraries))
