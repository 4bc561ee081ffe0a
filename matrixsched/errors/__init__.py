"""Every error a user can meet, each with its facts and a remedy.

    MatrixSchedError
    ├── BadInput (ValueError)           the call was refused before anything was written
    │   ├── InvalidId
    │   │   ├── InvalidInstallation
    │   │   ├── InvalidSemaphoreKey
    │   │   └── ReservedName
    │   ├── InvalidTime
    │   ├── InvalidDuration
    │   │   └── InvalidDurationText
    │   ├── InvalidRate
    │   ├── InvalidWindow
    │   ├── InvalidLimit
    │   ├── InvalidCron
    │   ├── UnknownZone
    │   ├── NeverRuns
    │   ├── InvalidNumber
    │   ├── InvalidPayload
    │   │   ├── UpcasterMissing
    │   │   ├── UpcastFailed
    │   │   └── PayloadTooNew
    │   ├── PayloadTooLarge
    │   ├── TaskTooLarge
    │   ├── PartlyEnqueued              tasks of a semaphore, of which some are enqueued
    │   ├── RequestReused               its name was used for something else
    │   ├── UnknownHandler
    │   ├── UnknownTemplate
    │   ├── InvalidContract
    │   │   └── InvalidContractFile
    │   ├── UnknownQueue
    │   ├── QueueContradiction          two contracts in one application
    │   ├── InvalidTask                 of a typed queue, not as its contract says
    │   └── WrongUse                    a command line that cannot be carried out
    ├── ActionNotFound (LookupError)
    ├── ActionExists
    ├── ActionFinished
    ├── ActionNotAsSeen                 an attempt at it began or ended since it was read
    ├── LimitNotFound (LookupError)
    ├── TemplateInUse
    ├── SemaphoreNotFound (LookupError)
    ├── TaskNotFound (LookupError)
    │   └── TaskNotReleased
    ├── TaskUnreadable                  of a typed queue, not as its contract says
    ├── TaskTooNew                      of a typed queue, written by a newer contract
    ├── GuidMismatch                    compare-and-set lost against another change
    ├── ConfigurationError
    │   ├── BadDatabaseUrl
    │   ├── DatabaseNotNamed
    │   ├── BadFailpoint                of a test with real processes
    │   ├── AppNotFound
    │   ├── ModuleBroken
    │   └── ExtraMissing
    │       └── WebExtraMissing
    ├── NotOpen
    ├── AlreadyOpen
    ├── StageError                      the stage of a test cannot do what it was asked
    │   └── NeverIdle
    ├── SchemaMissing
    │   └── DatabaseFileMissing
    ├── SchemaMismatch
    ├── RowMissing                      somebody deleted what a migration made
    ├── FormMismatch                    an installation that is distributed, or is not
    ├── DistributedUnsupported
    ├── DatabaseError
    │   ├── DatabaseUnavailable         nothing was done
    │   │   └── DatabaseFileUnusable
    │   ├── OutcomeUnknown              may or may not have been done: the statement was sent, the answer never came
    │   └── DatabaseBusy                a lock was held too long: nothing was done
    │       └── UpgradeBlocked
    └── WorkerError
        └── HandlersLeaked

A message never holds a payload, a password or a whole database URL.
"""

from __future__ import annotations

from matrixsched.errors.inputs import (
    InvalidCron,
    InvalidDuration,
    InvalidDurationText,
    InvalidId,
    InvalidInstallation,
    InvalidLimit,
    InvalidNumber,
    InvalidPayload,
    InvalidRate,
    InvalidSemaphoreKey,
    InvalidTime,
    InvalidWindow,
    NeverRuns,
    PartlyEnqueued,
    PayloadTooLarge,
    PayloadTooNew,
    RequestReused,
    ReservedName,
    UnknownHandler,
    UnknownTemplate,
    UnknownZone,
    UpcasterMissing,
    UpcastFailed,
    WrongUse,
    in_words,
)
from matrixsched.errors.queues import (
    ExtraMissing,
    InvalidContract,
    InvalidContractFile,
    InvalidTask,
    Mistake,
    QueueContradiction,
    TaskTooLarge,
    TaskTooNew,
    TaskUnreadable,
    UnknownQueue,
    WebExtraMissing,
)
from matrixsched.errors.roots import (
    BadInput,
    MatrixSchedError,
    shown,
)
from matrixsched.errors.states import (
    ActionExists,
    ActionFinished,
    ActionNotAsSeen,
    ActionNotFound,
    GuidMismatch,
    LimitNotFound,
    SemaphoreNotFound,
    TaskNotFound,
    TaskNotReleased,
    TemplateInUse,
)
from matrixsched.errors.surroundings import (
    AlreadyOpen,
    AppNotFound,
    BadDatabaseUrl,
    BadFailpoint,
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseFileMissing,
    DatabaseFileUnusable,
    DatabaseNotNamed,
    DatabaseUnavailable,
    DistributedUnsupported,
    FormMismatch,
    HandlersLeaked,
    ModuleBroken,
    NeverIdle,
    NotOpen,
    OutcomeUnknown,
    RowMissing,
    SchemaMismatch,
    SchemaMissing,
    StageError,
    UpgradeBlocked,
    WorkerError,
)

__all__ = [
    "ActionExists",
    "ActionFinished",
    "ActionNotAsSeen",
    "ActionNotFound",
    "AlreadyOpen",
    "AppNotFound",
    "BadDatabaseUrl",
    "BadFailpoint",
    "BadInput",
    "ConfigurationError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseFileMissing",
    "DatabaseFileUnusable",
    "DatabaseNotNamed",
    "DatabaseUnavailable",
    "DistributedUnsupported",
    "ExtraMissing",
    "FormMismatch",
    "GuidMismatch",
    "HandlersLeaked",
    "InvalidContract",
    "InvalidContractFile",
    "InvalidCron",
    "InvalidDuration",
    "InvalidDurationText",
    "InvalidId",
    "InvalidInstallation",
    "InvalidLimit",
    "InvalidNumber",
    "InvalidPayload",
    "InvalidRate",
    "InvalidSemaphoreKey",
    "InvalidTask",
    "InvalidTime",
    "InvalidWindow",
    "LimitNotFound",
    "MatrixSchedError",
    "Mistake",
    "ModuleBroken",
    "NeverIdle",
    "NeverRuns",
    "NotOpen",
    "OutcomeUnknown",
    "PartlyEnqueued",
    "PayloadTooLarge",
    "PayloadTooNew",
    "QueueContradiction",
    "RequestReused",
    "ReservedName",
    "RowMissing",
    "SchemaMismatch",
    "SchemaMissing",
    "SemaphoreNotFound",
    "StageError",
    "TaskNotFound",
    "TaskNotReleased",
    "TaskTooLarge",
    "TaskTooNew",
    "TaskUnreadable",
    "TemplateInUse",
    "UnknownHandler",
    "UnknownQueue",
    "UnknownTemplate",
    "UnknownZone",
    "UpcastFailed",
    "UpcasterMissing",
    "UpgradeBlocked",
    "WebExtraMissing",
    "WorkerError",
    "WrongUse",
    "in_words",
    "shown",
]

for _member in list(globals().values()):
    if isinstance(_member, type) and issubclass(_member, MatrixSchedError):
        _member.__module__ = __name__  # where they are imported from; which file they stand in is nobody's concern
