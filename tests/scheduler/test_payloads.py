"""A payload reaches its handler as it was scheduled, or it is refused at once; on both databases."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, PrivateAttr, SecretStr, computed_field, field_serializer

from matrixsched import State
from matrixsched.errors import InvalidPayload
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")
    note: str = Field("", validation_alias="Note", serialization_alias="Note")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Private(BaseModel):
    name: str
    _token: object = PrivateAttr(default_factory=object)


class Wrapped(BaseModel):
    inner: Json[list[int]]


@dataclass(eq=False)
class Incomparable:
    count: int
    lasts: timedelta


class Secret(BaseModel):
    password: SecretStr


class Revealed(Secret):
    @field_serializer("password", when_used="json")
    def reveal(self, password: SecretStr) -> str:
        return password.get_secret_value()


class Contrary(BaseModel):
    name: str = Field(validation_alias="in", serialization_alias="out")


class Base(BaseModel):
    name: str


class Extended(Base):
    more: str


FAITHFUL: list[tuple[Any, Any]] = [
    (Aliased, Aliased(userId=7, Note="x")),
    (Computed, Computed(width=3)),
    (Private, Private(name="p")),
    (Wrapped, Wrapped(inner="[1, 2]")),
    (Incomparable, Incomparable(1, timedelta(microseconds=1))),
    (list[Aliased], [Aliased(userId=1)]),
    (dict[str, float], {"a": 0.1, "b": 1e300}),
    (tuple[int, str], (1, "é\u2028")),
    (Any, {"a": [1, 2.5, None, True, "x"]}),
]

UNFAITHFUL: list[tuple[Any, Any]] = [
    (Secret, Secret(password=SecretStr("hunter2"))),
    (Contrary, Contrary.model_validate({"in": "hunter2"})),
    (Base, Extended(name="n", more="hunter2")),
    (Any, {"when": datetime(2030, 1, 1, tzinfo=UTC)}),
    (Any, {1: "hunter2"}),
]


def shown(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize(("kind", "payload"), FAITHFUL, ids=shown)
async def test_a_payload_comes_back_as_it_was(app, kind, payload):
    received: list[Any] = []

    async def work(payload: Any) -> None:
        received.append(payload)

    work.__annotations__["payload"] = kind
    await app.schedule(app.action("work")(work), payload, id="w")
    assert await Worker(app).run_due() == 1
    assert (await app.get("w")).status.state is State.DONE
    (came,) = received
    assert type(came) is type(payload)
    assert repr(came) == repr(payload)


@pytest.mark.parametrize(("kind", "payload"), UNFAITHFUL, ids=shown)
async def test_a_payload_that_would_come_back_different_is_refused(app, kind, payload):
    async def work(payload: Any) -> None: ...

    work.__annotations__["payload"] = kind
    with pytest.raises(InvalidPayload, match="would not come back as it was: ") as refused:
        await app.schedule(app.action("work")(work), payload, id="w")
    assert "hunter2" not in str(refused.value)
    assert await app.list() == []


@pytest.mark.parametrize("wrap", [lambda secret: secret, lambda secret: {"of": [secret]}], ids=["bare", "inside"])
async def test_a_secret_for_a_handler_that_lives_elsewhere_is_refused_unless_its_model_shows_it(app, wrap):
    with pytest.raises(InvalidPayload, match="holds a secret, which would be stored as asterisks") as refused:
        await app.schedule("elsewhere", wrap(Secret(password=SecretStr("hunter2"))), id="w")
    assert "hunter2" not in str(refused.value)
    assert await app.list() == []
    await app.schedule("elsewhere", wrap(Revealed(password=SecretStr("hunter2"))), id="w")
    assert b'{"password":"hunter2"}' in (await app.get("w")).spec.payload
