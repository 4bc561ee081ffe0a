"""Handlers by name: what they take, how their payload is written and read, and their default terms."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from pydantic import TypeAdapter, ValidationError

from matrixsched.context import Context
from matrixsched.errors import BadInput, InvalidPayload, PayloadTooLarge, UnknownHandler
from matrixsched.payloads import (
    NO_PAYLOAD,
    UNWRITABLE,
    VERSION_MAX,
    Upcasters,
    adapter_for,
    as_json,
    encode_unregistered,
    faults_in,
    is_same,
    signature_of,
)
from matrixsched.rules.contract import QueueContract
from matrixsched.rules.names import check_name
from matrixsched.rules.retry import Retry
from matrixsched.rules.semaphore import check_unreserved
from matrixsched.rules.times import check_duration, check_integer

P = ParamSpec("P")
R = TypeVar("R")
U = TypeVar("U", bound=Callable[[Any], object])

Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""`async def around(context, call_next)`: what is done around every handler."""

Guard = Callable[[Any], Awaitable[object]]
SizeCheck = Callable[[bytes, int], None]

PAYLOAD_BYTES_MAX = 1_000_000
TIMEOUT_DEFAULT = timedelta(seconds=60)


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
    version: int
    """Of the payload it takes; older ones are lifted to it by its upcasters."""
    upcasters: Upcasters
    guard: Guard | None = None
    """Asked with the payload before each call; an outcome that it answers with takes the place of the call."""
    check_size: SizeCheck | None = None
    """Told a payload as it is to be stored, and how long it may be; raises what says more than PayloadTooLarge."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def encode(self, payload: object) -> bytes:
        """The payload as it is stored; InvalidPayload if it is not what the handler takes."""
        if self.adapter is None:
            if payload is not None:
                raise InvalidPayload(self.name, "the handler takes none")
            return NO_PAYLOAD
        try:
            value = self.adapter.validator.validate_python(payload, strict=True)
            encoded = as_json(self.adapter, value)
        except ValidationError as error:
            raise InvalidPayload(self.name, faults_in(error)) from None
        except UNWRITABLE as error:
            raise InvalidPayload(self.name, f"cannot be written as JSON ({type(error).__name__})") from None
        except Exception as error:
            # A validator or a serializer of the model may raise anything; its message may hold the value.
            raise InvalidPayload(self.name, f"its model raised {type(error).__name__}") from None
        self._check_return(encoded, value)
        return encoded

    def _check_return(self, encoded: bytes, value: object) -> None:
        """Refuse what would reach the handler as something else, or could not be read at all."""
        try:
            decoded = self._read(encoded)
        except InvalidPayload as error:
            raise InvalidPayload(self.name, f"would not come back as it was: {error.why}") from None
        if not is_same(self.adapter, decoded, value):
            why = "its type does not say all that is in it, or hides some of it when written"
            raise InvalidPayload(self.name, f"would not come back as it was: {why}")

    def decode(self, payload: bytes, version: int | None = None) -> object:
        """The payload as the handler takes it; InvalidPayload if the stored bytes do not fit its model.

        `version` is that of the stored bytes; None, as in rows that say nothing of it, is 1.
        """
        if self.adapter is None:
            return None
        stored = version or 1
        if stored == self.version:
            return self._read(payload)
        lifted = self.upcasters.lifted(payload, stored)
        try:
            return self._read(lifted)
        except InvalidPayload as error:
            raise InvalidPayload(self.name, f"lifted from version {stored}, it does not fit: {error.why}") from None

    def _read(self, payload: bytes) -> object:
        assert self.adapter is not None
        try:
            return self.adapter.validator.validate_json(payload)
        except ValidationError as error:
            raise InvalidPayload(self.name, faults_in(error)) from None
        except Exception as error:
            raise InvalidPayload(self.name, f"its model raised {type(error).__name__}") from None

    def upcast(self, from_version: int) -> Callable[[U], U]:
        """Register what makes a payload of the next version out of one of `from_version`.

        It takes plain JSON values, or the type its argument is annotated with, and returns what would be stored in the
        next version: JSON values or a model.

        >>> @remind.upcast(1)
        ... def add_locale(old: dict[str, Any]) -> dict[str, Any]:
        ...     return old | {"locale": "en"}
        """
        if self.adapter is None:
            raise BadInput(f"handler {self.name!r} takes no payload, so there is none to upcast: remove the upcaster")

        def register(function: U) -> U:
            self.upcasters.add(from_version, function)
            return function

        return register

    def arguments(self, payload: object, context: Context | None) -> list[object]:
        """Of a call; a context is needed only where it takes one."""
        arguments: list[object] = [payload] if self.takes_payload else []
        if self.takes_context:
            arguments.append(context)
        return arguments


class Handlers:
    """All handlers of an application."""

    def __init__(self, *, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self._by_name: dict[str, Handler[..., Any]] = {}
        self._refused: dict[str, str] = {}
        self._payload_bytes_max = check_integer("payload_bytes_max", payload_bytes_max, least=1, most=2**30)

    def __iter__(self) -> Iterator[Handler[..., Any]]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    def register(
        self,
        name: str,
        function: Callable[P, R],
        *,
        retry: Retry | None,
        timeout: timedelta | None,
        version: int = 1,
        oldest_version: int = 1,
        event_type: type | None = None,
        payload_type: Any = None,
        guard: Guard | None = None,
        check_size: SizeCheck | None = None,
    ) -> Handler[P, R]:
        """`event_type` is what a handler must take that is told of a semaphore; `payload_type` is for those of our own
        whose type cannot be said in an annotation."""
        if callable(name):
            raise BadInput('the handler has no name: use @app.action("name")')
        check_name("handler name", name)
        if event_type is None:
            check_unreserved("handler name", name)
        if name in self._by_name:
            raise BadInput(f"a handler named {name!r} is registered already")
        if retry is not None and not isinstance(retry, Retry):
            raise BadInput(
                f"retry of handler {name!r} must be a Retry, for example Retry(max_attempts=3), "
                f"not {type(retry).__name__}"
            )
        check_integer(f"version of handler {name!r}", version, least=1, most=VERSION_MAX)
        check_integer(f"oldest_version of handler {name!r}", oldest_version, least=1, most=version)
        if event_type is None:
            payload, takes_context = _signature(name, function)
        else:
            payload, takes_context = event_type, _takes_context_beside(event_type, name, function)
        if payload_type is not None:
            payload = payload_type
        handler = Handler(
            name=name,
            function=function,
            takes_payload=payload is not _NOTHING,
            takes_context=takes_context,
            is_async=inspect.iscoroutinefunction(code_of(function)),
            adapter=None if payload is _NOTHING else adapter_for(f"handler {name!r}", payload),
            retry=retry or Retry(),
            timeout=check_duration("timeout", TIMEOUT_DEFAULT if timeout is None else timeout, zero=False),
            version=version,
            upcasters=Upcasters(name, version, oldest_version),
            guard=guard,
            check_size=check_size,
        )
        self._by_name[name] = handler
        return handler

    def refuse(self, name: str, why: str) -> None:
        """Let nothing be scheduled for a name that no worker of this application could ever carry out."""
        self._refused[name] = why

    def find(self, name: str) -> Handler[..., Any] | None:
        return self._by_name.get(name)

    def named(self, name: str) -> Handler[..., Any]:
        handler = self._by_name.get(name)
        if handler is None:
            raise UnknownHandler(name, self.names)
        return handler

    def faults(self) -> list[str]:
        """What is wrong with the handlers taken together: the steps that lead nowhere, all of them."""
        return [
            fault
            for handler in self
            if handler.adapter is not None and (fault := handler.upcasters.fault()) is not None
        ]

    def encode(
        self, handler: Handler[..., Any] | str, payload: object, version: int | None = None
    ) -> tuple[str, bytes, int]:
        """The handler's name, the payload as stored and its version, checked as far as this process can.

        `version` is what the caller says; needed only where the handler is not registered.
        """
        if isinstance(handler, str):
            registered = self._by_name.get(handler)
            name = handler if registered is not None else check_name("handler name", handler)
        elif isinstance(handler, Handler):
            name, registered = handler.name, handler
        else:
            kind = type(handler).__name__
            raise BadInput(f'handler must be a registered handler (use @app.action("name")) or a name, not {kind}')
        check_unreserved("handler name", name)
        if version is not None:
            check_integer("payload_version", version, least=1, most=VERSION_MAX)
        if registered is None:
            if name in self._refused:
                raise BadInput(self._refused[name])
            _refuse_task(name, payload)
            encoded, version = encode_unregistered(name, payload), version or 1
        elif version is not None and version != registered.version:
            raise BadInput(
                f"payload_version is {version}, but handler {name!r} is registered here and takes version "
                f"{registered.version}: leave payload_version out"
            )
        else:
            encoded, version = registered.encode(payload), registered.version
        if registered is not None and registered.check_size is not None:
            registered.check_size(encoded, self._payload_bytes_max)
        if len(encoded) > self._payload_bytes_max:
            raise PayloadTooLarge(name, len(encoded), self._payload_bytes_max)
        return name, encoded, version


def _refuse_task(name: str, payload: object) -> None:
    """A task of a queue is written as its contract says; as plain JSON no worker could read it."""
    contract = getattr(type(payload), "__contract__", None)
    if isinstance(contract, QueueContract):
        raise BadInput(
            f"a task of queue {contract.name!r} is scheduled for {name!r}, which is not known here: check the "
            f"spelling, as in put_into({contract.name!r}), and let the App know it by app.queues.use(contract)"
        )


_NOTHING: Any = object()


def code_of(function: Callable[..., object]) -> Callable[..., object]:
    """The function with the annotations: that inside of a partial, or the __call__ of an object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


