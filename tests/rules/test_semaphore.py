"""The semaphore: who gets a place and who is asked for one, worked out by hand, and the laws that always hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from matrixsched.errors import BadInput, InvalidDuration, InvalidNumber, InvalidSemaphoreKey
from matrixsched.rules.names import NAME_BYTES_MAX, check_name
from matrixsched.rules.semaphore import (
    ACTIVE_MAX,
    KEY_BYTES_MAX,
    Balance,
    Semaphore,
    Task,
    TaskState,
    acquired_handler,
    balance,
    check_priority,
    check_semaphore_key,
    event_id,
    semaphore_of,
    try_release_handler,
    waiting_needed,
)

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WAITING, ACQUIRED, ASKED = TaskState.WAITING, TaskState.ACQUIRED, TaskState.ASKED


def a_semaphore(active: int, try_release: int) -> Semaphore:
    return Semaphore(key="pool", active=active, try_release=try_release)


def a_task(id: str, priority: float, state: TaskState = WAITING, *, minute: int = 0) -> Task:
    return in_state(
        Task(id=id, priority=priority, state=WAITING, guid=UUID(int=1), enqueued_at=NOW + minute * MINUTE), state
    )


def in_state(task: Task, state: TaskState) -> Task:
    return replace(
        task,
        state=state,
        acquired_at=None if state is WAITING else NOW,
        asked_at=NOW if state is ASKED else None,
    )


def tasks(written: str, state: TaskState) -> list[Task]:
    """`a9 b5@2 c1*`: a with priority 9, b with 5 enqueued in minute 2, and c with 1, which was asked to release."""
    result = []
    for word in written.split():
        what, _, minute = word.rstrip("*").partition("@")
        result.append(a_task(what[0], float(what[1:]), ASKED if word.endswith("*") else state, minute=int(minute or 0)))
    return result


def ids(tasks: Iterable[Task]) -> str:
    return " ".join(task.id for task in tasks)


def names(tasks: Iterable[Task]) -> set[str]:
    return {task.id for task in tasks}


def best(tasks: Iterable[Task], count: int) -> list[Task]:
    """The order once more as it stands in the description."""
    return sorted(tasks, key=lambda task: (-task.priority, task.enqueued_at, task.id))[:count]


# Worked out by hand.


@pytest.mark.parametrize(
    ("active", "try_release", "held", "waiting", "acquire", "ask", "keep"),
    [
        # Free places.
        pytest.param(3, 2, "", "", "", "", "", id="nobody is there"),
        pytest.param(3, 2, "", "x1 y2", "y x", "", "", id="room for all: the best first"),
        pytest.param(3, 2, "", "w1 x4 y2 z3", "x z y", "", "", id="room for three of four"),
        pytest.param(3, 2, "a9", "w1 x4 y2 z3", "x z", "", "", id="one holds: room for two"),
        pytest.param(3, 2, "a5 b4", "x9", "x", "", "", id="a free place is enough for the more important one"),
        pytest.param(3, 2, "a5 b4", "x1", "x", "", "", id="a free place also goes to the least important"),
        pytest.param(3, 2, "a5 b4 c3*", "x9", "", "", "", id="who was asked keeps the place until it releases"),
        pytest.param(3, 2, "a5 b4", "x9 y8", "x", "b", "", id="x fills the free place, y needs that of b"),
        pytest.param(3, 2, "a-5", "x-1 y-9", "x y", "", "", id="priorities below zero"),
        # More important ones wait.
        pytest.param(3, 3, "a5 b4 c3", "x2", "", "", "", id="less important ones wait: nothing to do"),
        pytest.param(3, 3, "a5 b4 c3", "x9", "", "c", "", id="one more important: the last is asked"),
        pytest.param(3, 3, "a5 b4 c3", "x9 y8", "", "c b", "", id="two: the last two, the least important first"),
        pytest.param(3, 3, "a5 b4 c3", "x4.5 y3.5", "", "c", "", id="of a, x, b, y, c the first three stay: not c"),
        pytest.param(3, 3, "a5 b4 c3*", "x9 y8", "", "b", "", id="c was asked already: now b as well"),
        pytest.param(3, 3, "a5 b4* c3*", "x9 y8", "", "", "", id="both were asked already"),
        # The protected head.
        pytest.param(3, 1, "a5 b4 c3", "x9 y8 z7", "", "c", "", id="a and b are protected"),
        pytest.param(3, 0, "a5 b4 c3", "x9 y8 z7", "", "", "", id="try_release 0: nobody is ever asked"),
        pytest.param(3, 0, "a5 b4", "x9 y8 z7", "x", "", "", id="try_release 0: free places are filled all the same"),
        pytest.param(3, 0, "a5 b4 c3*", "x9", "", "", "c", id="try_release was lowered to 0: c is no longer asked"),
        pytest.param(3, 1, "a5 b4", "x9 y8 z7", "x", "b", "", id="x, a are the head of x, a, b"),
        pytest.param(3, 1, "a5 b4* c3*", "x9 y8", "", "", "b", id="try_release was lowered to 1: b is no longer asked"),
        pytest.param(1, 1, "a5", "x9 y8", "", "a", "", id="no head: the only place may be asked for"),
        # Ties.
        pytest.param(1, 1, "", "x5@2 y5@1", "y", "", "", id="among equals who was enqueued first"),
        pytest.param(1, 1, "", "y5@1 x5@1", "x", "", "", id="enqueued at once: by id"),
        pytest.param(1, 1, "", "x5@1 y6@2", "y", "", "", id="the priority counts before the time"),
        pytest.param(2, 2, "a5@2 b5@3", "x5@1", "", "b", "", id="x was there before b, which is asked"),
        pytest.param(2, 2, "a5@1 b5@2", "x5@3", "", "", "", id="x came later: nothing to do"),
        pytest.param(2, 2, "b5@1 c5@1", "a5@1", "", "c", "", id="a, b, c at once: c is asked"),
        pytest.param(2, 2, "a0.0@2 b0.0@3", "x-0.0@1", "", "b", "", id="minus zero is zero"),
        # No longer asked.
        pytest.param(3, 3, "a5 b4 c9*", "x6 y2", "", "b", "c", id="the priority of c rose: b is asked instead"),
        pytest.param(3, 3, "a5 b4 c3*", "x2", "", "", "c", id="the priority of x fell"),
        pytest.param(3, 3, "a5 b4 c3*", "", "", "", "c", id="who was more important left"),
        pytest.param(3, 3, "a5 b4* c3*", "x9", "", "", "b", id="one of two left: c alone makes room"),
        pytest.param(3, 3, "a5* b4*", "x9", "x", "", "a b", id="c released before them: x has its place"),
        pytest.param(4, 3, "a5 b4 c3*", "x9", "x", "", "c", id="active was raised"),
        # Lowering active.
        pytest.param(2, 2, "a5 b4 c3 d2", "", "", "d c", "", id="two too many: they are asked, nobody is dropped"),
        pytest.param(2, 2, "a5 b4 c3 d2", "x1", "", "d c", "", id="a less important one changes nothing"),
        pytest.param(2, 2, "a5 b4 c3 d2", "x9", "", "d c b", "", id="two too many and one more important"),
        pytest.param(2, 1, "a5 b4 c3 d2", "x9 y8", "", "d c b", "", id="a is protected"),
        pytest.param(2, 0, "a5 b4 c3 d2", "x9 y8", "", "d c", "", id="try_release 0: only who is too many"),
        pytest.param(2, 2, "a5 b4 c3* d2*", "x1", "", "", "", id="they were asked already"),
        pytest.param(0, 0, "", "x9", "", "", "", id="active 0: nobody gets a place"),
        pytest.param(0, 0, "a5 b4", "x9", "", "b a", "", id="active 0: all are asked"),
    ],
)
def test_a_balance_worked_out_by_hand(
    active: int, try_release: int, held: str, waiting: str, acquire: str, ask: str, keep: str
) -> None:
    result = balance(a_semaphore(active, try_release), tasks(held, ACQUIRED), tasks(waiting, WAITING))
    assert (ids(result.acquire), ids(result.ask), ids(result.keep)) == (acquire, ask, keep)
    assert bool(result) is bool(acquire or ask or keep)


def test_of_a_thousand_places_the_last_900_may_be_asked_for() -> None:
    semaphore = Semaphore(key="pool")
    assert (semaphore.active, semaphore.try_release, semaphore.hold_for) == (1000, 900, None)
    held = [a_task(f"h{i:04}", 1, ACQUIRED) for i in range(1000)]
    urgent = [a_task(f"u{i:04}", 2) for i in range(5000)]
    assert ids(balance(semaphore, held, urgent[:100]).ask) == ids(reversed(held[900:]))
    assert ids(balance(semaphore, held, urgent).ask) == ids(reversed(held[100:]))


def test_a_balance_with_nothing_to_do_is_false() -> None:
    task = a_task("a", 1)
    assert not Balance((), (), ())
    assert Balance((task,), (), ())
    assert Balance((), (task,), ())
    assert Balance((), (), (task,))


@pytest.mark.parametrize(
    ("active", "try_release", "held", "needed"),
    [
        pytest.param(1000, 900, 0, 1900, id="1000 free, and 900 to stand in for others"),
        pytest.param(1000, 900, 990, 910, id="10 free"),
        pytest.param(1000, 900, 1000, 900, id="none free"),
        pytest.param(1000, 900, 1200, 900, id="200 too many"),
        pytest.param(10, 0, 10, 0, id="none free and nobody may be asked"),
        pytest.param(0, 0, 5, 0, id="active 0"),
    ],
)
def test_a_few_of_those_that_wait_decide(active: int, try_release: int, held: int, needed: int) -> None:
    assert waiting_needed(a_semaphore(active, try_release), held) == needed


# Bad input.


@pytest.mark.parametrize(
    ("priority", "number"), [(0, 0.0), (7, 7.0), (-3, -3.0), (0.5, 0.5), (1e308, 1e308), (2**1000, 2.0**1000)]
)
def test_a_priority_is_any_finite_number(priority: float, number: float) -> None:
    checked = check_priority(priority)
    assert type(checked) is float
    assert checked == number


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (float("nan"), "priority is nan: choose a finite number"),
        (float("inf"), "priority is inf: choose a finite number"),
        (float("-inf"), "priority is -inf: choose a finite number"),
        pytest.param(10**400, "priority is beyond 1.8e308", id="10**400"),
        pytest.param(-(10**400), "priority is beyond 1.8e308", id="-10**400"),
        pytest.param(10**5000, "priority is beyond 1.8e308", id="10**5000: more digits than Python writes"),
        (True, "priority must be a number, not bool"),
        ("5", "priority must be a number, not str"),
        (None, "priority must be a number, not NoneType"),
        (Decimal(5), "priority must be a number, not Decimal"),
        (5j, "priority must be a number, not complex"),
    ],
)
def test_a_priority_that_is_none(wrong: object, why: str) -> None:
    with pytest.raises(BadInput, match=f"^{why}"):
        check_priority(wrong)


@pytest.mark.parametrize("argument", ["active", "try_release"])
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (-1, f"is -1, but must be between 0 and {ACTIVE_MAX}"),
        (ACTIVE_MAX + 1, f"is {ACTIVE_MAX + 1}, but must be between 0 and {ACTIVE_MAX}"),
        pytest.param(10**400, f"but must be between 0 and {ACTIVE_MAX}", id="10**400"),
        (True, "is True, but must be a whole number"),
        (1.0, "is 1.0, but must be a whole number"),
        (float("nan"), "is nan, but must be a whole number"),
        (float("inf"), "is inf, but must be a whole number"),
        ("10", "is '10', but must be a whole number"),
        (None, "is None, but must be a whole number"),
    ],
)
def test_places_are_counted_in_whole_numbers(argument: str, wrong: object, why: str) -> None:
    with pytest.raises(InvalidNumber, match=f"^{argument} .*{why}"):
        Semaphore(key="pool", **{"active": ACTIVE_MAX, "try_release": 0, argument: wrong})  # type: ignore[arg-type]


def test_no_more_may_be_asked_than_are_active() -> None:
    with pytest.raises(BadInput, match="^try_release is 11, but only 10 are active: choose at most as many"):
        a_semaphore(10, 11)
    with pytest.raises(BadInput, match="^try_release is 900, but only 10 are active: choose at most as many"):
        Semaphore(key="pool", active=10)


@pytest.mark.parametrize(("active", "try_release"), [(0, 0), (1, 1), (10, 0), (ACTIVE_MAX, ACTIVE_MAX)])
def test_all_places_may_be_asked_for_or_none(active: int, try_release: int) -> None:
    assert a_semaphore(active, try_release).try_release == try_release


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (timedelta(0), "is zero"),
        (-MINUTE, "is negative"),
        (timedelta(days=4000), "is longer than ten years"),
        (60, "must be a timedelta, not int"),
    ],
)
def test_a_place_is_held_for_a_while(wrong: object, why: str) -> None:
    with pytest.raises(InvalidDuration, match=f"^hold_for {why}"):
        Semaphore(key="pool", hold_for=wrong)  # type: ignore[arg-type]
    assert Semaphore(key="pool", hold_for=MINUTE).hold_for == MINUTE


# Names.


def names_of(bytes_max: int) -> st.SearchStrategy[str]:
    """With many of the characters that must be escaped, and many as long as they may be."""
    letters = st.sampled_from("|%#2ü") | st.characters(exclude_categories=("Cc", "Cs"))
    return st.builds(_cut, st.text(letters, min_size=1), st.integers(1, bytes_max), st.just(bytes_max))


def _cut(text: str, times: int, bytes_max: int) -> str:
    return (text * times).encode()[:bytes_max].decode(errors="ignore") or "x"


any_key, any_task = names_of(KEY_BYTES_MAX), names_of(NAME_BYTES_MAX)


@given(any_key, any_task)
def test_every_event_can_be_called_after_its_task(key, task):
    for handler, prefix in ((acquired_handler(key), "acquired:"), (try_release_handler(key), "try_release:")):
        assert semaphore_of(handler) == check_semaphore_key(key)
        id = event_id(check_name("handler name", handler), check_name("task id", task))
        assert check_name("id", id).startswith(prefix)
        assert id == event_id(handler, task)


@given(st.lists(st.tuples(any_key, any_task), unique=True, max_size=10))
def test_no_two_events_are_called_alike(pairs):
    made = [event_id(handler(key), task) for key, task in pairs for handler in (acquired_handler, try_release_handler)]
    assert len(set(made)) == 2 * len(pairs)


@pytest.mark.parametrize(
    ("pair", "other"),
    [
        (("a|b", "c"), ("a", "b|c")),
        (("a%7Cb", "c"), ("a|b", "c")),
        (("a" * KEY_BYTES_MAX, "|b"), ("a" * (KEY_BYTES_MAX - 1), "a|b")),
        (("a", "|" * 256), ("a", "|" * 255 + "%")),
    ],
)
def test_events_that_look_alike_are_told_apart(pair, other):
    assert event_id(acquired_handler(pair[0]), pair[1]) != event_id(acquired_handler(other[0]), other[1])


def test_the_id_of_an_event_is_the_same_for_ever():
    assert event_id(acquired_handler("pool"), "a|b") == "acquired:pool|a%7Cb"
    digest = "eb3ffaba74663baa70c5d394727e2802a3c06ae352cd909f2df24bb245a2ab49"
    assert event_id(try_release_handler("pool"), "|" * 256) == f"try_release:#{digest}"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("", "is empty"),
        ("x" * (KEY_BYTES_MAX + 1), "has 245 bytes, 244 are allowed"),
        ("x" * 300, "has 300 bytes, 244 are allowed"),
        ("ü" * 123, "has 246 bytes, 244 are allowed"),
        ("a\n", "holds the control character"),
        (7, "must be a string, not int"),
    ],
)
def test_a_key_that_no_handler_can_be_called_after(wrong, why):
    with pytest.raises(InvalidSemaphoreKey, match=f"^semaphore key {why}.*Use 1 to {KEY_BYTES_MAX} bytes"):
        check_semaphore_key(wrong)


# Laws.

World = tuple[Semaphore, list[Task], list[Task]]


@st.composite
def semaphores(draw: st.DrawFn) -> Semaphore:
    active = draw(st.integers(0, 6))
    return a_semaphore(active, draw(st.integers(0, active)))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A semaphore, who holds its places (also too many, also for no reason asked), and who waits; with many ties."""
    priorities = st.one_of(st.integers(-2, 3).map(float), st.floats(allow_nan=False, allow_infinity=False))
    facts = draw(st.lists(st.tuples(priorities, st.integers(0, 3), st.sampled_from(TaskState)), max_size=20))
    called = draw(st.permutations([f"t{i:02}" for i in range(len(facts))]))
    everybody = [
        a_task(name, priority, state, minute=minute)
        for name, (priority, minute, state) in zip(called, facts, strict=True)
    ]
    held = [task for task in everybody if task.state is not WAITING]
    return draw(semaphores()), held, [task for task in everybody if task.state is WAITING]


