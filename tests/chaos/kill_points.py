"""A worker is killed at each step of an attempt, a balance, a task of a queue: what it leaves, and what comes of it.

Each case is played alone, in a database of its own: something is arranged, a worker with a failpoint runs into it and
dies; then it is looked at what the database says; then another worker comes, and it is looked at again. K1 to K20 are
the kill points of the catalogue of faults.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from support.processes import environment, until

from chaos.fleet import Fleet
from chaos.notes import read_notes
from chaos.place import Place
from chaos.setting import CONTRACT, LEASE_S, RATED, SEMAPHORE, Parcel
from matrixsched import App, Retry, call, every

SHARDS = 1
ONCE = Retry(max_attempts=1)
SECOND = timedelta(seconds=1)
START_S = 20.0
"""So long a process may take to load its modules on a machine that has other things to do."""


@dataclass
class Left:
    """What there is, in the database and in the notes of handlers."""

    incoming: int = 0
    waiting: int = 0
    """Rows in the processing queue that nobody has claimed."""
    claimed: int = 0
    interruptions: int = 0
    """Of rows that are there."""
    locked: int = 0
    states: str = ""
    """Of actions, each with its successes, failures and interruptions."""
    ticks: str = ""
    """The tick that each of them is at."""
    runs: int = 0
    effects: int = 0
    keys: int = 0
    """How many different idempotency keys these effects had."""
    tasks: str = ""
    """Of the queue: ready or taken."""
    places: str = ""
    """Of the semaphore's tasks: their states."""


def look(place: Place, notes: Path) -> Left:
    incoming, rows, locks, actions, tasks, places = place.ask_together(
        [
            "select count(*) from matrixsched.incoming_queue",
            "select claimed_by, interrupted from matrixsched.processing_queue",
            "select count(*) from matrixsched.shard_locks where locked",
            "select state, succeeded, failed, interrupted, tick from matrixsched.scheduled_actions "
            "where handler not like '%:%' order by action_id",
            "select receipt from matrixsched.queue_tasks",
            "select state from matrixsched.semaphore_tasks order by task_id",
        ]
    )
    noted = list(read_notes(notes))
    effects = [note for note in noted if note["kind"] == "effect"]
    return Left(
        incoming=int(incoming[0][0]),
        waiting=sum(claimed_by is None for claimed_by, _ in rows),
        claimed=sum(claimed_by is not None for claimed_by, _ in rows),
        interruptions=sum(count for _, count in rows),
        locked=int(locks[0][0]),
        states=" ".join(f"{state}/{done}/{bad}/{cut}" for state, done, bad, cut, _ in actions),
        ticks=" ".join(str(tick) for _, _, _, _, tick in actions),
        runs=sum(note["kind"] == "begun" and ":" not in note["handler"] for note in noted),
        effects=len(effects),
        keys=len({note["key"] for note in effects}),
        tasks=" ".join("ready" if receipt is None else "taken" for (receipt,) in tasks),
        places=" ".join(state for (state,) in places),
    )


@dataclass(frozen=True)
class KillPoint:
    name: str
    what: str
    failpoint: str | None
    arrange: Callable[[Scene], None]
    at_death: dict[str, object]
    at_the_end: dict[str, object]
    options: tuple[str, ...] = ()
    meanwhile: Callable[[Scene], None] | None = None
    """Done while the worker that will die is at work."""
    after_a_death: bool = False
    """Another worker died in the handler before."""


@dataclass
class Scene:
    place: Place
    folder: Path
    app: App = field(init=False)

    def __post_init__(self) -> None:
        self.app = App(self.place.url)
        self.app.queues.use(CONTRACT)

    def install(self, shards: int) -> None:
        self.app.sync.init(shards=shards, distributed=self.place.distributed)

    def schedule(self, *ids: str, handler: str = "work", payload: object = 0.0, **more: Any) -> None:
        for id in ids:
            self.app.sync.schedule(handler, payload, id=id, **({"retry": ONCE} | more))

    def count(self, text: str) -> int:
        return int(self.place.ask(text)[0][0])

    def until(self, text: str, count: int, what: str) -> None:
        until(lambda: self.count(text) == count, what, within_s=START_S + LEASE_S)


MOVED = "select count(*) from matrixsched.processing_queue"
SWEPT = "select count(*) from matrixsched.chores where name = 'tidy' and done_at is not null"


def one_due(scene: Scene) -> None:
    scene.schedule("a")


def one_later(scene: Scene) -> None:
    scene.schedule("a", delay=SECOND)


def one_much_later(scene: Scene) -> None:
    scene.schedule("a", delay=4 * SECOND)


def five_later(scene: Scene) -> None:
    scene.app.sync.schedule_many([call("work", 0.0, id=id, retry=ONCE, delay=3 * SECOND) for id in "abcde"])


