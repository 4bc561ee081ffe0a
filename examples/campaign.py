"""A campaign of two templates under a provider's limit: evenly sent, fairly shared, paused, and slowed down by a 429.

python examples/campaign.py
"""

import os
from collections import Counter
from datetime import timedelta

import anyio
from pydantic import BaseModel

from matrixsched import App, SlowDown, call
from matrixsched.worker import Worker

app = App(os.environ.get("MATRIXSCHED_DATABASE", "sqlite:///campaign.db"))
sent: Counter[str] = Counter()
refused: list[str] = []
all_sent = anyio.Event()


class Mail(BaseModel):
    template: str
    number: int


@app.action("send")
async def send(mail: Mail) -> SlowDown | None:
    if mail.number == 20 and not refused:  # the provider: 429 Too Many Requests, Retry-After: 1
        refused.append(mail.template)
        return SlowDown(timedelta(seconds=1), limit="global", reason="429")
    sent[mail.template] += 1
    if sent.total() == 100:
        all_sent.set()
    return None


async def main() -> None:
    await app.init()
    async with app:
        await app.limits.set("global", "100/s", pool=10)
        await app.quota.set(interval=timedelta(seconds=1))  # a minute in real life
        await app.templates.set("news", distribution="morning", zone="Europe/Berlin")
        await app.templates.set("offers", max_speed="50/s", weight=2)
        await app.templates.set("later")
        await app.templates.pause("later")
        await app.schedule_many(
            call(send, Mail(template=template, number=number), id=f"{template}:{number}", template=template, zone=zone)
            for template, zone in (("news", "Asia/Tokyo"), ("offers", None), ("later", None))
            for number in range(50)
        )
        async with Worker(app):
            await all_sent.wait()
        print(f"sent: {sent['news']} news, {sent['offers']} offers, {sent['later']} later")
        print(f"told to slow down: {len(refused)} time")
        print(f"{await app.templates.stop('later')} of the paused one are cancelled")


if __name__ == "__main__":
    anyio.run(main)
