"""From MODULE:APP on the command line to the application."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType, TracebackType

from matrixsched.app import App
from matrixsched.errors import AppNotFound, MatrixSchedError, ModuleBroken


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
    if name.startswith(".") or ".." in name:
        raise AppNotFound(f"{name!r} is not a module's full name")
    try:
        return importlib.import_module(name)
    except MatrixSchedError:
        raise  # it says by itself what to do
    except Exception as error:
        # Not what was asked for is missing if a module misses one of its own imports.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise AppNotFound(f"there is no module {error.name!r} in {folder} or on the Python path") from None
        own = _own_part(error.__traceback__)
        raise ModuleBroken(name, type(error).__name__, _place(error, own)) from error.with_traceback(own)


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """The trace from the user's module on, without the way that led there."""
    ours = (__file__, importlib.__file__)
    while trace is not None and (
        trace.tb_frame.f_code.co_filename in ours or trace.tb_frame.f_code.co_filename.startswith("<frozen importlib")
    ):
        trace = trace.tb_next
    return trace


def _place(error: Exception, own: TracebackType | None) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(own)
    return f"{frames[0].filename}, line {frames[0].lineno}" if frames else "an unknown place"


def _apps_in(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if not names:
        return "no App was found in it"
    return "found instead: " + ", ".join(f"{module.__name__}:{name}" for name in names)
