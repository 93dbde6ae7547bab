"""What several test files of the room share."""

from __future__ import annotations

import pytest


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that has room for every line."""
    monkeypatch.setenv("COLUMNS", "120")
