"""Terms to and from the JSON that is stored; read once for each distinct text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any

from matrixsched.errors import MatrixSchedError, UnknownZone
from matrixsched.rules.action import Terms
from matrixsched.rules.exclusions import Daily, Exclusion, Period
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import CatchUp, Cron, Every, Repeat

NO_TERMS = "{}"
_TRACE = re.compile(r'[{,]"trace":("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")\}\Z')
"""A trace stands last, so that it can be taken off without reading the rest."""
_KNOWN = {"retry", "repeat", "timeout_s", "start_within_s", "payload_version"}
_KNOWN_OF_RETRY = {
    "max_attempts",
    "first_delay_s",
    "factor",
    "min_delay_s",
    "max_delay_s",
    "jitter",
    "max_interruptions",
}
_KNOWN_OF_EITHER = {"zone", "misfire", "jitter_s", "exclude"}
_KNOWN_OF_CRON = {"cron", "skipped", "repeated"} | _KNOWN_OF_EITHER
_KNOWN_OF_EVERY = {"every_s", "anchor", "after_end"} | _KNOWN_OF_EITHER


def encode_terms(terms: Terms) -> str:
    stored: dict[str, Any] = {}
    if terms.retry is not None:
        stored["retry"] = _encode_retry(terms.retry)
    if terms.repeat is not None:
        stored["repeat"] = _encode_repeat(terms.repeat)
    if terms.timeout is not None:
        stored["timeout_s"] = terms.timeout.total_seconds()
    if terms.start_within is not None:
        stored["start_within_s"] = terms.start_within.total_seconds()
    if terms.payload_version is not None:
        stored["payload_version"] = terms.payload_version
    if terms.trace is not None:
        stored["trace"] = terms.trace
    return json.dumps(stored, separators=(",", ":"), allow_nan=False) if stored else NO_TERMS


def decode_terms(text: str) -> Terms:
    """The terms; never an error, for one action that cannot be read must not stand in the way of its neighbours."""
    found = _TRACE.search(text) if '"trace"' in text else None  # most have none, and this is read for every claim
    if found is None:
        return _read_once(text)
    # No two traces are alike: remembered with them, these texts would push out all others.
    rest = text[: found.start()]
    return replace(_read_once(f"{rest}}}" if rest else NO_TERMS), trace=json.loads(found[1]))


@lru_cache(maxsize=4096)
def _read_once(text: str) -> Terms:
    try:
        return _decode_terms(json.loads(text))
    except UnknownZone as error:
        return Terms(unreadable=f"its terms cannot be read on this machine: {error}")
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
        MatrixSchedError,
    ) as error:
        return Terms(unreadable=f"its terms cannot be read by this version ({type(error).__name__})")


def _decode_terms(stored: dict[str, Any]) -> Terms:
    if unknown := stored.keys() - _KNOWN:
        return Terms(unreadable=f"its terms hold what this version does not know: {', '.join(sorted(unknown))}")
    return Terms(
        retry=_decode_retry(stored["retry"]) if "retry" in stored else None,
        repeat=_decode_repeat(stored["repeat"]) if "repeat" in stored else None,
        timeout=_seconds(stored.get("timeout_s")),
        start_within=_seconds(stored.get("start_within_s")),
        payload_version=_version(stored["payload_version"]) if "payload_version" in stored else None,
    )


def _encode_retry(retry: Retry) -> dict[str, Any]:
    return {
        "max_attempts": retry.max_attempts,
        "first_delay_s": retry.first_delay.total_seconds(),
        "factor": retry.factor,
        "min_delay_s": retry.min_delay.total_seconds(),
        "max_delay_s": retry.max_delay.total_seconds(),
        "jitter": retry.jitter,
        "max_interruptions": retry.max_interruptions,
    }


def _decode_retry(stored: dict[str, Any]) -> Retry:
    _check_known(stored, _KNOWN_OF_RETRY)
    return Retry(
        max_attempts=stored["max_attempts"],
        first_delay=timedelta(seconds=stored["first_delay_s"]),
        factor=stored["factor"],
        min_delay=timedelta(seconds=stored["min_delay_s"]),
        max_delay=timedelta(seconds=stored["max_delay_s"]),
        jitter=stored["jitter"],
        max_interruptions=stored["max_interruptions"],
    )


def _encode_repeat(repeat: Repeat) -> dict[str, Any]:
    """What is as usual is left out, so that the text is the one of versions that knew only the usual."""
    stored: dict[str, Any]
    if isinstance(repeat, Cron):
        stored = {"cron": repeat.expression, "skipped": repeat.skipped, "repeated": repeat.repeated}
    else:
        anchor = None if repeat.anchor is None else repeat.anchor.isoformat()
        stored = {"every_s": repeat.interval.total_seconds(), "anchor": anchor, "after_end": repeat.after_end}
    if repeat.zone != "UTC":
        stored["zone"] = repeat.zone
    if isinstance(repeat.misfire, CatchUp):
        stored["misfire"] = {"catch_up": repeat.misfire.limit}
    elif repeat.misfire != "once":
        stored["misfire"] = repeat.misfire
    if repeat.jitter:
        stored["jitter_s"] = repeat.jitter.total_seconds()
    if repeat.exclude:
        stored["exclude"] = [_encode_exclusion(exclusion) for exclusion in repeat.exclude]
    return stored


def _decode_repeat(stored: dict[str, Any]) -> Repeat:
    _check_known(stored, _KNOWN_OF_CRON if "cron" in stored else _KNOWN_OF_EVERY)
    misfire = stored.get("misfire", "once")
    if isinstance(misfire, dict):
        _check_known(misfire, {"catch_up"})
    common: dict[str, Any] = {
        "zone": stored.get("zone", "UTC"),
        "misfire": CatchUp(misfire["catch_up"]) if isinstance(misfire, dict) else misfire,
        "jitter": timedelta(seconds=stored.get("jitter_s", 0)),
        "exclude": tuple(_decode_exclusion(exclusion) for exclusion in stored.get("exclude", ())),
    }
    if "cron" in stored:
        return Cron(stored["cron"], skipped=stored["skipped"], repeated=stored["repeated"], **common)
    anchor = stored["anchor"]
    return Every(
        interval=timedelta(seconds=stored["every_s"]),
        anchor=None if anchor is None else datetime.fromisoformat(anchor),
        after_end=stored["after_end"],
        **common,
    )


def _encode_exclusion(exclusion: Exclusion) -> dict[str, str]:
    match exclusion:
        case Period(start, end):
            return {"from": start.isoformat(), "to": end.isoformat()}
        case Daily(start, end):
            return {"daily_from": start.isoformat(), "daily_to": end.isoformat()}
        case _:
            return {"date": exclusion.isoformat()}


def _decode_exclusion(stored: dict[str, str]) -> Exclusion:
    match stored:
        case {"from": start, "to": end, **unknown} if not unknown:
            return Period(datetime.fromisoformat(start), datetime.fromisoformat(end))
        case {"daily_from": start, "daily_to": end, **unknown} if not unknown:
            return Daily(time.fromisoformat(start), time.fromisoformat(end))
        case _:
            _check_known(stored, {"date"})
            return date.fromisoformat(stored["date"])


def _check_known(stored: dict[str, Any], known: set[str]) -> None:
    """Refuse what a newer version added: to pass over it would be to run by other terms than were agreed."""
    if unknown := stored.keys() - known:
        raise ValueError(f"unknown: {unknown}")


def _seconds(stored: float | None) -> timedelta | None:
    return None if stored is None else timedelta(seconds=stored)


def _version(stored: object) -> int:
    if isinstance(stored, bool) or not isinstance(stored, int) or stored < 1:
        raise ValueError("a version is a whole number from 1 on")
    return stored
