"""A tool's format is one module; a changed line of its log changes nothing but counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tonnage.formats
from tests.formats.changed_files import changed, told
from tests.formats.test_request_log import FORMS, RELATIVE, lines
from tests.strategies import examples
from tonnage import api
from tonnage.api.question.loads import recording_from
from tonnage.bench.reply import kept_answer
from tonnage.cli.main import run
from tonnage.errors import TonnageError
from tonnage.formats.measured_files import read_measured
from tonnage.formats.tool_format import (
    ImportedRun,
    Reading,
    check_export,
    export,
    read_requests,
    tool_formats,
)
from tonnage.results.store import read_run

MODULE = '''
"""The files of a tool that nobody has heard of."""
import json

from tonnage.formats.tool_format import ImportedRequest, ImportedRun, Points, Requests, ToolFormat


def points(document, where):
    yield where, {"concurrency": document["stars"], "requests_s": 2.0, "e2e_ms": 3900.0, "ttft_ms": 100.0, "model": "llama-3.1-8b"}


def runs(path, document, reading):
    sent = [round(at * 1e9) for at in document["sent"]]
    requests = [ImportedRequest(due_ns=at, sent_ns=at, events_ns=(at + 10**8, at + 3 * 10**8), isl=10, osl=2) for at in sent]
    return [ImportedRun(tool="stargazer", model="m", concurrency=2, rate=0.0, requests=tuple(requests))]


def write(run, folder):
    (folder / "stars.json").write_text(json.dumps({"stars": 2, "ttft_ms": run.ttft_ms.tolist()}))
    return [folder / "stars.json"]


FORMAT = ToolFormat(
    name="stargazer",
    tool="Stargazer",
    points=Points(recognises=lambda document: isinstance(document, dict) and "stars" in document, read=points),
    requests=Requests(recognises=lambda document: isinstance(document, dict) and "sent" in document, read=runs),
    write=write,
)
'''


@pytest.fixture
def stargazer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module with a FORMAT lies in the package's folder, and no other file knows of it."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "stargazer.py").write_text(MODULE)
    monkeypatch.setattr(
        tonnage.formats, "__path__", [*tonnage.formats.__path__, str(tmp_path / "package")]
    )
    tool_formats.cache_clear()
    yield
    tool_formats.cache_clear()


@pytest.mark.usefixtures("stargazer")
def test_a_module_of_its_own_is_all_that_a_new_tool_needs(tmp_path: Path) -> None:
    measured = tmp_path / "points.json"
    measured.write_text(json.dumps({"stars": 8}))
    given = {"gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 1000, "osl": 200}
    assert [(row["concurrency"], row["ttft_ms"]) for row in read_measured(measured, given)] == [
        (8, 100.0)
    ]
    plan = api.size_measured(
        benchmarks=measured,
        gpu="h100",
        precision="fp16",
        tp=1,
        isl=1000,
        osl=200,
        peak_rps=20.0,
        ttft="mean<=1s",
    )
    assert plan.choice is not None

    single = tmp_path / "single.json"
    single.write_text(json.dumps({"sent": [100.0, 100.5, 101.5]}))
    assert recording_from(str(single), "trace").due_ns == (0, 500_000_000, 1_500_000_000)
    assert run(["import", str(single), "--output", str(tmp_path / "run")]) == 0
    summary = read_run(tmp_path / "run").summary
    assert (summary["ttft_ms"]["mean"], summary["tpot_ms"]["mean"]) == (
        pytest.approx(100),
        pytest.approx(200),
    )

    (written,) = export(tmp_path / "run", check_export("stargazer"))
    assert json.loads(written.read_text()) == {"stars": 2, "ttft_ms": [100.0] * 3}


def described(run: ImportedRun) -> tuple[float, ...]:
    """Means of E2E, TTFT and TPOT of the completed requests of a run."""
    done = [request for request in run.requests if not request.outcome and request.events_ns]
    streamed = [request for request in done if request.streamed and request.osl > 1]
    whole = [request.events_ns[-1] - request.sent_ns for request in done]
    ttft = [request.events_ns[0] - request.sent_ns for request in streamed]
    decode = [
        (request.events_ns[-1] - request.events_ns[0]) / (request.osl - 1) for request in streamed
    ]
    return tuple(sum(values) / len(values) if values else 0.0 for values in (whole, ttft, decode))


READING = Reading(answer=kept_answer)


@pytest.mark.parametrize("form", [*FORMS, *RELATIVE])
@examples(0.25)
@given(data=st.data())
def test_one_changed_line_of_a_log_changes_nothing_but_counts(
    form: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All lines take the same time, so that whatever one line loses, the means stay."""
    rows = lines(20, **{**FORMS, **RELATIVE}[form])
    path = tmp_path_factory.mktemp("changed", numbered=True) / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    (before,) = read_requests(path, READING)
    place = data.draw(st.integers(1, 19))
    rows[place] = data.draw(changed(rows[place]))
    rows = data.draw(st.permutations(rows)) if data.draw(st.booleans()) else rows
    path.write_text("\n".join(map(json.dumps, rows)))
    try:
        (after,) = read_requests(path, READING)
    except TonnageError as error:
        told(error, path)
        return
    assert len(after.requests) + sum(after.left_out.values()) == 20
    assert described(after) == pytest.approx(described(before), rel=1e-6)