any_world = worlds()


def applied(result: Balance, held: list[Task], waiting: list[Task]) -> tuple[list[Task], list[Task]]:
    """Who holds and who waits once the balance is carried out."""
    now = {task.id: ACQUIRED for task in (*result.acquire, *result.keep)} | {task.id: ASKED for task in result.ask}
    everybody = [in_state(task, now.get(task.id, task.state)) for task in (*held, *waiting)]
    return (
        [task for task in everybody if task.state is not WAITING],
        [task for task in everybody if task.state is WAITING],
    )


def head(semaphore: Semaphore, held: list[Task]) -> set[str]:
    return names(best(held, semaphore.active - semaphore.try_release))


def asked(held: list[Task]) -> set[str]:
    return names(task for task in held if task.state is ASKED)


@given(any_world)
def test_a_balance_speaks_of_those_it_was_given_and_of_nobody_twice(world):
    semaphore, held, waiting = world
    result = balance(semaphore, held, waiting)
    named = [task.id for task in (*result.acquire, *result.ask, *result.keep)]
    assert len(named) == len(set(named))
    assert all(task in waiting for task in result.acquire)
    assert all(task in held and task.state is ACQUIRED for task in result.ask)
    assert all(task in held and task.state is ASKED for task in result.keep)


@given(any_world)
def test_never_more_than_active_hold_unless_more_held_before(world):
    semaphore, held, waiting = world
    result = balance(semaphore, held, waiting)
    after, _ = applied(result, held, waiting)
    assert names(held) <= names(after), "who holds a place is never dropped"
    assert len(after) <= max(semaphore.active, len(held))
    if len(held) >= semaphore.active:
        assert not result.acquire


