"""What may hold secrets, and is not for whoever may only look: payloads, and what is in the tasks of queues."""

from __future__ import annotations

from http import HTTPStatus

from matrixsched.ops.web.access import Role, Visitor
from matrixsched.ops.web.problems import Refused


def check_confided(visitor: Visitor) -> None:
    """Refused if it is not for them."""
    if visitor.role < Role.OPERATOR:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "payloads and tasks may hold secrets: they are shown to operators only; ask without them, or with the "
            "operator's token",
        )
