"""The `matrixsched` command, typed as an operator types it, in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from matrixsched.ops.cli import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Matrixsched:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Answer:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Answer(int(end.value.code or 0), out, err)
