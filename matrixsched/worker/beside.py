"""A worker inside another program: a web server under development, a script, a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from matrixsched.errors import MatrixSchedError

if TYPE_CHECKING:
    from matrixsched.app import App
    from matrixsched.worker.daemon import Worker


@asynccontextmanager
async def running_beside(worker: Worker, app: App) -> AsyncIterator[Worker]:
    """Run the worker while the block runs, then let it finish what it has begun.

    Signals stay the program's own. A worker that gives up cancels the block and says why in its stead. Whatever the
    block raises, also to exit, comes out as itself, not wrapped in a group: that there is one is nobody's business.
    """
    given_up: MatrixSchedError | None = None
    failure: BaseException | None = None
    async with app, anyio.create_task_group() as group:

        async def run() -> None:
            nonlocal given_up
            try:
                await worker.run()
            except MatrixSchedError as error:
                given_up = error
                group.cancel_scope.cancel()

        group.start_soon(run, name="matrixsched worker")
        await worker.running.wait()
        try:
            yield worker
        except (anyio.get_cancelled_exc_class(), GeneratorExit):
            raise
        except BaseException as error:
            failure = error
        worker.stop()
    if given_up is not None:
        raise given_up
    if failure is not None:
        raise failure