@given(any_world)
def test_free_places_go_to_the_best_of_those_that_wait_in_their_order(world):
    semaphore, held, waiting = world
    free = max(0, semaphore.active - len(held))
    assert list(balance(semaphore, held, waiting).acquire) == best(waiting, free)


@given(any_world)
def test_nobody_is_asked_while_a_less_important_holder_is_not(world):
    semaphore, held, waiting = world
    result = balance(semaphore, held, waiting)
    after, _ = applied(result, held, waiting)
    tail = best(after, len(after))[len(head(semaphore, after)) :]
    states = [task.state for task in tail]
    assert states == sorted(states, key=lambda state: state is ASKED), "those who are asked are the last ones"
    assert list(result.ask) == best(result.ask, len(result.ask))[::-1], "the least important first"


@given(any_world)
def test_the_protected_head_is_never_asked(world):
    semaphore, held, waiting = world
    after, _ = applied(balance(semaphore, held, waiting), held, waiting)
    assert not head(semaphore, after) & asked(after)
    if len(held) >= semaphore.active:
        assert not head(semaphore, held) & asked(after), "nobody came in before them"


@given(any_world)
def test_never_more_are_asked_than_more_important_ones_wait_and_than_are_too_many(world):
    semaphore, held, waiting = world
    after, still = applied(balance(semaphore, held, waiting), held, waiting)
    leaving = [task for task in after if task.state is ASKED]
    excess = max(0, len(after) - semaphore.active)
    for count, task in enumerate(reversed(best(leaving, len(leaving))), start=1):
        # Of those asked each but the excess stands in for somebody of its own who is more important.
        more_important = [other for other in still if other.order < task.order]
        assert count <= excess + len(more_important)
    assert len(leaving) <= excess + semaphore.try_release