def one_long(scene: Scene) -> None:
    scene.schedule("a", payload=1.5)


def one_repeated(scene: Scene) -> None:
    scene.app.sync.schedule("tick", id="a", retry=ONCE, repeat=every(timedelta(hours=1)))


def cancel_when_moved(scene: Scene) -> None:
    """And when dead rows were swept for the first time, lest that is what drops it."""
    scene.until(MOVED, 1, "the row is moved")
    scene.until(SWEPT, 1, "it was tidied up")
    scene.app.sync.cancel("a")


def one_that_dies(moment: str) -> Callable[[Scene], None]:
    return lambda scene: scene.schedule("a", handler="die", payload=moment)


def one_limited(scene: Scene) -> None:
    scene.app.sync.limits.set(f"key:{RATED}", "100/s")
    scene.schedule("a", limit=RATED)


def one_place(scene: Scene) -> None:
    scene.app.sync.semaphores.get_or_create(SEMAPHORE, active=1).enqueue("t")


def one_parcel(scene: Scene) -> None:
    scene.app.sync.queues.put(Parcel(token="p-1"))


DONE, ONCE_MORE = "done/1/0/0", "done/1/0/1"
FREE: dict[str, object] = {"incoming": 0, "waiting": 0, "claimed": 0}
RAN: dict[str, object] = FREE | {"states": DONE, "runs": 1}
RAN_AFTER: dict[str, object] = FREE | {"states": ONCE_MORE, "runs": 1}
RAN_AGAIN: dict[str, object] = FREE | {"states": ONCE_MORE, "runs": 2}
NEW: dict[str, object] = {"incoming": 1, "waiting": 0, "claimed": 0, "states": "live/0/0/0", "runs": 0}
WAITING: dict[str, object] = {"incoming": 0, "waiting": 1, "claimed": 0, "states": "live/0/0/0", "runs": 0}
CLAIMED: dict[str, object] = {"incoming": 0, "waiting": 0, "claimed": 1, "states": "live/0/0/0"}
MANY = ("--batch-max", "2", "--heartbeat", "1ms")

