"""Faults on SQLite: a mend is one write transaction; the text is in sql/sqlite/."""

from __future__ import annotations

from collections.abc import Sequence

from matrixsched.rules.faults import Fault, Finding
from matrixsched.store.fsck import UNWANTED, Fscking, FsckTerms
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import as_json, span
from matrixsched.store.transition import Ask

_SEVERAL = {
    Fault.TIME: ("time_incoming", "time_processing"),
    Fault.MISPLACED: (
        "misplaced",
        "misplaced_queue",
        "misplaced_incoming",
        "misplaced_processing",
        "misplaced_history",
    ),
} | dict.fromkeys(UNWANTED, ("unwanted_incoming", "unwanted_processing"))


class SqliteFsck(SqliteAsking, Fscking):
    _dropping = ("misplaced_drop", "misplaced_incoming", "misplaced_processing", "misplaced_forget")

    def _ask_about(self, name: str, terms: FsckTerms, **parameters: object) -> Ask:
        guids = {name: str(parameters.pop(name)) for name in ("fresh_guid", "from_guid") if name in parameters}
        return self._ask(
            name,
            shard_count=terms.shard_count,
            reach=span(terms.attempt_lease_max),
            task_reach=span(terms.visibility_max),
            limit=terms.limit,
            now=self._now(),
            **guids,
            **parameters,
        )

    def _parts(self, fault: Fault) -> tuple[str, ...]:
        return _SEVERAL.get(fault, (fault.value.replace("-", "_"),))

    def _keys(self, findings: Sequence[Finding]) -> dict[str, object]:
        return {"keys": as_json([(finding.subject, finding.guid) for finding in findings])}
