"""`python manage.py order tea unicorn`: one visit to the shop, without a browser."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.test import Client

from shop.models import Order
from shop.tasks import app


class Command(BaseCommand):
    help = "Place an order for each item."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("items", nargs="+")

    def handle(self, *arguments: Any, items: list[str], **options: Any) -> None:
        for item in items:
            answer = Client().post("/orders", {"item": item})
            self.stdout.write(f"{item}: {answer.status_code} {answer.json()}")
        with app.sync:
            self.stdout.write(f"orders: {Order.objects.count()}, actions: {len(app.sync.list())}")