@given(any_world)
def test_all_who_may_be_asked_for_the_more_important_are(world):
    semaphore, held, waiting = world
    after, still = applied(balance(semaphore, held, waiting), held, waiting)
    staying = [task for task in after if task.state is not ASKED]
    # Whoever leaves is replaced by the best that wait: nobody who still waits then is above somebody who may be asked.
    room = max(0, semaphore.active - len(staying))
    others = best(still, len(still))[room:]
    exposed = [task for task in staying if task.id not in head(semaphore, after)]
    assert len(staying) <= semaphore.active
    assert not [(task, other) for task in exposed for other in others if other.order < task.order]


@given(any_world)
def test_balancing_again_changes_nothing(world):
    semaphore, held, waiting = world
    result = balance(semaphore, held, waiting)
    assert not balance(semaphore, *applied(result, held, waiting))


@given(any_world)
def test_who_was_asked_before_does_not_change_who_is_asked_after(world):
    semaphore, held, waiting = world
    after, _ = applied(balance(semaphore, held, waiting), held, waiting)
    fresh = [in_state(task, ACQUIRED) for task in held]
    assert asked(after) == asked(applied(balance(semaphore, fresh, waiting), fresh, waiting)[0])


@given(any_world, st.randoms(use_true_random=False))
def test_the_order_in_which_tasks_are_given_does_not_matter(world, chance):
    semaphore, held, waiting = world
    shuffled = [chance.sample(given, len(given)) for given in (held, waiting)]
    assert balance(semaphore, *shuffled) == balance(semaphore, held, waiting)


