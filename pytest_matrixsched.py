"""The pytest plugin of matrixsched: the fixture `stage`.

Say once which application is meant, in the configuration of pytest (`matrixsched_app = reminders:app`) or by a fixture
`matrixsched_app` of your own. Then a test that asks for `stage` finds the application on a fresh database in memory;
`@pytest.mark.matrixsched(inline=True)` hands arguments to `matrixsched.testing.stage`. The fixture is synchronous and
belongs to no event loop, so it serves tests of anyio, of pytest-asyncio and of neither alike.

It stands outside the package on purpose: pytest imports it in every project of the environment it is installed in, and
importing anything of the package would cost each of them the start of the whole library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from matrixsched import App
    from matrixsched.testing import Stage

_MARK = "matrixsched(at, url, inline, seed, policy, attempts_max): arguments of matrixsched.testing.stage for this test"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("matrixsched_app", "the App that the fixture `stage` puts on a stage, as module:attribute")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def matrixsched_app(request: pytest.FixtureRequest) -> App:
    """The application under test; override it to choose one by hand."""
    target = request.config.getini("matrixsched_app")
    if not target:
        raise pytest.UsageError(
            "the fixture `stage` does not know your application: set `matrixsched_app = module:app` in the "
            "configuration of pytest, or write a fixture `matrixsched_app` that returns it"
        )
    from matrixsched.ops.loading import load_app

    return load_app(target)


@pytest.fixture
def stage(request: pytest.FixtureRequest, matrixsched_app: App) -> Iterator[Stage]:
    """The application on a fresh database in memory, at a time that the test decides."""
    from matrixsched.testing import stage

    marker = request.node.get_closest_marker("matrixsched")
    arguments, options = (marker.args, marker.kwargs) if marker else ((), {})
    with stage(matrixsched_app, *arguments, **options) as staged:
        yield staged
