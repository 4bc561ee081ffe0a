"""Where other libraries live: each in an environment of its own, made when it is asked for, and kept."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

HERE = Path(__file__).resolve().parent
CACHE = Path(sys.prefix) / "cache" / "peers"
PATIENCE_S = 300
SAID_MAX = 200


class PeerUnavailable(Exception):
    """It cannot be installed or run here; the message says why, in one line."""


@dataclass(frozen=True)
class Peer:
    """Another library, and the script that lets it work: it answers one line of JSON."""

    name: str
    packages: tuple[str, ...]
    script: str

    def make_ready(self) -> None:
        """Install it, if it is not there in these versions; an earlier attempt may have been interrupted."""
        if self.is_ready:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self._is_node:
            (self.folder / "package.json").write_text('{"private": true}\n')
            said(["npm", "install", "--no-audit", "--no-fund", *self.packages], self.folder)
        else:
            venv.create(self.folder, with_pip=True)
            pip = [self._program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            said([*pip, *self.packages], self.folder)
        self._stamp.write_text(self._wanted)

    @property
    def is_ready(self) -> bool:
        return self._stamp.exists() and self._stamp.read_text() == self._wanted

    def ask(self, what: str, target: str, *words: str) -> dict[str, Any]:
        """Let it do something to a database or file of its own."""
        self.make_ready()
        folder = HERE
        if self._is_node:  # Node looks for packages where the script is
            folder = self.folder
            for file in HERE.glob("*.mjs"):
                shutil.copy(file, folder)
        lines = said([self._program, str(folder / self.script), what, target, *words], folder).splitlines()
        try:
            answered: dict[str, Any] = json.loads(lines[-1])
        except (IndexError, ValueError):
            raise PeerUnavailable(f"{self.name} gave no answer to {what}") from None
        return answered

    @property
    def _is_node(self) -> bool:
        return self.script.endswith(".mjs")

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    @property
    def _stamp(self) -> Path:
        return self.folder / "installed"

    @property
    def _program(self) -> str:
        return str(self.folder / ("node_modules/.bin/node" if self._is_node else "bin/python"))

    @property
    def _wanted(self) -> str:
        return " ".join(self.packages)


def said(command: Sequence[str], folder: Path) -> str:
    program = Path(command[0]).name
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except FileNotFoundError:
        raise PeerUnavailable(f"{program} is not installed") from None
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{program} did not end within {PATIENCE_S} s") from None
    if done.returncode:
        raise PeerUnavailable(f"{program} failed: {_complaint(done.stderr)}")
    return done.stdout


def _complaint(text: str) -> str:
    """The line of a long complaint that tells most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines or ["it did not say why"])[-1][:SAID_MAX]


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
