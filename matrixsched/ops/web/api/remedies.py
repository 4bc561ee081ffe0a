"""What an error says to a program that called the API: the facts are the same, the next move is a request."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from matrixsched.errors import (
    ActionExists,
    ActionFinished,
    ActionNotAsSeen,
    BadInput,
    GuidMismatch,
    InvalidCron,
    InvalidDuration,
    InvalidDurationText,
    InvalidPayload,
    InvalidTime,
    LimitNotFound,
    MatrixSchedError,
    NeverRuns,
    OutcomeUnknown,
    PayloadTooLarge,
    RequestReused,
    ReservedName,
    SemaphoreNotFound,
    TaskNotFound,
    TemplateInUse,
    UnknownHandler,
    UnknownTemplate,
)
from matrixsched.ops.web.problems import Refused, status_of

REMEDIES: Final[dict[type[MatrixSchedError], str]] = {
    BadInput: "Correct it and send it again; nothing was changed.",
    RequestReused: "Nothing was changed. Send the same again as it was, and anything else with a new Idempotency-Key "
    "(in a batch: request_id).",
    ReservedName: "Choose another name: semaphores write their events themselves.",
    InvalidTime: "Write times as in 2026-03-29T09:00:00Z, between the years 1970 and 2200.",
    InvalidDuration: 'Send another duration: a number of seconds, or a text such as "5m".',
    InvalidDurationText: "Write it as 250ms, 10s, 5m, 1h30m, 7d, as ISO 8601 (PT10S) or as a number of seconds.",
    InvalidCron: 'Use five fields, minute hour day month weekday, for example "30 6 * * MON-FRI".',
    NeverRuns: "Exclude less, or begin earlier.",
    InvalidPayload: "Send a payload that its handler takes.",
    PayloadTooLarge: "Store the bulk elsewhere and schedule a reference to it.",
    UnknownHandler: "Check the spelling.",
    UnknownTemplate: "Create it by PUT /templates/{name}, or check the spelling.",
    ActionExists: "Send `exists` as `replace` to overwrite it or as `keep` to leave it.",
    ActionFinished: "POST /actions/{id}/run-now runs it once more; PUT /actions/{id} begins anew.",
    ActionNotAsSeen: "Read it again by GET, and decide anew.",
    LimitNotFound: "GET /limits tells which there are.",
    TemplateInUse: "Let them go out, or cancel them by POST /templates/{name}/stop; then remove it.",
    SemaphoreNotFound: "Make it by PUT /semaphores/{key}, or check the key.",
    TaskNotFound: "It was released already, or never enqueued: check its id. Nothing was changed.",
    GuidMismatch: "Read it again by GET, and decide anew with the guid that it has now.",
    OutcomeUnknown: "It may be done or not: read it by GET, or send the same request again; with the same "
    "Idempotency-Key it is done once.",
}


def refusal_of(error: MatrixSchedError) -> Refused:
    status = status_of(error)
    headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Refused(status, error.with_remedy(_remedy(error)), headers=headers)


def _remedy(error: MatrixSchedError) -> str:
    for kind in type(error).__mro__:
        if kind in REMEDIES:
            return REMEDIES[kind]
        if "remedy" in vars(kind):
            break
    return error.remedy
