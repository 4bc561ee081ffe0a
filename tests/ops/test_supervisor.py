"""The supervisor, in a world without processes and without time."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from matrixsched.ops.exits import WRONG_USE
from matrixsched.ops.process import READY_WITHIN_S
from matrixsched.ops.supervisor import REST_FIRST_S, REST_MAX_S, STABLE_AFTER_S, Supervisor


@dataclass
class FakeChild:
    pid: int
    code: int | None = None
    signals: list[int] = field(default_factory=list)
    dies_of: dict[int, int] = field(default_factory=lambda: {signal.SIGTERM: 0})

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if number in self.dies_of:
            self.code = self.dies_of[number]


@dataclass
class FakeWorld:
    """Waiting moves time on; what happens at a certain time is written down beforehand."""

    plan: deque[tuple[float, Callable[[], int | None]]] = field(default_factory=deque)
    time: float = 0.0
    children: list[FakeChild] = field(default_factory=list)
    spawned_at: list[float] = field(default_factory=list)
    buried_pids: list[int] = field(default_factory=list)
    looks: dict[int, float] = field(default_factory=dict)
    refusals: int = 0
    child_dies_of: dict[int, int] = field(default_factory=lambda: {signal.SIGTERM: 0})

    def spawn(self) -> FakeChild:
        self.spawned_at.append(self.time)
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.children.append(FakeChild(100 + len(self.children), dies_of=self.child_dies_of))
        return self.children[-1]

    def looked_at(self, pid: int) -> float | None:
        return self.looks.get(pid)

    def looks_now(self) -> None:
        for child in self.children:
            self.looks[child.pid] = self.time

    def buried(self, pid: int) -> None:
        self.buried_pids.append(pid)

    def monotonic(self) -> float:
        return self.time

    def wait(self, seconds: float) -> int | None:
        if self.plan and self.plan[0][0] <= self.time + seconds:
            moment, happens = self.plan.popleft()
            self.time = max(self.time, moment)
            return happens()
        self.time += seconds
        assert self.time < 100_000, "it never ends"
        return None

    def dies(self, number: int, code: int) -> Callable[[], int]:
        def happens() -> int:
            self.children[number].code = code
            return signal.SIGCHLD

        return happens


def asked_to_stop() -> int:
    return signal.SIGTERM


def test_all_places_are_filled_and_a_signal_ends_all_in_good_order() -> None:
    world = FakeWorld(deque([(5.0, asked_to_stop)]))
    supervisor = Supervisor(world, 3)
    assert supervisor.run() == 0
    assert world.spawned_at == [0.0] * 3
    assert [child.signals for child in world.children] == [[signal.SIGTERM]] * 3
    assert world.buried_pids == [100, 101, 102]
    assert supervisor.readiness == (False, "stopping")


def test_it_is_ready_only_while_all_children_look_for_work() -> None:
    world = FakeWorld(child_dies_of={})
    supervisor = Supervisor(world, 2)
    told: dict[str, tuple[bool, str]] = {}

    def note(moment: str, signal_number: int | None = None) -> Callable[[], int | None]:
        def happens() -> int | None:
            told[moment] = supervisor.readiness
            return signal_number

        return happens

    def both_look() -> None:
        world.looks_now()

    def one_looks() -> None:
        world.looks[101] = world.time

    def end() -> None:
        for child in world.children:
            child.code = 0

    world.plan += [
        (1.0, note("at first")),
        (2.0, both_look),
        (3.0, note("when both have looked")),
        (9.0, one_looks),
        (2.5 + READY_WITHIN_S, note("when one is silent", signal.SIGTERM)),
        (13.0, both_look),
        (14.0, note("after the signal")),
        (15.0, end),
    ]
    assert supervisor.run() == 0
    assert told == {
        "at first": (False, "process 100: waiting for the database"),
        "when both have looked": (True, "ready: 2 processes"),
        "when one is silent": (False, "process 100: has not found out about work for 10 s: see the log for the step"),
        "after the signal": (False, "stopping"),
    }


def test_a_dead_child_is_replaced_after_a_rest() -> None:
    world = FakeWorld()
    world.plan += [(10.0, world.dies(0, -signal.SIGKILL)), (20.0, asked_to_stop)]
    supervisor = Supervisor(world, 2)
    assert supervisor.run() == 0
    assert world.spawned_at == [0.0, 0.0, 10.0 + REST_FIRST_S]
    assert world.buried_pids[0] == 100


def test_a_child_that_keeps_dying_is_started_ever_more_rarely() -> None:
    world = FakeWorld()
    original = world.spawn

    def spawn_dying() -> FakeChild:
        child = original()
        child.code = 1
        return child

    world.spawn = spawn_dying  # type: ignore[method-assign]
    world.plan.append((300.0, asked_to_stop))
    Supervisor(world, 1).run()
    rests = [later - earlier for earlier, later in zip(world.spawned_at, world.spawned_at[1:], strict=False)]
    # A death is noticed at the next look, at most a second later.
    assert rests[0] == pytest.approx(REST_FIRST_S, abs=1.01)
    assert rests[-1] == pytest.approx(REST_MAX_S, abs=1.01)
    assert all(later >= earlier for earlier, later in zip(rests, rests[1:], strict=False))


def test_a_minute_of_life_forgives_earlier_deaths() -> None:
    world = FakeWorld()
    world.plan += [
        (0.1, world.dies(0, 1)),
        (1.0, world.dies(1, 1)),
        (10.0 + STABLE_AFTER_S, world.dies(2, 1)),
        (500.0, asked_to_stop),
    ]
    Supervisor(world, 1).run()
    assert world.spawned_at[-1] == 10.0 + STABLE_AFTER_S + REST_FIRST_S


def test_a_process_that_cannot_be_started_is_tried_again() -> None:
    world = FakeWorld(deque([(50.0, asked_to_stop)]), refusals=2)
    supervisor = Supervisor(world, 1)
    assert supervisor.run() == 0
    assert world.spawned_at == [0.0, REST_FIRST_S, REST_FIRST_S * 3]


def test_what_a_restart_cannot_mend_ends_all_with_the_same_code() -> None:
    world = FakeWorld()
    world.plan.append((1.0, world.dies(0, WRONG_USE)))
    assert Supervisor(world, 2).run() == WRONG_USE
    assert len(world.children) == 2


@pytest.mark.parametrize("worked", [100, 101], ids=["itself", "its neighbour"])
def test_a_fault_that_comes_after_work_does_not_stop_the_others(worked: int) -> None:
    world = FakeWorld(looks={worked: 0.5})
    world.plan += [(1.0, world.dies(0, WRONG_USE)), (5.0, asked_to_stop)]
    assert Supervisor(world, 2).run() == 0
    assert world.spawned_at == [0.0, 0.0, 1.0 + REST_FIRST_S]
    assert world.children[1].signals == [signal.SIGTERM]


@pytest.mark.parametrize(("how_it_ends", "expected"), [(0, 0), (1, 1), (-signal.SIGTERM, 0), (-signal.SIGKILL, 1)])
def test_the_exit_code_tells_whether_all_ended_gracefully(how_it_ends: int, expected: int) -> None:
    world = FakeWorld(deque([(1.0, asked_to_stop)]), child_dies_of={signal.SIGTERM: how_it_ends})
    assert Supervisor(world, 2).run() == expected


def test_later_signals_are_passed_on_and_the_third_kills() -> None:
    moments = [(1.0, asked_to_stop), (2.0, asked_to_stop), (3.0, lambda: int(signal.SIGINT))]
    world = FakeWorld(deque(moments), child_dies_of={signal.SIGKILL: -signal.SIGKILL})
    assert Supervisor(world, 1).run() == 1
    assert world.children[0].signals == [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]
