"""A file of SQLite, where it lies, and who writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from matrixsched.ops.doctor.words import bytes_text, listed
from matrixsched.ops.findings import Finding, fault, note, ok, warning
from matrixsched.ops.render import age
from matrixsched.store.facts import FileFacts, SqliteFacts

RESET_RACE_UNTIL = (3, 51, 3)
REMOTE = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs"),
        *("fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
WAL_MAX = 64 << 20
"""SQLite carries the log into the file when it has about 4 MiB; with far more than that somebody keeps it from it."""
FREE_WARN, FREE_FAULT = 1 << 30, 64 << 20
BLOAT_MIN = 64 << 20
_ANY_WRITE = 0o222


def judge_file(facts: SqliteFacts, options: str) -> Iterator[Finding]:
    """`options` make the commands that are suggested reach the same database."""
    yield _library(facts)
    yield _journal(facts)
    yield _filesystem(facts)
    yield from _permissions(facts)
    yield _writer(facts)
    yield _log(facts)
    yield _space(facts, options)
    yield _bloat(facts)
    yield from _integrity(facts)


def _library(facts: SqliteFacts) -> Finding:
    version = ".".join(map(str, facts.version))
    if facts.version >= RESET_RACE_UNTIL:
        return ok("library", f"SQLite {version}")
    fixed = ".".join(map(str, RESET_RACE_UNTIL))
    return note(
        "library",
        f"SQLite {version}: before {fixed} a rare race between processes can damage the file when one of them begins "
        "the log anew. Ours write, carry over the log and close under one lock file, which leaves it to other programs",
        f"let no other program write to the file; or use a Python whose SQLite is {fixed} or newer",
    )


def _journal(facts: SqliteFacts) -> Finding:
    if facts.journal_mode == "wal":
        return ok("journal", "write-ahead log; our connections write with synchronous = full")
    to_wal = f"sqlite3 {quote(facts.file.path)} 'pragma journal_mode = wal'"
    return fault(
        "journal",
        f"the journal mode was {facts.journal_mode}, not wal: readers and the writer keep each other waiting. Whatever "
        "of ours opens the file switches it to wal, as this command may just have done; something switches it back",
        f"find the program that does; `{to_wal}` while nobody works",
    )


def _filesystem(facts: SqliteFacts) -> Finding:
    kind = facts.filesystem
    if kind is None:
        return note("filesystem", "this system does not tell on which kind of filesystem the file lies")
    if kind in REMOTE:
        return fault(
            "filesystem",
            f"the file lies on {kind}: its locks and its log need memory that all processes share, which is not so "
            "across a network; the database may be damaged",
            "move it to a disk of the machine that works on it, or use PostgreSQL for workers on several machines",
        )
    if kind.startswith("fuse"):
        return warning(
            "filesystem",
            f"the file lies on {kind}: whether its locks hold depends on the program behind it",
            "move it to a disk of the machine",
        )
    return ok("filesystem", kind)


def _permissions(facts: SqliteFacts) -> Iterator[Finding]:
    files = [one for one in (facts.file, facts.wal, facts.shm) if one is not None]
    closed = [one for one in (*files, facts.folder) if not one.is_ours_to_write]
    locked = [one for one in files if one not in closed and not one.mode & _ANY_WRITE]
    for one in closed:
        yield fault(
            "permissions", f"{_shown(one)} is not for us to write", f"`chmod u+w {quote(one.path)}`, as its owner"
        )
    for one in locked:
        yield fault("permissions", f"{_shown(one)} is for nobody but root to write", f"`chmod u+w {quote(one.path)}`")
    strange = [one for one in files[1:] if one.uid != facts.file.uid and not one.mode & 0o022]
    for one in strange:
        yield warning(
            "permissions",
            f"{_shown(one)} belongs to another user than {facts.file.path}, whose processes cannot write it",
            f"run all workers as one user; `chown --reference={quote(facts.file.path)} {quote(one.path)}`",
        )
    unread = [one for one in (facts.lock,) if one is not None and not one.is_ours_to_read]
    for one in unread:
        yield fault(
            "permissions",
            f"{_shown(one)}, behind which writers queue, is not for us to read",
            f"`chmod a+r {quote(one.path)}`",
        )
    if not closed and not locked and not strange and not unread:
        yield ok("permissions", f"{_shown(facts.file)} and its folder are ours to write")


def _shown(file: FileFacts) -> str:
    return f"{file.path} (mode {file.mode:04o})"


def _writer(facts: SqliteFacts) -> Finding:
    if not facts.is_writer_stuck:
        return ok("writers", f"our turn to write came after {age(facts.writer_waited)}")
    who = f"process {listed(facts.writers)}" if facts.writers else "some process"
    look = f"`ps -fp {','.join(map(str, facts.writers))}`" if facts.writers else f"`fuser -v {quote(facts.file.path)}`"
    return fault(
        "writers",
        f"{who} has kept the right to write for all of the {age(facts.writer_waited)} that we waited: nothing can be "
        "scheduled or run meanwhile",
        f"see what it does: {look}; end its transaction, or the process",
    )


def _log(facts: SqliteFacts) -> Finding:
    size = 0 if facts.wal is None else facts.wal.size
    if size < WAL_MAX:
        return ok("log", f"{bytes_text(size)} in the write-ahead log")
    return warning(
        "log",
        f"the write-ahead log has {bytes_text(size)}: a reader that never ends keeps it from being emptied",
        f"end long readers (`fuser -v {quote(facts.file.path)}`), then `sqlite3 {quote(facts.file.path)} 'pragma "
        "wal_checkpoint(truncate)'`",
    )


def _space(facts: SqliteFacts, options: str) -> Finding:
    detail = f"{bytes_text(facts.free_bytes)} free on the disk of a file of {bytes_text(facts.file.size)}"
    if facts.free_bytes >= FREE_WARN:
        return ok("space", detail)
    told = fault if facts.free_bytes < FREE_FAULT else warning
    full = f"{detail}: when it is full, nothing is written any more"
    return told("space", full, f"make room, or `matrixsched prune{options}`")


def _bloat(facts: SqliteFacts) -> Finding:
    free = facts.free_pages * facts.page_size
    detail = f"{bytes_text(free)} of {bytes_text(facts.page_count * facts.page_size)} are free pages"
    if free < BLOAT_MIN or facts.free_pages * 2 < facts.page_count:
        return ok("bloat", detail)
    return note(
        "bloat",
        f"{detail}: they are used again, but the file does not shrink",
        f"while nobody works: `sqlite3 {quote(facts.file.path)} vacuum`",
    )


def _integrity(facts: SqliteFacts) -> Iterator[Finding]:
    if facts.faults is None:
        return
    if facts.faults:
        yield fault(
            "integrity",
            f"SQLite finds the file damaged: {listed(facts.faults)}",
            f"stop all workers, copy the file, then `sqlite3 {quote(facts.file.path)} .recover | sqlite3 recovered.db`",
        )
    else:
        yield ok("integrity", "SQLite looked through the file and finds nothing wrong")
