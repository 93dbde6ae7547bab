"""What several test files of the room share."""

from __future__ import annotations

import pytest

from tests.cli.saved import CHAT
from tonnage.cli.main import run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("plans")
    before, after = str(folder / "before.json"), str(folder / "after.json")
    assert run(["size", CHAT, "--output", before, "--quiet"]) == 0
    assert run(["size", CHAT, "--peak-rps", "500", "--output", after, "--quiet"]) == 0
    return before, after
