"""One endpoint: a function, by which method and path it is called, and who may."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import BaseModel

from matrixsched.app import App
from matrixsched.ops.operator import Operator
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.values import CONFIDED, Given
from matrixsched.ops.web.desk import Desk

A = TypeVar("A", bound=BaseModel)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
OK: Final = HTTPStatus.OK
CREATED: Final = HTTPStatus.CREATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks for what, beside query and body."""

    desk: Desk
    who: Operator | None
    """Of a change; looks have none."""
    path: Mapping[str, str]
    """What stands in the path, by name."""
    prefix: str
    """Of all paths of the API, as whoever asks sees them."""
    expected_guid: UUID | None = None
    request_id: str | None = None

    @property
    def app(self) -> App:
        return self.desk.app

    @property
    def operator(self) -> Operator:
        assert self.who is not None, "a look has no operator"
        return self.who


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """An answer that says more than its body."""

    answer: A
    status: HTTPStatus = OK
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Endpoint:
    method: Method
    path: str
    function: Callable[..., Awaitable[Any]]
    """Takes (asked) and, by these names, `query` and `body`; returns an answer, a Reply, or None for an empty one."""
    role: Role = Role.OPERATOR
    succeeds: tuple[HTTPStatus, ...] = (OK,)
    refuses: tuple[HTTPStatus, ...] = ()
    """For what reasons of its own; those of all others need not be named."""
    takes_guid: bool = False
    """By If-Match."""
    takes_request_id: bool = False
    """By Idempotency-Key."""
    has_guid: bool = False
    """Its answer bears one, as ETag."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """What stands in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def is_change(self) -> bool:
        return self.method != "GET"

    @cached_property
    def query(self) -> type[Given] | None:
        return self._hints.get("query")

    @cached_property
    def confided(self) -> tuple[str, ...]:
        """Parameters of the query that ask for what is shown to operators only."""
        fields = {} if self.query is None else self.query.model_fields
        return tuple(name for name, field in fields.items() if CONFIDED in field.metadata)

    @cached_property
    def body(self) -> type[Given] | None:
        return self._hints.get("body")

    @cached_property
    def answer(self) -> type[BaseModel] | None:
        returned = self._hints["return"]
        if returned is type(None):
            return None
        model: type[BaseModel] = get_args(returned)[0] if get_origin(returned) is Reply else returned
        return model

    @cached_property
    def described(self) -> tuple[str, str]:
        """In a line, and in full."""
        summary, _, rest = (inspect.getdoc(self.function) or "").partition("\n\n")
        # Lines are folded for the source; paragraphs are what is meant.
        return summary.rstrip("."), "\n\n".join(" ".join(part.split("\n")) for part in rest.split("\n\n"))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function)
