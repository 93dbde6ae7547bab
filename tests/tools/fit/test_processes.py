import os
from functools import partial

import pytest

from tools.fit.processes import Processes


def scaled(factor: float, value: float) -> tuple[float, int]:
    return factor * value, os.getpid()


def test_tasks_are_done_in_order_and_each_is_announced() -> None:
    waited: list[int] = []
    with Processes() as processes:
        found = processes.map(partial(scaled, 2.0), [3.0, 1.0, 2.0], waited.append)
    assert [value for value, _ in found] == [6.0, 2.0, 4.0]
    assert waited == [0, 1, 2]
    assert {process for _, process in found} == {os.getpid()}


@pytest.mark.accuracy
def test_processes_of_their_own_give_the_same_answers() -> None:
    with Processes(2) as processes:
        found = processes.map(partial(scaled, 2.0), list(range(6)), lambda place: None)
    assert [value for value, _ in found] == [0, 2, 4, 6, 8, 10]
    assert os.getpid() not in {process for _, process in found}
