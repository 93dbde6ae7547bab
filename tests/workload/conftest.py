"""What several test files of the room share."""

from __future__ import annotations

import pytest

from tests.workload.prometheus_history import TRUE, answer, exported
from tonnage.formats.prometheus import curves
from tonnage.workload.history import History, history_of


@pytest.fixture(scope="module")
def history() -> History:
    return history_of(curves([answer(exported(TRUE, days=15))], "x"), "x")
