"""What may name an action, and which shard it lives in."""

from __future__ import annotations

import re
from zlib import crc32

from matrixsched.errors import InvalidId, InvalidInstallation
from matrixsched.rules.times import check_integer

NAME_BYTES_MAX = 256
SHARDS_DEFAULT = 64
SHARDS_MAX = 4096

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INSTALLATION = re.compile(r"[a-z][a-z0-9_]{0,39}")


def shard_of(action_id: str, shard_count: int) -> int:
    """The shard of an action: stable for ever, equal on every machine and in every language."""
    return crc32(action_id.encode()) % shard_count


def check_name(what: str, name: object, *, bytes_max: int = NAME_BYTES_MAX) -> str:
    """The name itself if it is one that every database stores and compares alike."""
    if not isinstance(name, str):
        raise InvalidId(what, f"must be a string, not {type(name).__name__}")
    if name and len(name) <= bytes_max // 4 and name.isprintable():
        return name  # of at most four bytes for each character, none of which is a control character: as most are
    if not name:
        raise InvalidId(what, "is empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidId(what, "holds a lone surrogate, which is not text") from None
    if size > bytes_max:
        raise InvalidId(what, f"has {size} bytes, {bytes_max} are allowed")
    if found := _CONTROL.search(name):
        raise InvalidId(what, f"holds the control character U+{ord(found[0]):04X} at position {found.start()}")
    return name


def check_installation(name: object) -> str:
    """The name itself if it can be part of a schema or table name."""
    if not isinstance(name, str) or not _INSTALLATION.fullmatch(name):
        raise InvalidInstallation(name)
    return name


def check_shard_count(count: object) -> int:
    return check_integer("shards", count, least=1, most=SHARDS_MAX)
