"""Texts that people wrote, as every database takes them."""

from __future__ import annotations

TEXT_CHARACTERS_MAX = 2000


def storable(text: str) -> str:
    """The text bounded, without NUL and lone surrogates."""
    kept = text.replace("\x00", "\ufffd").encode(errors="replace").decode()
    return kept if len(kept) <= TEXT_CHARACTERS_MAX else kept[: TEXT_CHARACTERS_MAX - 1] + "…"
