"""One server and one browser for the tests of all views in a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.page.guarded import PORT, TOKEN
from tests.page.served import served_page
from tests.report.writers.chromium import Chromium
from tonnage.page.server import application
from tonnage.page.workspace import Desk


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


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The application without its processes, which begin with the server."""
    monkeypatch.chdir(tmp_path)
    return TestClient(
        application(Desk(tmp_path, TOKEN), PORT),
        base_url=f"http://127.0.0.1:{PORT}",
        raise_server_exceptions=False,
    )
