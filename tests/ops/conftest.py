"""The command line as an operator has it: with nothing set that the test did not set."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import Matrixsched
from support.queues_command import CONTRACT, Queues

from matrixsched.config import FILE_VARIABLE, Settings, variable_of


@pytest.fixture
def matrixsched(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Matrixsched:
    for variable in (*map(variable_of, Settings.model_fields), FILE_VARIABLE):
        # Set first: what a command sets for its children is then undone as well.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    return Matrixsched(capsys)


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    file = tmp_path / "queues.yaml"
    file.write_text(CONTRACT)
    return file


@pytest.fixture
def queues(matrixsched: Matrixsched, database_url: str, contract: Path) -> Queues:
    return Queues(matrixsched, database_url, contract)
