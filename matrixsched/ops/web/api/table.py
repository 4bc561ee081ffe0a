"""All endpoints, in the order of the document."""

from __future__ import annotations

from typing import Final

from matrixsched.ops.web.api import actions
from matrixsched.ops.web.api.endpoint import Endpoint

PREFIX: Final = "/api/v1"
ENDPOINTS: Final[tuple[Endpoint, ...]] = (*actions.ENDPOINTS,)
