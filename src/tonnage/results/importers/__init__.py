"""Readers of the files that other load clients write, one module per tool.

A JSON format is a module of this folder with a ``FORMAT``; no other file names it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from tonnage.results.json_format import JsonFormat


@functools.cache
def json_formats() -> tuple[JsonFormat, ...]:
    """The format of every module of this folder that has one, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = (getattr(importlib.import_module(f"{__name__}.{name}"), "FORMAT", None) for name in names)
    return tuple(each for each in found if isinstance(each, JsonFormat))
