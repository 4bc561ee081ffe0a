"""What is said of a database URL that names several servers."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from support.command import Matrixsched
from support.drivers import with_options
from support.postgres import free_port

WRITABLE = "target_session_attrs=read-write"


def test_check_and_doctor_tell_of_hosts_among_which_nobody_is_meant(
    matrixsched: Matrixsched, postgres_dsn: str
) -> None:
    matrixsched("init", "--database", postgres_dsn)
    parts = urlsplit(postgres_dsn)
    unguided = parts._replace(netloc=f"{parts.netloc},127.0.0.1:{free_port()}").geturl()
    guided = with_options(unguided, target_session_attrs="read-write")
    for command in ("check", "doctor"):
        for url, verdicts in ((guided, []), (unguided, ["warning"]), (postgres_dsn, [])):
            answer = matrixsched(command, "--database", url, "--json")
            found = [row for row in answer.json if row["check"] == "hosts"]
            assert [row["verdict"] for row in found] == verdicts
            assert all("2 servers but not which" in row["detail"] and WRITABLE in row["detail"] for row in found)


def test_the_variable_of_postgresql_says_it_as_well(
    matrixsched: Matrixsched, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "read-write")
    parts = urlsplit(postgres_dsn)
    both = parts._replace(netloc=f"{parts.netloc},127.0.0.1:{free_port()}").geturl()
    matrixsched("init", "--database", both)
    assert "hosts" not in [row["check"] for row in matrixsched("check", "--database", both, "--json").json]
