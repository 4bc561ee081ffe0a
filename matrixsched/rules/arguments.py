"""What callers pass, refused in our own words before anybody looks into it: flags, functions, things to go through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from matrixsched.errors import BadInput, shown


def check_flag(argument: str, flag: object) -> bool:
    """The flag itself; what only counts as true elsewhere counts on no database."""
    if not isinstance(flag, bool):
        raise BadInput(f"{argument} must be True or False, not {shown(flag)}")
    return flag


def check_function(argument: str, function: object) -> Callable[..., Any]:
    """The function itself, refused while nothing is done yet of which it would be told."""
    if not callable(function):
        raise BadInput(f"{argument} must be a function, not {shown(function)}")
    return function


def each(argument: str, given: Any, wanted: str) -> Iterator[Any]:
    """One after the other. A text is none of many."""
    try:
        if isinstance(given, str | bytes):
            raise TypeError
        return iter(given)
    except TypeError:
        raise BadInput(f"{argument} must be {wanted}, not {type(given).__name__}") from None


def pair(argument: str, given: Any, wanted: str) -> tuple[Any, Any]:
    """Two values. Rows of databases are pairs, too, though not all of them are tuples."""
    try:
        if isinstance(given, str | bytes | Mapping | Set):
            raise TypeError
        one, other = given
    except (TypeError, ValueError):
        raise BadInput(f"{argument} must be {wanted}; one of them is {shown(given)}") from None
    return one, other
