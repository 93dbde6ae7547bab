"""One server and one browser for the tests of all views in a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.page.served import served_page
from tests.report.writers.chromium import Chromium


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address that the command prints, with its token."""
    with served_page(tmp_path_factory.mktemp("folder") / "page") as found:
        yield found


@pytest.fixture(scope="session")
def browser(address: str) -> Iterator[Chromium]:
    """A browser that has opened the printed address, and so has the token."""
    with Chromium() as found:
        found.open(address, 1440, 900)
        yield found
