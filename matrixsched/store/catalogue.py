"""What the migrations make, by kind and name: `schema/<dialect>/catalogue.json`, for comparing an installation with it.

A test makes the file anew from a fresh installation and fails where it differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from matrixsched.store.facts import Catalogue
from matrixsched.store.migrations import schema_folder
from matrixsched.store.statements import Dialect, namespace
from matrixsched.store.transition import Row

FILE = "catalogue.json"
DISTRIBUTED_FILE = "distributed.json"
"""What is other in distributed form; null: what is not there."""


def expected_catalogue(dialect: Dialect, *, is_distributed: bool = False) -> Catalogue:
    """That of an installation at the newest schema; names are without schema or prefix."""
    found = _stored(dialect, FILE)
    if is_distributed:
        found |= _stored(dialect, DISTRIBUTED_FILE)
    return {name: definition for name, definition in found.items() if definition is not None}


def _stored(dialect: Dialect, file: str) -> dict[str, str | None]:
    stored: dict[str, str | None] = json.loads(schema_folder().joinpath(dialect).joinpath(file).read_text("utf-8"))
    return stored


def catalogue_of(dialect: Dialect, installation: str, rows: Iterable[Row]) -> Catalogue:
    """That of an installation as its database tells it, in the same words."""
    prefix = namespace(dialect, installation)
    return {_bare(row["name"], prefix): _bare(row["definition"] or "", prefix) for row in rows}


def _bare(text: str, prefix: str) -> str:
    return " ".join(text.replace(prefix, "").split())
