"""The commands of docs/chain.md with the simulator in place of server and client; tests/engines/test_chain.py runs them as they stand."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import pytest

from tests.test_docs import ROOT, Example, examples_of
from tests.tolerance import words_and_numbers
from tonnage.api.running.plans import planned
from tonnage.cli.main import run
from tonnage.results.metrics import summarize
from tonnage.results.requests import Requests
from tonnage.results.store import write_run
from tonnage.simulator.simulate import simulate_many
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.workload import ClosedLoop, OpenLoop, Workload

SLOWER = 1.15
"""What the page hides in its server."""

REQUESTS = 120


def flags_of(command: str) -> dict[str, str]:
    """The flags of a command that have a value."""
    words = shlex.split(command)
    return {flag: value for flag, value in pairwise(words) if flag.startswith("--")}


def slower(record: Requests) -> Requests:
    """A record of a machine on which everything takes longer by the factor."""
    assert record.window_ns < 0
    columns = {name: getattr(record, name) for name in ("due_ns", "sent_ns", "first_token_ns", "last_token_ns")}
    return replace(record, **{name: np.where(at < 0, at, np.rint(at * SLOWER).astype(np.int64)) for name, at in columns.items()})


def measure(command: str, folder: Path) -> None:
    """What ``bench`` would leave behind: run folders of the plan's deployment, slower by the factor."""
    asked = flags_of(command)
    deployment = planned(folder / "plan.json").deployment
    lengths = {name: parse_lengths(asked[f"--{name}"], name) for name in ("isl", "osl")}
    for where, arrivals, said in loads(asked):
        (record,) = simulate_many([(deployment, Workload(arrivals=arrivals, requests=REQUESTS, **lengths))], seed=0)
        found = slower(record)
        unknown = dict.fromkeys(("gpu", "precision", "tp", "engine"))  # as bench, which sees none of it
        scenario = {"model": asked["--model"], **unknown, "isl": asked["--isl"], "osl": asked["--osl"], "requests": REQUESTS}
        write_run(folder / where, {**scenario, "arrivals": said}, found, summarize(found), {})


def loads(asked: dict[str, str]) -> Iterator[tuple[str, ClosedLoop | OpenLoop, dict[str, float]]]:
    """The loads of a command: the folder of each, its arrivals before everything is slowed down, and what its folder says of them."""
    folder = asked["--artifact-dir"]
    if "--concurrency" not in asked:
        rate = float(asked["--request-rate"])
        yield folder, OpenLoop(rate=rate * SLOWER), {"rate": rate}
        return
    for clients in map(int, asked["--concurrency"].split(",")):
        yield f"{folder}/concurrency-{clients}", ClosedLoop(concurrency=clients), {"concurrency": clients, "turnaround_s": 0.0}


def outputs(folder: Path) -> Iterator[tuple[Example, str]]:
    """Each command of the page, and what it prints."""
    for example in examples_of(ROOT / "docs" / "chain.md"):
        program, verb, *words = shlex.split(example.command)
        assert program == "./tonnage"
        if verb == "bench":
            measure(example.command, folder)
        elif verb != "serve":
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                assert run([verb, *words]) == 0, said.getvalue()
            yield example, said.getvalue()


@pytest.mark.accuracy
def test_the_commands_find_a_slow_down_within_3_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    printed = list(outputs(tmp_path))
    assert [shlex.split(example.command)[1] for example, _ in printed] == ["size", "compare", "calibrate", "compare", "size", "deploy"]
    assert run(["calibrate", "runs", "--plan", "plan.json", "--gpu", "h100-sxm-80gb"]) == 2  # the plan says it
    rows = json.loads((tmp_path / "my.json").read_text(encoding="utf-8"))["residuals"]["rows"]
    for metric in ("itl_ms", "e2e_ms"):
        found = geometric_mean((100 + row["after"][metric]) / (100 + row["before"][metric]) for row in rows)
        assert found == pytest.approx(SLOWER, rel=0.03)
    before, after = ([line for line in text.splitlines() if line.startswith("TPOT mean")] for _, text in (printed[1], printed[3]))
    assert before[0].endswith("above")
    assert after[0].endswith("inside")
    answers = [text for example, text in printed if " size " in example.command]
    assert ["1 × 8xh100-pcie-80gb" in answers[0], "2 × 8xh100-pcie-80gb" in answers[1]] == [True, True]
    for example, text in (printed[0], printed[-1]):
        real = {words_and_numbers(line)[0] for line in text.splitlines()}
        assert {words_and_numbers(line)[0] for line in example.shown.values()} <= real
