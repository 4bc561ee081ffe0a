"""Who asks, and what may they do: tokens, roles, sessions of browsers, and proof that a form is one of ours."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Final

from starlette.requests import HTTPConnection

from matrixsched.clock import Clock
from matrixsched.config import TOKEN_LENGTH_MAX, TOKEN_LENGTH_MIN
from matrixsched.errors import ConfigurationError

SESSION_COOKIE: Final = "matrixsched_session"
SESSION_S: Final = 12 * 3600
WHO_HEADER: Final = "x-operator"
"""Programs may say for whom they act: it goes into the audit log, and opens nothing."""
NAME_MAX: Final = 100


class Role(IntEnum):
    VIEWER = 1
    OPERATOR = 2

    @property
    def title(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Tokens:
    viewer: str | None = None
    operator: str | None = None

    def __post_init__(self) -> None:
        """No token is one that somebody left empty: with it everybody, or nobody, would be let in."""
        faults = [f"{name}_token: {fault}" for name, fault in self._faults()]
        if faults:
            raise ConfigurationError(faults)

    def _faults(self) -> Iterator[tuple[str, str]]:
        for name, token in (("viewer", self.viewer), ("operator", self.operator)):
            if token == "":
                yield name, f"it is empty: leave it out, or give one of {TOKEN_LENGTH_MIN} letters or more"
            elif token is not None and len(token) < TOKEN_LENGTH_MIN:
                yield name, f"choose a text of {TOKEN_LENGTH_MIN} letters or more"
            elif token is not None and len(token) > TOKEN_LENGTH_MAX:
                yield name, f"choose a text of {TOKEN_LENGTH_MAX} letters or less"
        if self.viewer is not None and self.viewer == self.operator:
            yield "viewer", "it is that of the operator, too: choose two that differ"

    def __bool__(self) -> bool:
        return self.viewer is not None or self.operator is not None

    @property
    def by_role(self) -> dict[Role, str]:
        """A role without a token is nobody's."""
        both = ((Role.VIEWER, self.viewer), (Role.OPERATOR, self.operator))
        return {role: token for role, token in both if token is not None}

    def role_of(self, given: str) -> Role | None:
        """All are compared, each in constant time: how long it takes tells nothing."""
        found = None
        for role, token in self.by_role.items():
            if hmac.compare_digest(token.encode(), given.encode("utf-8", "surrogateescape")):
                found = role
        return found


@dataclass(frozen=True, slots=True)
class Visitor:
    who: str
    role: Role
    csrf: str
    """What a form must bring along; programs that say their token in a header need none."""
    has_session: bool = False
    by_header: bool = False


class Access:
    def __init__(self, tokens: Tokens, *, secret: bytes, clock: Clock) -> None:
        """Without tokens everybody who gets here is an operator: the guard lets only this machine through then.
        `secret` is of this process; with tokens, sessions outlive it, and end when the token of their role is changed.
        """
        self.tokens = tokens
        self._clock = clock
        # Each role signs with its own token alone: who knows another one, as every viewer does, makes nothing of it.
        self._keys = {role: token.encode() for role, token in tokens.by_role.items()} or {Role.OPERATOR: secret}

    def visitor(self, connection: HTTPConnection) -> Visitor | None:
        """Who asks; None if nobody may know anything without a token."""
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        named = connection.headers.get(WHO_HEADER, "").strip()[:NAME_MAX]
        host = connection.client.host if connection.client else "unknown"
        if scheme.lower() == "bearer":
            role = self.tokens.role_of(given.strip())
            who = f"{named or 'token'} ({host})"
            return None if role is None else Visitor(who, role, self._form_sign(role, who), by_header=True)
        session = connection.cookies.get(SESSION_COOKIE)
        if self.tokens and session is not None and (found := self._read(session)) is not None:
            role, name = found
            who = f"{name or role.title} ({host})"
            return Visitor(who, role, self._form_sign(role, session), has_session=True)
        if not self.tokens:
            return Visitor(f"{named or 'local'} ({host})", Role.OPERATOR, self._form_sign(Role.OPERATOR, "local"))
        return None

    def session(self, role: Role, name: str) -> str:
        """What the browser keeps of a token that was shown: not the token. The role is that whose key has signed it."""
        facts = {"name": name.strip()[:NAME_MAX], "until": self._clock.now().timestamp() + SESSION_S}
        body = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()
        return f"{body}.{self._session_sign(role, body)}"

    def is_genuine(self, visitor: Visitor, given: str) -> bool:
        """Whether a form was made for this visitor."""
        return hmac.compare_digest(visitor.csrf.encode(), given.encode("utf-8", "surrogateescape"))

    def _read(self, session: str) -> tuple[Role, str] | None:
        body, _, signature = session.partition(".")
        signed = signature.encode("utf-8", "surrogateescape")
        for role in self._keys:
            if hmac.compare_digest(self._session_sign(role, body).encode(), signed):
                facts = json.loads(base64.urlsafe_b64decode(body))
                return (role, facts["name"]) if facts["until"] >= self._clock.now().timestamp() else None
        return None

    def _session_sign(self, role: Role, body: str) -> str:
        return self._sign(role, "session", body)

    def _form_sign(self, role: Role, of: str) -> str:
        return self._sign(role, "form", of)

    def _sign(self, role: Role, kind: str, text: str) -> str:
        """Of one role and kind, so that it is no other's."""
        key = hmac.new(self._keys[role], f"matrixsched {kind} of {role.title}".encode(), sha256).digest()
        return hmac.new(key, text.encode("utf-8", "surrogateescape"), sha256).hexdigest()