KILL_POINTS = [
    KillPoint(
        "K1", "acquire not committed: nothing is locked", "acquire_shard:before:kill", one_due, NEW | {"locked": 0}, RAN
    ),
    KillPoint(
        "K2, K3", "acquired: a ghost lock, nothing else", "acquire_shard:after:kill", one_due, NEW | {"locked": 1}, RAN
    ),
    KillPoint(
        "K4, K5", "move not committed: the row is incoming alone", "move:before:kill", one_due, NEW | {"locked": 1}, RAN
    ),
    KillPoint(
        "K6", "moved: the row is in processing alone", "move:after:kill", one_later, WAITING | {"locked": 1}, RAN
    ),
    KillPoint(
        "K7",
        "between two moved batches: each row in one place",
        "move:after:kill",
        five_later,
        {"incoming": 2, "waiting": 3, "claimed": 0, "runs": 0},
        FREE | {"states": " ".join([DONE] * 5), "runs": 5},
        options=("--batch-max", "3"),
    ),
    KillPoint("K8, K11", "claim not committed: as if never picked", "claim:before:kill", one_later, WAITING, RAN),
    KillPoint(
        "K9 before",
        "drop of a dead row not committed: it is still there, dead",
        "claim:before:kill",
        one_much_later,
        {"incoming": 0, "waiting": 1, "states": "cancelled/0/0/0", "runs": 0},
        {"waiting": 0, "states": "cancelled/0/0/0", "runs": 0},
        meanwhile=cancel_when_moved,
    ),
    KillPoint(
        "K9 after",
        "the dead row is dropped, nothing else is touched",
        "claim:after:kill",
        one_much_later,
        {"incoming": 0, "waiting": 0, "states": "cancelled/0/0/0", "runs": 0},
        {"waiting": 0, "states": "cancelled/0/0/0", "runs": 0},
        meanwhile=cancel_when_moved,
    ),
    KillPoint(
        "K10 before",
        "a count of an interruption is not committed: nothing is counted yet",
        "claim:before:kill",
        one_that_dies("before"),
        CLAIMED | {"interruptions": 0, "runs": 1},
        FREE | {"states": "done/1/0/1", "runs": 2},
        after_a_death=True,
    ),
    KillPoint(
        "K10 after",
        "an interruption is counted, once; and so is this one",
        "claim:after:kill",
        one_that_dies("before"),
        CLAIMED | {"interruptions": 1, "runs": 1},
        FREE | {"states": "done/1/0/2", "runs": 2},
        after_a_death=True,
    ),
    KillPoint(
        "K12",
        "claimed, handler not called: interrupted, never failed",
        "claim:after:kill",
        one_later,
        CLAIMED | {"runs": 0},
        RAN_AFTER,
    ),
    KillPoint(
        "K12 in passing", "claimed as it was moved", "move:after:kill", one_due, CLAIMED | {"runs": 0}, RAN_AFTER
    ),
    KillPoint(
        "K13 before",
        "in the handler, before its effect",
        None,
        one_that_dies("before"),
        CLAIMED | {"runs": 1, "effects": 0},
        RAN_AGAIN | {"effects": 1},
    ),
    KillPoint(
        "K13 after",
        "in the handler, after its effect: twice, with one key",
        None,
        one_that_dies("after"),
        CLAIMED | {"runs": 1, "effects": 1},
        RAN_AGAIN | {"effects": 2, "keys": 1},
    ),
    KillPoint(
        "K14, K15",
        "handler returned, outcome not committed",
        "record:before:kill",
        one_due,
        CLAIMED | {"runs": 1},
        RAN_AGAIN,
    ),
    KillPoint("K16", "outcome committed: no second run", "record:after:kill", one_due, RAN, RAN),
    KillPoint(
        "K16 repeated",
        "outcome committed: the next tick waits",
        "record:after:kill",
        one_repeated,
        {"waiting": 1, "claimed": 0, "states": "live/1/0/0", "ticks": "1", "runs": 1},
        {"waiting": 1, "claimed": 0, "states": "live/1/0/0", "ticks": "1", "runs": 1},
    ),
    KillPoint(
        "K17 before",
        "release not committed: free when its lease ends",
        "release_shard:before:kill",
        one_later,
        {"locked": 1, "incoming": 0},
        RAN,
    ),
    KillPoint("K17 after", "released: free now", "release_shard:after:kill", one_later, WAITING | {"locked": 0}, RAN),
    KillPoint(
        "K18 before",
        "heartbeat not committed",
        "beat_shard:before:kill",
        five_later,
        {"locked": 1},
        FREE | {"runs": 5},
        options=MANY,
    ),
    KillPoint(
        "K18 after",
        "heartbeat committed",
        "beat_shard:after:kill",
        five_later,
        {"locked": 1},
        FREE | {"runs": 5},
        options=MANY,
    ),
    KillPoint(
        "extend before", "the lease is not prolonged", "extend:before:kill", one_long, CLAIMED | {"runs": 1}, RAN_AGAIN
    ),
    KillPoint(
        "extend after",
        "the lease is prolonged once more, for nobody",
        "extend:after:kill",
        one_long,
        CLAIMED | {"runs": 1},
        RAN_AGAIN,
    ),
    KillPoint(
        "gate before", "before a gate, claim not committed", "claim_gated:before:kill", one_limited, WAITING, RAN
    ),
    KillPoint(
        "gate after",
        "claimed before a gate, and its slot spent",
        "claim_gated:after:kill",
        one_limited,
        CLAIMED | {"runs": 0},
        RAN_AFTER,
    ),
    KillPoint(
        "balance before",
        "no place is given and nobody is told",
        "balance:before:kill",
        one_place,
        {"places": "waiting", "incoming": 0},
        {"places": "", "incoming": 0, "waiting": 0},
    ),
    KillPoint(
        "balance after",
        "a place is given, and its event is there",
        "balance:after:kill",
        one_place,
        {"places": "acquired", "incoming": 1},
        {"places": "", "incoming": 0, "waiting": 0},
    ),
    KillPoint(
        "take before", "no task is taken", "take_tasks:before:kill", one_parcel, {"tasks": "ready"}, {"tasks": ""}
    ),
    KillPoint(
        "take after",
        "taken, and back when its time is over",
        "take_tasks:after:kill",
        one_parcel,
        {"tasks": "taken"},
        {"tasks": ""},
    ),
    KillPoint(
        "done before", "handled, not settled", "done_tasks:before:kill", one_parcel, {"tasks": "taken"}, {"tasks": ""}
    ),
    KillPoint("done after", "settled", "done_tasks:after:kill", one_parcel, {"tasks": ""}, {"tasks": ""}),
]


