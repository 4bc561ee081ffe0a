"""What may be said of a database's error: its kind in words and its code, never its text, which can hold values."""

from __future__ import annotations

import asyncpg

_WORDS = {
    "25006": "the server is read-only (a standby?)",
    "26000": "a prepared statement is gone (behind a pooler use prepared_statements=off)",
    "28000": "this user may not connect",
    "28P01": "the password is wrong or missing",
    "3D000": "there is no such database",
    "40001": "it conflicted with another transaction",
    "40P01": "it was in a deadlock with another transaction",
    "42501": "the user lacks a privilege",
    "42P05": "a prepared statement exists already (behind a pooler use prepared_statements=off)",
    "53100": "the disk is full",
    "53300": "the server has too many connections",
    "55P03": "a lock is held by another transaction",
    "57014": "the statement was cancelled or took too long",
    "57P01": "the server is shutting down",
    "57P02": "the server crashed and restarts",
    "57P03": "the server is starting up or shutting down",
}
_WORDS_OF_CLASS = {
    "08": "the connection broke",
    "23": "a constraint was violated",
    "28": "the login was refused",
    "53": "the server is out of resources",
}


def reason(error: BaseException) -> str:
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "each server answers, but none is of the kind that target_session_attrs asks for: no primary now?"
    code = getattr(error, "sqlstate", None)
    if code:
        return f"{_WORDS.get(code) or _WORDS_OF_CLASS.get(code[:2]) or type(error).__name__} ({code})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
