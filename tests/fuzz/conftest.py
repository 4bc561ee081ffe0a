"""The parts of the fuzz on databases that all tests here share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from support.postgres import PostgresServer

from fuzz.commands import Typist
from fuzz.crew import register_with_crew
from fuzz.judge import Judge
from fuzz.machine import Model
from fuzz.sides import Sides, opened
from fuzz.surroundings import ALL_VARIABLES


@pytest.fixture(scope="module")
def new_database(postgres_server: PostgresServer) -> Iterator[Callable[[], str]]:
    """Makes empty databases, which are dropped at the end."""
    names: list[str] = []

    def make() -> str:
        names.append(f"fuzz_{uuid.uuid4().hex}")
        postgres_server.create_database(names[-1])
        return postgres_server.url(names[-1])

    yield make
    for name in names:
        postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def sides(new_database: Callable[[], str]) -> Iterator[Sides]:
    with opened(new_database()) as both:
        yield both


@pytest.fixture
def judge(sides: Sides) -> Judge:
    return Judge(sides)


@pytest.fixture(scope="module")
def manned_sides(new_database: Callable[[], str]) -> Iterator[Sides]:
    with opened(new_database(), register_with_crew) as both:
        yield both


@pytest.fixture
def model(manned_sides: Sides) -> Model:
    return Model(manned_sides)


@pytest.fixture
def typist(
    new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Typist]:
    for variable in ALL_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    file, dsn = f"{tmp_path_factory.mktemp('fuzz')}/fuzz.db", new_database()
    with opened(dsn, file=file) as both:
        yield Typist(both, [f"sqlite:///{file}", dsn])
