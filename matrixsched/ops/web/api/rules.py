"""How an action is repeated and retried, in JSON."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from matrixsched.errors import BadInput
from matrixsched.ops.repetition import exclusion_text, misfire_text, read_exclusion, read_misfire
from matrixsched.ops.web.api.values import Duration, Given, Instant, Moment, Name, Told, reading
from matrixsched.rules.crontab import Repeated, Skipped
from matrixsched.rules.exclusions import EXCLUSIONS_MAX
from matrixsched.rules.retry import ATTEMPTS_MAX, Retry
from matrixsched.rules.schedule import Cron, Every, Repeat, cron, every

_EXCLUSION = "A date (2026-12-25), a daily window (22:00-06:00), or two instants with a slash between them."
_MISFIRE = "Runs missed while nothing ran: `once` (one, late), `skip`, or `catch-up:N` for the N newest."


class RepeatGiven(Given):
    """At an interval (`every`), or by the calendar (`cron`): one of the two."""

    every: Duration | None = Field(None, description="At this interval.")
    anchor: Instant | None = Field(None, description="With `every`: a point of the grid on which runs lie.")
    after_end: bool = Field(False, description="With `every`: counted from the end of the last run, not on a grid.")
    cron: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="Five fields: minute hour day month weekday.", examples=["30 6 * * MON-FRI"]
    )
    zone: Name = Field("UTC", description="Whose clocks count, by its IANA name.", examples=["Europe/Berlin"])
    skipped: Skipped | None = Field(None, description="With `cron`: local times that clocks skip in spring.")
    repeated: Repeated | None = Field(None, description="With `cron`: local times that clocks show twice in autumn.")
    misfire: Annotated[str, Field(pattern=r"^(once|skip|catch-up:[0-9]{1,4})$")] = Field("once", description=_MISFIRE)
    jitter: Duration = Field(timedelta(0), description="Each run starts up to this much later, by chance.")
    exclude: Annotated[list[str], Field(max_length=EXCLUSIONS_MAX)] = Field(
        [], description=f"No runs then. {_EXCLUSION}"
    )

    @model_validator(mode="after")
    def _is_a_rule(self) -> Self:
        reading(RepeatGiven.rule)(self)
        return self

    def rule(self) -> Repeat:
        rest: dict[str, Any] = {
            "zone": self.zone,
            "misfire": read_misfire("misfire", self.misfire),
            "jitter": self.jitter,
            "exclude": [read_exclusion("exclude", text) for text in self.exclude],
        }
        if (self.every is None) == (self.cron is None):
            raise BadInput("a repetition has either every or cron")
        if self.cron is not None:
            if self.anchor is not None or self.after_end:
                raise BadInput("anchor and after_end go with every, not with cron")
            return cron(self.cron, skipped=self.skipped, repeated=self.repeated, **rest)
        assert self.every is not None
        if self.skipped is not None or self.repeated is not None:
            raise BadInput("skipped and repeated are about local times: they go with cron, not with every")
        return every(self.every, anchor=self.anchor, after_end=self.after_end, **rest)


class RepeatTold(Told):
    """A rule as it is stored; sent again it is the same rule."""

    every: Duration | None = None
    anchor: Moment | None = None
    after_end: bool | None = None
    cron: str | None = None
    zone: str
    skipped: Skipped | None = None
    repeated: Repeated | None = None
    misfire: str = Field(description=_MISFIRE)
    jitter: Duration
    exclude: list[str] = Field(description=_EXCLUSION)


def repeat_told(repeat: Repeat) -> RepeatTold:
    common: dict[str, Any] = {
        "zone": repeat.zone,
        "misfire": misfire_text(repeat.misfire),
        "jitter": repeat.jitter,
        "exclude": [exclusion_text(one) for one in repeat.exclude],
    }
    match repeat:
        case Cron():
            return RepeatTold(cron=repeat.expression, skipped=repeat.skipped, repeated=repeat.repeated, **common)
        case Every(anchor=None):
            return RepeatTold(every=repeat.interval, after_end=repeat.after_end, **common)
        case Every():
            return RepeatTold(every=repeat.interval, anchor=repeat.anchor, after_end=repeat.after_end, **common)


_DEFAULT = Retry()


class RetryGiven(Given):
    """How often and how soon a failed attempt is tried again; the n-th retry waits first_delay * factor ** (n - 1)."""

    max_attempts: Annotated[int, Field(ge=1, le=ATTEMPTS_MAX)] | None = Field(
        _DEFAULT.max_attempts, description="null: without end."
    )
    first_delay: Duration = Field(_DEFAULT.first_delay)
    factor: float = Field(_DEFAULT.factor, ge=1, le=1000)
    min_delay: Duration = Field(_DEFAULT.min_delay)
    max_delay: Duration = Field(_DEFAULT.max_delay)
    jitter: float = Field(
        _DEFAULT.jitter, ge=0, le=1, description="Up to this part of a delay is taken off, by chance."
    )
    max_interruptions: int = Field(
        _DEFAULT.max_interruptions,
        ge=0,
        le=ATTEMPTS_MAX,
        description="How often it is run again after its worker died; then it is quarantined.",
    )

    def rule(self) -> Retry:
        return Retry(**dict(self))


class RetryTold(Told):
    max_attempts: int | None
    first_delay: Duration
    factor: float
    min_delay: Duration
    max_delay: Duration
    jitter: float
    max_interruptions: int


def retry_told(retry: Retry) -> RetryTold:
    return RetryTold(**{name: getattr(retry, name) for name in RetryTold.model_fields})
