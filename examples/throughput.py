"""Twenty calls of an API that allows five in a second, and two urgent ones from threads that go before them.

python examples/throughput.py
"""

import time

import anyio
import anyio.to_thread

from matrixsched import Throughput

allowed = Throughput(requests=5, seconds=1, priorities=2)
began = time.monotonic()


def say(what: str) -> None:
    print(f"{time.monotonic() - began:.1f} s: {what}")


async def fetch(page: int) -> None:
    await allowed.wait(priority=1)
    say(f"page {page}")


def cancel_order() -> None:
    allowed.wait_sync(priority=0)  # in a thread


async def main() -> None:
    async with anyio.create_task_group() as calls:
        for page in range(1, 21):
            calls.start_soon(fetch, page)
        for _ in range(2):
            calls.start_soon(anyio.to_thread.run_sync, cancel_order)
    say(f"{allowed.statistics().granted} calls")


if __name__ == "__main__":
    anyio.run(main)
