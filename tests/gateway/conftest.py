"""Tests of the gateway are coroutines, run on uvloop, as the gateway runs."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import uvloop

BOUND_S = 10.0
"""No test may take longer."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    uvloop.run(asyncio.wait_for(pyfuncitem.obj(**arguments), BOUND_S))
    return True
