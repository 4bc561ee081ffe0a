"""What is asked of every connection alike."""

from __future__ import annotations

from matrixsched.errors import BadInput
from matrixsched.store.statements import Dialect


def check_dialect(spoken: str, dialect: Dialect) -> None:
    if spoken != dialect:
        raise BadInput(f"the connection speaks {spoken}, this application's database is {dialect}")


def check_transaction(has_one: bool, remedy: str) -> None:
    """Refuse a connection that would commit each statement by itself."""
    if not has_one:
        raise BadInput(
            f"no transaction is open on the connection, so what is written could not be part of one: {remedy}, or "
            "leave connection out, for a transaction of our own"
        )
