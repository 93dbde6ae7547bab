"""The kernel without numba, for the tests that compare it with the reference."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.kernel.uncompiled import uncompiled


@pytest.fixture(scope="module")
def run_uncompiled() -> Iterator[Any]:
    with uncompiled() as module:
        yield module


MOST_S = 4.0
"""CPU seconds after which a test is taken not to end: a loop that goes on for ever is no rare fault."""


@pytest.fixture
def plain(run_uncompiled) -> Iterator[Any]:
    """The module ``run`` of the kernel, uncompiled, for a test that ends soon."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
    yield run_uncompiled
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)
