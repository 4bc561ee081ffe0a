"""Mail in batches: a contract (queues.yaml), the module generated from it (messages.py), a handler of batches.

python examples/mailing/mailing.py
"""

import os
from collections.abc import Sequence
from datetime import timedelta

import anyio
from messages import CONTRACT, EmailsTask

from matrixsched import App, Done, RetryAt
from matrixsched.queues import DeadLetter, ItemResult, put_into
from matrixsched.worker import Worker, WorkerPolicy

app = App(os.environ.get("MATRIXSCHED_DATABASE", "sqlite:///mailing.db"))
app.queues.use(CONTRACT)
sent: list[EmailsTask] = []
largest = 0
all_sent = anyio.Event()


@app.queues.handler(EmailsTask, batch_size=100)
async def send(tasks: Sequence[EmailsTask]) -> list[ItemResult]:
    """One answer for each task; what is left without one would come back after its visibility timeout."""
    global largest
    largest = max(largest, len(tasks))
    answers: list[ItemResult] = []
    for task in tasks:
        if "@" not in task.to:
            answers.append(DeadLetter("it has no address"))  # for a person to look at
        elif task.to.startswith("busy") and task.attempts == 0:
            answers.append(RetryAt(timedelta(seconds=1)))
        else:
            sent.append(task)
            answers.append(Done())
    if len(sent) == 252:
        all_sent.set()
    return answers


async def main() -> None:
    await app.init()
    async with app:
        customers = [EmailsTask(to=f"{n}@example.org", subject="Hello") for n in range(250)]
        await app.queues.put_many(customers)
        await app.queues.put_many(
            [EmailsTask(to="nowhere", subject="?"), EmailsTask(to="busy@example.org", subject="Hi")]
        )
        # An action that becomes a task when it is due: "send these at nine, in batches of a hundred" is two lines.
        later = EmailsTask(to="later@example.org", subject="Good morning")
        await app.schedule(put_into("emails"), later, delay=timedelta(seconds=1))
        async with Worker(app, WorkerPolicy(processors=2)):
            await all_sent.wait()
        (letter,) = await app.queues.dead_letters("emails")
        print(f"{len(sent)} mails sent, at most {largest} at once; set aside: {letter.reason}")
        print(f"at the second attempt: {[task.to for task in sent if task.attempts == 1]}")
        await app.queues.purge_dead("emails")


if __name__ == "__main__":
    anyio.run(main)
