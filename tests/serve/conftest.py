"""What several test files of the room share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.serve.apps import Server
from tests.serve.engines import SERVED, Asking
from tests.serve.prefixes import spec
from tests.serve.two_pools import LINK, Sides
from tonnage.serve.prefix import CachedEngine
from tonnage.serve.server import in_thread
from tonnage.serve.simulated import Simulated


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with in_thread(SERVED) as running:
        engines = running.service.engines
        assert isinstance(engines, Simulated)
        yield Server(port=running.port, fleet=engines.fleet)


@pytest.fixture(scope="module")
def caching_server() -> Iterator[Asking]:
    with in_thread(
        replace(SERVED, engine=lambda: CachedEngine(spec()), instances=1, max_context=2_000)
    ) as running:
        yield Asking(running.port)


@pytest.fixture
def sides() -> Iterator[Sides]:
    """A server that computes prompts, and one that decodes."""
    with ExitStack() as servers:
        one = [
            servers.enter_context(in_thread(replace(SERVED, instances=1, transfers=(role, LINK))))
            for role in ("producer", "consumer")
        ]
        yield Asking(one[0].port), Asking(one[1].port)
