"""The document: what the table of endpoints says, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from matrixsched import __version__
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.endpoint import CREATED, Endpoint
from matrixsched.ops.web.api.reading import JSON, KEY_PATTERN
from matrixsched.ops.web.problems import MEDIA_TYPE
from matrixsched.rules.names import NAME_BYTES_MAX

REFERENCE: Final = "#/components/schemas/{model}"
_NEEDS_OPERATOR: Final = "Needs the operator's token."
_GUID: Final = {"type": "string", "pattern": '^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$'}

ABOUT: Final = """
Schedule actions, see how they stand, and change them, from any language; look after templates, limits, semaphores and
queues.

**Who may.** Send `Authorization: Bearer TOKEN`. The viewer's token is for looking (GET), but not at what payloads
and tasks hold; the operator's is for everything.
A server without tokens answers its own machine only, without any. `X-Operator` says for whom a program acts; it goes
into the audit log. A browser with a session sends its `X-CSRF-Token` with every change.

**Ids in paths** are percent-encoded, each as one segment: a slash is %2F. Only `.` and `..`, which clients take for
steps of a path, cannot stand there.

**Durations** are a number of seconds, or a text such as "250ms", "10s", "1h30m". **Times** are ISO 8601 with an offset.

**Lists** have a `next_cursor`; send it as `cursor` for the next page. A list is at its end when it is null.

**Errors** are problem details as of RFC 9457: `status` tells the kind, `detail` what is wrong and what to do, `errors`
which part of the request, where several may be wrong. What is refused by 4xx changed nothing.

**Once, though the answer was lost.** If the connection broke, or the answer is 504, a change may be done or not. Send
the same request again with the same `Idempotency-Key`, a UUID for example: it is done once. The key belongs to the
action (or queue) and to what is done to it; sent with another body it is 422, for an hour. Or name the version that
you saw by `If-Match`: a second try finds another one, and is 412. For what takes neither, its description says what
comes of it. Where the database goes away in the middle of a change of many, the answer is 504, and tells what is done;
those of `/bulk` are 200 then, with `complete: false` and a cursor to go on with. 503 means that nothing was done: try
again after `Retry-After` seconds.
"""


class FaultTold(BaseModel):
    """What is wrong with one part of a request."""

    pointer: str | None = Field(None, description="In the body, as a JSON pointer.")
    parameter: str | None = Field(None, description="In the query or the headers, by its name.")
    detail: str


class Problem(BaseModel):
    """Problem details, as of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[FaultTold] | None = None


_WHY: Final[dict[HTTPStatus, str]] = {
    HTTPStatus.OK: "Done.",
    HTTPStatus.CREATED: "Made.",
    HTTPStatus.NO_CONTENT: "Done; there is nothing to tell.",
    HTTPStatus.BAD_REQUEST: "It cannot be read.",
    HTTPStatus.UNAUTHORIZED: "A token is needed.",
    HTTPStatus.FORBIDDEN: (
        "The token is for looking only, or a page of another site asks; "
        "or there are no tokens, and another machine asks."
    ),
    HTTPStatus.NOT_FOUND: "It is not there.",
    HTTPStatus.METHOD_NOT_ALLOWED: "The path knows other methods; `Allow` tells which.",
    HTTPStatus.CONFLICT: "It does not fit what is there.",
    HTTPStatus.PRECONDITION_FAILED: "It was changed since it was read.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "It is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: f"The body is not {JSON}.",
    HTTPStatus.MISDIRECTED_REQUEST: "There are no tokens, and it asks for a name that is not of this machine.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "It can be read, but not be taken.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "A mistake of the server: its log tells more. A change may be done or not.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The database cannot be asked now; nothing was done.",
    HTTPStatus.GATEWAY_TIMEOUT: "It may be done or not, or a part of it: see above, how to send it again.",
}


def document(by_tag: Mapping[str, Sequence[Endpoint]], *, prefix: str) -> dict[str, Any]:
    """`prefix` is of all paths, as whoever asks sees them."""
    endpoints = [endpoint for group in by_tag.values() for endpoint in group]
    schemas = _Schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for tag, group in by_tag.items():
        for endpoint in group:
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, tag, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "matrixsched", "version": __version__, "description": ABOUT.strip()},
        "servers": [{"url": prefix}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in by_tag],
        "paths": paths,
        "components": {
            "schemas": schemas.all,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                f"Problem{int(status)}": _problem(status) for status in _WHY if status >= HTTPStatus.BAD_REQUEST
            },
        },
    }


