"""What makes the tables of an installation on PostgreSQL, or brings them up to date; in a transaction of its own."""

from __future__ import annotations

from matrixsched.errors import FormMismatch
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION, load_migrations, missing
from matrixsched.store.postgresql.connection import Connection
from matrixsched.store.postgresql.distributed.making import OLDEST_LIBRARY, distributing
from matrixsched.store.postgresql.forms import EitherForm
from matrixsched.store.statements import namespace


async def apply(
    connection: Connection, installation: str, shard_count: int, *, distributed: bool | None = None
) -> list[str]:
    """Apply the migrations that are missing; their names."""
    prefix = namespace("postgresql", installation)
    rows = await connection.fetch(f"select number, checksum from {prefix}migrations")  # noqa: S608
    applied = {row["number"]: row["checksum"] for row in rows}
    if applied and distributed is not None:
        await _check_form(connection, installation, distributed)
    todo = missing(load_migrations("postgresql", installation), applied)
    for migration in todo:
        for text in migration.statements:
            await connection.alter(text)
        await connection.execute(
            f"insert into {prefix}migrations (number, name, checksum) values ($1, $2, $3)",  # noqa: S608
            migration.number,
            migration.name,
            migration.checksum,
        )
    if distributed and not applied:
        await _distribute(connection, installation)
    await connection.execute(
        f"insert into {prefix}installation (shard_count, schema_version, oldest_library) values ($1, $2, $3) "  # noqa: S608
        "on conflict (singleton) do update set schema_version = greatest(installation.schema_version, $2)",
        shard_count,
        LIBRARY_SCHEMA_VERSION,
        OLDEST_LIBRARY if distributed else 1,
    )
    if distributed and not applied:
        await connection.execute(f"update {prefix}installation set distributed = true")  # noqa: S608
    await connection.execute(
        f"insert into {prefix}shard_locks (shard_id) "  # noqa: S608
        f"select generate_series(0, shard_count - 1) from {prefix}installation on conflict do nothing"
    )
    return [f"{migration.number:04}_{migration.name}" for migration in todo]


async def _check_form(connection: Connection, installation: str, distributed: bool) -> None:
    facts = await EitherForm(installation).installation().converse_async(connection.ask)
    if facts.is_distributed != distributed:
        raise FormMismatch(installation, is_distributed=facts.is_distributed)


async def _distribute(connection: Connection, installation: str) -> None:
    on_citus = await connection.fetchval("select exists (select from pg_extension where extname = 'citus')")
    for text in distributing(installation, on_citus=on_citus):
        await connection.alter(text)
