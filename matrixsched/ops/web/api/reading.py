"""From a request to what an endpoint takes; what cannot be taken is refused with all that is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from math import isfinite
from typing import Final, NoReturn, TypeVar
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from matrixsched.ops.web.api.values import Given
from matrixsched.ops.web.problems import Refused

G = TypeVar("G", bound=Given)

JSON: Final = "application/json"
DEPTH_MAX: Final = 100
FAULTS_MAX: Final = 20
KEY_BYTES_MAX: Final = 256
KEY_PATTERN: Final = f"^[!-~]([ -~]{{0,{KEY_BYTES_MAX - 2}}}[!-~])?$"
"""Of an Idempotency-Key, without the spaces around it, which are none of a header's value."""


# Bodies.


async def read_body(request: Request, model: type[G] | None) -> G | None:
    """The body as a model; a body where none is wanted is a mistake, and so is another form than JSON."""
    kind = request.headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != JSON:
        # Also without a body: what a form of another site sends is never JSON.
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body is not JSON: send it as such, with the header `Content-Type: {JSON}`",
        )
    raw = await request.body()
    if model is None:
        if raw:
            raise Refused(HTTPStatus.BAD_REQUEST, "this takes no body: send none")
        return None
    if not raw:
        raise Refused(HTTPStatus.BAD_REQUEST, f"there is no body: send JSON, with `Content-Type: {JSON}`")
    if kind is None:
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"say what the body is: `Content-Type: {JSON}`")
    check_json(raw)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _refusal(error, "body", model) from None


def check_json(raw: bytes) -> None:
    """Refuse what is no JSON, or is one that two readers may read differently. No value is ever repeated."""
    try:
        found = json.loads(
            raw.decode(), object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite_number
        )
        deep = _is_deeper(found, DEPTH_MAX)
    except UnicodeDecodeError:
        _not_json("it is not UTF-8")
    except json.JSONDecodeError as error:
        _not_json(f"line {error.lineno}, column {error.colno}: {error.msg}")
    except _Ambiguous as error:
        _not_json(str(error))
    except ValueError:
        _not_json("a number has too many digits to be read: write it as a text")
    except RecursionError:
        deep = True
    if deep:
        _not_json(f"it is nested deeper than {DEPTH_MAX} levels: make it flatter")


class _Ambiguous(Exception):
    """Which of several readings was meant nobody knows."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Ambiguous("an object has the same key twice: leave out one of them")
    return found


def _no_number(word: str) -> NoReturn:
    raise _Ambiguous(f"{word} is no number in JSON: write it as a text, or leave it out")


def _finite_number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _Ambiguous("a number is too large to be read: write it as a text")
    return number


def _is_deeper(value: object, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _not_json(why: str) -> NoReturn:
    raise Refused(HTTPStatus.BAD_REQUEST, f"the body cannot be read as JSON: {why}")


# Queries and headers.


def read_query(request: Request, model: type[G] | None) -> G | None:
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _faulty("query", [{"parameter": name, "detail": "is given twice"} for name in twice])
    if model is None:
        if given:
            raise _faulty("query", [{"parameter": name, "detail": "is not known here"} for name in names])
        return None
    try:
        # Not strict: in a query everything is text. What reads it is as strict as it can be.
        return model.model_validate(dict(given), strict=False)
    except ValidationError as error:
        raise _refusal(error, "query", model) from None


def read_guid(headers: Mapping[str, str]) -> UUID | None:
    """The version that is to be changed, as If-Match says it."""
    given = headers.get("if-match")
    if given is None:
        return None
    text = given.strip()
    try:
        if text[:1] + text[-1:] == '""':
            return UUID(text[1:-1])
    except ValueError:
        pass
    raise Refused(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "If-Match must be one guid in quotation marks, as ETag gave it",
        errors=[{"parameter": "If-Match", "detail": "is no guid in quotation marks"}],
    )


def read_request_id(headers: Mapping[str, str]) -> str | None:
    given = headers.get("idempotency-key")
    if given is None:
        return None
    key = given.strip(" \t")
    if re.fullmatch(KEY_PATTERN, key) is None:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"Idempotency-Key must be 1 to {KEY_BYTES_MAX} printable ASCII characters, such as a UUID",
            errors=[{"parameter": "Idempotency-Key", "detail": "cannot be the name of a request"}],
        )
    return key


# What is wrong, in words.


def _refusal(error: ValidationError, part: str, model: type[Given]) -> Refused:
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    if part == "body" and any(fault["type"] == "json_invalid" for fault in faults):
        # Ours has read it, pydantic's has not.
        why = "a text in it is none, for it holds half a surrogate pair"
        return Refused(HTTPStatus.BAD_REQUEST, f"the body cannot be read as JSON: {why}")
    where = "pointer" if part == "body" else "parameter"
    told = [{where: _place(fault["loc"], part), "detail": _detail(fault, model)} for fault in faults]
    return _faulty(part, list({tuple(one.items()): one for one in told}.values()))


def _faulty(part: str, faults: Sequence[Mapping[str, str]]) -> Refused:
    shown = "; ".join(f"{one.get('pointer') or one.get('parameter') or 'it'} {one['detail']}" for one in faults[:3])
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return Refused(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"the {part} cannot be taken: {shown}{more}. Nothing was changed",
        errors=faults[:FAULTS_MAX],
    )


def _place(location: tuple[int | str, ...], part: str) -> str:
    """A JSON pointer as a fragment; in a query a name is enough."""
    if part != "body":
        return str(location[0]) if location else ""
    return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in location)


def _detail(fault: ErrorDetails, model: type[Given]) -> str:
    if fault["type"] != "extra_forbidden":
        return fault["msg"][:1].lower() + fault["msg"][1:]
    *outer, name = map(str, fault["loc"])
    alike = [] if outer else get_close_matches(name, model.model_fields, n=1)
    return f"is not known here (did you mean `{alike[0]}`?)" if alike else "is not known here"
