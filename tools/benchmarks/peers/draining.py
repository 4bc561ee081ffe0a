"""Workloads of other libraries; nothing of them is installed with ours, and nothing of ours knows them."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from benchmarks.measuring import Measured, Run, rate

HERE = Path(__file__).resolve().parent
CACHE = Path(sys.prefix) / "cache" / "peers"
GRAPHILE = ("graphile-worker@0.17.3", "pg@8")
PGQUEUER = ("pgqueuer==1.6.0", "asyncpg", "uvloop")
PATIENCE_S = 300


class PeerUnavailable(Exception):
    """It cannot be installed or run here; the message says why."""


def graphile(run: Run) -> Measured:
    """jobs per second that graphile-worker (Node) drains: no-ops, a local queue of 500, batched completions"""
    folder = node_folder("graphile", GRAPHILE)
    shutil.copy(HERE / "graphile.mjs", folder)
    schema = f"peer_{secrets.token_hex(4)}"
    return _drained(run, ["node", "graphile.mjs", run.place.url, schema, str(run.scale.tasks)], folder)


def pgqueuer(run: Run) -> Measured:
    """jobs per second that PgQueuer drains: async no-ops in batches of 500, uvloop"""
    python = python_of("pgqueuer", PGQUEUER)
    with database_beside(run.place.url) as url:
        return _drained(run, [str(python), str(HERE / "pgqueuer_drain.py"), url, str(run.scale.tasks)], HERE)


def _drained(run: Run, command: Sequence[str], folder: Path) -> Measured:
    answer = json.loads(said(command, folder))
    violations = [f"{answer['left']} jobs are left"] if answer["left"] else []
    return Measured([rate("rate", run.scale.tasks, answer["seconds"])], violations)


def node_folder(name: str, packages: Sequence[str]) -> Path:
    folder = CACHE / name
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        said(["npm", "install", "--no-audit", "--no-fund", *packages], folder)
        (folder / "installed").touch()
    return folder


def python_of(name: str, packages: Sequence[str]) -> Path:
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        said([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], folder)
        (folder / "installed").touch()
    return python


def said(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except FileNotFoundError:
        raise PeerUnavailable(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{command[0]} did not end within {PATIENCE_S} s") from None
    if done.returncode:
        raise PeerUnavailable(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


@contextlib.contextmanager
def database_beside(url: str) -> Iterator[str]:
    """A database of its own on the same server."""
    name = f"peer_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
