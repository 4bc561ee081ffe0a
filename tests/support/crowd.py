"""Many processes at once, forked from one so that the modules are loaded only once.

python -m support.crowd PROCESSES live URL SECONDS     each schedules and runs; prints what it got as JSON
python -m support.crowd PROCESSES command ARGUMENT…    each is the matrixsched command with these arguments
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable

import anyio

from matrixsched import App
from matrixsched.events import StepFailed
from matrixsched.ops.cli import main as matrixsched_main
from matrixsched.worker import Worker, WorkerPolicy


async def live(url: str, number: int, seconds: float) -> None:
    app = App(url)
    counts = {"scheduled": 0, "ran": 0, "failed_steps": 0}

    def count(what: str) -> None:
        counts[what] += 1

    @app.action("count")
    async def ran() -> None:
        count("ran")

    app.events.subscribe(StepFailed, lambda _: count("failed_steps"))
    async with app, anyio.create_task_group() as group:
        worker = Worker(app, WorkerPolicy(concurrency=10))
        group.start_soon(worker.run)
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            await app.schedule("count", id=f"{number}:{counts['scheduled']}")
            count("scheduled")
        worker.stop()
    sys.stdout.write(json.dumps(counts) + "\n")


def fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(processes: int, what: str, *arguments: str) -> int:
    def work(number: int) -> Callable[[], object]:
        if what == "command":
            return lambda: matrixsched_main(list(arguments))
        url, seconds = arguments
        return lambda: anyio.run(live, url, number, float(seconds))

    children = [fork(work(number)) for number in range(processes)]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
