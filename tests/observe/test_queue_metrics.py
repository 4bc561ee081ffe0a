"""What can be scraped about queues: four names that others know, and ours."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import generate_latest

from matrixsched import App
from matrixsched.events import BatchEnded, BatchTaken, ProcessorsRunning, QueuesSampled, TaskSetAside
from matrixsched.observe import Metrics
from matrixsched.observe.labels import LABELS_MAX
from matrixsched.rules.queues import CYCLE_S_MAX, QueueSample


def scraped(metrics: Metrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def batch_ended(queue: int, name: str, tasks: int, cycle_s: float = 0.1, **counts: int) -> BatchEnded:
    results = dict.fromkeys(("processed", "retried", "dead", "stale", "left", "errors"), 0) | counts
    return BatchEnded(queue, name, tasks, **results, duration_s=cycle_s, cycle_s=cycle_s)


def sample(queue: int, name: str, *, ready: int = 5, oldest_ready_s: float = 2.5) -> QueueSample:
    return QueueSample(queue=queue, name=name, ready=ready, taken=3, delayed=4, dead=1, oldest_ready_s=oldest_ready_s)


def test_cycles_and_tasks_in_progress_have_the_names_that_others_know() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    app.events.emit(BatchTaken(7, "emails", 10))
    app.events.emit(BatchTaken(7, "emails", 4))
    app.events.emit(BatchTaken(8, "sms", 1))
    app.events.emit(batch_ended(7, "emails", 10, 0.3, processed=10))
    found = scraped(metrics)
    assert found['queue_tasks_in_progress{queue_num="7"}'] == 4
    assert found['queue_tasks_in_progress{queue_num="8"}'] == 1
    assert found['queue_job_processor_cycle_duration_seconds_count{queue_num="7"}'] == 1
    assert found['queue_job_processor_cycle_duration_seconds_sum{queue_num="7"}'] == 0.3
    assert found['queue_job_processor_cycle_duration_seconds_bucket{le="0.25",queue_num="7"}'] == 0
    assert found['queue_job_processor_cycle_duration_seconds_bucket{le="0.5",queue_num="7"}'] == 1
    app.events.emit(batch_ended(7, "emails", 4, processed=4))
    assert scraped(metrics)['queue_tasks_in_progress{queue_num="7"}'] == 0


def test_who_is_at_work_is_seen() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    for count, workers in ((4, 1), (0, 0), (2, 1)):
        app.events.emit(ProcessorsRunning(count))
        found = scraped(metrics)
        assert (found["queue_running_job_processors"], found["queue_running_workers"]) == (count, workers)


def test_the_four_names_have_their_kinds() -> None:
    told = generate_latest(Metrics(App("sqlite://")).registry).decode()
    for name, kind in (
        ("queue_job_processor_cycle_duration_seconds", "histogram"),
        ("queue_tasks_in_progress", "gauge"),
        ("queue_running_workers", "gauge"),
        ("queue_running_job_processors", "gauge"),
    ):
        assert f"# TYPE {name} {kind}\n" in told


def test_what_becomes_of_tasks_is_counted() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    for task_id, unreadable in ((1, True), (2, False), (3, False)):
        app.events.emit(TaskSetAside(7, "emails", task_id, "why", unreadable))
    app.events.emit(batch_ended(7, "emails", 20, processed=9, retried=4, dead=3, stale=2, left=2))
    app.events.emit(batch_ended(7, "emails", 1, dead=1))
    found = scraped(metrics)
    expected = {"processed": 9, "retried": 4, "dead": 3, "stale": 2, "unreadable": 1}
    name = 'matrixsched_queue_tasks_total{{queue="emails",result="{}"}}'
    assert {result: found[name.format(result)] for result in expected} == expected


def test_errors_are_counted_as_handlers_count_them() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    for errors in (2, 0, 3):
        app.events.emit(replace(batch_ended(7, "emails", 5), errors=errors))
    assert scraped(metrics)['matrixsched_queue_errors_total{queue="emails"}'] == 5


def test_cycles_that_are_overlong_are_counted() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    for cycle_s in (CYCLE_S_MAX / 2, CYCLE_S_MAX, CYCLE_S_MAX * 1.01, 60.0):
        app.events.emit(batch_ended(7, "emails", 1, cycle_s))
    found = scraped(metrics)
    assert found['matrixsched_queue_slow_cycles_total{queue="emails"}'] == 2
    within = f'queue_job_processor_cycle_duration_seconds_bucket{{le="{CYCLE_S_MAX}",queue_num="7"}}'
    assert found[within] == 2, "the histogram has the same border"


def test_what_waits_is_seen_as_it_was_sampled_last() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    app.events.emit(QueuesSampled((sample(7, "emails"), sample(8, "sms", ready=0, oldest_ready_s=0))))
    found = scraped(metrics)
    depth = 'matrixsched_queue_depth{{queue="{}",state="{}"}}'
    assert [found[depth.format("emails", state)] for state in ("ready", "taken", "delayed")] == [5, 3, 4]
    assert found['matrixsched_queue_oldest_ready_seconds{queue="emails"}'] == 2.5
    assert found['matrixsched_queue_oldest_ready_seconds{queue="sms"}'] == 0
    assert found['matrixsched_queue_dead_letters{queue="sms"}'] == 1
    app.events.emit(QueuesSampled((sample(8, "sms"),)))
    found = scraped(metrics)
    assert found[depth.format("emails", "ready")] == 0, "what is no longer sampled is zero"
    assert found[depth.format("sms", "ready")] == 5


def test_queues_without_end_are_told_together() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    many = range(LABELS_MAX + 20)
    app.events.emit(QueuesSampled(tuple(sample(one, f"q{one}", oldest_ready_s=one) for one in many)))
    for one in many:
        app.events.emit(BatchTaken(one, f"q{one}", 1))
    found = scraped(metrics)
    assert found['matrixsched_queue_depth{queue="other",state="ready"}'] == 100
    assert found['matrixsched_queue_oldest_ready_seconds{queue="other"}'] == LABELS_MAX + 19
    assert found['queue_tasks_in_progress{queue_num="other"}'] == 20
