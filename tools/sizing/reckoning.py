"""What a fleet asks of its database, quantity by quantity, beside what there is of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Literal

from sizing import assumptions as known
from sizing import formulae
from sizing.fleet import Fleet
from sizing.formulae import Looking, Looks

HOUR_S, US = 3_600.0, 1e-6


@dataclass(frozen=True, slots=True)
class Quantity:
    area: str
    name: str
    value: float
    unit: str
    basis: Literal["measured", "calculated"]
    bound: float | None = None
    bound_is: str = ""
    change: str = ""
    """What to do where the bound is reached."""

    @property
    def share(self) -> float | None:
        """Of the bound that is used."""
        return None if self.bound is None else self.value / self.bound if self.bound > 0 else inf


def reckon(fleet: Fleet) -> list[Quantity]:
    one = Reckoning(fleet)
    parts = (
        one.looks,
        one.at_rest,
        one.news,
        one.connections,
        one.leases,
        one.tables,
        one.log,
        one.vacuum,
        one.recovery,
    )
    return [quantity for part in parts for quantity in part()]


def breaks(quantities: list[Quantity]) -> list[Quantity]:
    """Those with a bound, the one first that is reached first when a fleet grows: all grow about as it does."""
    return sorted((one for one in quantities if one.bound is not None), key=lambda one: one.share or 0, reverse=True)


class Reckoning:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    # Looks for work, and who gets in whose way.

    @cached_property
    def look_cpu_s(self) -> float:
        return look_cpu_s(self.fleet.shards)

    @cached_property
    def work_cores(self) -> float:
        """What actions cost beside looks."""
        return self.fleet.rate * (known.RUN_US.value + known.SCHEDULE_US.value) * US

    @cached_property
    def news_cores(self) -> float:
        return self.listeners * self.commits_told * known.NOTICE_US.value * US

    @cached_property
    def looking(self) -> Looking:
        """While the server has time for every look at once."""
        return Looking(
            workers=self.fleet.workers,
            shards=self.fleet.shards,
            rate=self.fleet.rate,
            look_s=known.TRIP_S.value + self.look_cpu_s,
            answer_s=known.TRIP_S.value / 2 + self.look_cpu_s,
            early_s=known.KNOWN_WITHIN.value * known.TRIP_S.value,
            visit_s=known.VISIT_STATEMENTS.value * known.TRIP_S.value + known.FLUSH_S.value,
            rest_max=self.fleet.rest_max,
            jitter_s=known.LANE_JITTER_S.value,
            overdue_rest_s=known.OVERDUE_REST_S.value,
            hold_s=hold_s(self.fleet.workers, self.fleet.shards, self.fleet.rest_max),
        )

    def _slowed(self, look_s: float) -> Looking:
        extra_s = look_s - self.looking.look_s
        return replace(self.looking, look_s=look_s, answer_s=self.looking.answer_s + extra_s)

    @cached_property
    def wanted(self) -> Looks:
        return formulae.looks_of(self.looking)

    @cached_property
    def had(self) -> Looks:
        """With the processors that are left for looks."""
        left = max(self.fleet.cores - self.work_cores - self.news_cores, 1.0)
        look_s = formulae.within(
            left,
            lambda look_s: formulae.looks_of(self._slowed(look_s)).all * self.look_cpu_s,
            self.looking.look_s,
        )
        return formulae.looks_of(self._slowed(look_s))

    def looks(self) -> Iterator[Quantity]:
        area, fleet, had = "looks", self.fleet, self.had
        yield Quantity(area, "a look at all shards, on the server", self.look_cpu_s * 1e3, "ms", "measured")
        yield Quantity(
            area,
            "processors that looks ask for under load",
            self.wanted.all * self.look_cpu_s,
            "cores",
            "calculated",
            max(fleet.cores - self.work_cores - self.news_cores, 1.0),
            "what actions and NOTIFY leave",
            "fewer shards (two to four a process), and fewer processes with more --concurrency",
        )
        yield Quantity(
            area,
            "processors that the actions themselves take",
            self.work_cores,
            "cores",
            "calculated",
            fleet.cores,
            "the server's",
            "a larger server; several installations on several servers",
        )
        yield Quantity(
            area,
            "processors that the workers take, beside the handlers",
            fleet.rate * known.WORKER_US.value * US,
            "cores",
            "calculated",
            fleet.workers,
            "processes",
            "more processes",
        )
        yield Quantity(area, "acquire statements that the server has time for", had.all, "/s", "calculated")
        yield Quantity(area, "…of which find a shard with work", 100 * had.found_share, "%", "calculated")
        yield Quantity(area, "actions found by a visit", had.batch, "", "calculated")
        yield Quantity(
            area,
            "shards held at an instant",
            had.visits * (self.looking.answer_s + self.looking.visit_s),
            "",
            "calculated",
            fleet.shards,
            "shards",
            "more shards",
        )
        yield Quantity(
            area,
            "another look wants the same shard meanwhile (it takes the next)",
            100 * formulae.same_shard_chance(had.all, self.look_cpu_s),
            "%",
            "calculated",
        )
        yield Quantity(
            area,
            "from due to claimed, mean",
            had.claim_s,
            "s",
            "calculated",
            1.0,
            "a second",
            "as for the looks: their number is what a shard waits for",
        )
        yield Quantity(
            area,
            "handlers at work",
            fleet.rate * fleet.handler_ms / 1e3,
            "",
            "calculated",
            fleet.workers * 100.0,
            "workers × concurrency",
            "more --concurrency",
        )

    # At rest.

    def at_rest(self) -> Iterator[Quantity]:
        area, fleet = "at rest", self.fleet
        yield Quantity(area, "statements of one process", idle_statements(fleet.rest_max), "/s", "calculated")
        looks = fleet.workers / (fleet.rest_max + self.looking.look_s)
        yield Quantity(
            area,
            "statements of the fleet",
            fleet.workers * idle_statements(fleet.rest_max) + tidying_statements(),
            "/s",
            "calculated",
        )
        yield Quantity(
            area,
            "processors for looks that find nothing",
            looks * self.look_cpu_s,
            "cores",
            "calculated",
            fleet.cores,
            "the server's",
            "fewer shards; fewer processes; a longer rest_max",
        )
        yield Quantity(
            area,
            "lone actions a second of which the looks fill the server",
            formulae.rate_of_looks(self.looking, fleet.cores / self.look_cpu_s),
            "/s",
            "calculated",
        )

    # NOTIFY.

    @property
    def listeners(self) -> int:
        return self.fleet.workers if self.fleet.listen and not self.fleet.pooled else 0

    @property
    def commits_told(self) -> float:
        return self.fleet.rate / self.fleet.schedule_batch

    def news(self) -> Iterator[Quantity]:
        area = "NOTIFY"
        yield Quantity(area, "commits that notify", self.commits_told, "/s", "calculated")
        yield Quantity(area, "sessions woken", self.commits_told * self.listeners, "/s", "calculated")
        yield Quantity(
            area,
            "processors for waking them",
            self.news_cores,
            "cores",
            "calculated",
            self.fleet.cores,
            "the server's",
            "listen=off: looks find what is new within rest_max; or on in one process of each machine; larger batches",
        )

    # Connections.

    def connections(self) -> Iterator[Quantity]:
        area, fleet = "connections", self.fleet
        listener = 1 if self.listeners else 0
        most = known.POOL_CONNECTIONS.value + known.LEASE_CONNECTIONS.value + listener
        yield Quantity(area, "of a process, at most", most, "", "calculated")
        yield Quantity(
            area,
            "of the fleet, in use",
            fleet.cores * 4.0 if fleet.pooled else fleet.workers * (known.USED_CONNECTIONS.value + listener),
            "",
            "calculated",
            fleet.max_connections,
            "max_connections",
            "PgBouncer in transaction mode (four server connections a core), prepared_statements=off, listen=off",
        )

    # Leases.

    def leases(self) -> Iterator[Quantity]:
        area, fleet = "leases", self.fleet
        running = fleet.rate * fleet.handler_ms / 1e3
        beats = self.had.visits * int(fleet.hold_max / fleet.heartbeat)
        yield Quantity(area, "heartbeats of shards (held for less than one)", beats, "/s", "calculated")
        yield Quantity(area, "statements that prolong attempts", fleet.workers / (fleet.lease / 3), "/s", "calculated")
        yield Quantity(
            area,
            "attempts prolonged, a row written for each",
            running / (fleet.lease / 3),
            "rows/s",
            "calculated",
            fleet.rate,
            "as many as actions",
            "a longer attempt_lease: what takes long is prolonged every third of it",
        )

    # Tables.

    @property
    def finished(self) -> float:
        return self.fleet.rate * self.fleet.keep_hours * HOUR_S

    @property
    def table_bytes(self) -> float:
        return (self.fleet.future + self.finished) * known.ACTION_BYTES.value

    @property
    def queue_bytes(self) -> float:
        return self.fleet.future * known.QUEUE_BYTES.value

    def tables(self) -> Iterator[Quantity]:
        area, fleet = "tables", self.fleet
        future_bytes = fleet.future * (known.ACTION_BYTES.value + known.QUEUE_BYTES.value)
        yield Quantity(area, "bytes of a future action, in both tables", future_bytes / fleet.future, "B", "measured")
        yield Quantity(area, "future actions", future_bytes / 1e9, "GB", "calculated")
        yield Quantity(area, "finished actions that are kept", self.finished, "rows", "calculated")
        yield Quantity(
            area,
            "all of it",
            (future_bytes + self.finished * known.ACTION_BYTES.value) / 1e12,
            "TB",
            "calculated",
            fleet.disk_tb,
            "the disk",
            "keep_done in hours, not days",
        )
        turn_s = (
            fleet.tidy_batch * known.PRUNE_ROW_US.value * US
            + known.TIDY_STATEMENTS.value * known.TRIP_S.value
            + known.FLUSH_S.value
        )
        yield Quantity(
            area,
            "finished actions to be pruned",
            fleet.rate,
            "rows/s",
            "calculated",
            fleet.tidy_batch / turn_s * known.TIDY_SHARE.value,
            "what one worker prunes in half of its time",
            "WorkerPolicy(tidy_batch=10_000); `matrixsched prune` beside it",
        )

    # WAL and checkpoints.

    @cached_property
    def wal_bytes_s(self) -> float:
        return self.fleet.rate * known.WAL_BYTES.value + self._images_bytes_s

    @cached_property
    def _images_bytes_s(self) -> float:
        return formulae.page_images_bytes_s(
            # What is finished lies together, by the time of its end, and is not touched again.
            pages=self.fleet.future * (known.ACTION_BYTES.value + known.QUEUE_BYTES.value) / known.PAGE_BYTES.value,
            touched=self.fleet.rate * known.PAGES_TOUCHED.value,
            every_s=self.fleet.checkpoint_s,
            page_bytes=known.PAGE_BYTES.value,
        )

    def log(self) -> Iterator[Quantity]:
        area, fleet = "WAL", self.fleet
        yield Quantity(area, "of an action, without images of pages", known.WAL_BYTES.value, "B", "measured")
        yield Quantity(
            area,
            "of all, with images of pages",
            self.wal_bytes_s / 1e6,
            "MB/s",
            "calculated",
            fleet.wal_mb_s,
            "the disk's and the standbys'",
            "checkpoints further apart, wal_compression=lz4; then several servers",
        )
        yield Quantity(
            area,
            "between two checkpoints",
            self.wal_bytes_s * fleet.checkpoint_s / 1e9,
            "GB",
            "calculated",
            fleet.max_wal_gb,
            "max_wal_size",
            "raise max_wal_size to that and a half: else checkpoints come sooner, and each brings all images again",
        )

    # Vacuum.

    def vacuum(self) -> Iterator[Quantity]:
        area, fleet = "vacuum", self.fleet
        dead_queue = fleet.rate * known.DEAD_QUEUE.value + fleet.rate * fleet.handler_ms / 1e3 / (fleet.lease / 3)
        dead_actions = fleet.rate * (known.DEAD_ACTIONS.value + known.DEAD_PRUNED.value)
        dead = dead_queue + dead_actions + fleet.rate * known.DEAD_INCOMING.value
        yield Quantity(area, "dead rows", dead, "/s", "calculated")
        queue_pages = self.queue_bytes * (1 - known.INDEX_SHARE.value) / known.PAGE_BYTES.value
        yield Quantity(
            area,
            "a pass over processing_queue",
            formulae.pass_s(
                table_bytes=self.queue_bytes,
                index_share=known.INDEX_SHARE.value,
                dirty_pages=formulae.pages_hit(queue_pages, dead_queue * known.VACUUM_NAP_S.value),
                bytes_s=known.VACUUM_BYTES_S.value,
                page_bytes=known.PAGE_BYTES.value,
            ),
            "s",
            "calculated",
            2 * known.VACUUM_NAP_S.value,
            "two naps of autovacuum",
            "nothing is lost, the table grows by what dies meanwhile: faster disks",
        )
        dead_max = fleet.vacuum_scale * (fleet.future + self.finished)
        yield Quantity(
            area,
            "a pass over scheduled_actions",
            self._actions_pass_s(dead_max) / HOUR_S,
            "h",
            "calculated",
            dead_max / dead_actions / HOUR_S,
            "until it is due again",
            "autovacuum_vacuum_cost_limit=10000, and autovacuum_vacuum_scale_factor=0.2 for this table",
        )
        xids = (
            self.had.visits * known.VISIT_XIDS.value
            + self.commits_told
            + 2 * fleet.workers / known.REPORT_EVERY_S.value
        )
        yield Quantity(area, "transactions that take an xid", xids, "/s", "calculated")
        yield Quantity(area, "xids last for", known.XIDS_MAX.value / xids / HOUR_S, "h", "calculated")
        yield Quantity(
            area,
            "a vacuum that freezes all",
            self.table_bytes * (1 + known.INDEX_SHARE.value) / known.VACUUM_BYTES_S.value / HOUR_S,
            "h",
            "calculated",
            (known.XIDS_MAX.value - known.FREEZE_AGE.value) / xids / HOUR_S,
            "xids are left by then",
            "fewer rows, and fewer and larger visits; watch age(datfrozenxid)",
        )

    def _actions_pass_s(self, dead: float) -> float:
        """Old versions lie where actions were scheduled, in random places; what was pruned lies together."""
        rows_share = 1 - known.INDEX_SHARE.value
        future_pages = self.fleet.future * known.ACTION_BYTES.value * rows_share / known.PAGE_BYTES.value
        pruned = dead * known.DEAD_PRUNED.value / (known.DEAD_ACTIONS.value + known.DEAD_PRUNED.value)
        pages = (
            formulae.pages_hit(future_pages, dead - pruned)
            + pruned * known.ACTION_BYTES.value * rows_share / known.PAGE_BYTES.value
        )
        throttled = formulae.throttled_bytes_s(
            cost_limit=self.fleet.vacuum_cost_limit,
            delay_s=known.VACUUM_DELAY_S.value,
            dirty_cost=known.VACUUM_DIRTY_COST.value,
            page_bytes=known.PAGE_BYTES.value,
        )
        indexes_s = self.table_bytes * known.INDEX_SHARE.value / known.VACUUM_BYTES_S.value
        return pages * known.PAGE_BYTES.value / min(throttled, known.VACUUM_BYTES_S.value) + indexes_s

    # Recovery.

    def recovery(self) -> Iterator[Quantity]:
        area, fleet = "recovery", self.fleet
        share = fleet.per_machine / fleet.workers
        running = fleet.rate * fleet.handler_ms / 1e3
        held = self.had.visits * (self.looking.answer_s + self.looking.visit_s) * share
        yield Quantity(area, "attempts that die with a machine", running * share, "", "calculated")
        yield Quantity(area, "shards that it holds", held, "", "calculated")
        yield Quantity(area, "until others have them", max(fleet.lease, fleet.shard_lease), "s", "calculated")
        backlog = fleet.rate * fleet.outage_s
        capacity = min(
            fleet.cores / ((known.RUN_US.value + known.SCHEDULE_US.value) * US),
            fleet.workers * 100 / (fleet.handler_ms / 1e3),
            (fleet.wal_mb_s * 1e6 - self._images_bytes_s) / known.WAL_BYTES.value,
        )
        yield Quantity(area, "backlog of a change of the primary", backlog, "actions", "calculated")
        yield Quantity(area, "most that can be carried", max(0.0, capacity), "actions/s", "calculated")
        yield Quantity(
            area,
            "until that backlog is gone",
            formulae.drain_s(backlog, capacity, fleet.rate),
            "s",
            "calculated",
            300,
            "five minutes",
            "room above the usual rate: what limits it is the row before",
        )


def look_cpu_s(shards: int) -> float:
    """Of the server's processors, for a look at all shards."""
    return (known.LOOK_US.value + shards * known.LOOK_SHARD_US.value) * US


def hold_s(workers: int, shards: int, rest_max: float) -> float:
    """How long a worker of such a fleet holds back that has looked in vain twice, on average."""
    longest_s = min(rest_max, known.HOLD_MAX_S.value)
    return formulae.hold_s(look_cpu_s(shards), workers=workers, vain_share=known.VAIN_SHARE.value, longest_s=longest_s)


def idle_statements(rest_max: float) -> float:
    """A second, of a process whose handlers are of actions alone, and that nobody measures."""
    looks = 1 / rest_max
    reports = (known.REPORT_STATEMENTS.value - 0.5) / known.REPORT_EVERY_S.value
    chores = 1 / known.TIDY_EVERY_S.value
    return looks + reports + chores


def tidying_statements() -> float:
    """A second, of whoever's turn it is to tidy up: one of the whole fleet."""
    return known.TIDY_STATEMENTS.value / known.TIDY_EVERY_S.value
