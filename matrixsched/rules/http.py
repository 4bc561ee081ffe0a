"""What a web service says when it is asked too often."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from matrixsched.errors import BadInput, shown
from matrixsched.rules.times import check_duration, check_time

_SECONDS = re.compile(r"\d{1,12}(\.\d+)?", re.ASCII)


def retry_after(header: str | None, default: timedelta = timedelta(minutes=1)) -> datetime | timedelta:
    """When the header Retry-After says to come again, for SlowDown: after so many seconds, or at a date.

    `default` if the answer has no such header, or one that cannot be read. A date that has passed, and no seconds at
    all, are told as they are: a SlowDown lasts at least a second.
    """
    check_duration("default", default)
    if not isinstance(header, str | None):
        raise BadInput(f"header is {shown(header)}, but must be the text of the header, or None if there is none")
    text = (header or "").strip()
    try:
        if _SECONDS.fullmatch(text):
            return check_duration("Retry-After", timedelta(seconds=float(text)))
        date = parsedate_to_datetime(text)
        return check_time("Retry-After", date if date.tzinfo is not None else date.replace(tzinfo=UTC))
    except (BadInput, ValueError, OverflowError):
        return default
