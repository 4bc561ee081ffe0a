"""`matrixsched queues` on a fresh installation, with a contract at hand."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from matrixsched import App
from matrixsched.ops.queues import storage_of
from matrixsched.queues.database import DatabaseStorage
from matrixsched.rules.queues import NewItem
from support.command import Answer, Matrixsched, on

T = TypeVar("T")

CONTRACT = """
queues:
  - id: 7
    name: emails
    fields:
      - {name: to, type: string}
      - {name: body, type: "[]byte"}
      - {name: urgent, type: bool, default: false}
      - {name: copies, type: "[]int64", default: []}
  - id: 8
    name: sms
    fields: [{name: number, type: int64}]
"""


class Queues:
    """The command on a fresh installation, with a contract at hand."""

    def __init__(self, matrixsched: Matrixsched, url: str, contract: Path) -> None:
        self._matrixsched = matrixsched
        self.url, self.contract = url, contract
        on(url, _nothing)

    def __call__(self, verb: str, *others: str) -> Answer:
        return self._matrixsched("queues", verb, "--database", self.url, "--contract", str(self.contract), *others)

    def bare(self, verb: str, *others: str) -> Answer:
        """Without the contract."""
        return self._matrixsched("queues", verb, "--database", self.url, *others)

    def typed(self, arguments: list[str]) -> Answer:
        """What was suggested, as it was."""
        assert arguments[0] == "matrixsched"
        return self._matrixsched(*arguments[1:])

    def do(self, work: Callable[[DatabaseStorage], Awaitable[T]]) -> T:
        return on(self.url, lambda app: work(storage_of(app)))

    def fill(self, *, ready: int = 0, delayed: int = 0, dead: int = 0, queue: int = 7) -> None:
        async def work(storage: DatabaseStorage) -> None:
            await storage.put_many([NewItem(queue=queue, data=b"x")] * dead)
            if dead:
                await storage.set_aside([(task, "it is broken") for task in await storage.get(queue, dead)])
            items = [NewItem(queue=queue, data=b"x")] * ready
            await storage.put_many(items + [NewItem(queue=queue, data=b"x", delay=timedelta(hours=1))] * delayed)

        self.do(work)

    def counts(self, queue: str = "emails") -> list[int]:
        """Ready, delayed and dead."""
        told = self("show", "--json", queue).json["queue"]
        return [told[name] for name in ("ready", "delayed", "dead")]

    def shown(self, *options: str) -> dict[str, Any]:
        told: dict[str, Any] = self("show", "--json", *options, "emails").json
        return told


async def _nothing(app: App) -> None: ...


def suggestion(said: str) -> list[str]:
    return shlex.split(said.split("`")[-2])
