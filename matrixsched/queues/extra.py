"""What typed queues need beyond the rest: the libraries of the extra `queues`, imported where they are used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from matrixsched.errors import ExtraMissing


@contextmanager
def extra() -> Iterator[None]:
    """Around an import: say what to install if there is no such library."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ExtraMissing(error.name or "unknown") from None