_FORMS = "(payload), (payload, context), (context) or nothing"


def _signature(name: str, function: Callable[..., object], forms: str = _FORMS) -> tuple[Any, bool]:
    """The type of the payload (or _NOTHING) and whether a Context is wanted."""
    if not callable(function):
        raise BadInput(f"handler {name!r} must be a function, not {type(function).__name__}")
    code = code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise BadInput(f"handler {name!r} is a generator, which nobody would iterate: remove its yield")
    parameters, hints = signature_of(f"handler {name!r}", function, code)
    for one in parameters:
        if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD):
            raise BadInput(
                f"handler {name!r} is called with positional arguments, but {one.name!r} is taken by keyword only: "
                f"declare it as {forms}"
            )
    contexts = [one for one in parameters if hints.get(one.name) is Context or one.name == "context"]
    payloads = [one for one in parameters if one not in contexts]
    if len(contexts) > 1 or len(payloads) > 1 or (contexts and parameters[-1] is not contexts[0]):
        raise BadInput(f"handler {name!r} must take {forms}")
    if not payloads:
        return _NOTHING, bool(contexts)
    return hints.get(payloads[0].name, Any), bool(contexts)


def _takes_context_beside(event_type: type, name: str, function: Callable[..., object]) -> bool:
    """Whether a Context is wanted beside the event. Without an annotation it is an event all the same."""
    event = event_type.__name__
    forms = f"(event: {event}) or (event: {event}, context: Context)"
    payload, takes_context = _signature(name, function, forms)
    if payload is not Any and payload is not event_type:
        taken = "does not take it" if payload is _NOTHING else f"takes {getattr(payload, '__name__', repr(payload))}"
        raise BadInput(f"handler {name!r} is told with {event}, but {taken}: declare it as {forms}")
    return takes_context
