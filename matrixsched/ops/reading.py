"""What people type on the command line, read: instants, payloads, rules of repetition."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

from matrixsched.errors import WrongUse
from matrixsched.rules.durations import parse_duration
from matrixsched.rules.times import check_duration


def read_time(option: str, text: str) -> datetime:
    """An instant in ISO 8601; without an offset it could mean any of thirty-eight."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"{option} is {text!r:.80}, but must be a time such as 2026-03-29T09:00:00Z") from None
    if moment.tzinfo is None:
        written = moment.isoformat()
        raise WrongUse(f"{option} is {text!r:.80}, which has no offset from UTC: write {written}Z, or {written}+01:00")
    return moment


def read_duration(option: str, text: str, *, zero: bool = True) -> timedelta:
    """A duration; `zero` says whether nothing at all is allowed."""
    return check_duration(option, parse_duration(text, option), zero=zero)


def read_payload(text: str | None, option: str = "--payload") -> object:
    """JSON as it was typed, from stdin (-) or from a file (@name); never repeated, for it may hold a secret."""
    if text is None:
        return None
    typed = _payload_text(text, option)
    try:
        return json.loads(typed, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise WrongUse(
            f"{option} is not JSON (line {error.lineno}, column {error.colno}: {error.msg}): quote it for the shell, "
            f"as in {option} '{{\"user_id\": 1}}', or name a file, as in {option} @payload.json"
        ) from None
    except _KeyTwice:
        raise WrongUse(f"{option} has an object with the same key twice: leave out one of them") from None
    except ValueError:
        raise WrongUse(f"{option} has a number of too many digits to be read: write it as a text") from None
    except RecursionError:
        raise WrongUse(f"{option} is nested too deeply: make it flatter") from None


class _KeyTwice(Exception):
    """Which of the two was meant nobody knows."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _KeyTwice
    return found


def _payload_text(text: str, option: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8")
    except OSError as error:
        raise WrongUse(f"{option}: {text[1:]} cannot be read ({error.strerror}): correct the path") from None
    except UnicodeDecodeError:
        raise WrongUse(f"{option}: {text[1:]} is not UTF-8: save it as such") from None
