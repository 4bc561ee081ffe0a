"""Looking ahead: what waits is counted, and played forward by the rules. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import anyio.to_thread

from matrixsched.rules.forecast import HOURS_MAX, Forecast, foresee
from matrixsched.rules.lanes import ANY_KEY, key_limit
from matrixsched.rules.limits import Limit, template_of
from matrixsched.rules.lots import Lot, gather, on_grid
from matrixsched.rules.times import check_integer
from matrixsched.store.stock import BEGINNING, StockPosition
from matrixsched.store.store import Store

PAGE = 100_000
"""How many messages are counted by a statement: millions are counted without any that takes long."""
OTHERS_MAX = 20_000
"""At how many actions of a shard it looks for such without a template: before limits, not due yet, and new."""
KEYS_MAX = 20_000
"""So many keys are told apart."""
LIMITS_MAX = 20_000
"""So many limits are read, those of keys after all others."""
LIMITS_PAGE = 1_000


async def look_ahead(store: Store, hours: int) -> Forecast:
    check_integer("hours", hours, least=1, most=HOURS_MAX)
    do = store.transitions
    window = await store.run(do.present_window())
    limits = await _limits(store)
    count = _Count(limits, window.at, window.at + timedelta(hours=hours))
    await _count_messages(store, count)
    # Without a limit that they share, actions without a template are in nobody's way.
    if any(template_of(name) is None for name in limits):
        await _count_others(store, count)
    templates = await store.run(do.templates())
    settings = await store.run(do.quota_settings())
    # In threads of their own: they take a second if there is much, and others go on meanwhile.
    gathered = await anyio.to_thread.run_sync(gather, count.lots(), limits, window.at)
    if gathered.alone:
        # Buckets, with the slots that are used up: also of keys that only key:* speaks for.
        buckets = await store.run(do.find_limits([key_limit(key) for key in gathered.alone]))
        limits |= {limit.name: limit for limit in buckets}
    not_counted = list(count.missing())
    if keys := sum(one.keys for one in gathered.together.values()):
        not_counted.append(f"what {keys:,} keys of about the same size differ in")
    play = partial(foresee, gathered.lots, templates, settings, limits, hours=hours)
    return await anyio.to_thread.run_sync(
        partial(play, now=window.at, window=window, together=gathered.together, not_counted=not_counted)
    )


class _Count:
    """What waits, by what it has in common."""

    def __init__(self, limits: Mapping[str, Limit], now: datetime, until: datetime) -> None:
        self.now, self.until = now, until
        self.is_keyed = any(name.startswith(key_limit("")) for name in limits)
        self.unseen_from: datetime | None = None
        """From when on there are actions without a template that were not counted."""
        self._limits = limits
        self._counts: Counter[Lot] = Counter()
        self._keys: set[str] = set()
        self._of_more_keys = 0

    def add(self, lots: Sequence[Lot]) -> None:
        for lot in lots:
            self._counts[replace(lot, key=self._key(lot), count=0)] += lot.count

    def _key(self, lot: Lot) -> str | None:
        """The key, if it limits anything."""
        key = lot.key
        if key is None or not (ANY_KEY in self._limits or key_limit(key) in self._limits):
            return None
        if key not in self._keys and len(self._keys) >= KEYS_MAX:
            self._of_more_keys += lot.count
            return None
        self._keys.add(key)
        return key

    def lots(self) -> list[Lot]:
        return [replace(lot, count=count) for lot, count in self._counts.items()]

    def missing(self) -> Iterator[str]:
        """What there was too much of."""
        if self.unseen_from is not None:
            since = "" if self.unseen_from <= self.now else f" that are due after {self.unseen_from:%Y-%m-%d %H:%M} UTC"
            yield f"some of the actions without a template{since}"
        if self._of_more_keys:
            yield f"the limits of keys beyond {KEYS_MAX:,}, which {self._of_more_keys:,} actions have"
        if len(self._limits) >= LIMITS_MAX:
            yield f"limits of keys beyond {LIMITS_MAX:,}"


async def _limits(store: Store) -> dict[str, Limit]:
    """Those that limit anything now, by name."""
    found: dict[str, Limit] = {}
    for include_keys in (False, True):
        after: str | None = ""
        while after is not None and len(found) < LIMITS_MAX:
            asked = store.transitions.limits(after=after, limit=LIMITS_PAGE, include_keys=include_keys)
            page = await store.run(asked)
            found |= {limit.name: limit for limit in page}
            after = page[-1].name if len(page) == LIMITS_PAGE else None
    return found


async def _count_messages(store: Store, count: _Count) -> None:
    ask = partial(store.transitions.stock, now=count.now, until=count.until, keyed=count.is_keyed, limit=PAGE)
    after: StockPosition | None = BEGINNING
    while after is not None:
        page = await store.run(ask(after))
        count.add(page.lots)
        after = page.after


async def _count_others(store: Store, count: _Count) -> None:
    ask = partial(store.transitions.others, until=count.until, keyed=count.is_keyed, limit=OTHERS_MAX)
    installation = await store.run(store.transitions.installation())
    for shard in range(installation.shard_count):
        found = await store.run(ask(shard))
        count.add([_rounded(lot, count.now) for lot in found.lots])
        if found.unseen_from is not None:
            count.unseen_from = min(found.unseen_from, count.unseen_from or found.unseen_from)


def _rounded(lot: Lot, now: datetime) -> Lot:
    expires_at = None if lot.expires_at is None else on_grid(lot.expires_at, now)
    return replace(lot, due_at=on_grid(lot.due_at, now), expires_at=expires_at)
