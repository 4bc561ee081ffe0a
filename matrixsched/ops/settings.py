"""From settings to what a worker lives by, and to what operators read about them."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from typing import Any

from matrixsched.config import DEFAULT, SECRETS, DatabaseSettings, Reading, Settings, shown, variable_of
from matrixsched.errors import ConfigurationError
from matrixsched.ops.render import Facts
from matrixsched.worker.policy import WorkerPolicy

OF_THE_DATABASE = tuple(DatabaseSettings.model_fields)
OF_THE_WEB = ("web_host", "web_port", "web_public_url")
TYPED = tuple(name for name in Settings.model_fields if name not in SECRETS)
"""Tokens are not among them: what is typed can be read by everybody on the machine."""
OF_THE_WORKER = tuple(name for name in TYPED if name not in (*OF_THE_DATABASE, *OF_THE_WEB))

_OF_THE_POLICY = tuple(field.name for field in fields(WorkerPolicy) if field.name in Settings.model_fields)


def policy_of(reading: Reading[Settings]) -> WorkerPolicy:
    """The worker's numbers; ConfigurationError with every fault of the settings and between them."""
    numbers: dict[str, Any] = {name: getattr(reading.settings, name) for name in _OF_THE_POLICY}
    if numbers["heartbeat"] is None:
        numbers["heartbeat"] = reading.settings.shard_lease * 0.3
    if numbers["lease_margin"] is None:
        numbers["lease_margin"] = min(timedelta(seconds=1), reading.settings.attempt_lease * 0.15)
    if numbers["slots_ahead"] is None:
        numbers["slots_ahead"] = min(timedelta(milliseconds=100), reading.settings.attempt_lease * 0.05)
    faults = list(reading.faults)
    try:
        policy = WorkerPolicy(**numbers)
    except ConfigurationError as error:
        # What could not be read stands at its default, about which nobody needs to be told.
        faults += [_located(fault, reading) for fault in error.faults if not _named(fault) & reading.doubtful]
    if faults:
        raise ConfigurationError(faults)
    return policy


def _named(fault: str) -> set[str]:
    return set(re.findall(r"\w+", fault)) & set(_OF_THE_POLICY)


def _located(fault: str, reading: Reading[Settings]) -> str:
    """The fault with where its settings come from; those that nobody made need no place."""
    places = [
        f"{name} from {reading.origins[name]}" for name in sorted(_named(fault)) if reading.origins[name] != DEFAULT
    ]
    return f"({', '.join(places)}) {fault}" if places else fault


def rows(reading: Reading[Settings]) -> list[Facts]:
    """Every setting as it stands, and where it comes from."""
    return [
        {
            "setting": name,
            "value": shown(name, getattr(reading.settings, name)),
            "from": reading.origins[name],
            "variable": variable_of(name),
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
