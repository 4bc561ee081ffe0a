"""Errors that concern nobody who could handle them, reported by Python's own `sys.unraisablehook`."""

from __future__ import annotations


def report_unraisable(error: Exception) -> None:
    """Let Python report it, with its traceback, as it reports what a finaliser raises; it is not raised here.

    The hook takes nothing but a report that the interpreter itself has made, so it must be made to make one.
    """
    _Raising(error)


class _Raising:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error
