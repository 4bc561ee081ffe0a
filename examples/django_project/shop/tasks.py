"""What the shop does later."""

from collections.abc import Callable
from functools import wraps

from django.conf import settings
from django.db import close_old_connections
from pydantic import BaseModel

from matrixsched import App
from shop.models import Order

app = App(settings.MATRIXSCHED_DATABASE)


class Confirmation(BaseModel):
    order_id: int


def with_fresh_connections(handler: Callable[..., None]) -> Callable[..., None]:
    """What Django does round a request, round a handler: it runs in a thread, and that has connections of its own."""

    @wraps(handler)
    def wrapped(*arguments: object) -> None:
        close_old_connections()
        try:
            handler(*arguments)
        finally:
            close_old_connections()

    return wrapped


@app.action("confirm")
@with_fresh_connections
def confirm(confirmation: Confirmation) -> None:
    order = Order.objects.get(pk=confirmation.order_id)
    order.confirmed = True
    order.save()
    print(f"order {order.pk}: confirmed, one {order.item}", flush=True)
