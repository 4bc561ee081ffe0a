"""A database URL that names several servers, of which one takes writes."""

from __future__ import annotations

from collections.abc import Iterator

from matrixsched.ops.findings import Finding, warning
from matrixsched.store.opening import unguided_hosts


def judge_hosts(url: str) -> Iterator[Finding]:
    if count := unguided_hosts(url):
        yield warning(
            "hosts",
            f"the URL names {count} servers but not which of them is meant: whoever meets a standby first is refused, "
            "and has to come again; add target_session_attrs=read-write to it",
        )
