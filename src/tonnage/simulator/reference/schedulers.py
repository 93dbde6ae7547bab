"""The schedulers, by their names: a file each, whose ``SCHEDULER`` is its ``Batcher``.

The names are those of ``EngineKnobs.scheduler``; that of a file is its scheduler's, with underscores.
"""

from __future__ import annotations

from importlib import import_module
from typing import get_args

from tonnage.simulator.reference.batcher import Batcher
from tonnage.spec.deployment import Scheduler

BATCHERS: dict[str, type[Batcher]] = {
    name: import_module(f"{__package__}.{name.replace('-', '_')}").SCHEDULER for name in get_args(Scheduler)
}
