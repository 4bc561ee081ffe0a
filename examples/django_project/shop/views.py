from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import Confirmation, app, confirm


class OutOfStock(Exception): ...


@csrf_exempt
@require_POST
def orders(request: HttpRequest) -> HttpResponse:
    try:
        order = place(request.POST["item"])
    except OutOfStock:
        return JsonResponse({"error": "out of stock"}, status=409)
    return JsonResponse({"id": order.pk}, status=201)


@transaction.atomic
def place(item: str) -> Order:
    """The order and its action: both are committed, or both are rolled back."""
    order = Order.objects.create(item=item)
    app.sync.schedule(confirm, Confirmation(order_id=order.pk), id=f"confirm:{order.pk}", connection=connection)
    if item == "unicorn":
        raise OutOfStock
    return order
