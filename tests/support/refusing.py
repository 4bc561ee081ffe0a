"""What becomes of a test whose surroundings cannot be had."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

REQUIRE_PG = "MATRIXSCHED_REQUIRE_PG"
REQUIRE_TOOLS = "MATRIXSCHED_REQUIRE_TOOLS"


def refuse(reason: str, *, unless: str) -> NoReturn:
    """Skip for a newcomer who lacks something; fail where a suite without a part of it would pass for a whole one, and
    therefore that variable is 1."""
    if os.environ.get(unless) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
