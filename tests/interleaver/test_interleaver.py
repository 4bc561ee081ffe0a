"""The interleaver in short: the risky pairs, some others by a fixed seed, and proof that it objects.

All of it: ./tools/dev interleave.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from interleaver.allowed import ALLOWED, Outcome
from interleaver.move import Move
from interleaver.moves import MOVES
from interleaver.pairs import Unit, all_pairs, some_threes
from interleaver.planted import PLANTED
from interleaver.playing import Finding, find_violation, open_game, play_all, play_one, play_some
from interleaver.scenes import SCENES
from interleaver.schedules import Every
from interleaver.stage import Stage
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Conversation, Transaction, Transition

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.undistributed("its moves are those of sql/postgresql/"),
    pytest.mark.direct("statements are held in sessions of their own"),
]

RISKY = [
    ("move", "record", "replaced"),
    ("claim", "record", "lapsing"),
    ("claim", "extend", "lapsing"),
    ("acquire", "move", "left"),
    ("sync", "record", "free-replaced"),
    ("move-free", "record", "free-replaced"),
    ("move-free", "acquire", "free"),
    ("schedule", "prune", "finished"),
    ("reschedule", "expire", "expired"),
    ("claim-gated", "claim-gated", "one-grant"),
    ("balance", "let-go", "place-held"),
    ("take", "retry", "taken-lapsing"),
    ("move", "mend-twice", "twice-new"),
    ("claim", "mend-time", "early"),
    ("record", "mend-counters", "miscounted"),
    ("record", "mend-lease", "stranded"),
    ("reschedule", "mend-lost", "lost"),
    ("claim", "mend-misplaced", "misplaced"),
    ("move", "mend-misplaced", "misplaced-new"),
    ("schedule", "mend-misplaced-home", "misplaced-home"),
    ("claim", "mend-misplaced", "misplaced-twice"),
    ("acquire", "mend-no-lock", "no-lock"),
    ("acquire", "mend-extra-lock", "extra-lock"),
    ("beat", "mend-lock-time", "lock-time-held"),
    ("relist", "mend-chore", "chores"),
    ("balance", "mend-unbalanced", "unbalanced"),
    ("mend-quota", "mend-quota", "no-quota"),
    ("retry", "mend-task-lease", "task-lease"),
    ("purge-dead", "mend-task-twice", "task-twice"),
    ("claim", "run-now-as-seen", "waiting"),
    ("move", "run-now-as-seen", "new"),
]
SCENES_DRAWN, PAIRS_DRAWN, THREES_DRAWN = 3, 4, 3
SEED = 7


def drawn() -> Iterator[Unit]:
    """Some pairs of a few scenes: to build a scene takes longer than to play in it."""
    random, units = Random(SEED), list(all_pairs())
    for scene in random.sample(sorted(SCENES), SCENES_DRAWN):
        yield from random.sample([unit for unit in units if unit.scene == scene], PAIRS_DRAWN)


async def test_the_risky_pairs_and_some_others_go_well_in_every_order(stage: Stage):
    wrong: list[Finding] = []
    for one, other, scene in RISKY:
        wrong += (await play_all(stage, (one, other), SCENES[scene], limit=12)).findings
    for unit in drawn():
        wrong += (await play_all(stage, unit.names, SCENES[unit.scene], limit=12)).findings
    for unit in some_threes(THREES_DRAWN, 3, SEED):
        wrong += (await play_some(stage, unit.names, SCENES[unit.scene], Random(unit.seed), unit.schedules)).findings
    assert not [(finding.line, finding.violations) for finding in wrong]


async def test_planted_mistakes_are_found(stage: Stage):
    for planted in PLANTED:
        finding = await find_violation(stage, [planted.mutant], [planted.pair], scenes=[planted.scene])
        assert finding is not None, planted.name
        assert any(violation.startswith(planted.seen_as) for violation in finding.violations), (planted.name, finding)
        with stage.planted([planted.mutant]):
            again = await play_one(stage, planted.pair, SCENES[planted.scene], finding.letters)
        assert again.violations, f"{planted.name}: {finding.line} shows nothing"


async def outcomes(stage: Stage, pair: tuple[str, str], scene: str, *, reduced: bool) -> tuple[set[Outcome], int]:
    """All that can come of a pair; and in how many schedules that was found out."""
    game, every = await open_game(stage, pair, SCENES[scene]), Every(reduced=reduced)
    found: set[Outcome] = set()
    schedules = 0
    while every.following():
        run = await game.play(every)
        if run.outcome is not None:
            found.add(run.outcome)
            schedules += 1
    return found, schedules


@pytest.mark.parametrize(
    ("pair", "scene"),
    [(("schedule", "claim"), "waiting"), (("record", "claim"), "lapsed"), (("take", "done"), "tasks")],
)
async def test_orders_that_are_left_out_have_no_outcome_of_their_own(stage: Stage, pair: tuple[str, str], scene: str):
    found, few = await outcomes(stage, pair, scene, reduced=True)
    all_there_are, many = await outcomes(stage, pair, scene, reduced=False)
    assert found == all_there_are
    assert few < many


def locking(*ids: str) -> Transition[None]:
    """Actions, in the order given, in one transaction."""
    text = "select from matrixsched.scheduled_actions where action_id = cast(:id as text) for update"

    def begin() -> Conversation[None]:
        for id in ids:
            yield Ask(statement("postgresql", "default", "lock", text), {"id": id})

    return Transaction("locking", begin)


@pytest.mark.parametrize(("order", "deadlocks"), [("ab", 0), ("ba", 1)])
async def test_whoever_is_rolled_back_by_a_deadlock_begins_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, order: str, deadlocks: int
):
    monkeypatch.setitem(MOVES, "one", Move("one", lambda side: locking("a", "b")))
    monkeypatch.setitem(MOVES, "other", Move("other", lambda side: locking(*order)))
    stage.sound = stage.played = {**stage.sound, "lock": next(locking("a").begin()).statement}
    run = await play_one(stage, ("one", "other"), SCENES["free"], "ABAB")
    assert (run.conflicts, run.violations) == (deadlocks, [])
    assert run.waits >= 1


async def test_each_exception_is_needed(stage: Stage):
    for exception in ALLOWED:
        one, other, scene = exception.example
        assert exception.fits((one, other))
        assert exception.columns or exception.unseen or exception.dead_rows, "it must not cover whatever happens"
        tally = await play_all(stage, (one, other), SCENES[scene])
        assert tally.allowed > 0, exception.why
        assert not tally.findings
