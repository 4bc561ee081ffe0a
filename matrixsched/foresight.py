"""Looking ahead: what waits is counted, and played forward by the rules. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import anyio.to_thread

from matrixsched.rules.forecast import HOURS_MAX, Forecast, Lot, foresee
from matrixsched.rules.lanes import GLOBAL, template_limit
from matrixsched.rules.times import check_integer
from matrixsched.store.stock import BEGINNING, StockPosition
from matrixsched.store.store import Store

PAGE = 100_000
"""How many messages are counted by a statement: millions are counted without any that takes long."""
_GRIDS = {1: 1, 8: 5, 24: 15, HOURS_MAX: 60}
"""Up to so many hours: on how many minutes the times of messages are rounded up."""


async def look_ahead(store: Store, hours: int) -> Forecast:
    check_integer("hours", hours, least=1, most=HOURS_MAX)
    do = store.transitions
    now = await store.run(do.now())
    stock = await _stock(store, now, hours)
    templates = await store.run(do.templates())
    settings = await store.run(do.quota_settings())
    limits = await store.run(do.find_limits([GLOBAL, *(template_limit(template.name) for template in templates)]))
    by_name = {limit.name: limit for limit in limits}
    # In a thread of its own: it takes a second if there is much, and others go on meanwhile.
    return await anyio.to_thread.run_sync(partial(foresee, stock, templates, settings, by_name, now=now, hours=hours))


async def _stock(store: Store, now: datetime, hours: int) -> list[Lot]:
    grid = timedelta(minutes=next(minutes for most, minutes in _GRIDS.items() if hours <= most))
    until = now + timedelta(hours=hours)
    counts: Counter[Lot] = Counter()
    after: StockPosition | None = BEGINNING
    while after is not None:
        page = await store.run(store.transitions.stock(after, now=now, until=until, grid=grid, limit=PAGE))
        for lot in page.lots:
            counts[replace(lot, count=0)] += lot.count
        after = page.after
    return [replace(lot, count=count) for lot, count in counts.items()]
