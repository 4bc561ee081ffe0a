"""The bug bank: all mistakes that are planted on purpose, each of which a checker must see."""

from __future__ import annotations

from simulation import planted_gates, planted_queues, planted_semaphores, planted_times
from simulation.planted import PLANTED
from simulation.planting import Planted

BANK: tuple[Planted, ...] = (
    *PLANTED,
    *planted_times.PLANTED,
    *planted_gates.PLANTED,
    *planted_semaphores.PLANTED,
    *planted_queues.PLANTED,
)
