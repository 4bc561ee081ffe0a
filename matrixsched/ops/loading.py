"""From MODULE:APP on the command line to the application."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from matrixsched.app import App
from matrixsched.errors import AppNotFound


def load_app(target: str) -> App:
    """Import the module, from the working directory too, and take the App out of it."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise AppNotFound(f"{target!r} does not name a module and the App in it")
    module = _import(module_name)
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise AppNotFound(f"module {module_name!r} has no {attribute!r}; {_apps_in(module)}")
    if not isinstance(found, App):
        kind = type(found).__name__
        raise AppNotFound(f"{target!r} is not a matrixsched App but of type {kind}; {_apps_in(module)}")
    return found


def _import(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only what was asked for: a module that misses one of its own imports is shown with its traceback.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise AppNotFound(f"there is no module {error.name!r} in {folder} or on the Python path") from None
    except (TypeError, ValueError):
        if name.startswith(".") or ".." in name:
            raise AppNotFound(f"{name!r} is not a module's full name") from None
        raise


def _apps_in(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if not names:
        return "no App was found in it"
    return "found instead: " + ", ".join(f"{module.__name__}:{name}" for name in names)
