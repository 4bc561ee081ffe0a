"""Calls that were refused before anything was written."""

from __future__ import annotations

from collections.abc import Sequence

from matrixsched.errors.roots import BadInput, shown


class InvalidId(BadInput):
    """An id that cannot name an action (or a handler, an installation) on every database alike."""

    remedy = "Use 1 to 256 bytes of UTF-8 without control characters."

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} {why}")
        self.what, self.why = what, why


class InvalidInstallation(InvalidId):
    """A name that cannot be part of the names of tables."""

    remedy = "Use at most 40 of a-z, 0-9 and _, beginning with a letter."

    def __init__(self, name: object) -> None:
        super().__init__("installation", f"is {shown(name)}")
        self.name = name


class InvalidSemaphoreKey(InvalidId):
    """A key that cannot be part of the names of the handlers that are told of its semaphore."""

    remedy = "Use 1 to 244 bytes of UTF-8 without control characters: a handler is called try_release:<key>."

    def __init__(self, why: str) -> None:
        super().__init__("semaphore key", why)


class ReservedName(InvalidId):
    """A handler or an action of the user's own that is called like those by which semaphores tell of their tasks."""

    remedy = (
        "Choose another name: semaphores write their events themselves, and whoever wants to be told registers with "
        "@app.on_acquired(key) or @app.on_try_release(key)."
    )

    def __init__(self, what: str, prefix: str) -> None:
        super().__init__(what, f"begins with {prefix}, as only events of semaphores do")
        self.prefix = prefix


class InvalidTime(BadInput):
    """A point in time that cannot be scheduled."""

    remedy = "Pass an aware datetime (for example datetime.now(timezone.utc)) between the years 1970 and 2200."

    def __init__(self, argument: str, why: str) -> None:
        super().__init__(f"{argument} {why}")
        self.argument, self.why = argument, why


class PartlyEnqueued(BadInput):
    """A mistake among tasks that were drawn one after the other: those of the thousands before it are enqueued."""

    remedy = "Correct it and enqueue all again, or pass a list, which is checked before anything is written."

    def __init__(self, why: str, enqueued: int) -> None:
        super().__init__(f"{why}; {enqueued:,} tasks before it are enqueued")
        self.why, self.enqueued = why, enqueued


class RequestReused(BadInput):
    """The name of a request was used before, for something else: the two cannot both be done once."""

    remedy = "Give every request a name of its own, and send it again only as it was."

    def __init__(self, request_id: str) -> None:
        super().__init__(f"a request of the name {request_id!r:.80} was sent before, and asked for something else")
        self.request_id = request_id


class InvalidDuration(BadInput):
    """A duration that is negative, absurd or none at all."""

    remedy = "Pass a timedelta that fits, for example timedelta(minutes=5)."

    def __init__(self, argument: str, why: str) -> None:
        super().__init__(f"{argument} {why}")
        self.argument, self.why = argument, why


class InvalidDurationText(InvalidDuration):
    """A text that was to be a duration and is none."""

    remedy = "Write it as 250ms, 10s, 5m, 1h30m, 7d, as ISO 8601 (PT10S) or as a number of seconds."

    def __init__(self, argument: str, text: str) -> None:
        super().__init__(argument, f"is {text!r:.80}")
        self.text = text


class InvalidRate(BadInput):
    """A rate that nothing can go at."""

    remedy = "Write a whole number above zero and a time, for example 10000/min, 5/s or 7/100ms."

    def __init__(self, given: object, why: str) -> None:
        super().__init__(f"the rate {shown(given)} cannot be used: {why}")
        self.given, self.why = given, why


class InvalidWindow(BadInput):
    """A part of the day in which nothing can be sent, or that is none."""

    remedy = "Write when it begins and when it ends, for example 08:00-12:00, or 22:00-06:00 over midnight."

    def __init__(self, given: object, why: str) -> None:
        super().__init__(f"the window {shown(given)} cannot be used: {why}")
        self.given, self.why = given, why


class InvalidLimit(BadInput):
    """A name that is not that of a limit, or of one that cannot do what was asked of it."""

    remedy = (
        "A limit is called global, handler:<name>, template:<name>, key:<key>, or key:* for every key without its own."
    )

    def __init__(self, name: object, why: str) -> None:
        super().__init__(f"the limit {shown(name)} cannot be used: {why}")
        self.name, self.why = name, why


