"""What bodies and queries are made of: instants, durations and names, as JSON writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from matrixsched.errors import BadInput
from matrixsched.ops.reading import read_time
from matrixsched.rules.durations import parse_duration
from matrixsched.rules.names import NAME_BYTES_MAX
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.times import DURATION_MAX, TIME_MAX
from matrixsched.rules.windows import parse_window

T = TypeVar("T")

PAGE_MAX: Final = 500
"""A page of a thousand would take a dashboard that has other things to do over 20 ms; most of it is Python."""
PAGE_DEFAULT: Final = 100
DURATION_LENGTH_MAX: Final = 40
IT: Final = "it"
"""What readers call what they read; where it stands is told beside."""


class Given(BaseModel):
    """A body or a query: it holds nothing that is not known, and nothing of another type than it says."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Told(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def wording(body: Given, *, exclude: Container[str] = (), **more: str) -> str:
    """What a body says, however it is spaced and ordered: by it a request is known from another one of its name."""
    said = {name: value for name, value in body.model_dump(mode="json").items() if name not in exclude}
    return json.dumps(said | more, sort_keys=True, ensure_ascii=False)


def refused(why: str) -> PydanticCustomError:
    # As a value of the message, for it may hold braces.
    return PydanticCustomError("refused", "{why}", {"why": why})


def reading(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """What our own readers refuse is refused in the same words, without the remedy: that is for a command line."""

    def checked(given: Any) -> T:
        try:
            return read(given)
        except BadInput as error:
            raise refused(str(error.args[0]).removeprefix(f"{IT} ")) from None

    return checked


def _read_instant(given: object) -> datetime:
    if isinstance(given, datetime):
        return given
    if not isinstance(given, str):
        raise refused("must be a text such as 2026-03-29T09:00:00Z")
    # Programs may write 2026-03-29t09:00:00z as well; words are told as they were sent.
    return read_time(IT, given.upper() if given[:1].isdecimal() else given)


def _read_duration(given: object) -> timedelta:
    if isinstance(given, timedelta):
        return given
    if isinstance(given, str):
        if len(given) > DURATION_LENGTH_MAX:
            raise refused(f"is longer than {DURATION_LENGTH_MAX} characters")
        return parse_duration(given, IT)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise refused('must be a number of seconds, or a text such as "250ms", "10s" or "1h30m"')
    if not 0 <= given <= DURATION_MAX.total_seconds():
        raise refused("must be a number of seconds from 0 to those of ten years")
    return timedelta(seconds=given)


_SECONDS: Final = {
    "type": "number",
    "minimum": 0,
    "maximum": DURATION_MAX.total_seconds(),
    "description": "A number of seconds.",
}

Instant = Annotated[
    datetime,
    BeforeValidator(reading(_read_instant)),
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "description": f"ISO 8601 with an offset from UTC, between the years 1970 and {TIME_MAX.year}.",
            "examples": ["2026-03-29T09:00:00Z"],
        }
    ),
]
Moment = Annotated[datetime, WithJsonSchema({"type": "string", "format": "date-time"})]
"""An instant that is told; it needs no reader, which would cost more than all the rest of a long list."""

Duration = Annotated[
    timedelta,
    BeforeValidator(reading(_read_duration)),
    PlainSerializer(timedelta.total_seconds, return_type=float),
    WithJsonSchema(
        {
            "anyOf": [
                _SECONDS,
                {
                    "type": "string",
                    "pattern": r"^([0-9]+(\.[0-9]+)?|([0-9. ]+(ms|s|m|min|h|d|w) *)+|[Pp][Tt]?[0-9.TWDHMStwdhms]+)$",
                    "maxLength": DURATION_LENGTH_MAX,
                    "description": "With units, as in 1h30m, or ISO 8601, as in PT10S.",
                },
            ],
            "examples": [90, "1h30m"],
        },
        mode="validation",
    ),
    WithJsonSchema(_SECONDS, mode="serialization"),
]


def _text(parse: Callable[[str], object]) -> AfterValidator:
    """Checked, and passed on as it was written."""

    def checked(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(reading(checked))


RateText = Annotated[
    str,
    Field(
        max_length=40,
        pattern=r"^ *[0-9]{1,10} */ *[0-9a-zA-Z. ]+$",
        description="So many in a time, evenly.",
        examples=["100/min", "5/s", "7/100ms"],
    ),
    _text(parse_rate),
]
WindowText = Annotated[
    str,
    Field(
        max_length=20,
        pattern=r"^ *[0-9]{1,2}(:[0-9]{2})? *[-–] *[0-9]{1,2}(:[0-9]{2})? *$",
        description="A part of the day in local time; it may lie over midnight.",
        examples=["08:00-12:00", "22:00-06:00"],
    ),
    _text(parse_window),
]


def _read_whole_number(given: object) -> object:
    if isinstance(given, str):
        if not given.isascii() or not given.removeprefix("-").isdecimal() or len(given) > 20:
            raise refused("must be a whole number")
        return int(given)
    return given


def _read_flag(given: object) -> object:
    words = {"true": True, "false": False}
    if isinstance(given, str):
        if given not in words:
            raise refused("must be true or false")
        return words[given]
    return given


Number = Annotated[int, BeforeValidator(_read_whole_number)]
"""In a query, where everything is text."""
Flag = Annotated[bool, BeforeValidator(_read_flag)]


class _Confided:
    """Marks a flag of a query that asks for what is shown to operators only."""


CONFIDED: Final = _Confided()
ConfidedFlag = Annotated[Flag, CONFIDED]
Limit = Annotated[Number, Field(ge=1, le=PAGE_MAX, description="How many at most.")]
Cursor = Annotated[
    str,
    Field(min_length=1, max_length=1000, description="Where to go on: `next_cursor` of the page before, as it is."),
]
Name = Annotated[str, Field(min_length=1, max_length=NAME_BYTES_MAX)]
