"""The command line: every command with odd arguments, typed in this process on both databases."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock
from uuid import UUID

from hypothesis import strategies as st

from fuzz import contracts
from fuzz import values as v
from fuzz.inputs import SECRET
from fuzz.sides import Sides
from fuzz.surroundings import (
    OF_SETTINGS,
    WEB_OPTIONS,
    WORKER_OPTIONS,
    beginning_no_work,
    durations,
    numbers,
    surrounded,
    toml,
    variables,
)
from fuzz.verdicts import Found, Signature, Tally, Verdict, Violation, difference
from matrixsched import App
from matrixsched.ops.cli import main

Strategy = st.SearchStrategy[str]

# Texts as a shell can pass them: without NUL, and with bytes that are no UTF-8 as lone surrogates.
ODD = [
    "",
    " ",
    "-",
    "--",
    "-x",
    "--nonsense",
    "@",
    "@/no/such/file",
    "\udcff",
    "a\nb",
    "\x7f",
    "א",
    "😀",
    "x" * 300,
    "%",
]
ODD += ["0", "-1", "1e3", "nan", "inf", "٣", "9" * 30, "9" * 5000, "null", "{}", "{", '"\\ud800"', "1" * 100 + "d", "*"]
ODD += ["0001-01-01T00:00Z", "9999-12-31T23:59:59Z", "2030-02-30", "tomorrow", "2030-01-01", "9999999999d", "-5s", "1y"]
ODD += ["10001", "1.5", "2147483648", str(2**63), str(2**64), "acquired:pool", "template:nobody", "0/s", "1/", "none"]
ODD += ["25:00-26:00", "12:00-12:00", "europe/berlin", "localtime", "* * * *", "0 0 30 2 *", "@daily", "a:b:c", "."]
ODD += ["NaN", "[" * 100_000]
odd: Strategy = st.sampled_from(ODD) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)
ids: Strategy = st.sampled_from([*v.KNOWN_IDS, "new"])
times: Strategy = st.sampled_from(["2030-01-01T00:00:00Z", "2030-06-01T12:00:00+02:00", "2030-01-02T00:00:00Z"])
handlers: Strategy = st.sampled_from(["greet", "anything", "elsewhere"])
templates: Strategy = st.sampled_from(["news", "alerts", "nobody"])
pools: Strategy = st.sampled_from(["pool", "small", "nobody"])
limits: Strategy = st.sampled_from(["global", "handler:greet", "key:k1", "key:*", "template:news"])
rates: Strategy = st.sampled_from(["10/s", "1000/min", "7/100ms"])
windows: Strategy = st.sampled_from(["08:00-12:00", "22-06"])
zones: Strategy = st.sampled_from(["UTC", "Europe/Berlin"])
queues: Strategy = st.sampled_from(["1", "2", "9"])
tasks: Strategy = st.sampled_from(["1", "2", "3", "9"])
payloads: Strategy = st.sampled_from(
    [f'{{"text": "{SECRET}"}}', f'"{SECRET}"', "null", f"{{{SECRET}", f'{{"a": 1e999, "b": "{SECRET}"}}']
)
crons: Strategy = st.sampled_from(["0 9 * * *", "*/5 * * * *"])
files: Strategy = st.sampled_from([contracts.FILE, contracts.FILE, "/no/such/file.yaml", "/"])
targets: Strategy = st.sampled_from(["nowhere:app", "json:loads", "json", ":", "json:nothing", "fuzz.commands:odd"])
apps: Strategy = st.just("fuzz.surroundings:app") | targets
configs: Strategy = toml.map("toml:{}".format) | st.just("no/such.toml")


def word(*these: str) -> Strategy:
    return st.sampled_from(these)


@dataclass(frozen=True)
class Command:
    positional: tuple[Strategy, ...] = ()
    options: dict[str, Strategy] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    has_database: bool = True
    settings: tuple[str, ...] = ("--installation", "--config")
    """Options that say where settings are; typed now and then only."""

    def takes(self) -> set[str]:
        """All that can be typed."""
        return {*self.options, *self.flags, *self.settings, *(["--database"] if self.has_database else [])}


REPEAT = {
    "--every": durations,
    "--cron": crons,
    "--zone": zones,
    "--skipped": word("shift", "skip"),
    "--repeated": word("once"),
}
REPEAT |= {"--misfire": word("once", "skip"), "--jitter": durations, "--exclude": word("2030-01-01", "22:00-06:00")}
SETTINGS = {"--installation": OF_SETTINGS["installation"], "--config": configs}
SELECTION = {"--handler": handlers, "--prefix": ids}
QUEUE = {"--contract": files, "--app": targets}

COMMANDS: dict[str, Command] = {
    "init": Command((), {"--shards": numbers}, ("--json", "--distributed")),
    "upgrade": Command((), {}, ("--json",)),
    "settings": Command(
        (),
        {"--database": OF_SETTINGS["database"], **WORKER_OPTIONS, **WEB_OPTIONS},
        ("--json", "--markdown"),
        has_database=False,
    ),
    "worker": Command((apps,), WORKER_OPTIONS, has_database=False, settings=("--config",)),
    "queue-worker": Command((apps,), WORKER_OPTIONS, has_database=False, settings=("--config",)),
    "schedule": Command(
        (handlers,),
        {
            "--payload": payloads,
            "--payload-version": numbers,
            "--id": ids,
            "--at": times,
            "--delay": durations,
            **REPEAT,
            "--expires-at": times,
            "--start-within": durations,
            "--priority": numbers,
            "--template": templates,
            "--limit": ids,
            "--exists": word("replace", "keep", "error"),
            "--request-id": ids,
            "--app": targets,
        },
        ("--yes", "--json"),
    ),
    "actions list": Command(
        (),
        {
            **SELECTION,
            "--state": word("live", "done", "failed", "expired"),
            "--template": templates,
            "--due-before": times,
            "--limit": numbers,
            "--after": ids,
        },
        ("--payload", "--json"),
    ),
    "actions show": Command((ids,), {"--runs": numbers}, ("--payload", "--json")),
    "actions next": Command((ids,), {"--count": numbers, "-n": numbers, "--after": times, **REPEAT}, ("--json",)),
    "actions cancel": Command((ids, ids), {**SELECTION, "--due-before": times}, ("--yes", "--json")),
    "actions run-now": Command((ids, ids), {}, ("--yes", "--json")),
    "actions redrive": Command(
        (ids,),
        {**SELECTION, "--state": word("live", "done", "failed", "expired"), "--since": times},
        ("--yes", "--json"),
    ),
    "explain": Command((ids,), {}, ("--json",)),
    "plan": Command((), {"--hours": numbers}, ("--json",)),
    "prune": Command(
        (),
        {f"--keep-{state}": durations for state in ("done", "cancelled", "expired", "failed", "quarantined")},
        ("--yes", "--json"),
    ),
    "fsck": Command((), {"--limit": numbers}, ("--repair", "--yes", "--json")),
    "templates list": Command((), {}, ("--json",)),
    "templates show": Command((templates,), {}, ("--json",)),
    "templates set": Command(
        (templates,),
        {"--distribution": word("own", "uniform"), "--window": windows, "--max-speed": rates}
        | {"--zone": zones, "--weight": word("1", "2.5")},
        ("--yes", "--json"),
    ),
    "templates pause": Command((templates,), {"--for": durations, "--until": times}, ("--json",)),
    "templates resume": Command((templates,), {}, ("--yes", "--json")),
    "templates stop": Command((templates,), {}, ("--yes", "--json")),
    "templates remove": Command((templates,), {}, ("--yes", "--json")),
    "quota show": Command((), {}, ("--json",)),
    "quota set": Command(
        (),
        {
            "--interval": durations,
            "--inside-share": word("0.5"),
            "--outside-share": word("0.1"),
            "--uniform-share": word("0.2"),
            "--spare": word("leave", "share"),
        }
        | {"--morning": windows, "--day": windows, "--evening": windows, "--inside-times-outside": word("2")},
        ("--yes", "--json"),
    ),
    "limits list": Command((), {"--limit": numbers, "--after": limits}, ("--keys", "--json")),
    "limits show": Command((limits,), {}, ("--json",)),
    "limits set": Command((limits, rates), {"--pool": numbers}, ("--yes", "--json")),
    "limits remove": Command((limits,), {}, ("--yes", "--json")),
    "limits slow-down": Command(
        (limits,), {"--for": durations, "--until": times, "--rate": rates, "--reason": ids}, ("--json",)
    ),
    "limits resume": Command((limits,), {}, ("--yes", "--json")),
    "semaphores list": Command((), {"--limit": numbers, "--after": pools}, ("--counts", "--json")),
    "semaphores show": Command((pools,), {"--holders": numbers, "--waiting": numbers}, ("--json",)),
    "semaphores set": Command(
        (pools,),
        {"--active": numbers, "--try-release": numbers, "--hold-for": durations},
        ("--for-good", "--yes", "--json"),
    ),
    "semaphores release": Command((pools, word("t1", "t2", "t9")), {}, ("--yes", "--json")),
    "contract check": Command((files,), {}, ("--json",), has_database=False, settings=()),
    "contract generate": Command(
        (files,), {"--output": word("out.py", "no/such/out.py")}, ("--check", "--json"), has_database=False, settings=()
    ),
    "contract diff": Command((files, files), {}, ("--json",), has_database=False, settings=()),
    "queues list": Command((), QUEUE, ("--json",)),
    "queues show": Command(
        (queues,), {**QUEUE, "--tasks": numbers, "--dead": numbers, "--after": numbers}, ("--data", "--json")
    ),
    "queues put": Command((queues,), {**QUEUE, "--data": payloads, "--at": times, "--delay": durations}, ("--json",)),
    "queues retry": Command((queues, tasks), QUEUE, ("--all", "--yes", "--json")),
    "queues redrive": Command((queues, tasks), QUEUE, ("--all", "--yes", "--json")),
    "queues purge": Command((queues, tasks), QUEUE, ("--all", "--dead", "--waiting", "--yes", "--json")),
    "queues pause": Command((queues,), QUEUE, ("--json",)),
    "queues resume": Command((queues,), QUEUE, ("--yes", "--json")),
    "queues set": Command(
        (queues,),
        {**QUEUE, "--batch-size": numbers, "--visibility": durations, "--processors": numbers},
        ("--yes", "--json"),
    ),
    "shards list": Command((), {}, ("--json",)),
    "shards release": Command((numbers,), {"--guid": word(str(UUID(int=7)))}, ("--yes", "--json")),
}


MANY = 20
"""Of more options than that each is typed more rarely: all of them at once are never accepted."""
written: Strategy = odd.filter(lambda text: "/" not in text)
"""Names of files that are written: in the folder of the command."""
VARIABLE_MAX = 10_000
"""No system passes on much more."""


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A command and what is typed after it."""
    chance = st.integers(0, 19)
    name = draw(st.sampled_from(sorted(COMMANDS)))
    command = COMMANDS[name]

    def one(of: Strategy) -> str:
        return draw(odd) if draw(chance) < 2 else draw(of)

    typed = [one(of) for of in command.positional if draw(chance) != 0]
    for option, of in command.options.items():
        often = 15 if option == "--contract" else 1 if len(command.options) > MANY else 3
        if draw(chance) < often:
            value = one(of) if option != "--output" else draw(of | written)
            typed += [f"{option}={value}"] if draw(st.booleans()) else [option, value]
    typed += [flag for flag in command.flags if draw(chance) < 10]
    if command.settings and draw(chance) < 3:
        option = draw(st.sampled_from(command.settings))
        typed.append(
            draw(
                (SETTINGS[option] | odd).map(f"{option}={{}}".format)
                | toml.map("here:{}".format)
                | variables(odd.filter(lambda text: len(text) < VARIABLE_MAX))
            )
        )
    if draw(chance) == 0:
        typed.insert(draw(st.integers(0, len(typed))), draw(odd))
    return name, typed


