"""Faults on PostgreSQL: each mend is one statement; the text is in sql/postgresql/."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from matrixsched.rules.faults import Fault, Finding
from matrixsched.store.fsck import LOCK_TIMEOUT, UNWANTED, Fscking, FsckTerms
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.transition import Ask


class PostgresFsck(PostgresAsking, Fscking):
    _dropping = ("misplaced_drop",)

    def _ask_about(self, name: str, terms: FsckTerms, **parameters: object) -> Ask:
        return self._ask(
            name,
            shard_count=terms.shard_count,
            reach=terms.attempt_lease_max,
            task_reach=terms.visibility_max,
            limit=terms.limit,
            lock_timeout=f"{LOCK_TIMEOUT.total_seconds() * 1000:.0f}ms",
            **parameters,
        )

    def _parts(self, fault: Fault) -> tuple[str, ...]:
        return ("unwanted" if fault in UNWANTED else fault.value.replace("-", "_"),)

    def _keys(self, findings: Sequence[Finding]) -> dict[str, object]:
        guids = [None if finding.guid is None else UUID(finding.guid) for finding in findings]
        return {"subjects": [finding.subject for finding in findings], "guids": guids}
