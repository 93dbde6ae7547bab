"""The schedulers, by their names: a file each, found by the names of ``EngineKnobs.scheduler``,
with underscores.

A file has two functions and says five things of itself:

- ``never_fits(cfg, isl, osl)``: whether a request could not be served even by an idle engine;
- ``schedule(m)``: put the next step together in ``m.step``, move requests from the queue to the
  running ones, count blocks;
- ``GROWS``: whether blocks are taken as contexts grow, so that without guesses a decoding request's
  context tells how many it has; else its row says so;
- ``BUDGETED``: whether slots are held to the token budget of a step;
- ``GUESSES``: whether it can have speculative decoding;
- ``NAMES``: when others find the blocks of a prompt (``prefix_cache.py``), None without a prefix
  cache;
- ``PARTIAL``: whether they find parts of a block.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, get_args

from tonnage.simulator.kernel.compiler import part
from tonnage.spec.deployment import Scheduler

SCHEDULERS: dict[str, ModuleType] = {
    name: import_module(f"{__package__}.{name.replace('-', '_')}") for name in get_args(Scheduler)
}
CODES = {name: code for code, name in enumerate(SCHEDULERS)}
"""What ``cfg.scheduler`` says."""


def _one_of(code: int, this: Any, rest: Any) -> Any:
    """Put one more scheduler before the others."""

    @part()
    def schedule(m):
        if m.cfg.scheduler == code:
            this(m)
        else:
            rest(m)

    return schedule


def _fits(code: int, this: Any, rest: Any) -> Any:
    @part()
    def never_fits(cfg, isl, osl):
        if cfg.scheduler == code:
            return this(cfg, isl, osl)
        return rest(cfg, isl, osl)

    return never_fits


*_most, _last = SCHEDULERS.values()
schedule, never_fits = _last.schedule, _last.never_fits
for _code, _unit in reversed(list(enumerate(_most))):
    schedule, never_fits = (
        _one_of(_code, _unit.schedule, schedule),
        _fits(_code, _unit.never_fits, never_fits),
    )
