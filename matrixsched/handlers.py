"""Handlers by name: what they take, how their payload is written and read, and their default terms."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from matrixsched.context import Context
from matrixsched.errors import BadInput, InvalidPayload, PayloadTooLarge, UnknownHandler
from matrixsched.rules.names import check_name
from matrixsched.rules.retry import Retry
from matrixsched.rules.times import check_duration

P = ParamSpec("P")
R = TypeVar("R")

Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""`async def around(context, call_next)`: what is done around every handler."""

PAYLOAD_BYTES_MAX = 1_000_000
TIMEOUT_DEFAULT = timedelta(seconds=60)
NO_PAYLOAD = b"null"


@dataclass(frozen=True, slots=True, eq=False)
class Handler(Generic[P, R]):
    """A registered function. It can still be called like the function it was made from."""

    name: str
    function: Callable[P, R]
    takes_payload: bool
    takes_context: bool
    is_async: bool
    adapter: TypeAdapter[Any] | None
    retry: Retry
    timeout: timedelta

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def encode(self, payload: object) -> bytes:
        """The payload as it is stored; InvalidPayload if it is not what the handler takes."""
        if self.adapter is None:
            if payload is not None:
                raise InvalidPayload(self.name, "the handler takes none")
            return NO_PAYLOAD
        try:
            value = self.adapter.validate_python(payload, strict=True)
            encoded = _as_json(self.adapter, value)
        except ValidationError as error:
            raise InvalidPayload(self.name, _faults(error)) from None
        except _UNWRITABLE as error:
            raise InvalidPayload(self.name, f"cannot be written as JSON ({type(error).__name__})") from None
        except Exception as error:
            # A validator or a serializer of the model may raise anything; its message may hold the value.
            raise InvalidPayload(self.name, f"its model raised {type(error).__name__}") from None
        self._check_return(encoded, value)
        return encoded

    def _check_return(self, encoded: bytes, value: object) -> None:
        """Refuse what would reach the handler as something else, or could not be read at all."""
        try:
            decoded = self.decode(encoded)
        except InvalidPayload as error:
            raise InvalidPayload(self.name, f"would not come back as it was: {error.why}") from None
        if not _is_same(self.adapter, decoded, value):
            why = "its type does not say all that is in it, or hides some of it when written"
            raise InvalidPayload(self.name, f"would not come back as it was: {why}")

    def decode(self, payload: bytes) -> object:
        """The payload as the handler takes it; InvalidPayload if the stored bytes do not fit its model."""
        if self.adapter is None:
            return None
        try:
            return self.adapter.validate_json(payload)
        except ValidationError as error:
            raise InvalidPayload(self.name, _faults(error)) from None
        except Exception as error:
            raise InvalidPayload(self.name, f"its model raised {type(error).__name__}") from None

    def arguments(self, payload: object, context: Context) -> list[object]:
        arguments: list[object] = [payload] if self.takes_payload else []
        if self.takes_context:
            arguments.append(context)
        return arguments


_UNWRITABLE = (PydanticSerializationError, ValueError, TypeError, RecursionError)


def _as_json(adapter: TypeAdapter[Any], payload: object) -> bytes:
    plain = adapter.dump_python(payload, mode="json", by_alias=True, round_trip=True)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if "null" in text:
        # Where a type says no more than Any, pydantic turns NaN into null without a word; asked this way it does not.
        json.dumps(to_jsonable_python(payload, inf_nan_mode="constants"), allow_nan=False)
    return text.encode()


def _is_same(adapter: TypeAdapter[Any] | None, one: object, other: object) -> bool:
    try:
        if one == other:
            return True
    except Exception:
        pass  # not comparable, like what knows only its own identity
    if adapter is None or type(one) is not type(other):
        return False
    try:
        # Not as JSON: two secrets look alike there.
        return bool(adapter.dump_python(one) == adapter.dump_python(other))
    except Exception:
        return False


def encode_unregistered(name: str, payload: object) -> bytes:
    """The payload for a handler that lives in another process: a model or plain JSON values."""
    if payload is None:
        return NO_PAYLOAD
    model: Any = type(payload) if isinstance(payload, BaseModel) else object
    try:
        return _as_json(TypeAdapter(model), payload)
    except _UNWRITABLE as error:
        raise InvalidPayload(name, f"cannot be written as JSON ({type(error).__name__})") from None
    except Exception as error:
        raise InvalidPayload(name, f"its model raised {type(error).__name__}") from None


