"""Settings: flags, then the environment, then a file, then defaults; and for each, where it came from.

    matrixsched worker --concurrency 50  >  MATRIXSCHED_CONCURRENCY=50  >  concurrency = 50 in matrixsched.toml  >  100

All faults are found in one reading. What the numbers of a worker have to do with each other is WorkerPolicy's to judge.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from matrixsched.errors import ConfigurationError, DatabaseNotNamed, InvalidDurationText
from matrixsched.rules.durations import duration_text, parse_duration

PREFIX: Final = "MATRIXSCHED_"
FILE_NAME: Final = "matrixsched.toml"
FILE_VARIABLE: Final = f"{PREFIX}CONFIG"
DEFAULT: Final = "default"
"""Where a setting comes from that nobody made."""


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    return parse_duration(str(value))


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "a switch is not a number")
    return value


def _off_is_none(value: object) -> object:
    return None if isinstance(value, str) and value.lower() == "off" else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


TOKEN_LENGTH_MIN: Final = 16
TOKEN_LENGTH_MAX: Final = 200

Duration = Annotated[timedelta, BeforeValidator(_duration)]
Number = Annotated[int, BeforeValidator(_no_switch)]


def origin_of(url: str) -> str:
    """The scheme, host and port under which browsers know a site, as they write them; ValueError says what is wrong."""
    parts = urlsplit(url.strip().lower())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("write it as https://jobs.example.com, with a port if it is not the usual one")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("leave out what follows the host: only scheme, host and port count")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = {"http": 80, "https": 443}[parts.scheme]
    try:
        port = parts.port
    except ValueError:
        raise ValueError("its port is none") from None
    return f"{parts.scheme}://{host}" + ("" if port in (None, usual) else f":{port}")


def _public_url(value: object) -> object:
    if value is None:
        return None
    try:
        return origin_of(str(value))
    except ValueError as error:
        raise PydanticCustomError("url", "{why}", {"why": str(error)}) from None


Token = Annotated[str, Field(min_length=TOKEN_LENGTH_MIN, max_length=TOKEN_LENGTH_MAX)]


class DatabaseSettings(BaseSettings):
    """Where the actions are: all that an App and most commands need to know."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    database: str | None = Field(
        None, repr=False, description="sqlite:///path/to/file.db or postgresql://user@host/database."
    )
    installation: str = Field("default", description="Which one of several installations in the same database.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what it is given: the sources are asked one by one, to know which of them spoke."""
        return (init_settings,)


class Settings(DatabaseSettings):
    """Every setting, with its default. Read them with `read_settings()`, which says where each came from."""

    concurrency: Number = Field(
        100, description="Handlers at once, in each process; synchronous ones take a thread each."
    )
    processes: Number = Field(1, ge=1, le=1000, description="Worker processes; one that dies is started again.")
    attempt_lease: Duration = Field(
        timedelta(seconds=10), description="How soon others take over the attempts of a worker that died."
    )
    lease_margin: Duration | None = Field(
        None, description="How long before the end of an attempt's lease it is no longer trusted."
    )
    slots_ahead: Duration | None = Field(
        None, description="How far ahead of their time slots of a limit are taken; as much of them is lost in a crash."
    )
    shard_lease: Duration = Field(
        timedelta(seconds=10), description="How long a dead worker can keep others from a shard."
    )
    heartbeat: Duration | None = Field(None, description="How often a shard that is held is said to be.")
    hold_max: Duration = Field(timedelta(milliseconds=250), description="The longest time a shard is held.")
    rest_max: Duration = Field(timedelta(seconds=1), description="The longest rest between two looks for work.")
    batch_max: Number = Field(500, description="Rows at most in a statement of a worker.")
    timeout_grace: Duration = Field(
        timedelta(seconds=5),
        description="How long a handler cancelled at its time limit may take to end before its slot counts as leaked.",
    )
    stop_grace: Duration = Field(timedelta(seconds=30), description="How long handlers may go on after SIGTERM.")
    farewell: Duration = Field(timedelta(seconds=5), description="How long the last writes may take after that.")
    leaked_max: float = Field(0.5, description="The share of slots that may leak before the worker gives up.")
    history_max: Number = Field(50, description="Attempts that went wrong to be kept for each action.")
    keep_done: Duration = Field(timedelta(days=7), description="How long actions are kept that are done.")
    keep_cancelled: Duration = Field(timedelta(days=7), description="How long those are kept that were cancelled.")
    keep_expired: Duration = Field(timedelta(days=7), description="How long those are kept that expired.")
    keep_failed: Duration = Field(timedelta(days=30), description="How long those are kept that failed for good.")
    keep_quarantined: Duration = Field(timedelta(days=30), description="How long those are kept that were quarantined.")
    keep_requests: Duration = Field(
        timedelta(hours=1), description="How long the same request_id is known to have been carried out."
    )
    keep_audit: Duration = Field(
        timedelta(days=90), description="How long it is kept what operators changed, and who that was."
    )
    tidy_every: Duration = Field(
        timedelta(seconds=30), description="How often a worker looks for what is to be pruned."
    )
    processors: Number = Field(
        1, description="Batches of queues handled at once, in each process; 0 leaves the queues to other workers."
    )
    queue_batch_size: Number = Field(
        10, description="Tasks at most in a batch, where neither the queue's settings nor its handler say so."
    )
    visibility_timeout: Duration = Field(
        timedelta(seconds=60),
        description="How soon others have the tasks of a worker that died, where neither of these say so.",
    )
    queues_idle_until_told: bool = Field(
        False, description="Look at no queue before a manager has said which: true or false."
    )

    metrics_port: Annotated[int | None, BeforeValidator(_off_is_none)] = Field(
        None, ge=0, le=65535, description="Serve /metrics, /healthz and /readyz there; 0 takes a free port, off none."
    )
    log_format: Annotated[Literal["text", "json"], BeforeValidator(_lower)] = Field(
        "text", description="How log lines are written: text or json."
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        "info", description="The least important log lines to be written: debug, info, warning or error."
    )

    web_host: str = Field(
        "127.0.0.1", description="Where `matrixsched serve` listens; beyond this machine only with tokens."
    )
    web_port: Number = Field(8190, ge=0, le=65535, description="Its port; 0 takes a free one.")
    web_public_url: Annotated[str | None, BeforeValidator(_public_url)] = Field(
        None, description="Under which browsers reach it through a reverse proxy: https://jobs.example.com."
    )
    web_viewer_token: Token | None = Field(
        None,
        repr=False,
        description="Whoever knows it may look at everything there but what payloads and tasks of queues hold.",
    )
    web_operator_token: Token | None = Field(
        None, repr=False, description="Whoever knows it may look at and change everything there."
    )


SECRETS: Final = frozenset({"web_viewer_token", "web_operator_token"})
"""Settings whose values are never shown."""

UNSET: Final = {
    "lease_margin": "1s, or 15 % of attempt_lease if that is less",
    "slots_ahead": "100ms, or 5 % of attempt_lease if that is less",
    "heartbeat": "30 % of shard_lease",
    "metrics_port": "off",
}
"""What a setting means that is None."""


S = TypeVar("S", bound=DatabaseSettings)


@dataclass(frozen=True, slots=True)
class Reading(Generic[S]):
    """The settings as they were found."""

    settings: S
    origins: Mapping[str, str]
    """Where each setting comes from, in words."""
    faults: Sequence[str] = ()
    doubtful: frozenset[str] = frozenset()
    """Settings that could not be understood: they stand at their defaults, which nobody asked for."""

    def checked(self) -> S:
        """The settings, if nothing is wrong with any of them."""
        if self.faults:
            raise ConfigurationError(self.faults)
        return self.settings

    def database(self) -> str:
        """The database's URL; DatabaseNotNamed if there is none."""
        url = self.checked().database
        if url is None:
            raise DatabaseNotNamed
        return url


def read_settings(flags: Mapping[str, object] | None = None, *, file: str | None = None) -> Reading[Settings]:
    """Ask all sources. `flags` are those typed, by the setting's name; `file` stands for MATRIXSCHED_CONFIG."""
    return _read(Settings, Settings.model_fields, flags or {}, file)


def read_database_settings(*names: str) -> Reading[DatabaseSettings]:
    """Ask for these only: what is wrong with the settings of a worker must not keep a program from its database."""
    return _read(DatabaseSettings, names, {}, None)


def _read(kind: type[S], names: Collection[str], flags: Mapping[str, object], file: str | None) -> Reading[S]:
    sources: list[tuple[Mapping[str, object], Callable[[str], str]]] = [
        (flags, flag_of),
        (EnvSettingsSource(kind)(), variable_of),
    ]
    faults: list[str] = []
    # Nothing in it would count if all is said already; a file that somebody asks for here and now must be there.
    if file is not None or not all(any(name in values for values, _ in sources) for name in names):
        path, is_asked_for = _file_path(file)
        from_file, faults = _read_file(path, is_asked_for, names)
        sources.append((from_file, lambda _: str(path)))
    found: dict[str, object] = {}
    origins = dict.fromkeys(kind.model_fields, DEFAULT)
    for values, origin in sources:
        for name in (values.keys() & set(names)) - found.keys():
            found[name], origins[name] = values[name], origin(name)
    settings, doubtful = _validated(kind, found, origins, faults)
    return Reading(settings, origins, tuple(faults), frozenset(doubtful))


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def variable_of(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _file_path(asked_for: str | None) -> tuple[Path, bool]:
    named = asked_for or os.environ.get(FILE_VARIABLE)
    return (Path(named), True) if named else (Path(FILE_NAME), False)


def _read_file(path: Path, is_asked_for: bool, names: Collection[str]) -> tuple[dict[str, object], list[str]]:
    if not is_asked_for and not path.exists():
        return {}, []
    try:
        if not path.is_file():
            return {}, [f"there is no settings file {path}: correct --config or {FILE_VARIABLE}, or create it"]
        values = TomlConfigSettingsSource(Settings, path)()
    except tomllib.TOMLDecodeError as error:
        return {}, [f"{path} is not TOML: {error}; correct that line"]
    except RecursionError:
        return {}, [f"{path} is not TOML as we read it: its brackets are nested too deeply; settings need none"]
    except UnicodeDecodeError:
        return {}, [f"{path} is not UTF-8: save it as such"]
    except OSError as error:
        return {}, [f"{path} cannot be read ({error.strerror}): correct its permissions"]
    strangers = values.keys() - Settings.model_fields.keys()
    return values, [_unknown(name, values[name], path) for name in values if name in strangers and _may_be(name, names)]


def _near(name: str) -> list[str]:
    return get_close_matches(name.lower().replace("-", "_"), list(Settings.model_fields), n=2)


def _may_be(stranger: str, names: Collection[str]) -> bool:
    """Whether a name in the file that is no setting concerns somebody who asks for these."""
    return len(names) == len(Settings.model_fields) or any(name in names for name in _near(stranger))


def _unknown(name: str, value: object, path: Path) -> str:
    if isinstance(value, dict):
        return f"[{name}] in {path} is a table: settings stand above all tables, as in `concurrency = 50`"
    near = _near(name)
    remedy = (
        f"perhaps {' or '.join(near)} is meant" if near else "remove it; `matrixsched settings` shows all there are"
    )
    return f"{name} in {path} is no setting: {remedy}"


def misspelt_variables() -> list[str]:
    """Faults: variables of the environment that look like a setting but are none."""
    known = [*(name.upper() for name in Settings.model_fields), FILE_VARIABLE.removeprefix(PREFIX)]
    strangers = sorted({name.removeprefix(PREFIX) for name in os.environ if name.startswith(PREFIX)} - {*known})
    near = {name: get_close_matches(name, known, n=1, cutoff=0.8) for name in strangers}
    return [
        f"{PREFIX}{name} in the environment is no setting: perhaps {PREFIX}{close[0]} is meant"
        for name, close in near.items()
        if close
    ]


def _validated(
    kind: type[S], found: dict[str, object], origins: Mapping[str, str], faults: list[str]
) -> tuple[S, set[str]]:
    """The settings without those that cannot be understood, so that the others are judged all the same."""
    try:
        return kind(**found), set()  # type: ignore[arg-type]
    except ValidationError as error:
        wrong = {str(fault["loc"][0]): fault for fault in error.errors(include_url=False)}
    for name, fault in wrong.items():
        value = "" if name == "database" or name in SECRETS else f" is {found[name]!r:.80}"
        faults.append(f"{name}{value} (from {origins[name]}): {_remedy(fault)}")
    return kind(**{name: value for name, value in found.items() if name not in wrong}), set(wrong)  # type: ignore[arg-type]


def _remedy(fault: Any) -> str:
    context = fault.get("ctx", {})
    match fault["type"]:
        case "int_parsing" | "int_type" | "int_from_float":
            return "write a whole number"
        case "float_parsing" | "float_type":
            return "write a number"
        case "bool_parsing" | "bool_type":
            return "write true or false"
        case "string_type":
            return "write a text in quotes"
        case "string_too_short":
            return f"choose a text of {context['min_length']} letters or more"
        case "string_too_long":
            return f"choose a text of {context['max_length']} letters or less"
        case "greater_than_equal":
            return f"choose {context['ge']} or more"
        case "less_than_equal":
            return f"choose {context['le']} or less"
        case "literal_error":
            return f"choose {context['expected']}"
    return InvalidDurationText.remedy[0].lower() + InvalidDurationText.remedy[1:-1]


# How settings are shown.


def shown(name: str, value: object) -> str:
    """A setting's value for people, without a password."""
    if value is None:
        return UNSET.get(name, "-")
    if name in SECRETS:
        return "***"
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return without_password(value) if name == "database" and isinstance(value, str) else str(value)


_PASSWORDS = (
    re.compile(r"(://[^:/?#@\s]*:)[^\s]*(@)"),
    re.compile(r"([?&][a-z_]*pass[a-z_]*=)[^&\s]*()", re.IGNORECASE),
)


def without_password(text: str) -> str:
    """A text in which every password of a database URL is replaced by stars."""
    for password in _PASSWORDS:
        text = password.sub(r"\1***\2", text)
    return text


def settings_table() -> str:
    """All settings as a Markdown table."""
    return "\n".join(_table_lines()) + "\n"


def _table_lines() -> Iterator[str]:
    yield "| Setting | Environment variable | Default | Meaning |"
    yield "|---|---|---|---|"
    for name, field in Settings.model_fields.items():
        default = shown(name, field.default)
        yield f"| `{name}` | `{variable_of(name)}` | {default} | {field.description} |"
