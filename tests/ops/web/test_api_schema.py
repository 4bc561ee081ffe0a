"""The API does what its document says: asked everything that the document allows, and much that it does not."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.python import asgi
from starlette.types import ASGIApp, Receive, Scope, Send
from support.queue_contract import CONTRACT

from matrixsched import App
from matrixsched.ops.web.api.openapi import document
from matrixsched.ops.web.api.reading import read_request_id
from matrixsched.ops.web.api.table import BY_TAG, PREFIX
from matrixsched.ops.web.guard import REQUEST_MAX_S
from matrixsched.ops.web.problems import Refused
from matrixsched.web import dashboard

OPERATOR = "operator's token"
CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            # What no schema can say is refused as well: a cron expression that names no time, an unknown zone.
            "positive_data_acceptance": {"expected-statuses": ["2xx", "404", "409", "412", "422"]},
        },
    }
)


class Site:
    """The application that is asked; the document is there before its database is."""

    site: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.site(scope, receive, send)


SITE = Site()
DOCUMENT = schemathesis.openapi.from_dict(document(BY_TAG, prefix=PREFIX), config=CONFIG)
DOCUMENT.app = SITE


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one of everything, called as the simplest of requests call it."""
    file = tmp_path_factory.mktemp("api") / "made.db"

    async def make() -> None:
        app = App(f"sqlite:///{file}")
        await app.init(shards=4)
        async with app:
            await app.templates.set("0")
            await app.schedule("work", id="0", delay=timedelta(hours=1), template="0")
            await app.limits.set("global", "1000/s")
            await app.semaphores.get_or_create("0")

    anyio.run(make)
    return file


@pytest.fixture
def site(database: Path, tmp_path: Path) -> Iterator[None]:
    """Each endpoint has a database of its own: what one makes of it is nothing to the others."""
    shutil.copy(database, tmp_path / "test.db")
    app = App(f"sqlite:///{tmp_path}/test.db")
    app.queues.use(CONTRACT)
    SITE.site = dashboard(app, operator_token=OPERATOR)
    yield
    asgi.shutdown_lifespans()


@pytest.mark.slow
@DOCUMENT.parametrize()
@settings(max_examples=5, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_every_endpoint_keeps_to_the_document(site: None, case: schemathesis.Case) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {OPERATOR}"}, timeout=REQUEST_MAX_S)


def test_the_document_is_one_of_openapi() -> None:
    DOCUMENT.validate()


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, known in document(BY_TAG, prefix=PREFIX)["paths"].items():
        for method, operation in known.items():
            yield f"{method} {path}", operation


@pytest.mark.parametrize("operation", [pytest.param(told, id=name) for name, told in operations()])
def test_what_anybody_may_be_answered_is_told_of_all(operation: dict[str, Any]) -> None:
    """A stranger is refused by 403 or 421 whatever they ask; and any of it may hold a mistake of ours."""
    assert operation["responses"].keys() >= {"401", "403", "421", "500", "503"}


def test_what_needs_the_token_of_the_operator_is_told() -> None:
    told = {
        (operation["operationId"], parameter["name"])
        for _, operation in operations()
        for parameter in operation["parameters"]
        if parameter.get("description") == "Needs the operator's token."
    }
    assert told == {(one.name, name) for group in BY_TAG.values() for one in group for name in one.confided}
    assert len(told) == 4


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        ("once", True),
        ("order 17 of 3", True),
        ("x" * 256, True),
        ("x" * 257, False),
        ("", False),
        ("two\nlines", False),
        ("tab\tinside", False),
        ("zwölf", False),
    ],
)
def test_an_idempotency_key_is_taken_where_the_document_says_so(key: str, fits: bool) -> None:
    (pattern,) = {
        parameter["schema"]["pattern"]
        for _, operation in operations()
        for parameter in operation["parameters"]
        if parameter["name"] == "Idempotency-Key"
    }
    assert (re.search(pattern, key) is not None) is fits
    given = {"idempotency-key": f" {key} "}
    if fits:
        assert read_request_id(given) == key
    else:
        with pytest.raises(Refused, match="Idempotency-Key must be"):
            read_request_id(given)


def test_a_document_that_is_none_would_be_noticed() -> None:
    broken = document(BY_TAG, prefix=PREFIX)
    del broken["paths"]["/actions"]["post"]["responses"]
    broken["info"] = "about"
    with pytest.raises(Exception, match="info|responses"):
        schemathesis.openapi.from_dict(broken).validate()
