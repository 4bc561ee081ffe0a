"""Tokens, roles and sessions."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from datetime import timedelta

import pytest
from starlette.requests import HTTPConnection

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.config import read_settings
from matrixsched.errors import ConfigurationError
from matrixsched.ops.web.access import SESSION_COOKIE, SESSION_S, Access, Role, Tokens, Visitor
from matrixsched.web import dashboard

VIEWER, OPERATOR = "v" * 16, "o" * 16


def asked(*, cookie: str | None = None, **headers: str) -> HTTPConnection:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if cookie is not None:
        sent["cookie"] = f"{SESSION_COOKIE}={cookie}"
    raw = [(name.encode(), value.encode("utf-8")) for name, value in sent.items()]
    return HTTPConnection({"type": "http", "headers": raw, "client": ("10.0.0.7", 1)})


@pytest.fixture
def access(clock: ManualClock) -> Access:
    return Access(Tokens(VIEWER, OPERATOR), secret=b"secret", clock=clock)


def seen(access: Access, connection: HTTPConnection) -> Visitor:
    visitor = access.visitor(connection)
    assert visitor is not None
    return visitor


@pytest.mark.parametrize(("token", "role"), [(VIEWER, Role.VIEWER), (OPERATOR, Role.OPERATOR)])
def test_a_token_tells_the_role(access: Access, token: str, role: Role) -> None:
    visitor = seen(access, asked(authorization=f"Bearer {token}"))
    assert (visitor.role, visitor.by_header, visitor.who) == (role, True, "token (10.0.0.7)")


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", f"Bearer {OPERATOR}x", f"Basic {OPERATOR}", OPERATOR, "Bearer ööööööööööööööööö"]
)
def test_anything_else_is_nobody(access: Access, given: str) -> None:
    assert access.visitor(asked(authorization=given)) is None


def test_a_wrong_token_is_nobody_also_with_a_session(access: Access) -> None:
    session = access.session(Role.OPERATOR, "ann")
    assert access.visitor(asked(cookie=session, authorization="Bearer wrong")) is None


def test_a_role_without_a_token_is_nobodys(clock: ManualClock) -> None:
    access = Access(Tokens(operator=OPERATOR), secret=b"", clock=clock)
    for given in ("", "None", VIEWER):
        assert access.visitor(asked(authorization=f"Bearer {given}")) is None
    assert access.visitor(asked()) is None


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({"operator_token": ""}, "operator_token: it is empty: leave it out, or give one of 16 letters or more"),
        ({"viewer_token": ""}, "viewer_token: it is empty"),
        ({"viewer_token": VIEWER, "operator_token": ""}, "operator_token: it is empty"),
        ({"operator_token": "o" * 15}, "operator_token: choose a text of 16 letters or more"),
        ({"viewer_token": "v" * 201}, "viewer_token: choose a text of 200 letters or less"),
        ({"viewer_token": OPERATOR, "operator_token": OPERATOR}, "choose two that differ"),
        ({"viewer_token": "", "operator_token": "o"}, "operator_token: choose a text of 16"),
    ],
)
def test_a_token_that_would_let_anybody_in_is_refused(tokens: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        dashboard(App("sqlite:///none.db"), **tokens)
    assert said in str(refused.value)
    assert OPERATOR not in str(refused.value)


def test_settings_and_the_dashboard_know_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (16, 200):
        monkeypatch.setenv("MATRIXSCHED_WEB_VIEWER_TOKEN", "v" * length)
        assert not read_settings().faults
        assert Tokens(viewer="v" * length)
    for length in (15, 201):
        monkeypatch.setenv("MATRIXSCHED_WEB_VIEWER_TOKEN", "v" * length)
        (fault,) = read_settings().faults
        with pytest.raises(ConfigurationError) as refused:
            Tokens(viewer="v" * length)
        assert refused.value.faults[0].partition(": ")[2] == fault.partition(": ")[2]


def test_programs_may_say_for_whom_they_act_and_it_opens_nothing(access: Access) -> None:
    visitor = seen(access, asked(authorization=f"Bearer {VIEWER}", x_operator="billing " + "x" * 500))
    assert visitor.role is Role.VIEWER
    assert visitor.who.startswith("billing xx")
    assert len(visitor.who) < 130
    assert access.visitor(asked(x_operator="ann")) is None


def test_a_session_stands_for_the_token_until_it_ends(access: Access, clock: ManualClock) -> None:
    session = access.session(Role.VIEWER, "Ann ☕")
    assert VIEWER not in session
    visitor = seen(access, asked(cookie=session))
    assert (visitor.role, visitor.who, visitor.has_session) == (Role.VIEWER, "Ann ☕ (10.0.0.7)", True)
    clock.advance(timedelta(seconds=SESSION_S + 1))
    assert access.visitor(asked(cookie=session)) is None


def test_a_session_that_was_tampered_with_is_nobodys(access: Access, clock: ManualClock) -> None:
    session, other = access.session(Role.VIEWER, "ann"), access.session(Role.OPERATOR, "bob")
    body, _, signature = session.partition(".")
    another, _, its_own = other.partition(".")
    forged = [f"{another}.{signature}", f"{body}.{its_own}", body, f"{body}.", "", ".", f"{body}.{signature}0", "a.b.c"]
    assert [access.visitor(asked(cookie=one)) for one in forged] == [None] * len(forged)


def test_sessions_end_when_a_token_is_changed_and_not_when_the_process_is_another(
    access: Access, clock: ManualClock
) -> None:
    session = access.session(Role.OPERATOR, "ann")
    others = access.session(Role.VIEWER, "vera")
    restarted = Access(access.tokens, secret=b"another", clock=clock)
    changed = Access(Tokens(VIEWER, "p" * 16), secret=b"secret", clock=clock)
    assert restarted.visitor(asked(cookie=session)) is not None
    assert changed.visitor(asked(cookie=session)) is None
    assert changed.visitor(asked(cookie=others)) is not None  # it stands for the other token


TOKENS = (Tokens(VIEWER), Tokens(operator=OPERATOR), Tokens(VIEWER, OPERATOR))


@pytest.mark.parametrize("tokens", [TOKENS[0], TOKENS[2]], ids=["viewer alone", "both"])
def test_whoever_knows_the_viewers_token_alone_can_make_nothing_of_an_operator(
    tokens: Tokens, clock: ManualClock
) -> None:
    """They know our code, too: they sign what they like, in an installation of their own or by hand."""
    attacked = Access(tokens, secret=b"secret", clock=clock)
    guesses = (Tokens(VIEWER), Tokens(operator=VIEWER), Tokens())
    own = [Access(one, secret=VIEWER.encode(), clock=clock) for one in guesses]
    forged = [one.session(role, "boss") for one in own for role in one.tokens.by_role or [Role.OPERATOR]]
    forged += [signed(key, role) for key in keys_from(VIEWER) for role in Role]
    for session in forged:
        visitor = attacked.visitor(asked(cookie=session))
        assert visitor is None or visitor.role is Role.VIEWER


def keys_from(token: str) -> list[bytes]:
    """As they were made once (of both tokens, one below the other), and as one might make them."""
    kinds = [b"matrixsched sessions", b"matrixsched session of operator", b"matrixsched session of viewer"]
    materials = [token, f"{token}\n", f"\n{token}", f"{token}\nNone", ""]
    return [hmac.new(one.encode(), kind, "sha256").digest() for one in materials for kind in kinds]


def signed(key: bytes, role: Role) -> str:
    facts = {"role": int(role), "name": "boss", "until": 4_000_000_000.0}
    body = b64encode(json.dumps(facts).encode()).decode()
    return f"{body}.{hmac.new(key, body.encode(), 'sha256').hexdigest()}"


def test_a_viewers_session_tells_nothing_of_the_operators_token(clock: ManualClock) -> None:
    """It is the same whatever that is, so that nobody can try at home which one it might be."""
    sessions = {Access(one, secret=b"s", clock=clock).session(Role.VIEWER, "ann") for one in (TOKENS[0], TOKENS[2])}
    assert len(sessions) == 1


@pytest.mark.parametrize("tokens", TOKENS)
def test_a_role_without_a_token_has_no_sessions(tokens: Tokens, clock: ManualClock) -> None:
    of_all = Access(Tokens(VIEWER, OPERATOR), secret=b"secret", clock=clock)
    access = Access(tokens, secret=b"secret", clock=clock)
    for role in Role:
        visitor = access.visitor(asked(cookie=of_all.session(role, "ann")))
        assert (None if visitor is None else visitor.role) == (role if role in tokens.by_role else None)


def test_a_form_is_of_the_session_it_was_made_for(access: Access) -> None:
    ann = seen(access, asked(cookie=access.session(Role.OPERATOR, "ann")))
    bob = seen(access, asked(cookie=access.session(Role.OPERATOR, "bob")))
    assert access.is_genuine(ann, ann.csrf)
    assert not access.is_genuine(ann, bob.csrf)
    assert not access.is_genuine(ann, "")
    assert not access.is_genuine(ann, "ö")


def test_without_tokens_whoever_gets_here_is_an_operator(clock: ManualClock) -> None:
    access = Access(Tokens(), secret=b"secret", clock=clock)
    visitor = seen(access, asked())
    assert (visitor.role, visitor.who) == (Role.OPERATOR, "local (10.0.0.7)")
    assert access.is_genuine(visitor, visitor.csrf)
    another = seen(Access(Tokens(), secret=b"other", clock=clock), asked())
    assert not access.is_genuine(visitor, another.csrf)
    assert access.visitor(asked(authorization=f"Bearer {OPERATOR}")) is None
