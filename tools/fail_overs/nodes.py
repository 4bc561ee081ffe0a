"""A node of a cluster: Patroni, the PostgreSQL server that it keeps, and a member of etcd beside them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.postgres import Binaries, Identity, die_with_parent, free_port

ETCD_TOKEN = "matrixsched-ha"
ENDS_WITHIN_S = 10.0


@dataclass
class Node:
    name: str
    folder: Path
    """Its own, and its user's."""
    identity: Identity
    programs: Path
    """Where patroni and etcd are."""
    binaries: Binaries
    port: int = field(default_factory=free_port)
    api_port: int = field(default_factory=free_port)
    etcd_port: int = field(default_factory=free_port)
    etcd_peer_port: int = field(default_factory=free_port)
    patroni: subprocess.Popen[bytes] | None = None
    etcd: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def peer(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self.etcd_peer_port}"

    @property
    def is_running(self) -> bool:
        return self.patroni is not None and self.patroni.poll() is None

    def start_etcd(self, members: str) -> None:
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.etcd_peer_port}"
        options = {
            "name": self.name,
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": members,
            "initial-cluster-token": ETCD_TOKEN,
            "log-level": "warn",
        }
        self.etcd = self._spawn("etcd", [f"--{name}={value}" for name, value in options.items()], signal.SIGKILL)

    def start_patroni(self, scope: str, etcd: list[str], settings: dict[str, Any]) -> None:
        path = self.folder / "patroni.yml"
        path.write_text(json.dumps(self._configuration(scope, etcd, settings)))  # YAML can be written so, too
        path.chmod(0o644)
        # Asked to end, Patroni ends its server as well; who is killed leaves it behind.
        self.patroni = self._spawn("patroni", [str(path)], signal.SIGTERM)

    def kill(self) -> None:
        """All of it with -9, as if its machine had lost its power; but for etcd, which has machines of its own."""
        if self.patroni is not None:
            self.patroni.kill()
        self._kill_server()
        if self.patroni is not None:
            self.patroni.wait()

    def end(self) -> None:
        self.kill()
        if self.etcd is not None:
            self.etcd.kill()
            self.etcd.wait()

    def _kill_server(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            postmaster = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
            if is_server(postmaster, self.folder):
                os.kill(postmaster, signal.SIGKILL)

    def _spawn(self, program: str, arguments: list[str], dies_by: signal.Signals) -> subprocess.Popen[bytes]:
        with (self.folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [str(self.programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C is for us: they are ended in order
                preexec_fn=die_with_parent(dies_by),
                **self.identity.switch,
            )

    def _configuration(self, scope: str, etcd: list[str], settings: dict[str, Any]) -> dict[str, Any]:
        api = f"127.0.0.1:{self.api_port}"
        everybody = [
            "local all all trust",
            "host all all 127.0.0.1/32 trust",
            "host replication all 127.0.0.1/32 trust",
        ]
        return {
            "scope": scope,
            "name": self.name,
            "restapi": {"listen": api, "connect_address": api},
            "etcd3": {"hosts": etcd},
            "bootstrap": {
                "dcs": settings,
                "initdb": [{"auth": "trust"}, {"encoding": "UTF8"}, {"locale": "C"}],
            },
            "postgresql": {
                "listen": self.address,
                "connect_address": self.address,
                "data_dir": str(self.folder / "data"),
                "bin_dir": str(self.binaries.folder),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": {name: {"username": "postgres"} for name in ("superuser", "replication", "rewind")},
                "pg_hba": everybody,
                "parameters": {"unix_socket_directories": str(self.folder)},
            },
            "watchdog": {"mode": "off"},
        }


def is_server(pid: int, folder: Path) -> bool:
    """Whether that process is still the one that wrote its number there: numbers are given again."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
