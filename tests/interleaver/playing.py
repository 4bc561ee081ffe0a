"""Moves played against each other in a scene, in every order; what is wrong with any of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from random import Random
from typing import Any

from support.interleaving import Mutant

from interleaver.allowed import Outcome, is_allowed
from interleaver.invariants import INVARIANTS, Play
from interleaver.move import ALWAYS, Move, Waits
from interleaver.moves import MOVES, USERS
from interleaver.players import Player, Step, Stuck, abandon_all, settle_all, wait_for_conflict
from interleaver.scenes import LATE, SCENES, Scene, scenes_of
from interleaver.schedules import Chooser, Drawn, Every, Fixed
from interleaver.stage import NAMES, PASSING, Rows, Saved, Side, Stage
from matrixsched.clock import ManualClock
from matrixsched.store.transition import Transition

LIMIT = 400
"""So many schedules of a pair in a scene are run; more have only statements that are many."""
HINTS = {
    "held_lanes": "when a lane is worth another look: what is missing there is found within a second",
}
"""Tables that need not be as after a serial order."""
HINT_COLUMNS = {
    ("processing_queue", "rescheduled_by"): "who looked at a row last, for people; whoever looks twice is written down",
    ("processing_queue", "rescheduled_at"): "likewise",
    ("templates", "last_served_at"): "a plan passes over a template that somebody changes: it decides about turns only",
}
LATER = "+"
"""Behind an order: the time has come before anybody begins."""
EACH = "-"
"""Behind an order: each at its own time; one that began early may come last."""
TWIN = "="
"""Behind a name: the very same transition as that of the first, sent once more."""
_PASSING = re.compile(rf"{PASSING:08x}-[0-9a-f-]{{27}}")


@dataclass(slots=True)
class Run:
    """A schedule that was played."""

    letters: str
    trace: list[str]
    outcome: Outcome | None
    """None: it was another one in other letters, and not played to its end."""
    clock: ManualClock
    violations: list[str] = field(default_factory=list)
    waits: int = 0
    conflicts: int = 0
    asked_again: bool = False
    straddled: bool = False
    """Whether time went on while somebody was at it whose statements tell the time each for itself."""
    written: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    """Tables that were written, and those that were at least looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A schedule after which something is wrong."""

    moves: tuple[str, ...]
    scene: str
    letters: str
    violations: tuple[str, ...]
    trace: tuple[str, ...]
    number: int
    """It is the so many-th that was played of these moves."""

    @property
    def line(self) -> str:
        """To paste."""
        return f"./tools/dev interleave --pair {','.join(self.moves)} --scene {self.scene} --schedule {self.letters}"


@dataclass(slots=True)
class Tally:
    """What was played of some moves in a scene."""

    schedules: int = 0
    repeated: int = 0
    """Begun, and found to be another one in other letters."""
    waits: int = 0
    conflicts: int = 0
    capped: bool = False
    findings: list[Finding] = field(default_factory=list)
    allowed: int = 0
    """Outcomes of no serial order, for a reason that is known."""


@dataclass(slots=True)
class Game:
    """Moves in a scene, with the outcomes of their serial orders."""

    stage: Stage
    scene: Scene
    saved: Saved
    names: tuple[str, ...]
    before: Mapping[str, list[str]] = field(init=False)
    """The tables of the scene."""
    serial: dict[str, Outcome] = field(default_factory=dict)
    """By order, such as `BA`; of less than all of them, too, where they were asked for."""

    def __post_init__(self) -> None:
        self.before = texts_of(self.saved.tables)

    @property
    def moves(self) -> list[Move]:
        return [MOVES[name.rstrip(TWIN)] for name in self.names]

    def sides(self) -> list[Side]:
        first = NAMES[0]
        return [
            Side(first if name.endswith(TWIN) else letter, number, self.saved.facts, self.saved.now)
            for number, (letter, name) in enumerate(zip(NAMES, self.names, strict=False))
        ]

    async def learn(self, order: str) -> Outcome:
        """The outcome of a serial order, played without mistakes."""
        if order not in self.serial:
            with self.stage.planted(()):
                run = await self.play(Fixed(""), order)
            assert run.outcome is not None
            self.serial[order] = run.outcome
        return self.serial[order]

    async def play(self, chooser: Chooser, order: str | None = None) -> Run:
        """Play one schedule; or, in this order, each of those named to its end before the next one begins."""
        await self.stage.reset(self.saved)
        run = Run("", [], None, ManualClock(self.saved.now))
        answers: dict[str, list[Any]] = {letter: [] for letter, _ in zip(NAMES, self.names, strict=False)}
        try:
            if not await self._play_out(run, chooser, order, answers):
                return run
            if again := self._those_who_ask_again(answers):
                run.asked_again = True
                await self._check(run, answers)  # what is wrong now may be put right by whoever comes round
                for letter, move in again:
                    await self._go(run, [self._player(run, letter, move.round)], Fixed(""), answers)
        except (Stuck, TimeoutError) as error:
            run.violations.append(f"nothing waits forever: {error or 'a statement takes too long'}")
            return run
        tables = await self._check(run, answers)
        said = [
            plain_text(move.says(answers[letter])) if answers[letter] else ""
            for letter, move in zip(answers, self.moves, strict=True)
        ]
        run.outcome = Outcome(tuple(said), json.dumps({**self.before, **texts_of(tables)}, sort_keys=True))
        return run

    async def _play_out(self, run: Run, chooser: Chooser, order: str | None, answers: Mapping[str, list[Any]]) -> bool:
        if order is None:
            came_to_end = await self._go(run, [self._player(run, letter) for letter in answers], chooser, answers)
            if not came_to_end:
                return False
        else:
            for letter in order.rstrip(LATER + EACH):
                self._set_time(run, letter, order[-1])
                await self._go(run, [self._player(run, letter)], chooser, answers)
        if self.scene.late and any(map(self._is_late, answers)):
            run.clock.time = self.saved.now + self.scene.late
        return True

    async def _check(self, run: Run, answers: Mapping[str, Sequence[Any]]) -> dict[str, Rows]:
        """What is wrong as it stands now; the tables that were written."""
        tables = await self.stage.read(run.written)
        senders = [side.name for side in self.sides()]
        names = tuple(move.name for move in self.moves)
        play = Play(self.saved, names, senders, answers, {**self.saved.tables, **tables}, run.clock.now())
        wrong = [f"{what}: {found}" for what, check in INVARIANTS.items() for found in check(play)]
        run.violations += [one for one in wrong if one not in run.violations]
        return tables

    def _those_who_ask_again(self, answers: Mapping[str, Sequence[Any]]) -> list[tuple[str, Move]]:
        """Those who were told "not now" at once; after them those who come round, last those who do more then."""
        told = [
            (letter, move)
            for letter, move in zip(answers, self.moves, strict=True)
            if answers[letter] and move.again(answers[letter][-1])
        ]
        return sorted(told, key=lambda one: (one[1].again is ALWAYS, one[1].round is not None))

    def _player(self, run: Run, letter: str, make: Callable[[Side], Transition[Any]] | None = None) -> Player:
        number, stage = NAMES.index(letter), self.stage
        transition = (make or self.moves[number].make)(self.sides()[number])
        return Player(letter, stage.seats[number], transition, stage.played, stage.watch, run.clock)

    async def _go(
        self, run: Run, players: Sequence[Player], chooser: Chooser, answers: Mapping[str, list[Any]]
    ) -> bool:
        """Step by step to the end of all; whether it came to that."""
        by_name = {player.name: player for player in players}
        try:
            if len(players) == 1:
                self._let_time_pass(run, players[0])
                await players[0].run_through()
            while not all(player.done for player in players):
                steps = {player.name: player.next_step for player in players if player.can_go_on}
                if not steps:
                    await wait_for_conflict(players)
                    await settle_all(players)
                    continue
                letter = chooser.choose(run.letters, steps)
                if letter is None:
                    return False
                await self._take(run, by_name[letter], players, steps, chooser)
        finally:
            for player in players:
                run.violations += self._impatience(player)
                self.stage.disturbed |= player.written
                run.written |= player.written
                run.touched |= player.touched
                run.waits += player.waited
                run.conflicts += player.conflicts
            await abandon_all(player for player in players if not player.done)
        for player in players:
            answers[player.name].append(player.answer)
        return True

    def _impatience(self, player: Player) -> Iterator[str]:
        """Who promises not to wait."""
        mine = self.moves[NAMES.index(player.name)]
        by_pid = {seat.pid: move.name for seat, move in zip(self.stage.seats, self.moves, strict=False)}
        others = {by_pid[pid] for pid in player.waited_for}
        if others and (mine.waits is Waits.FOR_NOBODY or mine.waits is Waits.FOR_WORKERS and others & USERS):
            yield f"nobody waits who promised not to: {mine.name} waits"

    async def _take(
        self, run: Run, player: Player, players: Sequence[Player], steps: Mapping[str, Step], chooser: Chooser
    ) -> None:
        for other in players:
            if other is not player:
                await other.hold()
        step = steps[player.name]
        # Before somebody begins who is late, or after: that is not the same, whatever is done.
        in_time = run.clock.now() < self.saved.now + self.scene.late and any(self._is_late(one.name) for one in players)
        self._let_time_pass(run, player, [other for other in players if other is not player])
        if step.kind == "commit":
            await self._check_fences(run, player)
        await player.step()
        went_on = await settle_all([other for other in players if other is not player])
        run.letters += player.name
        run.trace.append(f"{player.name} {step.kind} {step.name}" + (" … waits" if player.waits else ""))
        chooser.took(run.letters, step, steps, disturbed=in_time or went_on or player.waits)

    def _let_time_pass(self, run: Run, player: Player, others: Sequence[Player] = ()) -> None:
        """If somebody begins whose time had not come before."""
        if self.scene.late and self._is_late(player.name) and run.clock.now() == self.saved.now:
            run.clock.advance(self.scene.late)
            at_it = [other.name for other in others if other.in_transaction and other.next_ask is not None]
            run.straddled = any(self._move_of(name).timed for name in at_it)

    def _set_time(self, run: Run, letter: str, when: str) -> None:
        if when == LATER or when == EACH and self._is_late(letter):
            run.clock.time = self.saved.now + self.scene.late
        elif when == EACH:
            run.clock.time = self.saved.now

    def _move_of(self, letter: str) -> Move:
        return self.moves[NAMES.index(letter)]

    def _is_late(self, letter: str) -> bool:
        return self._move_of(letter).name in LATE

    async def _check_fences(self, run: Run, player: Player) -> None:
        """Rows are moved and claimed by whoever holds the shard, up to the commit."""
        for shard, guid in player.fences:
            holder = await self.stage.watch.holder(shard)
            if holder != guid:
                run.violations.append(
                    f"only the holder of a shard moves and claims: {player.name} commits after {holder}"
                )

    def _is_comparable(self, run: Run) -> bool:
        """Not, where several transactions make a move, or time went on in the midst of one; nor where one of three was
        passed over and asked again when the third had been there, or time went on among them: that is as after no order
        of the three."""
        is_whole = all(move.whole for move in self.moves) and not run.straddled
        return is_whole and (len(self.moves) == 2 or not (run.asked_again or self.scene.late))

    async def judge(self, run: Run) -> bool:
        """Whether its outcome is that of a serial order; if not, and for no known reason, that is a violation."""
        if run.outcome is None or not self._is_comparable(run):
            return True
        orders = orders_of(run.letters, len(self.names))
        if self.scene.late and len(orders) > 1:
            orders += [order + when for order in orders for when in (LATER, EACH)]
        outcomes = {order: await self.learn(order) for order in orders}
        if run.outcome in outcomes.values():
            return True
        if is_allowed(run.outcome, outcomes, self.names):
            return False
        run.violations.append(f"as after one order or the other: {difference(run.outcome, outcomes)}")
        return True


def orders_of(letters: str, players: int) -> list[str]:
    """The serial orders that a schedule may be as: whoever ended before another began comes before him."""
    names = NAMES[:players]
    begins = {name: letters.index(name) for name in names}
    ends = {name: letters.rindex(name) for name in names}
    return [
        "".join(order)
        for order in permutations(names)
        if all(ends[later] > begins[earlier] for n, earlier in enumerate(order) for later in order[n + 1 :])
    ]


async def open_game(stage: Stage, names: Sequence[str], scene: Scene) -> Game:
    saved = await stage.build(scene.name, scene.build)
    return Game(stage, scene, saved, tuple(names))


async def play_all(
    stage: Stage, names: Sequence[str], scene: Scene, *, limit: int = LIMIT, stop: bool = False
) -> Tally:
    """Every schedule of these moves in this scene; with `stop` until one goes wrong."""
    game, tally, every = await open_game(stage, names, scene), Tally(), Every()
    while every.following():
        if tally.schedules >= limit:
            tally.capped = True
            break
        await _count(game, await game.play(every), tally)
        if stop and tally.findings:
            break
    return tally


async def play_some(stage: Stage, names: Sequence[str], scene: Scene, random: Random, count: int) -> Tally:
    """So many schedules by chance."""
    game, tally = await open_game(stage, names, scene), Tally()
    for _ in range(count):
        await _count(game, await game.play(Drawn(random)), tally)
    return tally


async def play_one(stage: Stage, names: Sequence[str], scene: Scene, letters: str) -> Run:
    game = await open_game(stage, names, scene)
    run = await game.play(Fixed(letters))
    await game.judge(run)
    return run


async def _count(game: Game, run: Run, tally: Tally) -> None:
    if run.outcome is None and not run.violations:
        tally.repeated += 1
        return
    tally.allowed += not await game.judge(run)
    tally.schedules += 1
    tally.waits += run.waits
    tally.conflicts += run.conflicts
    if run.violations:
        finding = Finding(
            game.names, game.scene.name, run.letters, tuple(run.violations), tuple(run.trace), tally.schedules
        )
        tally.findings.append(finding)


async def find_violation(
    stage: Stage,
    mutants: Sequence[Mutant],
    pairs: Sequence[Sequence[str]],
    *,
    scenes: Sequence[str] | None = None,
    limit: int = LIMIT,
) -> Finding | None:
    """Plant these mistakes and play these pairs until something is wrong; None: nobody noticed."""
    with stage.planted(mutants):
        for names in pairs:
            chosen = scenes_of(name.rstrip(TWIN) for name in names) if scenes is None else [SCENES[s] for s in scenes]
            for scene in chosen:
                tally = await play_all(stage, names, scene, limit=limit, stop=True)
                if tally.findings:
                    return tally.findings[0]
    return None


# How outcomes are compared.


def plain_text(said: Any) -> str:
    return json.dumps(said, sort_keys=True, default=str)


def texts_of(tables: Mapping[str, Rows]) -> dict[str, list[str]]:
    """Without hints, without what comes from a sequence; guids that may be others in every run are all alike."""
    return {
        table: sorted({_PASSING.sub("passing", plain_text(_row(table, row))) for row in rows})
        for table, rows in tables.items()
        if table not in HINTS
    }


def _row(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in row.items() if (table, key) not in HINT_COLUMNS}
    if table in ("queue_tasks", "queue_dead_letters"):
        del plain["id"]  # what is in them tells them apart
    if table == "requests" and plain["task_ids"] is not None:
        plain["task_ids"] = len(plain["task_ids"])
    for key in ("payload", "data"):
        if key in plain:
            plain[key] = bytes.fromhex(plain[key].removeprefix("\\x")).decode(errors="replace")
    return plain


def difference(found: Outcome, serial: Mapping[str, Outcome]) -> str:
    """What is said and stands otherwise than after each serial order."""
    return "; ".join(f"than {order}: {_unlike(found, outcome)}" for order, outcome in serial.items())


def _unlike(found: Outcome, other: Outcome) -> str:
    parts = [f"says {one} not {two}" for one, two in zip(found.said, other.said, strict=True) if one != two]
    here, there = json.loads(found.state), json.loads(other.state)
    for table in sorted({*here, *there}):
        more = [row for row in here.get(table, []) if row not in there.get(table, [])]
        less = [row for row in there.get(table, []) if row not in here.get(table, [])]
        if more or less:
            parts.append(f"{table} has {more or 'nothing'} not {less or 'nothing'}")
    return ", ".join(parts) or "nothing"
