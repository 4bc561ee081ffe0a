"""What an error says to somebody at a command line: the facts are the same, the next move is a command or an option.

An error's own remedy speaks to a programmer; where it names a call or a type of Python, another one stands here.
"""

from __future__ import annotations

from collections.abc import Collection

from matrixsched.config import DatabaseSettings, flag_of
from matrixsched.errors import (
    ActionExists,
    ActionFinished,
    ActionNotAsSeen,
    BadInput,
    DatabaseFileMissing,
    GuidMismatch,
    InvalidCron,
    InvalidDuration,
    InvalidId,
    InvalidNumber,
    InvalidPayload,
    InvalidTime,
    MatrixSchedError,
    NeverRuns,
    OutcomeUnknown,
    ReservedName,
    SchemaMissing,
    SemaphoreNotFound,
    TaskNotFound,
    TemplateInUse,
    UnknownHandler,
    UnknownTemplate,
)

INSTALLATION = DatabaseSettings.model_fields["installation"].default
"""The one that is meant where none is named."""

REMEDIES: dict[type[MatrixSchedError], str] = {
    BadInput: "Correct the option and try again; nothing was written.",
    ReservedName: "Choose another name: semaphores write their events themselves.",
    InvalidTime: "Write times as in 2026-03-29T09:00:00Z, between the years 1970 and 2200.",
    InvalidDuration: "Choose another duration, as in 5m.",
    InvalidCron: 'Use five fields, minute hour day month weekday, for example "30 6 * * MON-FRI"; '
    "`matrixsched actions next --cron CRON` shows the runs.",
    NeverRuns: "Exclude less, or begin earlier; `matrixsched actions next` with the same rule shows what it leaves.",
    InvalidPayload: "Give JSON that the handler's model takes; NaN and infinite numbers cannot be stored.",
    UnknownHandler: "Check the spelling, or name the App that has it.",
    UnknownTemplate: "Create it by `matrixsched templates set NAME`, or check the spelling.",
    ActionExists: "Use --exists replace to overwrite it or --exists keep to leave it.",
    ActionFinished: "Use `matrixsched actions run-now` to run it once more, or `matrixsched schedule` to begin anew.",
    TemplateInUse: "Let them go out, or cancel them by `matrixsched templates stop NAME`; then remove it.",
    SemaphoreNotFound: "`matrixsched semaphores list` shows those that are, `matrixsched semaphores set` makes one.",
    TaskNotFound: "Nothing was released; `matrixsched semaphores show KEY` shows who holds and who waits.",
    ActionNotAsSeen: "See how it is now by `matrixsched actions show`, and decide anew.",
    GuidMismatch: "See what it is now by `matrixsched actions show`, and decide anew.",
    SchemaMissing: "Run `matrixsched init` once.",
    DatabaseFileMissing: "Run `matrixsched init` once to create it, or correct the path.",
    OutcomeUnknown: "See how the action stands by `matrixsched actions show`; a command that had a --request-id can be "
    "sent again: it is done once.",
}


def spoken(error: MatrixSchedError, typed: Collection[str] = ()) -> str:
    """The error in one line, ending with the next move for whoever typed the command."""
    told = " ".join(error.with_remedy(_remedy(error)).split())
    # What is wrong with an argument begins with its name; whoever typed an option knows it by that.
    argument = _argument(error)
    option = flag_of(argument)
    is_typed = any(word.partition("=")[0] == option for word in typed)
    return option + told.removeprefix(argument) if argument and is_typed else told


def _argument(error: MatrixSchedError) -> str:
    """The one that an error is about; none, if it is about something else."""
    match error:
        case InvalidId():
            return error.what
        case InvalidTime() | InvalidDuration() | InvalidNumber():
            return error.argument
    return ""


def _remedy(error: MatrixSchedError) -> str:
    if isinstance(error, SchemaMissing) and error.installation != INSTALLATION:
        return REMEDIES[type(error)].replace("init", f"init --installation {error.installation}")
    for kind in type(error).__mro__:
        if kind in REMEDIES:
            return REMEDIES[kind]
        if "remedy" in vars(kind):
            break
    return error.remedy
