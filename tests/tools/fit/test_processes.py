import os
import pickle
from functools import partial

import pytest

from tests.tools.fit.test_fit import GPUS, nim_rows, static_rows
from tools.fit.fitting import Fitting
from tools.fit.folds import Fold
from tools.fit.processes import Processes
from tools.fit.terms import NIM, STATIC, layout


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
def test_a_fold_finds_the_same_after_a_journey_to_another_process() -> None:
    """What is left out and what is fitted can be pickled, and so can what is found."""
    measured = [row | {"ttft_ms": 40.0 * row["batch"] ** 0.5, "itl_ms": 15.0} for row in static_rows()[::4]]
    test = [row for row in measured if row["gpu"] == "a100-sxm-80gb"]
    train = {STATIC: [row for row in measured if row["gpu"] != "a100-sxm-80gb"]}
    fold = Fold(title="a GPU left out", name="a100", engine=STATIC, train=train, test=test)
    fitting = Fitting(rows={STATIC: measured, NIM: nim_rows()[:2]}, layout=layout(GPUS))
    here = fitting.held_out(fold)
    work, task = pickle.loads(pickle.dumps((fitting.held_out, fold)))
    there = pickle.loads(pickle.dumps(work(task)))
    assert (there.x == here.x).all()
    assert (there.figures, there.errors) == (here.figures, here.errors)
    assert {error.unseen_gpu for error in there.errors} == {True}


@pytest.mark.accuracy
def test_processes_of_their_own_give_the_same_answers() -> None:
    with Processes(2) as processes:
        found = processes.map(partial(scaled, 2.0), list(range(6)), lambda place: None)
    assert [value for value, _ in found] == [0, 2, 4, 6, 8, 10]
    assert os.getpid() not in {process for _, process in found}
