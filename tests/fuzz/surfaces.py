"""Every public call of `App` and `app.sync`, with what each argument may be given: mostly something good."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from fuzz import contracts
from fuzz import values as v
from fuzz.inputs import MAKERS, SECRET, Input, Made
from matrixsched.queues import encode
from matrixsched.rules.contract import INT_MAX
from matrixsched.worker import WorkerPolicy

Strategy = st.SearchStrategy[Any]

ODD_ONE_IN = 6
"""So rarely an argument is odd: calls with many arguments shall be accepted now and then."""


@dataclass(frozen=True)
class Argument:
    good: Strategy
    odd: Strategy
    rarely: bool = False
    """Left out even more often than other options."""


@dataclass(frozen=True)
class Surface:
    needed: tuple[Argument, ...] = ()
    options: dict[str, Argument] = field(default_factory=dict)
    reads: bool = False
    """It changes nothing, accepted or not."""
    has_sync: bool = True


def one(good: Strategy, odd: Strategy, *, rarely: bool = False) -> Argument:
    return Argument(good, odd, rarely)


# Arguments that many calls have.

flag = one(st.booleans(), v.wrong)
an_id = one(st.sampled_from(v.KNOWN_IDS) | st.sampled_from(["new", "other", "ünïcode 😀", "a/b?c=d&e"]), v.odd_names)
known_id = one(st.sampled_from(v.KNOWN_IDS), v.odd_names)
prefix = one(st.sampled_from(["", "d", "due", "s", "%", "_", "é"]), v.odd_names)
handlers = ["greet", "anything", "nothing", "lifted", "mapped", "elsewhere", "queue:mixed"]
handler = one(st.sampled_from(handlers), v.odd_names)
a_time = one(v.good_times, v.odd_times)
a_duration = one(v.good_durations, v.odd_durations)
guid = one(
    st.sampled_from([Made("guid_of", (id,)) for id in v.KNOWN_IDS]),
    st.sampled_from([UUID(int=7), str(UUID(int=7)), "abc", "", "{" + str(UUID(int=7)) + "}"]) | v.wrong,
)
request_id = one(st.sampled_from(["r1", "r2", "again"]), v.odd_names)
exists = one(st.sampled_from(["replace", "keep", "error"]), v.odd_names)
page = one(st.sampled_from([1, 2, 100, 10_000]), v.odd_numbers)
many = one(st.sampled_from([1, 2, 1000, 10_000]), v.odd_numbers)
connection = one(st.none(), v.wrong, rarely=True)
progress = one(st.just(Made("counting")), v.uncallable, rarely=True)
template = one(st.sampled_from(["news", "alerts", "nobody"]), v.odd_names)
pool = one(st.sampled_from(["pool", "small", "nobody"]), v.odd_names)
task = one(st.sampled_from(["t1", "t2", "t3", "t9"]), v.odd_names)
hold = one(st.sampled_from([Made("hold_of", ("t1",)), Made("hold_of", ("t3",)), UUID(int=7)]), v.odd_names)
importance = one(st.floats(-1e6, 1e6) | st.integers(-9, 9), v.odd_numbers)
limit_name = one(
    st.sampled_from(["global", "handler:greet", "template:news", "key:k1", "key:k2", "key:*", "handler:elsewhere"]),
    st.sampled_from(["template:nobody", "handler:", "key:", "nothing:x", "handler:acquired:pool"]) | v.odd_names,
)
rate = one(v.good_rates, v.odd_rates)
until = one(v.good_times | v.good_durations, v.odd_times | v.odd_durations)
queue = one(st.sampled_from([1, 2, 0, 9]), v.odd_numbers)
queue_name = one(st.sampled_from(["mixed", "plain"]), v.odd_names)
task_ids = one(
    st.lists(st.integers(1, 9), max_size=4),
    st.lists(v.wrong, max_size=3) | v.wrong | st.lists(v.odd_numbers, max_size=2),
)
visibility = one(st.integers(1, 3600).map(lambda s: timedelta(seconds=s)), v.odd_durations)

payload_odd = v.odd_payloads | v.wrong
schedule_options: dict[str, Argument] = {
    "id": an_id,
    "at": a_time,
    "delay": a_duration,
    "repeat": one(v.good_repeats, v.odd_repeats),
    "retry": one(v.good_retries, v.odd_retries),
    "timeout": a_duration,
    "start_within": a_duration,
    "expires_at": a_time,
    "priority": one(st.integers(0, 9), v.odd_numbers),
    "template": template,
    "zone": one(v.good_zones, v.odd_zones, rarely=True),
    "limit": one(st.sampled_from(["k1", "k2", "customer 7"]), v.odd_names),
    "payload_version": one(st.just(1), v.odd_numbers, rarely=True),
    "request_id": request_id,
}


@st.composite
def arguments(draw: st.DrawFn, surface: Surface) -> tuple[tuple[Any, ...], dict[str, Any]]:
    chance = st.integers(0, 59)

    def value(of: Argument) -> Any:
        return draw(of.odd if draw(chance) % ODD_ONE_IN == 0 else of.good)

    needed = tuple(value(of) for of in surface.needed)
    options = {}
    for name, of in surface.options.items():
        if draw(chance) % (12 if of.rarely else 4) == 0:
            options[name] = value(of)
    return needed, options


calls: Strategy = arguments(Surface((handler, one(v.good_payloads, payload_odd)), schedule_options)).map(
    lambda given: Made("call", *given)
)

tasks: Strategy = st.one_of(
    st.builds(lambda number: Made("Mixed", (), {"number": number}), st.integers(-5, INT_MAX)),
    st.builds(lambda text: Made("Plain", (), {"text": text}), st.just(SECRET)),
)
odd_fields: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "number": v.odd_numbers,
        "large": v.odd_numbers,
        "text": v.odd_payloads,
        "yes": v.wrong,
        "raw": v.wrong | st.just(Made("long", (b"x", 1_100_000))),
        "numbers": v.wrong | st.lists(v.odd_numbers, max_size=3),
    },
)
odd_tasks: Strategy = (
    st.builds(lambda kind, fields: Made(kind, (), fields), st.sampled_from(["Mixed", "Plain", "Strange"]), odd_fields)
    | v.wrong
    | st.builds(lambda fields: Made("Mixed", (), {"number": 1} | fields), odd_fields)
)
items: Strategy = st.builds(
    lambda queue, data, options: Made("NewItem", (), {"queue": queue, "data": data} | options),
    contracts.mostly(queue.good, queue.odd),
    contracts.mostly(st.just(b"hunter2"), v.wrong),
    st.sampled_from([{}, {}, {"delay": timedelta(seconds=5)}])
    | st.fixed_dictionaries({}, optional={"at": a_time.good | a_time.odd, "delay": a_duration.good | a_duration.odd}),
)
A_TASK = encode(MAKERS["Mixed"](number=1))
taken: Strategy = st.sampled_from([Made("taken", (0,)), Made("taken", (1,)), Made("taken", (5,))])
when: Strategy = v.good_times | v.good_durations | v.odd_times | v.odd_durations
of_tasks = {"ids": task_ids, "limit": many}
of_semaphore = {"active": one(st.integers(0, 9), v.odd_numbers), "try_release": one(st.integers(0, 9), v.odd_numbers)}
of_semaphore |= {"hold_for": a_duration}
of_change = {"expected_guid": guid, "request_id": request_id, "connection": connection}
pairs: Strategy = st.lists(st.tuples(task.good, importance.good), max_size=3) | st.dictionaries(
    st.sampled_from(["t1", "t4", "t5"]), st.floats(-9, 9), max_size=3
)
odd_pairs: Strategy = (
    st.lists(st.tuples(task.good | task.odd, importance.good | importance.odd), max_size=3)
    | st.lists(v.wrong, max_size=2)
    | v.wrong
)
lists_of_tasks = one(
    st.lists(task.good, max_size=3), st.lists(task.good | task.odd, max_size=3) | v.wrong | st.just("t1")
)
keeps: Strategy = (
    v.good_durations
    | st.just(timedelta(0))
    | st.dictionaries(st.sampled_from(["done", "failed", "cancelled", "expired", "quarantined"]), v.good_durations)
)
odd_keeps: Strategy = (
    st.dictionaries(
        st.sampled_from(["live", "done", "x", "", 5, None, 1.5, b"done"]), v.good_durations | v.odd_durations
    )
    | v.odd_durations
)
a_field = one(st.sampled_from([0.01, 0.5, 1, 1.0]), v.odd_numbers)
a_reason = one(st.sampled_from(["the other side is down", ""]), v.odd_names)
_SHORT = st.sampled_from([timedelta(milliseconds=100), timedelta(milliseconds=500), timedelta(seconds=1)])
_OF_POLICY = {
    "int": one(st.integers(1, 100), v.odd_numbers, rarely=True),
    "float": one(st.sampled_from([0.5, 1]), v.odd_numbers, rarely=True),
    "bool": flag,
    "timedelta": one(_SHORT, v.odd_durations, rarely=True),
}
policy_options = {field.name: _OF_POLICY[str(field.type)] for field in fields(WorkerPolicy)}

SURFACES: dict[str, Surface] = {
    "schedule": Surface(
        (handler, one(v.good_payloads, payload_odd)),
        schedule_options | {"exists": exists, "expected_guid": guid, "connection": connection},
    ),
    "schedule_many": Surface(
        (one(st.lists(calls, max_size=3), st.lists(calls | v.wrong, max_size=3) | v.wrong),),
        {"exists": exists, "connection": connection, "progress": progress},
    ),
    "reschedule": Surface((known_id,), {"at": a_time, "delay": a_duration} | of_change),
    "run_now": Surface((known_id,), of_change),
    "cancel": Surface((known_id,), of_change),
    "get": Surface((an_id,), {"connection": connection}, reads=True),
    "list": Surface(
        (),
        {
            "state": one(st.sampled_from(["live", "done", "cancelled", "failed"]), v.odd_names),
            "handler": handler,
            "template": template,
            "id_prefix": prefix,
            "due_before": a_time,
            "after": one(
                st.sampled_from([*v.KNOWN_IDS, Made("action_of", ("due",)), Made("action_of", ("sent",))]), v.odd_names
            ),
            "limit": page,
            "connection": connection,
        },
        reads=True,
    ),
    "history": Surface((known_id,), reads=True),
    "next_runs": Surface((known_id,), {"count": page, "connection": connection}, reads=True),
    "explain": Surface((an_id,), reads=True),
    "prune": Surface((one(keeps, odd_keeps),), {"progress": progress, "dry_run": flag}),
    "foresee": Surface((one(st.integers(1, 48), v.odd_numbers),), reads=True),
    "shards": Surface((), {"count_max": many}, reads=True, has_sync=False),
    "release_shard": Surface((one(st.integers(0, 5), v.odd_numbers), guid), has_sync=False),
    "init": Surface((), {"shards": one(st.just(4), v.odd_numbers)}),
    # Gates.
    "limits.set": Surface((limit_name, rate), {"pool": one(st.integers(0, 100), v.odd_numbers)}),
    "limits.remove": Surface((limit_name,)),
    "limits.get": Surface((limit_name,), reads=True),
    "limits.list": Surface((), {"keys": flag, "after": limit_name, "limit": page}, reads=True),
    "limits.count_keys": Surface((), {"count_max": many}, reads=True),
    "limits.slow_down": Surface((limit_name, until), {"rate": rate, "reason": one(st.just("HTTP 429"), v.odd_names)}),
    "limits.resume": Surface((limit_name,)),
    "templates.set": Surface(
        (template,),
        {
            "distribution": one(st.sampled_from(["uniform", "morning", "day", "evening", "own"]), v.odd_names),
            "windows": one(
                st.lists(v.good_windows, min_size=1, max_size=3),
                st.lists(v.good_windows | v.odd_windows, max_size=3) | v.wrong | st.just(["8-9"] * 25),
            ),
            "max_speed": one(v.good_rates | st.just("none"), v.odd_rates),
            "zone": one(v.good_zones, v.odd_zones),
            "weight": one(st.floats(0.01, 100), v.odd_numbers),
        },
    ),
    "templates.get": Surface((template,), reads=True),
    "templates.list": Surface((), reads=True),
    "templates.pause": Surface((template,), {"until": until}),
    "templates.resume": Surface((template,)),
    "templates.stop": Surface((template,), {"progress": progress}),
    "templates.count": Surface((template,), {"count_max": many}, reads=True),
    "templates.remove": Surface((template,)),
    "quota.settings": Surface((), reads=True),
    "quota.set": Surface(
        (),
        {
            "interval": one(st.integers(1, 60).map(lambda s: timedelta(seconds=s)), v.odd_durations),
            "inside_share": a_field,
            "outside_share": a_field,
            "uniform_share": a_field,
            "inside_times_outside": a_field,
            "spare": one(st.sampled_from(["leave", "share"]), v.odd_names),
            "morning": one(v.good_windows, v.odd_windows),
            "day": one(v.good_windows, v.odd_windows),
            "evening": one(v.good_windows, v.odd_windows),
        },
    ),
    # Semaphores.
    "semaphores.get_or_create": Surface((pool,), of_semaphore | {"connection": connection}),
    "semaphores.get": Surface((pool,), {"connection": connection}, reads=True),
    "semaphores.settings": Surface((pool,), {"connection": connection}, reads=True),
    "semaphores.list": Surface((), {"after": pool, "limit": page}, reads=True),
    "semaphores.update": Surface((pool,), of_semaphore | {"holds_for_good": flag, "connection": connection}),
    "semaphore.enqueue": Surface((pool, task), {"priority": importance, "connection": connection}),
    "semaphore.enqueue_many": Surface((pool, one(pairs, odd_pairs)), {"connection": connection}),
    "semaphore.release": Surface((pool, task), {"hold": hold, "missing_ok": flag, "connection": connection}),
    "semaphore.release_many": Surface((pool, lists_of_tasks), {"missing_ok": flag, "connection": connection}),
    "semaphore.step_back": Surface((pool, task), {"priority": importance, "hold": hold, "connection": connection}),
    "semaphore.renew": Surface((pool, task), {"hold": hold, "connection": connection}),
    "semaphore.renew_many": Surface((pool, lists_of_tasks), {"connection": connection}),
    "semaphore.balance": Surface((pool,)),
    "semaphore.holders": Surface((pool,), {"limit": page, "connection": connection}, reads=True),
    "semaphore.waiting": Surface((pool,), {"limit": page, "connection": connection}, reads=True),
    "semaphore.get": Surface((pool, task), {"connection": connection}, reads=True),
    "semaphore.position": Surface((pool, task), {"connection": connection}, reads=True),
    "semaphore.statistics": Surface((pool,), {"count_max": many, "connection": connection}, reads=True),
    # Queues.
    "queues.put": Surface((one(tasks, odd_tasks),), {"at": a_time, "delay": a_duration, "connection": connection}),
    "queues.put_many": Surface(
        (one(st.lists(tasks, max_size=3), st.lists(tasks | odd_tasks, max_size=3) | v.wrong),),
        {"at": a_time, "delay": a_duration, "connection": connection},
    ),
    "queues.stat": Surface((), reads=True),
    "queues.dead_letters": Surface((queue_name,), {"after": queue, "limit": page}, reads=True),
    "queues.redrive": Surface((queue_name,), of_tasks),
    "queues.purge_dead": Surface((queue_name,), of_tasks),
    "queues.pause": Surface((queue_name,)),
    "queues.resume": Surface((queue_name,)),
    # What handlers of queues and operators ask the storage.
    "storage.get": Surface((queue, one(st.integers(1, 5), v.odd_numbers)), {"visibility": visibility}),
    "storage.done": Surface((one(st.lists(taken, max_size=2), st.lists(v.wrong) | v.wrong),)),
    "storage.retry": Surface((one(st.lists(st.tuples(taken, when), max_size=2), st.lists(v.wrong) | v.wrong),)),
    "storage.set_aside": Surface(
        (
            one(
                st.lists(
                    st.tuples(taken, st.sampled_from(["broken", "x\x00y", "\ud800", "x" * 3000, "", " "]) | v.wrong)
                ),
                st.lists(v.wrong) | v.wrong,
            ),
        ),
    ),
    "storage.extend": Surface(
        (one(st.lists(taken, max_size=2), st.lists(v.wrong) | v.wrong),),
        {"visibility": visibility, "only_longer": flag},
    ),
    "storage.put": Surface((queue, one(st.just(b"hunter2"), v.wrong)), {"at": a_time, "delay": a_duration}),
    "storage.put_many": Surface((one(st.lists(items, max_size=2), v.wrong),), {"connection": connection}),
    "storage.put_once": Surface(
        (one(st.lists(items, max_size=2), v.wrong), one(st.sampled_from([UUID(int=7), UUID(int=8)]), v.wrong)),
        has_sync=False,
    ),
    "storage.redrive_old": Surface((queue, a_time), {"limit": many}, has_sync=False),
    "storage.purge_old_dead": Surface((queue, a_time), {"limit": many}, has_sync=False),
    "storage.look": Surface(
        (one(st.lists(queue.good, max_size=3), st.lists(queue.odd, max_size=3) | v.wrong),),
        {"within": a_duration},
        reads=True,
    ),
    "storage.stat": Surface((), {"count_max": many}, reads=True),
    "storage.peek": Surface((queue,), {"limit": page}, reads=True, has_sync=False),
    "storage.retry_now": Surface((queue,), of_tasks, has_sync=False),
    "storage.purge": Surface((queue,), of_tasks, has_sync=False),
    "storage.dead_letters": Surface((queue,), {"after": queue, "limit": page}, reads=True),
    "storage.redrive": Surface((queue,), of_tasks),
    "storage.purge_dead": Surface((queue,), of_tasks),
    "storage.pause": Surface((queue,)),
    "storage.resume": Surface((queue,)),
    "storage.settings": Surface((), reads=True, has_sync=False),
    "storage.change_settings": Surface(
        (
            queue,
            one(
                st.builds(
                    lambda changed: Made("change", (), changed),
                    st.fixed_dictionaries(
                        {},
                        optional={
                            "batch_size": st.integers(1, 99) | v.odd_numbers,
                            "visibility": visibility.good | visibility.odd,
                            "processors_max": st.integers(0, 9) | v.odd_numbers,
                            "name": st.just("mixed") | v.odd_names,
                        },
                    ),
                ),
                v.uncallable,
            ),
        ),
        has_sync=False,
    ),
    # What is said before a database is asked.
    "action": Surface(
        (handler,),
        {
            "retry": one(v.good_retries, v.odd_retries),
            "timeout": a_duration,
            "version": one(st.integers(1, 5), v.odd_numbers),
            "oldest_version": one(st.integers(1, 5), v.odd_numbers),
        },
        reads=True,
        has_sync=False,
    ),
    "on_acquired": Surface(
        (pool,), {"retry": one(v.good_retries, v.odd_retries), "timeout": a_duration}, reads=True, has_sync=False
    ),
    "queues.use": Surface(
        (one(st.just(Made("mixed contract")) | contracts.contracts, v.wrong),), reads=True, has_sync=False
    ),
    "queues.handler": Surface(
        (queue_name,),
        {"batch_size": one(st.integers(1, 99), v.odd_numbers), "visibility": visibility},
        reads=True,
        has_sync=False,
    ),
    "App": Surface(
        (
            one(
                st.sampled_from(["sqlite:///no/where.db", "postgresql://u:hunter2@host/db"]),
                st.sampled_from(
                    ["postgresql://u:hunter2@host:99999/db", "sqlite:/x", "x://hunter2@", "postgresql://[hunter2"]
                )
                | v.odd_names,
            ),
        ),
        {
            "installation": one(st.sampled_from(["default", "second"]), v.odd_names),
            "payload_bytes_max": one(st.integers(1, 10**6), v.odd_numbers),
        },
        reads=True,
        has_sync=False,
    ),
    "parse_contract": Surface((one(contracts.texts, contracts.odd_texts),), reads=True, has_sync=False),
    "load_contract": Surface(
        (
            one(
                st.sampled_from([contracts.FILE, Path(contracts.FILE)]),
                st.sampled_from(["/", "/no/such"]) | v.odd_names,
            ),
        ),
        reads=True,
        has_sync=False,
    ),
    "task_class": Surface(
        (one(st.just(Made("mixed queue")) | contracts.contracts, v.wrong),), reads=True, has_sync=False
    ),
    "decode": Surface(
        (
            one(st.sampled_from([Made("mixed queue"), Made("mixed class")]), v.wrong),
            one(st.sampled_from([A_TASK, A_TASK[:-1], b"\x91\x05", b""]) | st.binary(max_size=9) | taken, v.wrong),
        ),
        reads=True,
        has_sync=False,
    ),
    "retry_after": Surface(
        (one(st.sampled_from([None, "5", "1.5", "Tue, 01 Jan 2030 00:00:00 GMT", "soon", ""]), v.odd_names),),
        {"default": a_duration},
        reads=True,
        has_sync=False,
    ),
    "WorkerPolicy": Surface((), policy_options, reads=True, has_sync=False),
    # What handlers return.
    "RetryAt": Surface((until,), {"reason": a_reason}, reads=True, has_sync=False),
    "SlowDown": Surface((until,), {"limit": limit_name, "rate": rate, "reason": a_reason}, reads=True, has_sync=False),
    "Cancel": Surface((), {"reason": a_reason}, reads=True, has_sync=False),
    "DeadLetter": Surface((a_reason,), reads=True, has_sync=False),
    "upcoming": Surface(
        (one(v.good_repeats, v.odd_repeats), a_time, one(st.integers(1, 20), v.odd_numbers)), reads=True, has_sync=False
    ),
}


@st.composite
def inputs(draw: st.DrawFn, names: tuple[str, ...] = tuple(SURFACES)) -> Input:
    if draw(st.integers(0, 19)) == 0:
        return Input("pass", (draw(st.sampled_from([1, 10, 60, 3600, 86_400])),))
    name = draw(st.sampled_from(names))
    surface = SURFACES[name]
    args, options = draw(arguments(surface))
    door = "sync" if surface.has_sync and draw(st.integers(0, 5)) == 0 else "async"
    if draw(st.integers(0, 99)) == 0:
        options |= {"colour": "red"}
    return Input(name, args, options, door)


some: Strategy = st.lists(inputs(), max_size=12)
sequences: Strategy = st.tuples(some, some, some).map(lambda parts: [given for part in parts for given in part])
"""Longer than a single list would be, and as easily made small."""
