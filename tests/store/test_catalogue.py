"""What an installation is compared with is what the migrations make."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from matrixsched import App
from matrixsched.clock import SystemClock
from matrixsched.store.catalogue import DISTRIBUTED_FILE, FILE, expected_catalogue

pytestmark = pytest.mark.anyio

SCHEMA = Path(__file__).resolve().parents[2] / "schema"
WRITE = "MATRIXSCHED_WRITE_CATALOGUE"


@pytest.mark.parametrize("installation", ["default", "second"])
async def test_the_catalogue_is_that_of_a_fresh_installation(database_url: str, installation: str) -> None:
    other = App(database_url, installation="default" if installation == "second" else "other")
    app = App(database_url, installation=installation)
    for one in (other, app):
        await one.init(shards=2, distributed=False)
    found = await catalogue_of(app)
    if app.store.dialect == "sqlite":  # the prefix of one installation may begin another's
        found = {name: text for name, text in found.items() if not _is_of(name, "other_", "second_")}
    write_if_wanted(SCHEMA / app.store.dialect / FILE, found)
    assert found == expected_catalogue(app.store.dialect), f"run it with {WRITE}=1, and look at what changed"


async def test_what_is_other_in_distributed_form_is_told_too(postgres_dsn: str, anyio_backend: str) -> None:
    usual, app = App(postgres_dsn), App(postgres_dsn, installation="second")
    await usual.init(shards=2, distributed=False)
    await app.init(shards=2, distributed=True)
    before, found = await catalogue_of(usual), await catalogue_of(app)
    other = {name: found.get(name) for name in before.keys() | found.keys() if before.get(name) != found.get(name)}
    write_if_wanted(SCHEMA / "postgresql" / DISTRIBUTED_FILE, other)
    expected = expected_catalogue("postgresql", is_distributed=True)
    assert found == expected, f"run it with {WRITE}=1, and look at what changed"


async def catalogue_of(app: App) -> dict[str, str]:
    return dict((await app.store.inspect(SystemClock())).schema.catalogue)


def write_if_wanted(file: Path, found: Mapping[str, str | None]) -> None:
    if os.environ.get(WRITE) == "1":
        text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False)
        file.write_text(f"{text}\n")


def _is_of(name: str, *prefixes: str) -> bool:
    return name.partition(" ")[2].startswith(prefixes)
