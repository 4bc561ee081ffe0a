"""All endpoints, in the order of the document."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pydantic import RootModel

from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api import actions, bulk, fleet, limits, queues, semaphores, templates
from matrixsched.ops.web.api.endpoint import Asked, Endpoint
from matrixsched.ops.web.api.openapi import document

PREFIX: Final = "/api/v1"


class DocumentTold(RootModel[dict[str, Any]]):
    """A document of OpenAPI 3.1."""


async def get_openapi(asked: Asked) -> DocumentTold:
    """This document."""
    return _document(asked.prefix)


@lru_cache(maxsize=8)
def _document(prefix: str) -> DocumentTold:
    return DocumentTold(document(BY_TAG, prefix=prefix))


BY_TAG: Final[dict[str, tuple[Endpoint, ...]]] = {
    "actions": actions.ENDPOINTS,
    "many actions": bulk.ENDPOINTS,
    "fleet": fleet.ENDPOINTS,
    "templates": templates.ENDPOINTS,
    "limits": limits.ENDPOINTS,
    "semaphores": semaphores.ENDPOINTS,
    "queues": queues.ENDPOINTS,
    "document": (Endpoint("GET", "/openapi.json", get_openapi, Role.VIEWER),),
}
ENDPOINTS: Final[tuple[Endpoint, ...]] = tuple(endpoint for endpoints in BY_TAG.values() for endpoint in endpoints)