lines: Any = st.lists(command_lines(), min_size=1, max_size=5)


class Typist:
    """Types commands on both sides and judges what came of it."""

    def __init__(self, sides: Sides, urls: Sequence[str]) -> None:
        self._sides, self._urls = sides, urls
        self.tallies: dict[str, Tally] = {}
        self.known: set[Signature] = set()

    def play(self, typed: Sequence[tuple[str, list[str]]]) -> None:
        portal = self._sides.portal
        portal.call(self._sides.restore)
        before = portal.call(self._sides.contents)
        for place, (name, arguments) in enumerate(typed):
            verdicts = [self._verdict(number, name, arguments) for number in range(2)]
            after = portal.call(self._sides.contents)
            violations = list(self._violations(name, verdicts, before, after))
            self.tallies.setdefault(f"matrixsched {name}", Tally()).count(verdicts[0], violations)
            before = after
            for violation in violations:
                if violation.signature not in self.known:
                    raise Found(violation, typed[: place + 1], "typist")
            if violations:
                return

    def _verdict(self, number: int, name: str, arguments: list[str]) -> Verdict:
        side, url = self._sides.both[number], self._urls[number]
        database = ["--database", url] if COMMANDS[name].has_database else []
        made = partial(App, clock=self._sides.clock, chance=side.chance)
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            _quiet(),
            beginning_no_work(),
            mock.patch.multiple(_TOOLKIT, App=made),
            surrounded(arguments) as (typed, folder),
        ):
            try:
                main([*name.split(), *database, *typed])
            except SystemExit as end:
                code = int(end.code or 0)
            except Exception as error:
                return Verdict("unhandled", (type(error).__name__, str(error)), error)
        told = [_alike(text.getvalue(), url, side.store.description, folder) for text in (out, err)]
        return Verdict("accepted" if code == 0 else "refused", (code, *told))

    def _violations(
        self, name: str, verdicts: Sequence[Verdict], before: Sequence[Any], after: Sequence[Any]
    ) -> Iterator[Violation]:
        one, other = verdicts
        for side, verdict, were, are in zip(self._sides.both, verdicts, before, after, strict=True):
            written = [table for table in are if were[table] != are[table]]
            facts = f"on {side.name}: {verdict}"
            if verdict.kind == "unhandled":
                yield Violation("unhandled", name, facts, verdict.what[0])
            elif verdict.what[0] and set(written) - {"requests"}:  # noted, so that a late twin takes no effect
                yield Violation("wrote although refused", name, f"{', '.join(written)}; {facts}")
            elif verdict.what[0] not in (0, 1, 2):
                yield Violation("exit code", name, facts)
            elif "Traceback" in verdict.what[2]:
                yield Violation("shows a trace", name, facts)
            elif SECRET in verdict.what[2]:
                yield Violation("shows the payload", name, facts)
        if one != other:
            yield Violation("differs", name, difference(one, other))
        for table in after[0]:
            if after[0][table] != after[1][table]:
                yield Violation("wrote other rows", name, difference(after[0][table], after[1][table]), table)


def _alike(text: str, url: str, description: str, folder: str) -> str:
    """Without what must differ: which database it is, and where it is typed."""
    for one, name in ((shlex.quote(url), "URL"), (url, "URL"), (description, "DATABASE"), (folder, "FOLDER")):
        text = text.replace(one, name)
    return text


_TOOLKIT = "matrixsched.ops.commands.toolkit"


@contextmanager
def _quiet() -> Iterator[None]:
    """Nobody is at the keyboard."""
    before, sys.stdin = sys.stdin, io.StringIO()
    try:
        yield
    finally:
        sys.stdin = before
