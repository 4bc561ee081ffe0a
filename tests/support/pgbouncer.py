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

from support.postgres import PostgresServer, die_with_parent, free_port, server_folder, server_identity
from support.processes import until

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
default_pool_size = 10
ignore_startup_parameters = extra_float_digits
"""
DOWNLOAD_MAX_S = 60


class PgbouncerUnavailable(Exception):
    """It could not be had; the message says why."""


@contextmanager
def start_pgbouncer(server: PostgresServer, mode: str) -> Iterator[int]:
    """Its port, for the length of the block."""
    identity = server_identity()
    with server_folder(identity) as folder:
        program, libraries = _program(folder)
        place, port = urlsplit(server.admin_dsn), free_port()
        user, _, _ = (place.username or "postgres").partition(":")
        text = SETTINGS.format(host=place.hostname, port=place.port or 5432, own_port=port, mode=mode)
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
                raise PgbouncerUnavailable(f"pgbouncer does not start: {(folder / 'log').read_text()[-500:]}")
            yield port
        finally:
            process.terminate()
            process.wait(10)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _program(folder: Path) -> tuple[str, str]:
    """The program, and where it finds libraries that are not installed."""
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if installed is not None:
        return installed, ""
    unpacked = folder / "debian"
    unpacked.mkdir()
    try:
        for package in PACKAGES:
            _quietly(["apt-get", "download", package], unpacked)
        for file in unpacked.glob("*.deb"):
            _quietly(["dpkg", "-x", str(file), str(unpacked)], unpacked)
    except (OSError, subprocess.SubprocessError) as error:
        raise PgbouncerUnavailable(
            f"no pgbouncer, and Debian's cannot be had ({error}): apt install pgbouncer"
        ) from None
    for one in (unpacked, *unpacked.rglob("*")):
        if not one.is_symlink():
            one.chmod(one.stat().st_mode | (0o555 if one.is_dir() else 0o444))
    libraries = {str(one.parent) for one in unpacked.rglob("*.so.*")}
    return str(unpacked / "usr/sbin/pgbouncer"), ":".join(sorted(libraries))


def _quietly(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=DOWNLOAD_MAX_S)
