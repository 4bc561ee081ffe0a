"""What an installation is compared with is what the migrations make."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from matrixsched import App
from matrixsched.clock import SystemClock
from matrixsched.store.catalogue import FILE, expected_catalogue

pytestmark = pytest.mark.anyio

SCHEMA = Path(__file__).resolve().parents[2] / "schema"
WRITE = "MATRIXSCHED_WRITE_CATALOGUE"


@pytest.mark.parametrize("installation", ["default", "second"])
async def test_the_catalogue_is_that_of_a_fresh_installation(database_url: str, installation: str) -> None:
    other = App(database_url, installation="default" if installation == "second" else "other")
    app = App(database_url, installation=installation)
    for one in (other, app):
        await one.init(shards=2)
    found = dict((await app.store.inspect(SystemClock())).schema.catalogue)
    if app.store.dialect == "sqlite":  # the prefix of one installation may begin another's
        found = {name: text for name, text in found.items() if not _is_of(name, "other_", "second_")}
    if os.environ.get(WRITE) == "1":
        text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False)
        (SCHEMA / app.store.dialect / FILE).write_text(f"{text}\n")
    assert found == expected_catalogue(app.store.dialect), f"run it with {WRITE}=1, and look at what changed"


def _is_of(name: str, *prefixes: str) -> bool:
    return name.partition(" ")[2].startswith(prefixes)
