"""Rounds: many examples of one seed on one part of the fuzz; what is found is made small and can be sent home."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from fuzz.inputs import Input
from fuzz.machine import Model
from fuzz.verdicts import Found, Signature, Tally

FINDS_MAX = 20
"""So many things are looked for in one round before it is given up."""
STEPS_MAX = 30
Play = Callable[[Sequence[Any]], None]


@dataclass
class Report:
    """What came of a round."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    finds: dict[Signature, str] = field(default_factory=dict)
    """What must not be, each with a test that shows it."""

    def add(self, more: Report) -> None:
        for name, tally in more.tallies.items():
            self.tallies.setdefault(name, Tally()).add(tally)
        self.finds |= more.finds

    @property
    def inputs(self) -> int:
        return sum(tally.inputs for tally in self.tallies.values())


def play_round(play: Play, strategy: Any, number: int, examples: int, known: set[Signature]) -> dict[Signature, str]:
    """Play sequences of a seed."""

    def once() -> None:
        @seed(number)
        @quick(examples)
        @given(strategy)
        def example(drawn: Sequence[Any]) -> None:
            play(drawn)

        example()

    return _until_quiet(once, play, known)


def run_machine(model: Model, number: int, examples: int) -> dict[Signature, str]:
    """Run the state machine with a seed."""
    machine = seed(number)(model.machine())

    def once() -> None:
        run_state_machine_as_test(machine, settings=settings(quick(examples), stateful_step_count=STEPS_MAX))

    return _until_quiet(once, model.play, model.known)


def quick(examples: int) -> settings:
    """Without Hypothesis' own way to make examples small: each try of it would ask two databases."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        print_blob=False,
        report_multiple_bugs=False,
    )


def _until_quiet(once: Callable[[], None], play: Play, known: set[Signature]) -> dict[Signature, str]:
    """What is found is made small, noted and passed over, until nothing new comes."""
    finds: dict[Signature, str] = {}
    while len(finds) < FINDS_MAX:
        try:
            once()
            break
        except Found as found:
            small = made_small(play, found)
            finds[small.violation.signature] = str(small)
            known.add(small.violation.signature)
    return finds


def made_small(play: Play, found: Found) -> Found:
    """The same find with fewer steps, and fewer options in each."""
    smallest, is_smaller = found, True
    while is_smaller:
        is_smaller = False
        for steps in _smaller(smallest.steps):
            again = _found_again(play, steps)
            if again is not None and again.violation.signature == found.violation.signature:
                smallest, is_smaller = again, True
                break
    return smallest


def _smaller(steps: Sequence[Any]) -> Iterator[list[Any]]:
    for place in range(len(steps)):
        yield [*steps[:place], *steps[place + 1 :]]
    for place, step in enumerate(steps):
        if isinstance(step, Input):
            for name in step.options:
                options = {other: value for other, value in step.options.items() if other != name}
                yield [*steps[:place], replace(step, options=options), *steps[place + 1 :]]
            if step.door == "sync":
                yield [*steps[:place], replace(step, door="async"), *steps[place + 1 :]]
        elif step[1]:
            for word in range(len(step[1])):
                typed = [*step[1][:word], *step[1][word + 1 :]]
                yield [*steps[:place], (step[0], typed), *steps[place + 1 :]]


def _found_again(play: Play, steps: Sequence[Any]) -> Found | None:
    try:
        play(steps)
    except Found as found:
        return found
    return None