class InvalidCron(BadInput):
    """A cron expression that cannot be read, or names no time at all."""

    remedy = (
        'Use five fields, minute hour day month weekday, for example "30 6 * * MON-FRI"; upcoming() shows the runs.'
    )

    def __init__(self, expression: str, why: str) -> None:
        super().__init__(f"cron expression {expression!r:.80} {why}")
        self.expression, self.why = expression, why


class UnknownZone(BadInput):
    """A time zone that this machine does not know."""

    remedy = "Use an IANA name such as Europe/Berlin; for a zone made recently, update the tzdata package."

    def __init__(self, zone: str, close: Sequence[str]) -> None:
        super().__init__(
            f"there is no time zone {zone!r:.80}" + (f"; close to it: {', '.join(close)}" if close else "")
        )
        self.zone, self.close = zone, tuple(close)


class NeverRuns(BadInput):
    """A repetition that has no tick from its beginning on."""

    remedy = "Exclude less, or begin earlier; upcoming() shows what a repetition leaves."

    def __init__(self, start: str) -> None:
        super().__init__(f"the repetition has no tick from {start} on: all of them are excluded or too late")
        self.start = start


class InvalidNumber(BadInput):
    """A number outside of what makes sense for it."""

    remedy = "Choose such a number."

    def __init__(self, argument: str, value: object, why: str) -> None:
        super().__init__(f"{argument} is {shown(value)}, but {why}")
        self.argument, self.value, self.why = argument, value, why


class InvalidPayload(BadInput):
    """A payload that is not of the model its handler takes, or cannot be written as JSON."""

    remedy = "Pass an instance of the handler's model; NaN and infinite numbers cannot be stored."

    def __init__(self, handler: str, why: str) -> None:
        super().__init__(f"payload for handler {handler!r}: {why}")
        self.handler, self.why = handler, why


class UpcasterMissing(InvalidPayload):
    """Nothing leads from an older version of a payload to the one its handler takes."""

    remedy = "Register it with @handler.upcast(version); then `matrixsched actions redrive` what was quarantined."

    def __init__(self, handler: str, version: int, missing: Sequence[range]) -> None:
        super().__init__(handler, f"nothing leads to version {version} from version {in_words(missing)}")
        self.version, self.missing = version, tuple(missing)


def in_words(versions: Sequence[range]) -> str:
    """Versions for a person to read: 1, 3 to 5."""
    return ", ".join(f"{span[0]}" if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in versions)


class UpcastFailed(InvalidPayload):
    """An upcaster could not make the next version of a payload."""

    remedy = "Correct the upcaster; then `matrixsched actions redrive` what was quarantined."

    def __init__(self, handler: str, from_version: int, why: str) -> None:
        super().__init__(handler, f"the upcaster from version {from_version} failed: {why}")
        self.from_version = from_version


class PayloadTooNew(InvalidPayload):
    """A payload of a version that this process does not know yet."""

    remedy = "Deploy the newer handler here, too; until then its workers run the action."

    def __init__(self, handler: str, version: int, known: int) -> None:
        super().__init__(handler, f"it is of version {version}, this process knows versions up to {known}")
        self.version, self.known = version, known


class PayloadTooLarge(BadInput):
    """A payload over the limit of this application."""

    remedy = "Store the bulk elsewhere and schedule a reference to it, or raise payload_bytes_max."

    def __init__(self, handler: str, size: int, size_max: int) -> None:
        super().__init__(f"payload for handler {handler!r} has {size:,} bytes, {size_max:,} are allowed")
        self.handler, self.size, self.size_max = handler, size, size_max


class UnknownHandler(BadInput):
    """No handler of that name is registered with this application."""

    remedy = "Register it with @app.action(name), or check the spelling."

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no handler named {name!r}; registered: {', '.join(known) or 'none'}")
        self.name, self.known = name, tuple(known)


class UnknownTemplate(BadInput):
    """No template of that name is in the database."""

    remedy = "Create it with `await app.templates.set(name)`, or check the spelling."

    def __init__(self, name: str, close: Sequence[str]) -> None:
        super().__init__(f"there is no template {name!r:.80}" + (f"; close to it: {', '.join(close)}" if close else ""))
        self.name, self.close = name, tuple(close)


class WrongUse(BadInput):
    """A command line whose parts are each understood, but that cannot be carried out as a whole."""

    remedy = "See the command's --help; nothing was changed."
