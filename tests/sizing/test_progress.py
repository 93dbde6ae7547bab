"""How far a search is, and its parts on several threads."""

from __future__ import annotations

import threading

import pytest

from tonnage.sizing import progress
from tonnage.sizing.progress import Steps, parallel


def test_neither_number_ever_falls_whatever_was_expected() -> None:
    told: list[tuple[int, int, str]] = []
    steps = Steps(lambda done, total, name: told.append((done, total, name)))
    steps.expect(2)
    for name in ("a", "b", "c"):
        steps.done(name)
    steps.expect(3)
    steps.done("d")
    assert told == [(1, 2, "a"), (2, 2, "b"), (3, 3, "c"), (4, 5, "d")]


@pytest.mark.parametrize("workers", [1, 2, 5, None])
def test_each_job_comes_with_its_own_result(workers: int | None) -> None:
    assert dict(parallel(lambda job: job * job, range(20), workers)) == {
        n: n * n for n in range(20)
    }


def test_one_worker_is_the_callers_own_thread() -> None:
    threads = [thread for _, thread in parallel(lambda _: threading.get_ident(), [1, 2], 1)]
    assert threads == [threading.get_ident()] * 2


def test_what_a_job_raises_ends_the_others_that_wait() -> None:
    began: list[int] = []

    def work(job: int) -> None:
        began.append(job)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(parallel(work, range(1_000), 1))
    assert began == [0]


@pytest.mark.parametrize(("workers", "threads"), [(3, 3), (None, 5), (0, 5)])
def test_as_many_threads_as_are_asked_for_or_cores(
    workers: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    pool = progress.ThreadPoolExecutor

    def executor(max_workers: int) -> object:
        made.append(max_workers)
        return pool(max_workers=1)

    monkeypatch.setattr(progress, "ThreadPoolExecutor", executor)
    monkeypatch.setattr(progress.os, "cpu_count", lambda: 5)
    assert dict(parallel(str, [1, 2], workers)) == {1: "1", 2: "2"}
    assert made == [threads]
    steps = Steps()
    assert (steps.finished, steps.expected) == (0, 0)
