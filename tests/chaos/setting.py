"""What workers, clients and judges of a run have to agree upon."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from chaos.audit import sign_as
from matrixsched import App, Retry
from matrixsched.queues import Contract, Field, FieldType, QueueContract, task_class

LEASE_S = 2.0
"""Of shards, attempts and batches."""
SHARDS = 8
QUEUE = "parcels"
SEMAPHORE = "places"
PLACES = 5
TICK_S = 2.0
"""How often repeated actions are due."""
RATED = "rated"
RATE = "25/s"
RATE_POOL = 5
"""What the limit of the key `rated` lets through, and the one of each template."""
TEMPLATES = ("news", "offers")
QUOTA_S = 1.0
"""How long a window of the quota is."""
GATED = ("r-", *(f"{template}-" for template in TEMPLATES))
"""How the ids of actions begin that have to wait for their turn, of each limit."""

CONTRACT = Contract(
    version=1,
    description="What workers handle under chaos",
    queues=(QueueContract(id=1, name=QUEUE, fields=(Field(name="token", type=FieldType.STRING),)),),
)
Parcel: Any = task_class(CONTRACT.queue(QUEUE))

# As often as it takes: what is interrupted too often would be set aside, and could not be told from what is lost.
PATIENT = Retry(max_attempts=None, first_delay=timedelta(seconds=0.2), factor=1.0, max_interruptions=100_000)


def open_app(url: str, writer: str) -> App:
    """Every session bears its writer's name: the audit reads it and, on PostgreSQL, the proxy."""
    if url.startswith("postgresql"):
        url = f"{url}{'&' if '?' in url else '?'}{urlencode({'chaos.writer': writer})}"
    else:
        sign_as(writer)
    app = App(url)
    app.queues.use(CONTRACT)
    return app
