"""The usual settings, and one URL that Django and matrixsched share."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

MATRIXSCHED_DATABASE = os.environ.get("MATRIXSCHED_DATABASE", f"sqlite:///{Path.cwd() / 'shop.db'}")


def django_database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        # "IMMEDIATE": an atomic block waits for its turn to write at the beginning, where waiting is possible.
        path = url.removeprefix("sqlite:///")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }


DATABASES = {"default": django_database(MATRIXSCHED_DATABASE)}
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["localhost", "testserver"]
SECRET_KEY = "only an example"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
