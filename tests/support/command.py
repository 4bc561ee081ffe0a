"""The `matrixsched` command, typed as an operator types it, in this process."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import pytest

from matrixsched import App
from matrixsched.clock import Clock
from matrixsched.ops.cli import main

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@contextmanager
def signals_left_alone() -> Iterator[None]:
    """A worker hears signals until its process ends; this one goes on with other tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Matrixsched:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Answer:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end, signals_left_alone():
            main(list(arguments))
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Answer(int(end.value.code or 0), out, err)


def on(url: str, work: Callable[[App], Awaitable[T]], *, clock: Clock | None = None) -> T:
    """Do something through the library on an installation of four shards, which is made if it is not there."""

    async def done() -> T:
        app = App(url, clock=clock)
        await app.init(shards=4)
        async with app:
            return await work(app)

    return anyio.run(done)
