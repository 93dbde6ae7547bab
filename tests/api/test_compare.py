from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tonnage
from tonnage import api
from tonnage.cli.main import run
from tonnage.errors import InputError

FILES = Path(__file__).parents[1] / "bench" / "fixtures"

AIPERF, VLLM, GUIDELLM = (
    FILES / "aiperf" / "profile_export.jsonl",
    FILES / "vllm.json",
    FILES / "guidellm.json",
)
GENAI_PERF = FILES / "genai-perf" / "profile_export.json"

ROUNDED_NS = 256
"""Stamps of the wall clock in nanoseconds are read as floats, whose last bit is 256."""


def simulated(trace: Path, **more: object) -> tuple[list[int], list[int], list[int]]:
    """Due times in nanoseconds, prompts and outputs of a simulation of a trace."""
    record = tonnage.simulate(model="llama-3.1-8b", trace=trace, **more).requests
    return record.due_ns.tolist(), record.isl.tolist(), record.osl.tolist()


@pytest.mark.parametrize(
    "name", [AIPERF, FILES / "aiperf", VLLM, GUIDELLM], ids=lambda path: path.name
)
def test_what_a_load_client_wrote_is_simulated_as_it_came(name: Path) -> None:
    recording = api.describe_workload(name).traffic.recording
    due, isl, osl = simulated(name)
    assert due == list(recording.due_ns)
    assert (isl, osl) == (list(recording.isl), list(recording.osl))
    assert due[0] == 0
    assert due == sorted(due)


def test_genai_perf_without_counts_gives_its_moments(tmp_path: Path) -> None:
    """Its file holds texts: with lengths that are given the moments are replayed, and an import
    with a tokenizer has both."""
    with pytest.raises(InputError, match="no counts of prompt tokens"):
        api.describe_workload(GENAI_PERF)
    stamps = sorted(
        one["timestamp"] for one in json.loads(GENAI_PERF.read_text())["experiments"][0]["requests"]
    )
    due, isl, osl = simulated(GENAI_PERF, isl=100, osl=10)
    assert np.abs(np.array(due) - [stamp - stamps[0] for stamp in stamps]).max() <= ROUNDED_NS
    assert (set(isl), set(osl)) == ({100}, {10})
    tokenizer = FILES / "genai-perf" / "tokenizer.json"
    assert (
        run(
            [
                "import",
                str(GENAI_PERF),
                "--output",
                str(tmp_path / "run"),
                "--tokenizer",
                str(tokenizer),
            ]
        )
        == 0
    )
    assert np.abs(np.array(simulated(tmp_path / "run")[0]) - due).max() <= ROUNDED_NS
