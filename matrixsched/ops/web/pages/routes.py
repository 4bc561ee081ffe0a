"""The addresses of the pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from matrixsched.ops.web.pages.action_changes import ACTION_CHANGES
from matrixsched.ops.web.pages.actions import show_action, show_actions
from matrixsched.ops.web.pages.audit import show_audit
from matrixsched.ops.web.pages.bulk_changes import BULK_CHANGES
from matrixsched.ops.web.pages.changing import Changes, change_page
from matrixsched.ops.web.pages.limits import LIMIT_CHANGES, show_limits
from matrixsched.ops.web.pages.overview import show_overview
from matrixsched.ops.web.pages.queues import QUEUE_CHANGES, show_queue, show_queues
from matrixsched.ops.web.pages.semaphores import SEMAPHORE_CHANGES, show_semaphore, show_semaphores
from matrixsched.ops.web.pages.shards import SHARD_CHANGES, show_shards
from matrixsched.ops.web.pages.signing import show_sign_in, sign_in, sign_out
from matrixsched.ops.web.pages.templates import TEMPLATE_CHANGES, show_template, show_templates
from matrixsched.ops.web.pages.visit import STATIC, Look, visited
from matrixsched.ops.web.problems import Refused

CHANGES: Changes = {
    **ACTION_CHANGES,
    **BULK_CHANGES,
    **SHARD_CHANGES,
    **TEMPLATE_CHANGES,
    **LIMIT_CHANGES,
    **SEMAPHORE_CHANGES,
    **QUEUE_CHANGES,
}
PAGES: dict[str, Look] = {
    "": show_overview,
    "actions": show_actions,
    "action": show_action,
    "shards": show_shards,
    "templates": show_templates,
    "template": show_template,
    "limits": show_limits,
    "semaphores": show_semaphores,
    "semaphore": show_semaphore,
    "queues": show_queues,
    "queue": show_queue,
    "audit": show_audit,
}
FOR_GOOD = "public, max-age=31536000, immutable"
"""How long browsers keep files: their addresses change with them."""


def page_routes() -> list[BaseRoute]:
    return [
        *(Route(f"/{path}", visited(look), methods=["GET"]) for path, look in PAGES.items()),
        Route("/change/{verb}", visited(change_page(CHANGES)), methods=["GET", "POST"]),
        Route("/sign-in", show_sign_in, methods=["GET"]),
        Route("/sign-in", sign_in, methods=["POST"]),
        Route("/sign-out", visited(sign_out), methods=["POST"]),
        Route("/static/{name}", static_file(), methods=["GET"]),
    ]


def static_file() -> Callable[[Request], Awaitable[Response]]:
    """Only what is there: no name leads out of the folder."""
    known = {path.name: path for path in STATIC.iterdir() if path.is_file()}

    async def send(request: Request) -> Response:
        file = known.get(request.path_params["name"])
        if file is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such file")
        return FileResponse(file, headers={"Cache-Control": FOR_GOOD})

    return send
