"""Limits, slow-downs, templates and their quota, set and changed while workers pass them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import anyio

from matrixsched.app import App
from matrixsched.calls import call
from matrixsched.rules.lanes import ANY_KEY, GLOBAL, handler_limit, key_limit, template_limit
from matrixsched.rules.outcome import HandlerOutcome, SlowDown
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.transition import Transition
from simulation.actors import NAMES, OPERATION, Behaviour, Client, register_handlers
from simulation.commit_checkers import Commit, Objections
from simulation.gate_checkers import AT_EVERY_COMMIT, unlisted
from simulation.gate_end_checkers import AT_THE_END
from simulation.gate_notes import GateNotes
from simulation.parts import Call, Part

if TYPE_CHECKING:
    from simulation.world import World

KEYS = ("ann", "bob", "odd|%key")
TEMPLATES = ("news", "offer", "digest", "invite", "receipt", "survey")
ZONES = (None, "Asia/Tokyo", "America/New_York", "UTC")
DISTRIBUTIONS = ("uniform", "morning", "evening")
WINDOWS = ("00:00-00:01", "00:01-00:02", "09:00-09:01")
"""Runs begin at midnight in UTC and last a few minutes."""
HANDLERS = ("told", "bulk")
"""Those that this part adds."""
LIMITS = (
    GLOBAL,
    ANY_KEY,
    *map(handler_limit, (*NAMES, *HANDLERS)),
    *map(key_limit, KEYS),
    *map(template_limit, TEMPLATES),
)
GLOBAL_RATES = ("4/s", "8/s", "15/s", "40/s", "100/s")
"""As the others: fast enough that what repeats is through before it comes again, for everything must come to rest."""
RATES = ("3/s", "3/700ms", "8/s", "20/s", "50/s")
INTERVALS = (1.0, 2.0, 3.5, 6.0)
"""Of the quota, in seconds; a second is the least there can be."""
MESSAGES_MAX = 30
RESUMED_WITHIN_S = 15.0
WEIGHTS = {
    "send_campaign": 5.0,
    "send_told": 2.0,
    "set_limit": 3.0,
    "remove_limit": 1.0,
    "slow_down": 1.5,
    "resume_limit": 1.0,
    "slow_down_and_resume": 0.7,
    "set_template": 1.0,
    "pause": 1.0,
    "resume": 0.7,
    "stop": 0.4,
    "remove_template": 0.4,
    "set_quota": 0.8,
}


def _limit_names() -> dict[str, float]:
    handlers = {handler_limit(name): 0.5 for name in ("quick", "flaky", "slow")}
    own = {handler_limit(name): 2.0 for name in HANDLERS}
    keys = {key_limit(key): 1.0 for key in KEYS}
    return {GLOBAL: 4.0, ANY_KEY: 3.0, **handlers, **own, **keys, **{template_limit(name): 0.7 for name in TEMPLATES}}


async def _bulk(chance: Random) -> None:
    if chance.random() < 0.3:
        await anyio.sleep(chance.uniform(0, 0.1))


async def _told(chance: Random) -> HandlerOutcome | None:
    await anyio.sleep(chance.uniform(0, 0.5))
    if chance.random() < 0.7:
        return None
    until = timedelta(seconds=chance.uniform(0, 4))
    limit = chance.choice((None, None, None, GLOBAL, template_limit(TEMPLATES[0])))
    return SlowDown(until, limit=limit, rate=chance.choice((None, None, "5/s")), reason="HTTP 429")


class GatesPart(Part):
    name: ClassVar[str] = "gates"
    at_every_commit = AT_EVERY_COMMIT
    at_the_end = AT_THE_END

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.notes = GateNotes(world)
        self.names = _limit_names()
        """The limits that clients change, with how often."""
        self.weights = dict(WEIGHTS)
        """What clients do, with how often."""
        self.global_rates = GLOBAL_RATES
        self.intervals = INTERVALS
        self._messages = self._chance.randint(4, MESSAGES_MAX)
        self._operators: set[asyncio.Task[Any]] = set()

    # What is there.

    async def install(self, app: App) -> None:
        for name in TEMPLATES:
            await app.templates.set(name, **self._template_options())
        await app.quota.set(interval=timedelta(seconds=self._chance.choice(self.intervals)))
        for name in self._chance.sample(list(self.names), k=min(len(self.names), self._chance.randint(1, 5))):
            await app.limits.set(name, self._rate(name), pool=self._pool())
        self.notes.follow(LIMITS)

    def register(self, app: App, host: str) -> None:
        self.notes.time_answers(app.store, host)
        register_handlers(app, self._world, host, self.behaviours)

    @property
    def behaviours(self) -> Mapping[str, Behaviour]:
        return {"told": Behaviour(_told), "bulk": Behaviour(_bulk)}

    def committed(self, commit: Commit) -> None:
        if commit.transition.name == "cancel_template_batch":
            self._note_cancelled(commit)
        self.notes.follow(LIMITS)
        self.notes.note_claims(commit.attempts if commit.transition.name == "claim_gated" else ())
        if commit.transition.name in ("pause_template", "remove_template"):
            name = commit.transition.arguments[0]  # type: ignore[attr-defined]
            self._operate(self._put_right(name))

    def _note_cancelled(self, commit: Commit) -> None:
        cancelled = {
            id: action.guid
            for id, action in commit.after.actions.items()
            if id in commit.before.actions and action.guid != commit.before.actions[id].guid
        }
        if cancelled:
            self._world.history.caused(commit.host, "cancel", {id: UUID(guid) for id, guid in cancelled.items()})

    def unrest(self) -> Objections:
        return unlisted(self.notes.look())

    # An operator sees to it that no template stays paused, or away, for ever.

    def _operate(self, work: Awaitable[None]) -> None:
        task = self._world.loop.spawn("operator", work)
        self._operators.add(task)

    async def _put_right(self, name: str) -> None:
        await self._world.sleep_up_to(RESUMED_WITHIN_S)
        do = self._world.database.store.transitions
        await self._carry_out(do.put_template(name, TemplateChange()))
        await self._carry_out(do.resume_template(name))

    async def _carry_out(self, transition: Transition[Any]) -> None:
        await self._world.carry_out("operator", transition, self._world.clock.now())

    # What clients say and do.

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._chance.random() < 0.3:
            options["limit"] = self._chance.choice(KEYS)
        if self._chance.random() < 0.3:
            options |= self._template()
        if self._chance.random() < 0.3:
            options["priority"] = self._chance.randint(0, 2)
        return options

    def _template(self) -> dict[str, Any]:
        zone = self._chance.choice(ZONES)
        return {"template": self._chance.choice(TEMPLATES)} | ({} if zone is None else {"zone": zone})

    def _template_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"weight": self._chance.choice((0.5, 1.0, 1.0, 2.0))}
        if self._chance.random() < 0.3:
            options["windows"] = [self._chance.choice(WINDOWS)]
        else:
            options["distribution"] = self._chance.choice(DISTRIBUTIONS)
        if self._chance.random() < 0.4:
            options["max_speed"] = self._chance.choice(("none", "2/s", "5/s", "20/s"))
        if self._chance.random() < 0.3:
            options["zone"] = self._chance.choice(("UTC", "Asia/Tokyo"))
        return options

    def _rate(self, name: str) -> str:
        return self._chance.choice(self.global_rates if name == GLOBAL else RATES)

    def _pool(self) -> int:
        return self._chance.choice((0, 0, 1, 2, 6))

    def _limit(self) -> str:
        (name,) = self._chance.choices(list(self.names), weights=list(self.names.values()))
        return name

    @property
    def operations(self) -> Mapping[Call, float]:
        return {getattr(self, name): weight for name, weight in self.weights.items()}

    async def send_campaign(self, client: Client) -> None:
        """Many at once, which is what gates are for."""
        numbers = self._chance.sample(range(self._messages), k=self._chance.randint(2, min(15, self._messages)))
        ids = [f"message-{number}" for number in numbers]
        delay_s = self._chance.choice((0.0, 0.0, self._chance.uniform(0, 4)))
        handler = self._chance.choice(("bulk", "bulk", "bulk", "quick", "told", "slow"))
        together: dict[str, Any] = {"limit": self._chance.choice(KEYS)} if self._chance.random() < 0.4 else {}
        template = self._chance.random() < 0.6
        with client._called("schedule", *ids, delay_s=delay_s) as operation:
            calls = [
                call(
                    handler,
                    id=id,
                    delay=timedelta(seconds=delay_s),
                    priority=self._chance.choice((0, 0, 1)),
                    **together,
                    **(self._template() if template else {}),
                )
                for id in ids
            ]
            done = await client._app.schedule_many(calls, exists="replace")
            client._ok(operation, done.kept == 0)

    async def send_told(self, client: Client) -> None:
        """To whom it is said now and then to slow down."""
        id, delay_s = f"message-{self._chance.randrange(self._messages)}", self._chance.uniform(0, 2)
        with client._called("schedule", id, delay_s=delay_s) as operation:
            delay = timedelta(seconds=delay_s)
            done = await client._app.schedule("told", id=id, delay=delay, **self.options())
            client._ok(operation, done.changed)

    async def set_limit(self, client: Client) -> None:
        name = self._limit()
        await self._change(client, "set limit", lambda app: app.limits.set(name, self._rate(name), pool=self._pool()))

    async def remove_limit(self, client: Client) -> None:
        name = self._limit()
        await self._change(client, "remove limit", lambda app: app.limits.remove(name))

    async def slow_down(self, client: Client) -> None:
        name = self._slowable()
        rate = self._chance.choice((None, None, "2/s", "10/s"))
        until = timedelta(seconds=self._chance.uniform(0.1, 6))
        await self._change(client, "slow down", lambda app: app.limits.slow_down(name, until, rate=rate))

    async def resume_limit(self, client: Client) -> None:
        name = self._slowable()
        await self._change(client, "resume limit", lambda app: app.limits.resume(name))

    async def slow_down_and_resume(self, client: Client) -> None:
        """A slip: slots that were taken before it are used all the same."""
        name, rate = self._slowable(), self._chance.choice((None, "2/s"))
        await self._change(client, "slow down", lambda app: app.limits.slow_down(name, timedelta(seconds=5), rate=rate))
        await self._change(client, "resume limit", lambda app: app.limits.resume(name))

    def _slowable(self) -> str:
        return next(name for name in iter(self._limit, None) if name != ANY_KEY)

    async def set_template(self, client: Client) -> None:
        options = self._template_options()
        name = self._chance.choice(TEMPLATES)
        await self._change(client, "set template", lambda app: app.templates.set(name, **options))

    async def pause(self, client: Client) -> None:
        name = self._chance.choice(TEMPLATES)
        until = self._chance.choice((None, timedelta(seconds=self._chance.uniform(0.5, 8))))
        await self._change(client, "pause", lambda app: app.templates.pause(name, until))

    async def resume(self, client: Client) -> None:
        name = self._chance.choice(TEMPLATES)
        await self._change(client, "resume", lambda app: app.templates.resume(name))

    async def stop(self, client: Client) -> None:
        name = self._chance.choice(TEMPLATES)
        await self._change(client, "stop", lambda app: app.templates.stop(name))

    async def remove_template(self, client: Client) -> None:
        name = self._chance.choice(TEMPLATES)
        await self._change(client, "remove template", lambda app: app.templates.remove(name))

    async def set_quota(self, client: Client) -> None:
        interval = timedelta(seconds=self._chance.choice(self.intervals))
        shares = {"inside_share": 0.5, "outside_share": 0.1} if self._chance.random() < 0.5 else {}
        spare = self._chance.choice(("leave", "share"))
        await self._change(client, "set quota", lambda app: app.quota.set(interval=interval, spare=spare, **shares))

    async def _change(self, client: Client, kind: str, change: Callable[[App], Awaitable[Any]]) -> None:
        with client._called(kind, delay_s=None) as operation:
            # What it draws is of no action that is scheduled: what a stop cancels is noted when it is done.
            token = OPERATION.set(None)
            try:
                await change(client._app)
            finally:
                OPERATION.reset(token)
            client._ok(operation, False)
