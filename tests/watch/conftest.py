"""What several test files of the room share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.answering import answering
from tests.watch.prometheus_server import Stand


@pytest.fixture
def server() -> Iterator[Stand]:
    made = Stand()
    with answering(made.reply) as made.url:
        yield made
