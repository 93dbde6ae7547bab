"""Values in a notebook: their report as a piece of a page that is not ours, and their rows as
tables."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tonnage
from tests.report.writers.test_html import Page
from tonnage import api
from tonnage.api.compare import compare_runs
from tonnage.errors import TonnageError
from tonnage.notebook import Displayed, InNotebooks
from tonnage.report.notebook import DOCUMENTS, TABLES
from tonnage.report.plans.plan_document import plan_csv, read_plans, report

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plan() -> tonnage.Plan:
    return read_plans(Path(__file__).with_name("plan.json"))[0]


@pytest.fixture(scope="module")
def run() -> api.SimulatedRun:
    return tonnage.simulate(
        model="llama-3.1-8b", isl=500, osl="40+-10", request_rate=4.0, precision="fp8", requests=60
    )


def shown(value: Displayed) -> str:
    """The words of a piece of a page that has no script, refers to nobody and names nothing."""
    html = value._repr_html_()
    assert "<script" not in html
    assert not re.search(r"(src|href)=|url\(|@import", html)
    found = Page(html)
    assert [tag for tag, attributes in found.elements if "id" in attributes] == []
    return "".join(found.words)


def test_a_plan_shows_the_sections_of_its_report_and_its_rows_are_those_of_the_csv(
    plan: tonnage.Plan,
) -> None:
    words = shown(plan)
    document = report(plan)
    assert document.title in words
    assert [section.title for section in document.sections if section.title not in words] == []
    assert "\x00" not in words
    lines = plan_csv([plan]).splitlines()
    table = plan.arrow()
    assert table.num_rows == len(lines) - 1
    assert table.column_names == lines[0].split(",")
    assert table["status"][0].as_py() == "chosen"


def test_every_value_that_says_so_is_shown_and_a_script_stays_a_name(
    plan: tonnage.Plan, run: api.SimulatedRun
) -> None:
    for value in (
        plan,
        run,
        api.lesson(batcher="static"),
        api.describe_workload(ROOT / "examples" / "code-completion.csv"),
    ):
        assert shown(value).strip()
    kinds = {
        kind.__name__ for base in (Displayed, InNotebooks) for kind in base.__subclasses__()
    } - {"InNotebooks"}
    assert {kind for kind in kinds if kind not in DOCUMENTS} <= {
        "Plot",
        "Bars",
        "Tornado",
        "Boxes",
        "HeatMap",
        "Gantt",
    }
    assert {kind.__name__ for kind in InNotebooks.__subclasses__()} <= set(TABLES)
    html = api.plot(
        "<script>alert(1)</script>", x="<b>", y="&", lines={'"><svg onload=x>': [(1, 2)]}
    )._repr_html_()
    assert "<script" not in html
    assert "<svg onload" not in html


def test_the_first_section_and_the_first_figure_are_open(
    plan: tonnage.Plan, run: api.SimulatedRun
) -> None:
    for value, opened in ((plan, "Answer"), (run, "Time to first token")):
        html = value._repr_html_()
        sections = [
            html[at.start() : html.index("</section>", at.start())]
            for at in re.finditer("<section", html)
        ]
        unfolded = [
            section for section in sections if not re.match(r"<section [^>]*><details", section)
        ]
        assert f'aria-label="{opened}"' in unfolded[-1]
        assert "<svg" in unfolded[-1]
        assert len(unfolded) <= 2 < len(sections)


def test_no_rule_of_a_foreign_page_weighs_more_than_ours_and_widths_are_the_cells() -> None:
    html = api.lesson(batcher="static")._repr_html_()
    style = html[html.index("<style>") : html.index("</style>")]
    assert style.startswith(
        "<style>.tonnage.tonnage.tonnage.tonnage {\ncontainer-type: inline-size;\n:where(:not(svg,"
        " svg *)) { all: revert; }"
    )
    assert "@media screen" not in style
    assert "@container (max-width: 34rem)" in style
    assert not re.search(r"(?m)^ *(:root|html) \{", style)


def test_lessons_are_drawn_over_the_same_ticks_one_above_the_other() -> None:
    static, in_flight = api.lesson(batcher="static"), api.lesson(batcher="in-flight")
    both = api.lesson_slots({"static": static, "in-flight": in_flight})
    assert [lane.name for lane in both.lanes] == [
        *(f"static {i}" for i in (1, 2, 3, 4)),
        "",
        *(f"in-flight {i}" for i in (1, 2, 3, 4)),
    ]
    for result, lanes in ((static, both.lanes[:4]), (in_flight, both.lanes[5:])):
        spans = [span for lane in lanes for span in lane.spans]
        assert {span.end for lane in lanes for span in lane.spans[-1:]} == {100}
        assert sum(span.end - span.start for span in spans) == pytest.approx(400)
        tokens = sum(span.name == "decode, a token" for span in spans)
        assert tokens == sum(step.slots.count("=") for step in result.steps)
    share = (
        sum(
            span.end - span.start
            for lane in both.lanes[:4]
            for span in lane.spans
            if span.name == "empty"
        )
        / 400
    )
    assert share == pytest.approx(1 - static.busy_slots)
    assert not any(span.name == "empty" for lane in both.lanes[5:] for span in lane.spans)
    assert any(span.faint and span.tone == 0 for lane in both.lanes[5:] for span in lane.spans)


def test_two_runs_and_their_ratios(run: api.SimulatedRun, tmp_path: Path) -> None:
    api.write_runs(tmp_path / "a", [run], {})
    found = compare_runs(tmp_path / "a", tmp_path / "a")
    assert "Quantile against quantile" in shown(found)
    assert set(np.round(found.arrow()["ratio"].to_numpy(), 9)) == {1.0}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_not_there_is_named(
    library: str, run: api.SimulatedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TonnageError, match=f"{library} is not installed; pip install {library}"):
        run.frame(library)  # type: ignore[arg-type]


@pytest.mark.notebooks
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_hold_the_arrow_table(
    library: str, plan: tonnage.Plan, run: api.SimulatedRun
) -> None:
    for value in (
        plan,
        run,
        api.lesson(batcher="static"),
        api.describe_workload(ROOT / "examples" / "code-completion.csv"),
    ):
        table, frame = value.arrow(), value.frame(library)  # type: ignore[arg-type]
        assert type(frame).__module__.startswith(library)
        assert list(frame.columns) == table.column_names
        assert len(frame) == table.num_rows
        name = next(
            name
            for name, kind in zip(table.column_names, table.schema.types, strict=True)
            if pa.types.is_integer(kind)
        )
        assert frame[name].sum() == pa.compute.sum(table[name]).as_py()