class _Schemas:
    """Those of all models, by model."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        taken = {one.body for one in endpoints if one.body is not None}
        told = {one.answer for one in endpoints if one.answer is not None} | {Problem}
        known: list[tuple[type[BaseModel], JsonSchemaMode]] = [
            *((model, "validation") for model in sorted(taken, key=_name)),
            *((model, "serialization") for model in sorted(told, key=_name)),
        ]
        references, definitions = models_json_schema(known, ref_template=REFERENCE)
        self._references = {model.__name__: reference for (model, _), reference in references.items()}
        self.all: dict[str, Any] = dict(definitions["$defs"])

    def of(self, model: type[BaseModel]) -> dict[str, Any]:
        return self._references[_name(model)]

    def properties(self, model: type[BaseModel]) -> dict[str, Any]:
        """Of a query: a parameter each, and no schema of their own."""
        found: dict[str, Any] = model.model_json_schema(ref_template=REFERENCE)["properties"]
        return found


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _operation(endpoint: Endpoint, tag: str, schemas: _Schemas) -> dict[str, Any]:
    summary, description = endpoint.described
    who = _NEEDS_OPERATOR if endpoint.role is Role.OPERATOR else "The viewer's token is enough."
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [tag],
        "summary": summary,
        "description": "\n\n".join(part for part in (description, who) if part),
        "parameters": list(_parameters(endpoint, schemas)),
        "responses": dict(_responses(endpoint, schemas)),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas.of(endpoint.body)}}}
    return operation


def _parameters(endpoint: Endpoint, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    for name in endpoint.parameters:
        schema = {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if endpoint.query is not None:
        for name, schema in schemas.properties(endpoint.query).items():
            parameter = {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
            yield parameter | ({"description": _NEEDS_OPERATOR} if name in endpoint.confided else {})
    if endpoint.takes_guid:
        yield _header("If-Match", "Change only the version of this guid, as ETag told it.", _GUID)
    if endpoint.takes_request_id:
        schema = {"type": "string", "pattern": KEY_PATTERN}
        yield _header(
            "Idempotency-Key",
            "A name for this request: however often it is sent, it is done once; with another body it is refused.",
            schema,
        )


def _header(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": dict(schema)}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter is there or not; it is never null."""
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if "default" in schema and schema["default"] is not None:
        rest["default"] = schema["default"]
    return {**kinds[0], **rest} if len(kinds) == 1 else {**rest, **({"anyOf": kinds} if kinds else {})}


def _responses(endpoint: Endpoint, schemas: _Schemas) -> Iterator[tuple[str, dict[str, Any]]]:
    for status in endpoint.succeeds:
        answer: dict[str, Any] = {"description": _WHY[status]}
        if endpoint.answer is not None:
            answer["content"] = {JSON: {"schema": schemas.of(endpoint.answer)}}
        if endpoint.has_guid:
            answer["headers"] = {"ETag": {"description": "The guid of the action.", "schema": _GUID, "required": True}}
        if endpoint.has_guid and CREATED in endpoint.succeeds:
            location = {"description": "Where the action is.", "schema": {"type": "string"}, "required": True}
            answer["headers"]["Location"] = location
        yield str(int(status)), answer
    for status in sorted(_refusals(endpoint)):
        yield str(int(status)), {"$ref": f"#/components/responses/Problem{int(status)}"}


def _refusals(endpoint: Endpoint) -> set[HTTPStatus]:
    statuses = {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.MISDIRECTED_REQUEST,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.SERVICE_UNAVAILABLE,
        *endpoint.refuses,
    }
    if endpoint.parameters:
        statuses.add(HTTPStatus.NOT_FOUND)
    if endpoint.is_change:
        statuses |= {HTTPStatus.GATEWAY_TIMEOUT}
        statuses |= {HTTPStatus.UNSUPPORTED_MEDIA_TYPE, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
    return statuses


def _problem(status: HTTPStatus) -> dict[str, Any]:
    return {
        "description": _WHY[status],
        "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(model=Problem.__name__)}}},
    }
