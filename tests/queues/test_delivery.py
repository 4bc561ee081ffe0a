"""Actions that become tasks of queues: once, at their time, in one transaction with the record of the action."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TypeVar

import pytest
from support.queue_tasks import CONTRACT, EMAILS, Email, Sms, contract_of

from matrixsched import App, State, call, every
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import BadInput, InvalidPayload, OutcomeUnknown, TaskTooLarge, UnknownHandler
from matrixsched.queues import Contract, decode, encode, put_into, task_class
from matrixsched.queues.compare import compare
from matrixsched.rules.queues import DATA_BYTES_MAX
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

T = TypeVar("T")
SECOND = timedelta(seconds=1)


@pytest.fixture
async def app(database_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url, clock=clock, chance=SeededChance(1))
    app.queues.use(CONTRACT)
    await app.init(shards=4)
    async with app:
        yield app


async def addressees(app: App) -> list[str]:
    taken = await app.queues.storage.get(EMAILS, 100)
    return sorted(decode(Email, task).to for task in taken)


async def test_a_task_is_put_when_its_action_is_due_and_the_action_is_done(app: App, clock: ManualClock):
    await app.schedule(put_into("emails"), Email(to="ada"), id="mail", delay=10 * SECOND)
    await Worker(app).run_due()
    assert await addressees(app) == []
    clock.advance(10 * SECOND)
    await Worker(app).run_due()
    assert await addressees(app) == ["ada"]
    assert (await app.get("mail")).status.state is State.DONE


async def test_thousands_are_put_at_their_time(app: App, clock: ManualClock):
    await app.schedule_many(
        call(put_into("emails"), Email(to=f"{n}"), id=f"mail {n}", delay=SECOND) for n in range(1_200)
    )
    clock.advance(SECOND)
    await Worker(app).run_due()
    stat = (await app.queues.stat())["emails"]
    assert (stat.total, stat.ready) == (1_200, 1_200)


async def test_one_that_repeats_puts_a_task_each_time(app: App, clock: ManualClock):
    await app.schedule(put_into("emails"), Email(to="ada"), id="daily", repeat=every(10 * SECOND))
    for _ in range(3):
        await Worker(app).run_due()
        clock.advance(10 * SECOND)
    assert len(await addressees(app)) >= 3


class LosesAnswers(StoreWrapper):
    """The first answer about deliveries does not arrive."""

    lost = 0

    async def run(self, transition: Transition[T]) -> T:
        answer = await super().run(transition)
        if transition.name == "record_deliveries" and not self.lost:
            self.lost += 1
            raise OutcomeUnknown("the answer was lost")
        return answer

    def sibling(self) -> Store:
        return self._inner.sibling()


async def test_it_is_put_once_also_if_the_answer_of_the_database_was_lost(app: App):
    app.store = losing = LosesAnswers(app.store)
    await app.schedule(put_into("emails"), Email(to="ada"), id="mail")
    worker = Worker(app)
    with pytest.raises(OutcomeUnknown):
        await worker.run_due()
    await worker.run_due()
    assert losing.lost == 1
    assert await addressees(app) == ["ada"]
    assert (await app.get("mail")).status.state is State.DONE


async def test_a_worker_that_dies_before_it_records_leaves_it_to_another_which_puts_it_once(
    app: App, clock: ManualClock
):
    await app.schedule(put_into("emails"), Email(to="ada"), id="mail")
    dying = Worker(app)
    await dying.intake.step()
    clock.advance(30 * SECOND)
    await Worker(app).run_due()
    late = [attempt for attempt in (dying.runner.has_waiting,) if attempt]
    assert late  # it still has it in its hands, and may wake up
    await dying.runner.run_next()
    while not dying.recorder.is_idle:
        await dying.recorder.step()
    assert await addressees(app) == ["ada"]


async def test_a_task_of_a_newer_contract_is_put_by_a_worker_that_does_not_know_it(app: App, database_url: str):
    newer = task_class(contract_of(EMAILS, "emails", "to", "subject"))
    (elsewhere := App(database_url, clock=app.clock)).queues.use(
        Contract(version=2, description="", queues=(newer.__contract__,))
    )
    async with elsewhere:
        await elsewhere.schedule(put_into("emails"), newer(to="ada", subject="Hi"), id="mail")
    await Worker(app).run_due()
    (task,) = await app.queues.storage.get(EMAILS, 10)
    assert decode(newer, task).subject == "Hi"


async def test_what_was_cancelled_or_replaced_meanwhile_is_not_put(app: App):
    await app.schedule(put_into("emails"), Email(to="ada"), id="mail")
    worker = Worker(app)
    await worker.intake.step()
    await app.cancel("mail")
    await worker.run_due()
    assert await addressees(app) == []


async def test_only_tasks_of_the_queue_are_scheduled_for_it(app: App):
    with pytest.raises(InvalidPayload, match="must be a task of queue 'emails'"):
        await app.schedule(put_into("emails"), Sms(number=7))
    with pytest.raises(InvalidPayload, match="must be a task of queue 'emails'"):
        await app.schedule(put_into("emails"), {"to": "ada"})
    with pytest.raises(InvalidPayload, match="'to' is of type int"):
        await app.schedule(put_into("emails"), Email(to=7))
    assert await app.list() == []


async def test_a_task_that_is_too_large_for_an_action_is_refused_with_the_reason(app: App):
    large = Email(to="x" * 749_998)
    with pytest.raises(TaskTooLarge):
        await app.schedule_many([call(put_into("emails"), Email(to="ada")), call(put_into("emails"), large)])
    with pytest.raises(TaskTooLarge) as refusal:
        await app.schedule(put_into("emails"), large)
    error = refusal.value
    assert (error.queue, error.size, error.size_max) == ("emails", len(encode(large)), 749_997)
    assert "it is the payload of an action, in base64, of 1,000,000 bytes at most (payload_bytes_max" in str(error)
    assert "app.queues.put(task, at=...) takes 1,048,576. Store the bulk elsewhere" in str(error)
    assert await app.list() == []
    await app.schedule(put_into("emails"), Email(to="x" * 749_991))
    await Worker(app).run_due()
    (task,) = await app.queues.storage.get(EMAILS, 10)
    assert len(task.data) == 749_997


async def test_an_action_holds_no_task_that_its_queue_would_not_take(database_url: str, clock: ManualClock):
    app = App(database_url, clock=clock, payload_bytes_max=10_000_000)
    app.queues.use(CONTRACT)
    await app.init(shards=4)
    async with app:
        with pytest.raises(TaskTooLarge, match="1,048,576 are allowed. Store the bulk"):
            await app.schedule(put_into("emails"), Email(to="x" * DATA_BYTES_MAX))
        assert await app.list() == []
        await app.schedule(put_into("emails"), Email(to="x" * (DATA_BYTES_MAX - 6)))
        await Worker(app).run_due()
        assert (await app.queues.stat())["emails"].ready == 1


async def test_a_task_is_not_scheduled_for_a_queue_that_is_not_known_here(app: App):
    with pytest.raises(BadInput, match="a task of queue 'emails' is scheduled for 'queue:emials', which is not known"):
        await app.schedule(put_into("emials"), Email(to="ada"))
    for wrong in (Email, None, "", "E mails"):
        with pytest.raises(BadInput, match="put_into takes the name of a queue, as in put_into"):
            put_into(wrong)  # type: ignore[arg-type]
    assert await app.list() == []


async def test_a_queue_that_nobody_knows_has_no_worker_either(app: App):
    await app.schedule(put_into("letters"), None, id="mail")
    with pytest.raises(UnknownHandler):
        app.handlers.named(put_into("letters"))
    await Worker(app).run_due()
    assert (await app.get("mail")).status.state is State.LIVE


async def test_a_queue_is_not_renamed_while_actions_name_it(app: App, database_url: str):
    await app.schedule(put_into("emails"), Email(to="ada"), id="mail")
    renamed = Contract(queues=(contract_of(EMAILS, "mails", "to"),))
    (elsewhere := App(database_url, clock=app.clock)).queues.use(renamed)
    async with elsewhere:
        await Worker(elsewhere).run_due()
        assert (await elsewhere.queues.stat())["mails"].total == 0, "so a change of the name has to be refused"
    (refused,) = [change for change in compare(CONTRACT, renamed) if change.queue == "emails"]
    assert not refused.is_compatible
    assert "put_into name it emails" in refused.why
    await Worker(app).run_due()
    assert await addressees(app) == ["ada"]
