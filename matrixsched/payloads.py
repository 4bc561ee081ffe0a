"""Payloads as JSON bytes: written, read, and lifted from older versions to the one a handler takes now.

What is stored stays as it was written, for months if need be: it is lifted each time it is read, step by step, so that
a deploy rewrites no rows and an older worker beside a newer one finds its own rows as it left them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import BaseModel, Secret, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from matrixsched.errors import BadInput, InvalidPayload, PayloadTooNew, UpcasterMissing, UpcastFailed, in_words
from matrixsched.rules.times import check_integer

NO_PAYLOAD = b"null"
VERSION_MAX = 1_000_000
_ASTERISKS = "a secret, which would be stored as asterisks: pass its value as a plain string"
_WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
UNWRITABLE = (PydanticSerializationError, ValueError, TypeError, RecursionError)


def as_json(adapter: TypeAdapter[Any], payload: object) -> bytes:
    text = _WRITER.encode(adapter.serializer.to_python(payload, mode="json", by_alias=True, round_trip=True))
    if "null" in text:
        # Where a type says no more than Any, pydantic turns NaN into null without a word; asked this way it does not.
        json.dumps(to_jsonable_python(payload, inf_nan_mode="constants"), allow_nan=False)
    return text.encode()


class _SecretWritten(Exception):
    """A secret would be stored as the asterisks that are shown of it."""


def _openly(adapter: TypeAdapter[Any], payload: object) -> bytes:
    """As JSON, of which nobody checks afterwards that it comes back as it was; so it must hold no asterisks."""
    written = as_json(adapter, payload)
    if b"**********" in written and _holds_secret(adapter.dump_python(payload)):
        raise _SecretWritten
    return written


def _holds_secret(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_secret, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_holds_secret, value))
    return isinstance(value, Secret | SecretStr | SecretBytes)


def is_same(adapter: TypeAdapter[Any] | None, one: object, other: object) -> bool:
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
        return _openly(_adapter_of(model), payload)
    except _SecretWritten:
        raise InvalidPayload(name, f"holds {_ASTERISKS}") from None
    except UNWRITABLE as error:
        raise InvalidPayload(name, f"cannot be written as JSON ({type(error).__name__})") from None
    except Exception as error:
        raise InvalidPayload(name, f"its model raised {type(error).__name__}") from None


@lru_cache(maxsize=256)
def _adapter_of(model: type) -> TypeAdapter[Any]:
    """Made once for each model: that takes longer than writing a payload."""
    return TypeAdapter(model)


def faults_in(error: ValidationError) -> str:
    """Where and what, never the value itself."""
    try:
        faults = error.errors(include_input=False, include_url=False, include_context=False)
    except Exception as unspeakable:  # a validator's own error that cannot be put in words
        return f"its model raised what cannot be shown ({type(unspeakable).__name__})"
    shown = [f"{'.'.join(str(part) for part in fault['loc']) or 'payload'}: {fault['msg']}" for fault in faults[:5]]
    more = [f"and {len(faults) - 5} more"] if len(faults) > 5 else []
    return "; ".join(shown + more)


def adapter_for(who: str, kind: Any) -> TypeAdapter[Any]:
    """What reads and writes payloads of that type; BadInput if pydantic cannot."""
    try:
        return TypeAdapter(kind)
    except Exception as error:
        shown = getattr(kind, "__name__", None) or repr(kind)
        raise BadInput(
            f"{who}: pydantic cannot read and write its payload's type {shown} ({type(error).__name__}); "
            "use a pydantic model, a dataclass or plain types"
        ) from None


def signature_of(
    who: str, function: Callable[..., object], code: Callable[..., object]
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """What a function takes, and the types that its code, which may lie deeper, is annotated with."""
    try:
        return list(inspect.signature(function).parameters.values()), get_type_hints(code)
    except Exception as error:
        raise BadInput(
            f"{who}: an annotation cannot be read ({type(error).__name__}: {error}); import its types at "
            "the top of the module, not under TYPE_CHECKING"
        ) from None


class Upcasters:
    """The steps from the older payloads of one handler to the one it takes now."""

    def __init__(self, handler: str, version: int, oldest_version: int = 1) -> None:
        self._handler = handler
        self._version = version
        self._oldest = oldest_version
        self._steps: dict[int, _Step] = {}

    def add(self, from_version: int, function: Callable[[Any], object]) -> None:
        who = f"upcaster of handler {self._handler!r} from version {from_version}"
        check_integer(
            f"from_version of an upcaster of handler {self._handler!r}", from_version, least=1, most=VERSION_MAX
        )
        if from_version >= self._version:
            raise BadInput(
                f"{who} leads to version {from_version + 1}, but the handler takes version {self._version}; "
                f"declare it as @app.action({self._handler!r}, version={from_version + 1})"
            )
        if from_version < self._oldest:
            raise BadInput(
                f"{who} is for payloads that are gone, as oldest_version={self._oldest} says; "
                f"remove it, or declare the handler with oldest_version={from_version}"
            )
        if from_version in self._steps:
            raise BadInput(f"{who} is registered already")
        self._steps[from_version] = _Step(who, function)

    def lifted(self, payload: bytes, version: int) -> bytes:
        """A payload of another version as the handler takes it now; InvalidPayload if that cannot be had."""
        if version > self._version:
            raise PayloadTooNew(self._handler, version, self._version)
        if missing := self._gaps(version):
            raise UpcasterMissing(self._handler, self._version, missing)
        for from_version in range(version, self._version):
            payload = self._stepped(payload, from_version)
        return payload

    def _stepped(self, payload: bytes, from_version: int) -> bytes:
        step = self._steps[from_version]
        try:
            return step(payload)
        except ValidationError as error:
            why = f"it takes another payload: {faults_in(error)}"
        except _SecretWritten:
            why = f"it returned {_ASTERISKS}"
        except (Exception, SystemExit) as error:
            why = f"it raised {type(error).__name__}"  # its message may hold the payload
        raise UpcastFailed(self._handler, from_version, why)

    def fault(self) -> str | None:
        """What is missing between the oldest version and the handler's own, in words."""
        missing = self._gaps(self._oldest)
        if not missing:
            return None
        return (
            f"handler {self._handler!r} takes version {self._version}, but has no upcaster from version "
            f"{in_words(missing)}: register it with @handler.upcast({missing[0][0]}), or say with oldest_version= "
            "that no older payloads are left"
        )

    def _gaps(self, version: int) -> list[range]:
        """The versions that no step leads on from; as ranges, for versions may be far apart."""
        known = [version - 1, *sorted(step for step in self._steps if step >= version), self._version]
        spans = (range(one + 1, other) for one, other in zip(known, known[1:], strict=False))
        return [span for span in spans if span]


class _Step:
    """One upcaster: reads what was stored in its own version, writes it as the next one would be stored."""

    __slots__ = ("_function", "_reads", "_writes")

    def __init__(self, who: str, function: Callable[[Any], object]) -> None:
        self._function = function
        self._reads = adapter_for(who, _taken(who, function))
        # By what it is, not by what is promised: a step may say less of what it returns than it returns.
        self._writes: TypeAdapter[Any] = TypeAdapter(Any)

    def __call__(self, payload: bytes) -> bytes:
        return _openly(self._writes, self._function(self._reads.validate_json(payload)))


def _taken(who: str, function: Callable[[Any], object]) -> Any:
    """The type of the one argument that an upcaster takes; Any, plain JSON values, if it does not say."""
    if not inspect.isroutine(function):
        raise BadInput(f"{who} must be a function, not {type(function).__name__}")
    code = inspect.unwrap(function)
    if inspect.iscoroutinefunction(code) or inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise BadInput(f"{who} must be a plain function, for nothing is awaited or iterated there")
    parameters, hints = signature_of(who, function, function)
    if len(parameters) != 1 or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise BadInput(f"{who} must take one argument, the older payload, and return the newer one")
    return hints.get(parameters[0].name, Any)
