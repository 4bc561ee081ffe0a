"""What the board shows: rows of panels, each a title, a unit and expressions over our metrics.

What workers sample is the same from all of them, so its maximum is taken; what each counts for itself is summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HERE = 'job=~"$job", instance=~"$instance"'
"""Metrics do not carry the name of their installation; $job and $instance are those that work for the chosen one."""
OTHERS_NAMES = ("queue_job_processor_", "queue_tasks_in_progress", "queue_running_")
"""Of queues, as other programs call them, too."""
HANDLER = 'handler=~"$handler"'
TEMPLATE = 'template=~"$template"'
QUEUE = 'queue=~"$queue"'
SEMAPHORE = 'semaphore=~"$semaphore"'
FAILED = 'outcome=~"failed|timed_out"'
PRESENT, LAST = 'window="present"', 'window="last"'


# Expressions.


def metric(name: str, *matchers: str) -> str:
    full = name if name.startswith(OTHERS_NAMES) else f"matrixsched_{name}"
    return f"{full}{{{', '.join((HERE, *matchers))}}}"


def rate(name: str, *matchers: str) -> str:
    return f"rate({metric(name, *matchers)}[$__rate_interval])"


def total(expression: str, *labels: str) -> str:
    return f"sum{_by(labels)} ({expression})"


def most(expression: str, *labels: str) -> str:
    return f"max{_by(labels)} ({expression})"


def ratio(part: str, whole: str) -> str:
    return f"{part} / {whole}"


def quantile(q: float, name: str, *labels: str, matchers: Sequence[str] = ()) -> str:
    return f"histogram_quantile({q}, {total(rate(f'{name}_bucket', *matchers), *labels, 'le')})"


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


# Panels.


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    shown: Sequence[tuple[str, str]]
    """Expressions, and what their lines are called."""
    text: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    warn_at: float | None = None
    alarm_at: float | None = None


def stat(
    title: str,
    unit: str,
    expression: str,
    text: str = "",
    *,
    warn_at: float | None = None,
    alarm_at: float | None = None,
) -> Panel:
    return Panel(title, unit, [(expression, "")], text, "stat", 4, 4, warn_at=warn_at, alarm_at=alarm_at)


OVERVIEW = [
    stat("Due now", "short", most(metric("due_actions")), "Counted up to 10,000; with what gates hold."),
    stat("Oldest due", "s", most(metric("oldest_due_seconds")), "With what gates hold: a campaign makes it old."),
    stat(
        "Oldest that no gate holds",
        "s",
        most(metric("oldest_open_seconds")),
        "It has only to be taken by a worker: this is how late actions are.",
        warn_at=10,
        alarm_at=60,
    ),
    stat(
        "Oldest without a handler",
        "s",
        most(metric("oldest_parked_seconds")),
        "Due, but no worker that met it has its handler: was it deployed?",
        warn_at=1,
        alarm_at=60,
    ),
    stat("Worker instances", "short", f"count({metric('worker_slots')} > 0) or vector(0)"),
    stat("Handlers running", "short", total(metric("attempts_running"))),
    Panel(
        "Lateness: scheduled to started",
        "s",
        [(quantile(0.5, "attempt_late_seconds"), "p50"), (quantile(0.99, "attempt_late_seconds"), "p99")],
        "Of attempts that ended, also of those that gates had held.",
    ),
    Panel(
        "Throughput",
        "ops",
        [
            (total(rate("actions_claimed_total")), "claimed"),
            (total(rate("attempts_total", 'outcome="succeeded"')), "succeeded"),
            (total(rate("attempts_total", FAILED)), "failed"),
        ],
    ),
    Panel(
        "Attempts under way",
        "short",
        [
            (total(metric("attempts_running")), "running"),
            (total(metric("attempts_held")), "claimed and not yet recorded"),
            (total(metric("worker_slots")), "slots"),
        ],
    ),
    Panel(
        "What is due",
        "short",
        [
            (most(metric("due_actions")), "due"),
            (total(most(metric("held_actions"), "gate", "template"), "gate"), "held: {{gate}}"),
        ],
    ),
    Panel(
        "Calls to schedule",
        "ops",
        [
            (total(rate("schedule_calls_total"), "way"), "calls, {{way}}"),
            (total(rate("schedule_statements_total"), "way"), "statements, {{way}}"),
        ],
    ),
    Panel(
        "Attempts found interrupted",
        "ops",
        [(total(rate("interruptions_found_total", HANDLER), "handler"), "{{handler}}")],
        "Their worker died, or lost them; they are run again.",
    ),
]

SHARDS = [
    Panel("Shards held now", "short", [(total(metric("shards_held")), "held")]),
    Panel(
        "Held for, each visit",
        "s",
        [(ratio(total(rate("shard_held_seconds_total")), total(rate("shards_synced_total"))), "mean")],
        "A quarter of a second at most, unless the database is slow.",
    ),
    Panel(
        "Visits",
        "ops",
        [
            (total(rate("shards_synced_total")), "with work"),
            (total(rate("shards_lost_total")), "lost to another worker"),
        ],
    ),
    Panel(
        "Rows",
        "ops",
        [(total(rate("actions_moved_total")), "moved"), (total(rate("actions_claimed_total")), "claimed")],
    ),
    Panel(
        "Claims that came to nothing",
        "ops",
        [
            (total(rate("claims_lost_total")), "lease lost"),
            (total(rate("attempts_dropped_total")), "ended without an outcome"),
            (total(rate("claims_given_back_total")), "given back"),
        ],
    ),
    Panel("Outcomes sent", "ops", [(total(rate("outcomes_total"), "answer"), "{{answer}}")]),
]

GATES = [
    Panel(
        "Held, by gate",
        "short",
        [(total(most(metric("held_actions", TEMPLATE), "gate", "template"), "gate"), "{{gate}}")],
        stacked=True,
    ),
    Panel(
        "Held, by template",
        "short",
        [(total(most(metric("held_actions", TEMPLATE), "gate", "template"), "template"), "{{template}}")],
        stacked=True,
    ),
    Panel(
        "Slots left",
        "short",
        [(f"min by (limit) ({metric('limit_slots_left')})", "{{limit}}")],
        "What a limit would let start at once.",
    ),
    Panel(
        "Quota of the present window",
        "short",
        [
            (most(metric("quota_granted", PRESENT, TEMPLATE), "template"), "{{template}} granted"),
            (most(metric("quota_used", PRESENT, TEMPLATE), "template"), "{{template}} used"),
        ],
    ),
    Panel(
        "Quota used of the last window",
        "percentunit",
        [
            (
                ratio(
                    most(metric("quota_used", LAST, TEMPLATE), "template"),
                    most(metric("quota_granted", LAST, TEMPLATE), "template"),
                ),
                "{{template}}",
            )
        ],
    ),
    Panel(
        "Sent, by template",
        "ops",
        [(total(rate("template_attempts_total", TEMPLATE), "template", "outcome"), "{{template}} {{outcome}}")],
    ),
    Panel(
        "Closed by somebody",
        "short",
        [
            (most(metric("templates_paused")), "templates paused"),
            (most(metric("limit_slowed"), "limit"), "{{limit}} slowed"),
        ],
    ),
    Panel("Told to slow down", "ops", [(total(rate("slow_downs_total"), "limit"), "{{limit}}")]),
    Panel("Expired unsent", "ops", [(total(rate("expired_unsent_total", TEMPLATE), "template"), "{{template}}")]),
    Panel("Slots missed", "ops", [(total(rate("slots_void_total")), "void")], "Workers were too slow for their slots."),
    Panel("Windows planned", "ops", [(total(rate("quota_windows_planned_total")), "planned")]),
    Panel(
        "Planning a window takes",
        "s",
        [(ratio(total(rate("quota_planning_seconds_total")), total(rate("quota_windows_planned_total"))), "mean")],
    ),
]

HANDLERS = [
    Panel("Attempts", "ops", [(total(rate("attempts_total", HANDLER), "handler"), "{{handler}}")]),
    Panel(
        "Not succeeded",
        "ops",
        [
            (
                total(rate("attempts_total", 'outcome!="succeeded"', HANDLER), "handler", "outcome"),
                "{{handler}} {{outcome}}",
            )
        ],
    ),
    Panel(
        "Share that failed",
        "percentunit",
        [
            (
                ratio(
                    total(rate("attempts_total", FAILED, HANDLER), "handler"),
                    total(rate("attempts_total", HANDLER), "handler"),
                ),
                "{{handler}}",
            )
        ],
    ),
    Panel(
        "Run time, p99", "s", [(quantile(0.99, "attempt_run_seconds", "handler", matchers=[HANDLER]), "{{handler}}")]
    ),
    Panel("Run time, p50", "s", [(quantile(0.5, "attempt_run_seconds", "handler", matchers=[HANDLER]), "{{handler}}")]),
    Panel(
        "Lateness, p99", "s", [(quantile(0.99, "attempt_late_seconds", "handler", matchers=[HANDLER]), "{{handler}}")]
    ),
    Panel(
        "Slots used",
        "short",
        [(total(rate("attempt_run_seconds_sum", HANDLER), "handler"), "{{handler}}")],
        "How many attempts ran at a time, on average.",
        stacked=True,
    ),
    Panel("Time limit ignored", "ops", [(total(rate("handler_leaks_total", HANDLER), "handler"), "{{handler}}")]),
]

QUEUES = [
    Panel(
        "Tasks",
        "short",
        [(most(metric("queue_depth", QUEUE), "queue", "state"), "{{queue}} {{state}}")],
        "Counted up to 10,000.",
    ),
    Panel("Oldest ready", "s", [(most(metric("queue_oldest_ready_seconds", QUEUE), "queue"), "{{queue}}")]),
    Panel("Dead letters", "short", [(most(metric("queue_dead_letters", QUEUE), "queue"), "{{queue}}")]),
    Panel(
        "What became of tasks",
        "ops",
        [(total(rate("queue_tasks_total", QUEUE), "queue", "result"), "{{queue}} {{result}}")],
    ),
    Panel(
        "Errors and overlong cycles",
        "ops",
        [
            (total(rate("queue_errors_total", QUEUE), "queue"), "{{queue}} errors"),
            (total(rate("queue_slow_cycles_total", QUEUE), "queue"), "{{queue}} longer than 10 s"),
        ],
    ),
    Panel(
        "A cycle takes",
        "s",
        [
            (quantile(0.5, "queue_job_processor_cycle_duration_seconds", "queue_num"), "{{queue_num}} p50"),
            (quantile(0.99, "queue_job_processor_cycle_duration_seconds", "queue_num"), "{{queue_num}} p99"),
        ],
    ),
    Panel("Tasks in progress", "short", [(total(metric("queue_tasks_in_progress"), "queue_num"), "{{queue_num}}")]),
    Panel(
        "Who works on them",
        "short",
        [
            (total(metric("queue_running_workers")), "workers"),
            (total(metric("queue_running_job_processors")), "job processors"),
        ],
    ),
]

SEMAPHORES = [
    Panel(
        "Places",
        "short",
        [
            (most(metric("semaphore_held", SEMAPHORE), "semaphore"), "{{semaphore}} held"),
            (most(metric("semaphore_asked", SEMAPHORE), "semaphore"), "{{semaphore}} asked to release"),
        ],
    ),
    Panel(
        "Waiting",
        "short",
        [(most(metric("semaphore_waiting", SEMAPHORE), "semaphore"), "{{semaphore}}")],
        "Counted up to 10,000.",
    ),
    Panel(
        "Longest wait", "s", [(most(metric("semaphore_oldest_wait_seconds", SEMAPHORE), "semaphore"), "{{semaphore}}")]
    ),
    Panel(
        "Changes",
        "ops",
        [(total(rate("semaphore_changes_total", SEMAPHORE), "semaphore", "change"), "{{semaphore}} {{change}}")],
    ),
    Panel(
        "A balance takes",
        "s",
        [(quantile(0.5, "semaphore_balance_seconds"), "p50"), (quantile(0.99, "semaphore_balance_seconds"), "p99")],
    ),
]

DATABASE = [
    Panel("Connections", "short", [(total(metric("connections"), "pool", "state"), "{{pool}} {{state}}")]),
    Panel("Waiting for a connection", "short", [(total(metric("connection_waiting"), "pool"), "{{pool}}")]),
    Panel(
        "A transition waits for its connection",
        "s",
        [
            (
                ratio(
                    total(rate("connection_wait_seconds_total"), "pool"), total(rate("connection_uses_total"), "pool")
                ),
                "{{pool}} mean",
            )
        ],
    ),
    Panel("Transitions", "ops", [(total(rate("connection_uses_total"), "pool"), "{{pool}}")]),
    Panel(
        "Steps that failed",
        "ops",
        [(total(rate("step_failures_total"), "step"), "{{step}}")],
        "They are repeated; most often the database is away, the log says why.",
    ),
    Panel(
        "Tidied away",
        "ops",
        [(total(rate("tidied_total"), "kind"), "{{kind}}")],
        "Leases are there only if a clock went back.",
    ),
]

PROCESS = [
    Panel(
        "Since the last look for work",
        "s",
        [(f"time() - ({metric('worker_looked_timestamp_seconds')} > 0)", "{{instance}}")],
        "More than 10 seconds: the worker is not ready.",
    ),
    Panel(
        "Event loop late",
        "s",
        [
            (most(metric("loop_lag_max_seconds"), "instance"), "{{instance}} at most"),
            (quantile(0.99, "loop_lag_seconds", "instance"), "{{instance}} p99"),
        ],
        "More than a second: a handler blocks it, and all others wait.",
    ),
    Panel(
        "Handlers that ignore their limit", "short", [(total(metric("handlers_leaked"), "instance"), "{{instance}}")]
    ),
    Panel("Slots", "short", [(total(metric("worker_slots"), "instance"), "{{instance}}")]),
    Panel("Orderly ends", "ops", [(total(rate("worker_stops_total"), "handlers"), "handlers {{handlers}}")]),
    Panel(
        "Versions",
        "short",
        [
            (
                f"count by (version, dialect, installation) ({metric('build_info')})",
                "{{version}} {{dialect}} {{installation}}",
            )
        ],
    ),
]

ROWS = {
    "Overview": OVERVIEW,
    "Shards": SHARDS,
    "Gates": GATES,
    "Handlers": HANDLERS,
    "Queues": QUEUES,
    "Semaphores": SEMAPHORES,
    "Database": DATABASE,
    "Process": PROCESS,
}
