"""Where `matrixsched worker shop.worker:app` finds the App, after Django is set up."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from shop.tasks import app  # noqa: E402

__all__ = ["app"]
