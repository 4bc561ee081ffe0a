"""A script that schedules, runs a worker beside itself until all is done, and ends.

python examples/plain_script.py
"""

import os
from datetime import timedelta

import anyio
from pydantic import BaseModel

from matrixsched import App, Context
from matrixsched.worker import Worker

app = App(os.environ.get("MATRIXSCHED_DATABASE", "sqlite:///plain_script.db"))
all_said = anyio.Event()


class Reminder(BaseModel):
    user: str
    text: str


@app.action("remind")
async def remind(reminder: Reminder, context: Context) -> None:
    print(f"{reminder.user}: {reminder.text} (attempt {context.attempt})")
    if reminder.text == "cake":
        all_said.set()


async def main() -> None:
    await app.init()
    async with Worker(app):  # opens the app; at the end of the block, what is under way may finish
        await app.schedule(remind, Reminder(user="Ada", text="tea"), id="ada")
        await app.schedule(remind, Reminder(user="Alan", text="cake"), id="alan", delay=timedelta(seconds=1))
        await app.schedule(remind, Reminder(user="Grace", text="never"), id="grace", delay=timedelta(hours=1))
        await app.cancel("grace")
        await all_said.wait()
    async with app:
        for id in ("ada", "alan", "grace"):
            print(f"{id} is {(await app.get(id)).status.state}")


if __name__ == "__main__":
    anyio.run(main)
