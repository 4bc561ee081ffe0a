"""A labelling pool: the first tasks of many are handed out, it is kept filled, and some step back for urgent ones.

python examples/labelling.py
"""

import os

import anyio

from matrixsched import Acquired, App, TryRelease
from matrixsched.worker import Worker

app = App(os.environ.get("MATRIXSCHED_DATABASE", "sqlite:///labelling.db"))
desks: set[str] = set()
begun = {"task-12"}  # somebody is in the middle of it: it is not taken back
changed = anyio.Event()


@app.on_acquired("labelling")
async def hand_out(event: Acquired) -> None:
    desks.add(event.task_id)  # told at least once: the second time changes nothing
    changed.set()


@app.on_try_release("labelling")
async def step_back(event: TryRelease) -> None:
    if event.task_id in begun:
        return  # it keeps its place until it is done
    desks.discard(event.task_id)  # first: after a crash it is told again, for as long as it holds its place
    pool = await app.semaphores.get("labelling")
    await pool.step_back(event.task_id, hold=event.hold)  # and wait again
    changed.set()


async def until_on_desks(expected: set[str]) -> None:
    global changed
    while desks != expected:
        await changed.wait()
        changed = anyio.Event()


def tasks(first: int, last: int) -> set[str]:
    return {f"task-{number:02}" for number in range(first, last + 1)}


async def main() -> None:
    await app.init()
    async with app:
        pool = await app.semaphores.get_or_create("labelling", active=10, try_release=5)  # 1,000 and 900 in real life
        left_over = [*await pool.holders(), *await pool.waiting(1000)]  # if an earlier run was stopped half-way
        await pool.release_many(task.id for task in left_over)
        await pool.enqueue_many((task, 1) for task in sorted(tasks(0, 99)))
        async with Worker(app):
            await until_on_desks(tasks(0, 9))
            print(f"handed out: {len(desks)} tasks, {(await pool.statistics()).waiting} wait")

            desks.difference_update(tasks(0, 2))
            await pool.release_many(tasks(0, 2))
            await until_on_desks(tasks(3, 12))
            print("three are labelled, three more handed out")

            await pool.enqueue_many({"urgent-1": 9, "urgent-2": 8})
            await until_on_desks(tasks(3, 10) | {"task-12", "urgent-1"})
            print("task-11 stepped back for urgent-1; task-12 was asked, too, but somebody is in the middle of it")

            desks.remove("task-12")
            await pool.release("task-12")
            await until_on_desks(tasks(3, 10) | {"urgent-1", "urgent-2"})
            print("task-12 is labelled, urgent-2 has its place")

            desks.remove("urgent-1")
            await pool.release("urgent-1")
            await until_on_desks(tasks(3, 11) | {"urgent-2"})
            print("urgent-1 is labelled, and task-11 is back")

        counts = await pool.statistics()
        print(f"{counts.held} of {counts.active} places are held, {counts.waiting} tasks wait")


if __name__ == "__main__":
    anyio.run(main)