def _faults(error: ValidationError) -> str:
    """Where and what, never the value itself."""
    try:
        faults = error.errors(include_input=False, include_url=False, include_context=False)
    except Exception as unspeakable:  # a validator's own error that cannot be put in words
        return f"its model raised what cannot be shown ({type(unspeakable).__name__})"
    shown = [f"{'.'.join(str(part) for part in fault['loc']) or 'payload'}: {fault['msg']}" for fault in faults[:5]]
    more = [f"and {len(faults) - 5} more"] if len(faults) > 5 else []
    return "; ".join(shown + more)


class Handlers:
    """All handlers of an application."""

    def __init__(self, *, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self._by_name: dict[str, Handler[..., Any]] = {}
        self._payload_bytes_max = payload_bytes_max

    def __iter__(self) -> Iterator[Handler[..., Any]]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    def register(
        self, name: str, function: Callable[P, R], *, retry: Retry | None, timeout: timedelta | None
    ) -> Handler[P, R]:
        if callable(name):
            raise BadInput('the handler has no name: use @app.action("name")')
        check_name("handler name", name)
        if name in self._by_name:
            raise BadInput(f"a handler named {name!r} is registered already")
        if retry is not None and not isinstance(retry, Retry):
            raise BadInput(
                f"retry of handler {name!r} must be a Retry, for example Retry(max_attempts=3), "
                f"not {type(retry).__name__}"
            )
        payload, takes_context = _signature(name, function)
        handler = Handler(
            name=name,
            function=function,
            takes_payload=payload is not _NOTHING,
            takes_context=takes_context,
            is_async=inspect.iscoroutinefunction(_code(function)),
            adapter=None if payload is _NOTHING else _adapter(name, payload),
            retry=retry or Retry(),
            timeout=check_duration("timeout", TIMEOUT_DEFAULT if timeout is None else timeout, zero=False),
        )
        self._by_name[name] = handler
        return handler

    def find(self, name: str) -> Handler[..., Any] | None:
        return self._by_name.get(name)

    def named(self, name: str) -> Handler[..., Any]:
        handler = self._by_name.get(name)
        if handler is None:
            raise UnknownHandler(name, self.names)
        return handler

    def encode(self, handler: Handler[..., Any] | str, payload: object) -> tuple[str, bytes]:
        """The handler's name and the payload as stored, checked as far as this process can."""
        if isinstance(handler, str):
            registered = self.find(check_name("handler name", handler))
            encoded = registered.encode(payload) if registered else encode_unregistered(handler, payload)
            name = handler
        elif isinstance(handler, Handler):
            name, encoded = handler.name, handler.encode(payload)
        else:
            kind = type(handler).__name__
            raise BadInput(f'handler must be a registered handler (use @app.action("name")) or a name, not {kind}')
        if len(encoded) > self._payload_bytes_max:
            raise PayloadTooLarge(name, len(encoded), self._payload_bytes_max)
        return name, encoded


_NOTHING: Any = object()


def _code(function: Callable[..., object]) -> Callable[..., object]:
    """The function with the annotations: that inside of a partial, or the __call__ of an object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _adapter(name: str, payload: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(payload)
    except Exception as error:
        shown = getattr(payload, "__name__", None) or repr(payload)
        raise BadInput(
            f"handler {name!r}: pydantic cannot read and write its payload's type {shown} ({type(error).__name__}); "
            "use a pydantic model, a dataclass or plain types"
        ) from None


def _signature(name: str, function: Callable[..., object]) -> tuple[Any, bool]:
    """The type of the payload (or _NOTHING) and whether a Context is wanted."""
    if not callable(function):
        raise BadInput(f"handler {name!r} must be a function, not {type(function).__name__}")
    code = _code(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise BadInput(f"handler {name!r} is a generator, which nobody would iterate: remove its yield")
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = get_type_hints(code)
    except Exception as error:
        raise BadInput(
            f"handler {name!r}: an annotation cannot be read ({type(error).__name__}: {error}); import its types at "
            "the top of the module, not under TYPE_CHECKING"
        ) from None
    for one in parameters:
        if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD):
            raise BadInput(
                f"handler {name!r} is called with positional arguments, but {one.name!r} is taken by keyword only: "
                "declare it as (payload), (payload, context), (context) or nothing"
            )
    contexts = [one for one in parameters if hints.get(one.name) is Context or one.name == "context"]
    payloads = [one for one in parameters if one not in contexts]
    if len(contexts) > 1 or len(payloads) > 1 or (contexts and parameters[-1] is not contexts[0]):
        raise BadInput(f"handler {name!r} must take (payload), (payload, context), (context) or nothing")
    if not payloads:
        return _NOTHING, bool(contexts)
    return hints.get(payloads[0].name, Any), bool(contexts)
