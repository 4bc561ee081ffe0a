"""The schema's migrations: numbered files in schema/<dialect>/, applied in order, each once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from matrixsched.errors import SchemaMismatch, SchemaMissing
from matrixsched.store.statements import Dialect, render
from matrixsched.store.values import Installation

LIBRARY_SCHEMA_VERSION = 9
"""The newest schema this library knows: the number of its last migration."""

OLDEST_SCHEMA_SUPPORTED = 8
"""The oldest schema this library can still work with."""

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    checksum: str
    text: str
    """Rendered for one installation."""

    @property
    def statements(self) -> list[str]:
        return statements_of(self.text)


def statements_of(text: str) -> list[str]:
    """The single statements; what makes tables holds no semicolon inside one."""
    bare = re.sub(r"--[^\n]*", "", text)
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


def load_migrations(dialect: Dialect, installation: str) -> list[Migration]:
    """All migrations of a dialect in their order."""
    found = []
    for file in schema_folder().joinpath(dialect).iterdir():
        if match := _FILE.fullmatch(file.name):
            text = file.read_text("utf-8")
            # The checksum is of the file, so that it is the same in every installation.
            checksum = hashlib.sha256(text.encode()).hexdigest()
            found.append(Migration(int(match[1]), match[2], checksum, render(dialect, installation, text)))
    return sorted(found, key=lambda migration: migration.number)


def missing(migrations: Sequence[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """Which migrations are still to be applied, given the checksums of those that were."""
    for migration in migrations:
        checksum = applied.get(migration.number)
        if checksum is not None and checksum != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.number:04} ({migration.name}) in the database differs from this library's"
            )
    return [migration for migration in migrations if migration.number not in applied]


def check_version(installation: Installation) -> None:
    """Refuse only what cannot work: versions that overlap may run side by side."""
    if installation.schema_version < OLDEST_SCHEMA_SUPPORTED:
        raise SchemaMismatch(
            f"the database is at schema {installation.schema_version}, "
            f"this library needs {OLDEST_SCHEMA_SUPPORTED} or newer"
        )
    if installation.oldest_library > LIBRARY_SCHEMA_VERSION:
        raise SchemaMismatch(
            f"the database (schema {installation.schema_version}) needs a library that knows schema "
            f"{installation.oldest_library}; this one knows {LIBRARY_SCHEMA_VERSION}"
        )


def schema_folder() -> Traversable:
    packed = files("matrixsched").joinpath("_schema")
    if packed.is_dir():
        return packed
    checkout = Path(__file__).resolve().parents[2] / "schema"
    if checkout.is_dir():
        return checkout
    raise SchemaMissing("the package was built without its schema folder")
