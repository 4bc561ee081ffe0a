"""An installation with something of everything in it, for whoever looks at it: the dashboard's tests and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from matrixsched import App, Retry, every
from matrixsched.clock import ManualClock
from matrixsched.ops import changes
from matrixsched.ops.operator import Operator
from matrixsched.ops.queues import storage_of
from matrixsched.rules.action import Outcome
from matrixsched.rules.audit import Via
from matrixsched.rules.minutes import LATE_BOUNDS_S, MINUTE, WorkerMinute, minute_of
from matrixsched.rules.queues import NewItem
from matrixsched.worker import Worker

HOUR = timedelta(hours=1)
ROUNDS = 10
"""So often a worker comes by, before all that is new is where it waits."""
WORKERS = ("worker-1:411", "worker-2:97", "worker-3:1204")

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "'-alert(5)-'",
    '" autofocus onfocus=alert(6) x="',
    "javascript:alert(7)",
    "{{ 7 * 7 }}{% raw %}",
    "${alert(9)}",
    "<iframe srcdoc='<script>alert(10)</script>'>",
    "<style>*{display:none}</style>",
    "<a href=javascript:alert(12)>go</a>",
    "&lt;b&gt;&amp;#x3c;",
    "<!--",
    "-->",
    "]]><x/>",
    "\u202etxt.exe",
    "a/b?c=d&e=f#g%00",
    "<form action=//evil.example><button>ok",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "`${7*7}`",
    "';drop table x;--",
    "\U0001f4a5 ümläut \u0301",
)
"""Texts that are code where somebody forgets to escape them."""


class TooManyRequests(Exception):
    """What an upstream says."""


def register(app: App) -> None:
    @app.action("remind", retry=Retry(max_attempts=3))
    async def remind() -> None: ...

    @app.action("send_sms", retry=Retry(max_attempts=1))
    async def send_sms(to: str) -> None:
        if to.startswith("+00"):
            raise TooManyRequests(f"429 Too Many Requests: the number {to} is not reachable, try again later")

    @app.action("report")
    async def report() -> None: ...


async def furnish(app: App, clock: ManualClock) -> None:
    """As a fleet of three workers might be found on a good day, with one thing or another to look at."""
    register(app)
    await _actions(app)
    await Worker(app).run_due()
    await _gates(app)
    await _later(app)
    for _ in range(ROUNDS):
        await Worker(app).run_due()
    await app.schedule("nobody_has_this", id="orphan:2")
    await _crowds(app)
    await minutes(app, clock)
    await hold_shard(app, 2, WORKERS[0])
    await _audit(app)


async def _gates(app: App) -> None:
    await app.limits.set("global", "10000/min", pool=100)
    await app.limits.set("handler:send_sms", "50/s", pool=10)
    await app.limits.set("key:*", "10/s")
    await app.limits.slow_down(
        "handler:send_sms", timedelta(minutes=5), rate="5/s", reason="HTTP 429 from the provider"
    )
    await app.templates.set("spring-sale", windows=["10:00-12:00", "18:00-20:00"], zone="Europe/Berlin", weight=2)
    await app.templates.set("newsletter", distribution="morning", zone="America/New_York", max_speed="100/min")
    await app.templates.set("receipts")
    await app.templates.set("win-back", distribution="evening", zone="Asia/Tokyo")
    await app.templates.pause("win-back")


async def _actions(app: App) -> None:
    for number in range(1, 8):
        await app.schedule("send_sms", f"+00 {number}", id=f"sms:order-{1000 + number}")
    for number in range(1, 30):
        await app.schedule("remind", id=f"remind:{number}")


async def _later(app: App) -> None:
    for number in range(30, 90):
        await app.schedule("remind", id=f"remind:{number}", delay=timedelta(minutes=number))
    await app.schedule("report", id="daily-report", repeat=every(timedelta(hours=24)), delay=HOUR)
    await app.schedule("nobody_has_this", id="orphan:1")
    zones = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Australia/Sydney")
    for number in range(40):
        await app.schedule(
            "remind",
            id=f"sale:{number}",
            template="spring-sale",
            zone=zones[number % 4],
            delay=HOUR * (1 + number % 12),
        )
    for number in range(12):
        await app.schedule("remind", id=f"back:{number}", template="win-back")


async def _crowds(app: App) -> None:
    pool = await app.semaphores.get_or_create("accounts", active=3, try_release=1)
    await pool.enqueue_many({f"account-{number}": number % 5 for number in range(12)})
    await pool.balance()
    storage = storage_of(app)
    await storage.change_settings(7, lambda before: type(before)(queue=7, name="emails"))
    await storage.put_many([NewItem(queue=7, data=b"letter %d" % number) for number in range(9)])
    taken = await storage.get(7, 4)
    await storage.set_aside([(task, "the mailbox is full") for task in taken[:3]])
    await storage.put_many([NewItem(queue=8, data=b"x", delay=HOUR)] * 5)


async def minutes(app: App, clock: ManualClock, workers: tuple[str, ...] = WORKERS) -> None:
    """An hour in which it rose, with a spell of trouble."""
    last = minute_of(clock.now())
    for back in range(59, -1, -1):
        for place, worker in enumerate(workers):
            busy = 900 + 14 * (59 - back) + 37 * ((back * 7 + place * 3) % 11)
            wrong = 260 if 24 <= back <= 28 else back % 4
            late = [0] * (len(LATE_BOUNDS_S) + 1)
            late[2], late[4], late[6 if back > 28 or back < 24 else 11] = busy * 6 // 10, busy * 3 // 10, busy // 10
            await app.store.run(
                app.store.transitions.report_worker(
                    WorkerMinute(
                        minute=last - MINUTE * back,
                        worker=worker,
                        outcomes={Outcome.SUCCEEDED: busy - wrong, Outcome.FAILED: wrong},
                        late=late,
                        due=4200 - 700 * abs(back - 26) if 21 <= back <= 31 else back % 5,
                        oldest_due_s=1.0,
                    ),
                    slots=100,
                    running=12 + place * 9,
                    handlers=sorted(app.handlers.names),
                    others_within=MINUTE,
                )
            )


async def hold_shard(app: App, shard: int, holder: str) -> UUID:
    """Hold the shard that is asked for, and no other."""
    do, run = app.store.transitions, app.store.run
    others: list[tuple[int, UUID]] = []
    guid = UUID(int=0)
    for _ in range(100):
        guid = app.chance.guid()
        acquired = await run(
            do.acquire_shard(
                sync_guid=guid, holder=holder, lease=timedelta(seconds=10), lanes=["handler:nobody_has_this"]
            )
        )
        if acquired.shard is None:
            break
        if acquired.shard == shard:
            break
        others.append((acquired.shard, guid))
    for other, its_guid in others:
        await run(do.release_shard(other, its_guid))
    return guid


async def _audit(app: App) -> None:
    ann, bob = Operator(app, "ann (10.0.0.7)", Via.DASHBOARD), Operator(app, "deploy (10.0.0.9)", Via.API)
    await changes.set_limit(bob, "handler:report", "5/s")
    await changes.set_limit(ann, "handler:report", "20/s", pool=5)
    await changes.pause_template(ann, "newsletter", HOUR)
    await changes.resume_template(ann, "newsletter")
    await changes.cancel(ann, "remind:88")


async def furnish_hostile(app: App, clock: ManualClock) -> Mapping[str, str]:
    """The same with texts that want to be code, wherever a text can be; what is where."""

    @app.action("<script>alert('handler')</script>", retry=Retry(max_attempts=1))
    async def fail(text: str) -> None:
        raise RuntimeError(text)

    await app.templates.set(HOSTILE[0])
    await app.templates.set(HOSTILE[3])
    for text in HOSTILE:
        await app.schedule("<script>alert('handler')</script>", text, id=text)
    await Worker(app).run_due()
    await app.schedule("<b>later</b>", HOSTILE, id="hostile-payload", template=HOSTILE[0], delay=HOUR)
    await app.limits.set("handler:" + HOSTILE[2], "1/s")
    await app.limits.slow_down("key:" + HOSTILE[3], HOUR, reason=HOSTILE[2])
    pool = await app.semaphores.get_or_create(HOSTILE[1], active=2, try_release=1)
    await pool.enqueue_many({text: float(place) for place, text in enumerate(HOSTILE)})
    await pool.balance()
    storage = storage_of(app)
    await storage.change_settings(9, lambda before: type(before)(queue=9, name=HOSTILE[2]))
    await storage.put_many([NewItem(queue=9, data=text.encode()) for text in HOSTILE])
    taken = await storage.get(9, len(HOSTILE))
    await storage.set_aside([(task, HOSTILE[place]) for place, task in enumerate(taken)])
    await minutes(app, clock, (HOSTILE[0], HOSTILE[2]))
    await app.schedule("<b>now</b>", id="for the shard")
    await hold_shard(app, 0, HOSTILE[3])
    operator = Operator(app, HOSTILE[2], Via.API)
    async with operator.noting(HOSTILE[0], HOSTILE[3], {HOSTILE[4]: HOSTILE[5]}) as note:
        note.after = {HOSTILE[4]: HOSTILE[0], "also": [HOSTILE[2]]}
    return {"action": HOSTILE[0]}
