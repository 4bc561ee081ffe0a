"""Lanes: what waits together. The name of a lane says by itself which gates its rows must pass.

(empty)                                        no gate; or none but limits of everything or its handler, and not due yet
coming                                         one of those below, once it is due
event                                          none at all, due or not; claimed before all others (rules/action.py)
limit|<priority>|<key>|<handler>               limits alone
quota|<template>|<zone>|<priority>|<key>|<handler>   a template's quota, and limits
handler:<name>, handler!<name>                 parked, suspects (rules/action.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

LIMIT = "limit"
QUOTA = "quota"

GLOBAL = "global"
"""The name of the limit that everything is under but events; a planner's MaxSendSpeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The facts in the name of a gated lane."""

    handler: str
    priority: int = 0
    key: str | None = None
    """The limit that the caller chose for the action."""
    template: str | None = None
    zone: str | None = None
    """Of the recipient; None: the template's."""

    @property
    def name(self) -> str:
        limited = (str(self.priority), self.key or "", self.handler)
        if self.template is None:
            return "|".join((LIMIT, *map(escaped, limited)))
        return "|".join((QUOTA, *map(escaped, (self.template, self.zone or "", *limited))))

    @property
    def limits(self) -> tuple[str, ...]:
        """The names of the limits that its rows are under, where they exist; the widest first."""
        names = [GLOBAL, handler_limit(self.handler)]
        if self.template is not None:
            names.append(template_limit(self.template))
        if self.key is not None:
            names.append(key_limit(self.key))
        return tuple(names)


@lru_cache(maxsize=16_384)  # the same lanes come up with every claim and every window
def lane_of(name: str) -> Lane:
    """What the name of a gated lane says."""
    kind, *parts = name.split("|")
    template, zone = (parts.pop(0), parts.pop(0)) if kind == QUOTA else ("", "")
    priority, key, handler = parts
    return Lane(
        handler=_plain(handler),
        priority=int(priority),
        key=_plain(key) or None,
        template=_plain(template) or None,
        zone=_plain(zone) or None,
    )


def key_in(name: str) -> str | None:
    """The key that the name of a lane carries; None where it carries none, or is no gated lane."""
    return lane_of(name).key if is_gated(name) else None


_GATED = (LIMIT + "|", QUOTA + "|")


def is_gated(name: str) -> bool:
    return name.startswith(_GATED)


def handler_limit(handler: str) -> str:
    return f"handler:{handler}"


def template_limit(template: str) -> str:
    return f"template:{template}"


def key_limit(key: str) -> str:
    return f"key:{key}"


ANY_KEY = key_limit("*")
"""The limit of every key that has none of its own."""


def lanes_of_template(template: str) -> tuple[str, str]:
    """All lanes of a template lie from the first name up to the second."""
    begin = f"{QUOTA}|{escaped(template)}"
    return f"{begin}|", f"{begin}}}"


def escaped(part: str) -> str:
    """A part as it stands in the name of a lane."""
    # Written alike in SQL, where an action without template or key comes under a limit.
    return part.replace("%", "%25").replace("|", "%7C")


def _plain(part: str) -> str:
    return part.replace("%7C", "|").replace("%25", "%")