@given(any_world)
def test_a_few_of_those_that_wait_are_as_good_as_all(world):
    semaphore, held, waiting = world
    few = best(waiting, waiting_needed(semaphore, len(held)))
    assert balance(semaphore, held, few) == balance(semaphore, held, waiting)


# Convergence: nothing new comes, and those who are asked release, all at once or some of them at a time.


def settled(world: World, releases: st.DataObject, *, again: bool) -> tuple[list[Task], list[Task]]:
    """Who holds and who waits when there is nothing left to do; those who release are gone, or enqueued `again`."""
    semaphore, held, waiting = world
    rounds, released = 0, set[str]()
    while True:
        before = len(held)
        held, waiting = applied(balance(semaphore, held, waiting), held, waiting)
        assert len(held) <= max(semaphore.active, before)
        leaving = best([task for task in held if task.state is ASKED], len(held))
        if not leaving:
            event(f"{rounds} rounds")
            return held, waiting
        some = releases.draw(st.sets(st.sampled_from(leaving), min_size=1), label="release")
        assert not released & names(some), (
            "nobody has to go twice; so the rounds are at most as many as there are tasks"
        )
        released |= names(some)
        held = [task for task in held if task not in some]
        rounds += 1
        if again:
            # Later than all who were there before.
            waiting += [replace(in_state(task, WAITING), enqueued_at=NOW + (10 + rounds) * MINUTE) for task in some]


@given(any_world, st.data())
def test_the_best_of_those_who_never_released_hold_the_places_in_the_end(world, data):
    semaphore, before, _ = world
    held, waiting = settled(world, data, again=False)
    assert len(held) == min(semaphore.active, len(held) + len(waiting)), "all places are used"
    if semaphore.try_release:
        assert names(held) == names(best([*held, *waiting], semaphore.active))
    else:
        stayed = best(before, semaphore.active)
        assert names(stayed) <= names(held), "without try_release who holds a place stays"
        assert names(held) - names(stayed) == names(best(world[2], semaphore.active - len(stayed)))


@given(any_world, st.data())
def test_the_best_of_all_hold_the_places_in_the_end_when_those_who_released_wait_again(world, data):
    semaphore, before, _ = world
    held, waiting = settled(world, data, again=True)
    everybody = [*world[1], *world[2]]
    assert names([*held, *waiting]) == names(everybody), "nobody is lost"
    assert len(held) == min(semaphore.active, len(everybody))
    if semaphore.try_release:
        assert names(held) == names(best(everybody, semaphore.active)), "who is asked is not among the best"
    else:
        assert names(best(before, semaphore.active)) <= names(held)
