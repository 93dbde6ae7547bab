"""A simulated engine for the tests of others: its address, in a few lines.

::

    import pytest
    from tonnage.testing import simulated_engine

    @pytest.fixture(scope="session")
    def engine():
        with simulated_engine(model="llama-3.1-8b", speed=10) as url:
            yield url
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def simulated_engine(**asked: Any) -> Iterator[str]:
    """The address of a simulated engine, which runs in a thread until the block ends.

    Args:
        asked: arguments of ``tonnage.api.serve_simulated``, by the names of the flags of ``tonnage
            serve``; it takes a free port.

    Raises:
        InputError: anything that cannot be used, in one line.
    """
    from tonnage.api import serve_simulated
    from tonnage.serve.server import in_thread

    with in_thread(serve_simulated(**{"port": 0, **asked})) as running:
        yield running.url
