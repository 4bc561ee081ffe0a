"""What commands find around them: settings in files and in the environment, a folder of their own, an App to work for.

A command line is a list of texts, so that it can be printed and pasted. Of these the typist himself heeds

    --config=toml:TEXT    a file with that text
    here:TEXT             the same as matrixsched.toml, where settings are looked for unasked
    env:NAME=VALUE        a variable of the environment
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from hypothesis import strategies as st

from matrixsched import App
from matrixsched.config import FILE_NAME, FILE_VARIABLE, Settings, flag_of, variable_of
from matrixsched.ops.settings import OF_THE_WORKER

Strategy = st.SearchStrategy[str]

app = App("sqlite:///no/such/folder/fuzz.db")
"""For workers, who begin to work nowhere."""

durations: Strategy = st.sampled_from(["10s", "5m", "1h30m", "PT10S", "250ms", "1.5h"])
numbers: Strategy = st.sampled_from(["1", "5", "100", "1000"])


def _of_setting(name: str) -> Strategy:
    """What may be said of a setting on a command line; mostly what makes sense beside the defaults of the others."""
    words = {"log_format": ["text", "JSON"], "log_level": ["debug", "Error"], "metrics_port": ["off", "0", "9100"]}
    words |= {"processes": ["1", "2"], "leaked_max": ["0.5", "1"], "queues_idle_until_told": ["true", "no"]}
    words |= {"heartbeat": ["1s"], "hold_max": ["100ms"], "lease_margin": ["500ms", "0s"], "slots_ahead": ["50ms"]}
    words |= {"database": ["sqlite:///my.db", "postgresql://u:hunter2@host/db"], "installation": ["default", "second"]}
    if name in words:
        return st.sampled_from(words[name])
    return durations if "timedelta" in str(Settings.model_fields[name].annotation) else numbers


OF_SETTINGS: dict[str, Strategy] = {name: _of_setting(name) for name in Settings.model_fields}
WORKER_OPTIONS = {flag_of(name): OF_SETTINGS[name] for name in OF_THE_WORKER}
WEB_OPTIONS = {flag_of(name): OF_SETTINGS[name] for name in ("web_host", "web_port", "web_public_url")}

# Files.

TOML = ["true", "1", "1.5", "-1", "nan", "inf", "1979-05-27T07:32:00Z", "1979-05-27", "07:32:00", "[]", "[1]", "{}"]
TOML += ["{a=1}", '""', '"x"', '"٣"', "9" * 30, '"\\u0000"', '"9"', "[[1]]", "1e400", '"PT10S"', "'''\n'''", "10s"]
ODD_FILES = ["", "\0", "[", "a", "= 1", "nonsense = 1", "[worker]\nconcurrency=1", "concurrency = 1\nconcurrency = 2"]
ODD_FILES += [
    '"a.b"=1',
    "\ufeffconcurrency=1",
    "x" * 10_000,
    f"a={'[' * 5000}",
    "\udcff",
    "concurency = 5",
    "a.b.c = 1",
]
names: Strategy = st.sampled_from([*Settings.model_fields, *Settings.model_fields, "concurency", "config", "a"])


@st.composite
def _lines(draw: st.DrawFn) -> str:
    name = draw(names)
    good = OF_SETTINGS.get(name, numbers).map(lambda text: f'"{text}"' if not text.isdigit() else text)
    return f"{name} = {draw(good | good | st.sampled_from(TOML))}"


toml: Strategy = st.lists(_lines(), max_size=3).map("\n".join) | st.sampled_from(ODD_FILES)


@st.composite
def variables(draw: st.DrawFn, odd: Strategy) -> str:
    name = draw(st.sampled_from([*map(variable_of, Settings.model_fields), "MATRIXSCHED_CONCURENCY"]))
    values = OF_SETTINGS.get(name.removeprefix("MATRIXSCHED_").lower(), numbers)
    return f"env:{name}={draw(values | odd)}"


# Where a command is typed.

_CONFIG = "--config=toml:"
_HERE = "here:"
_VARIABLE = "env:"


@contextmanager
def surrounded(typed: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """What is left to be typed, and the folder to type it in; afterwards all is as before."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        stack.enter_context(chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(mock.patch.object(sys, "path", [*sys.path]))
        yield [left for one in typed if (left := _heeded(one)) is not None], folder


def _heeded(one: str) -> str | None:
    if one.startswith(_CONFIG):
        _write("settings.toml", one.removeprefix(_CONFIG))
        return "--config=settings.toml"
    if one.startswith(_HERE):
        return _write(FILE_NAME, one.removeprefix(_HERE))
    if one.startswith(_VARIABLE):
        name, _, value = one.removeprefix(_VARIABLE).partition("=")
        os.environ[name] = value
        return None
    return one


def _write(name: str, text: str) -> None:
    Path(name).write_bytes(text.encode(errors="surrogateescape"))


@contextmanager
def beginning_no_work() -> Iterator[None]:
    """Workers come as far as that, and end."""
    with (
        mock.patch("matrixsched.ops.process.WorkerProcess", _Idle),
        mock.patch("matrixsched.ops.process.WorkerOptions.log"),
        mock.patch("matrixsched.ops.supervisor.run_supervisor", lambda options: len(options.for_child()) * 0),
    ):
        yield


class _Idle:
    def __init__(self, *_: object, **__: object) -> None: ...

    async def run(self) -> int:
        return 0


ALL_VARIABLES = (*map(variable_of, Settings.model_fields), FILE_VARIABLE)
