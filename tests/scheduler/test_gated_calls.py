"""Actions with a template, a recipient's zone or a limit of the caller's choice: what is written, what is refused."""

from datetime import timedelta

import pytest

from matrixsched import App, call, every
from matrixsched.errors import BadInput, InvalidId, MatrixSchedError, UnknownTemplate, UnknownZone
from matrixsched.rules.lanes import Lane, lane_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"template": ""}, InvalidId),
        ({"template": 5}, InvalidId),
        ({"template": []}, InvalidId),
        ({"template": "x" * 257}, InvalidId),
        ({"template": "nobody knows it"}, UnknownTemplate),
        ({"zone": "Europe/Berlin"}, BadInput),
        ({"zone": "Europe/Atlantis"}, UnknownZone),
        ({"zone": 3}, UnknownZone),
        ({"limit": ""}, InvalidId),
        ({"limit": "a\nb"}, InvalidId),
        ({"limit": 7}, InvalidId),
        ({"limit": "*"}, BadInput),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_written(app: App, options, error):
    for refused in (
        app.schedule("greet", id="a", **options),
        app.schedule("greet", id="a", exists="error", request_id="r", **options),
        app.schedule_many([call("greet", id="a", **options)]),
    ):
        with pytest.raises(error) as caught:
            await refused
        assert isinstance(caught.value, MatrixSchedError)
        assert caught.value.remedy
    assert await app.list() == []


async def test_a_limit_of_the_callers_choice_is_kept_with_the_action(app: App):
    await app.schedule("greet", id="a", limit="customer|7", priority=3)
    await app.schedule("greet", id="b")
    action = await app.get("a")
    assert (action.spec.limit, action.spec.template, action.spec.zone) == ("customer|7", None, None)
    assert (await app.get("b")).spec.limit is None
    (row,) = await app.list(id_prefix="a")
    assert row.spec.limit == "customer|7"


async def test_a_repeating_action_may_have_a_limit(app: App):
    await app.schedule("greet", id="a", repeat=every(timedelta(hours=1)), limit="customer")
    assert (await app.get("a")).spec.limit == "customer"


def test_the_lane_of_a_key_with_every_odd_letter_is_read_back_as_it_was():
    for key in ("a|b", "%7C", "%", "|", "a b", "ü"):
        lane = Lane(handler="h|%", priority=2, key=key, template=key, zone="Europe/Berlin")
        assert lane_of(lane.name) == lane