def play(point: KillPoint, place: Place, folder: Path) -> Iterator[str]:
    """What is otherwise than it should be."""
    scene = Scene(place, folder)
    scene.install(SHARDS)
    with Fleet(place, folder, "kill points") as fleet, scene.app.sync:
        # What is due later is scheduled only when the worker is there: who knows how long it takes to come.
        is_later = point.arrange in (one_later, one_much_later, five_later)
        if not is_later:
            point.arrange(scene)
        if point.after_a_death:
            first = fleet.start_worker()
            until(lambda: first.process.poll() is not None, f"{point.name}: the first worker dies", within_s=START_S)
        victim = fleet.start_worker(*point.options, failpoint=point.failpoint)
        if is_later:
            until(lambda: not victim.is_starting, "the worker is at work", within_s=START_S)
            point.arrange(scene)
        if point.meanwhile is not None:
            point.meanwhile(scene)
        until(lambda: victim.process.poll() is not None, f"{point.name}: the worker dies", within_s=START_S)
        died_at = time.monotonic()
        if victim.process.returncode != -9:
            yield f"the worker ended with {victim.process.returncode}: {victim.log.read_text()[-300:]}"
        yield from _differences("when it died", point.at_death, look(place, fleet.notes))
        heir = fleet.start_worker(*point.options)
        until(heir.has_started, "another worker comes", within_s=START_S)
        came_at = time.monotonic()
        patience_s = max(0.0, died_at + LEASE_S - came_at) + 6 + 1
        deadline = came_at + patience_s
        while list(_differences("", point.at_the_end, look(place, fleet.notes))) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from _differences("at the end", point.at_the_end, look(place, fleet.notes))
        if bad := fleet.end("w"):
            yield f"the other one ended with {bad[0].process.returncode}"


def _differences(when: str, expected: dict[str, object], left: Left) -> Iterator[str]:
    for name, value in expected.items():
        if getattr(left, name) != value:
            yield f"{when} {name} is {getattr(left, name)!r}, not {value!r}"


# Those that are not about one worker.

CALLING = """
import sys
from datetime import timedelta
from matrixsched import App
app = App(sys.argv[1])
with app.sync:
    app.sync.schedule("work", 0.0, id="a", delay=timedelta(hours=1), request_id="once")
"""


def play_client(moment: str, place: Place, folder: Path) -> Iterator[str]:
    """K19: a client is killed while it schedules; it sends the same request again, and the action exists once."""
    scene = Scene(place, folder)
    scene.install(SHARDS)
    command = [sys.executable, "-c", CALLING, place.url]
    dead = subprocess.run(command, env=environment(MATRIXSCHED_FAILPOINT=f"schedule:{moment}:kill"), timeout=60)
    expected = {"incoming": 1 if moment == "after" else 0}
    yield from _differences("when it died", expected, look(place, folder / "notes.jsonl"))
    if dead.returncode != -9:
        yield f"the client ended with {dead.returncode}"
    again = subprocess.run(command, env=environment(), timeout=60)
    if again.returncode != 0:
        yield "it could not be sent again"
    yield from _differences("at the end", {"incoming": 1, "states": "live/0/0/0"}, look(place, folder / "notes.jsonl"))


def play_all_at_once(place: Place, folder: Path) -> Iterator[str]:
    """K20: all workers are killed at once; others come, and everything runs."""
    scene = Scene(place, folder)
    scene.install(4)
    ids = [f"a{number:02}" for number in range(30)]
    with Fleet(place, folder, "kill points") as fleet, scene.app.sync:
        workers = [fleet.start_worker("--concurrency", "3") for _ in range(3)]
        until(lambda: all(one.has_started() for one in workers), "all work", within_s=START_S)
        scene.schedule(*ids, payload=0.3)
        until(lambda: look(place, fleet.notes).runs >= 5, "some run", within_s=START_S)
        fleet.is_stopping = True
        for one in workers:
            one.process.kill()
        died_at = time.monotonic()
        for one in workers:
            fleet.kill(one)
        if not look(place, fleet.notes).claimed:
            yield "nobody had anything in hands"
        fleet.is_stopping = False
        heirs = [fleet.start_worker("--concurrency", "10") for _ in range(3)]
        until(lambda: any(one.has_started() for one in heirs), "others come", within_s=START_S)
        deadline = max(time.monotonic(), died_at + LEASE_S) + 1 + 30 * 0.3 / 10
        done = lambda: look(place, fleet.notes).states.count("done/1/0") == len(ids)  # noqa: E731
        while not done() and time.monotonic() < deadline + 5:
            time.sleep(0.05)
        if not done():
            yield f"left: {look(place, fleet.notes).states}"


Case = Callable[[Place, Path], Iterator[str]]


def cases() -> dict[str, Case]:
    """All of them, each with what it is about."""

    def playing(point: KillPoint) -> Case:
        return lambda place, folder: play(point, place, folder)

    found: dict[str, Case] = {f"{point.name}: {point.what}": playing(point) for point in KILL_POINTS}
    found["K19 before: a client dies before it has scheduled"] = lambda *on: play_client("before", *on)
    found["K19 after: a client dies after it has scheduled"] = lambda *on: play_client("after", *on)
    found["K20: all workers are killed at once"] = play_all_at_once
    return found
