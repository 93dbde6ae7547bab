"""What several test files of the room share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.simulation_cases import POOLS_IN_SCENARIOS_SCENARIO


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pools.yaml").write_text(POOLS_IN_SCENARIOS_SCENARIO)
    return tmp_path / "pools.yaml"
