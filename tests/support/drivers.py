"""The libraries of callers on the database that one of our URLs names, also behind a pooler."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import asyncpg
import psycopg
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from support.postgres import BEHIND_A_POOLER


def with_options(url: str, **options: str) -> str:
    parts = urlsplit(url)
    return parts._replace(query=urlencode(dict(parse_qsl(parts.query)) | options)).geturl()


def as_drivers_take_it(url: str) -> str:
    """Without our own options, of which drivers know nothing."""
    parts = urlsplit(url)
    if not parts.query:
        return url  # and not a slash less
    options = [(name, value) for name, value in parse_qsl(parts.query) if name not in BEHIND_A_POOLER]
    return parts._replace(query=urlencode(options)).geturl()


def with_driver(url: str, driver: str) -> str:
    scheme, _, rest = as_drivers_take_it(url).partition("://")
    return f"{scheme}+{driver}://{rest}"


def of_asyncpg(url: str) -> dict[str, Any]:
    """What to connect with."""
    return {"dsn": as_drivers_take_it(url)} | ({"statement_cache_size": 0} if is_pooled(url) else {})


def of_psycopg(url: str) -> dict[str, Any]:
    return {"conninfo": as_drivers_take_it(url)} | ({"prepare_threshold": None} if is_pooled(url) else {})


async def connect_asyncpg(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(**of_asyncpg(url))


def connect_psycopg(url: str, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(**of_psycopg(url), **options)


def engine(url: str, driver: str, **options: Any) -> Engine:
    if driver == "psycopg" and is_pooled(url):
        options["connect_args"] = {"prepare_threshold": None}
    return create_engine(with_driver(url, driver), **options)


def engine_of_either(url: str) -> Engine:
    """Of SQLite, too."""
    return engine(url, "psycopg") if url.startswith("postgresql") else create_engine(url)


def async_engine(url: str, driver: str, **options: Any) -> AsyncEngine:
    if driver == "asyncpg" and is_pooled(url):
        # SQLAlchemy prepares every statement by a name, which another client of the same session may have had before.
        named = {"prepared_statement_name_func": lambda: f"matrixsched_{uuid4().hex}"}
        options["connect_args"] = named | {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    if driver == "psycopg" and is_pooled(url):
        options["connect_args"] = {"prepare_threshold": None}
    return create_async_engine(with_driver(url, driver), **options)


def is_pooled(url: str) -> bool:
    return "prepared_statements=off" in url
