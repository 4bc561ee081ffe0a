"""The exit codes of the `matrixsched` command."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
WRONG_USE: Final = 2
"""Somebody has to change something first: to try again would only say the same again."""
MENDED: Final = 3
"""Of `fsck`: something was wrong, and all of it is mended."""
