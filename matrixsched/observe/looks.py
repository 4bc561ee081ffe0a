"""When each worker process last found out about work: one small file per process, for their supervisor to read.

The moments are those of `SystemClock.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class Looks:
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def tell(self, pid: int, looked_at: float) -> None:
        file = self._file(pid)
        draft = file.with_suffix(".draft")
        with suppress(OSError):  # a full disk shall not end the work: the process is not ready then, and that is true
            draft.write_text(repr(looked_at))
            os.replace(draft, file)  # whoever reads at this moment finds one moment or the other, whole

    def of(self, pid: int) -> float | None:
        """None: it has not looked yet."""
        try:
            return float(self._file(pid).read_text())
        except (OSError, ValueError):
            return None

    def forget(self, pid: int) -> None:
        """A later process may be given the same number."""
        file = self._file(pid)
        for one in (file, file.with_suffix(".draft")):
            one.unlink(missing_ok=True)

    def _file(self, pid: int) -> Path:
        return self._folder / f"looked-{pid}.txt"
