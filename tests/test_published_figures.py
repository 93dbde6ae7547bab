"""Figures of the fit's report that pages quote outside the generated ones: they follow the shipped coefficients, or a test fails."""

from __future__ import annotations

from pathlib import Path

from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms_file import shipped

DOCS = Path(__file__).resolve().parents[1] / "docs"


def table_rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table of a page that begins with the given heading, without the heading and the line below it."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines[lines.index(heading) + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_page_on_intervals_has_the_coverage_of_the_shipped_table() -> None:
    kinds = {
        "static batches": "static",
        "NIM, 0.15 throughput": "loaded",
        "current engines, a model left out": "current",
        "calibrated on another curve": "calibrated",
    }
    coverage = shipped_residuals().report["coverage"]
    columns = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s")
    rows = table_rows("intervals.md", "| | TTFT | p95 TTFT | TPOT | E2E | requests/s |")
    assert [row[0] for row in rows] == list(kinds)
    for name, *cells in rows:
        shares = [coverage[column].get(kinds[name]) for column in columns]
        assert cells == ["" if share is None else f"{share:.0f}" for share in shares], name


def test_the_page_on_calibration_has_what_the_fit_found_with_groups_left_out() -> None:
    held_out = shipped()["report"]["held_out"]
    title = "NIM, the other five curves of a group that was left out, {} on each curve in turn"
    means = [held_out[title.format(way)]["mean"] for way in ("shipped", "calibrated")]
    rows = table_rows("calibrate.md", "| | TTFT | E2E | requests/s | TPOT |")
    assert [row[1:] for row in rows] == [[f"{mean[m]:.1f}" for m in ("ttft_ms", "e2e_ms", "requests_s", "itl_ms")] for mean in means]


def test_the_page_on_the_fit_counts_the_free_terms_and_the_rows_that_were_read() -> None:
    report = shipped()["report"]
    rows = table_rows("fit.md", "| stage | free terms |")
    assert {name: int(count) for name, count in rows} == report["free_terms"]
    of_steps = sum(list(report["free_terms"].values())[:5])
    read = sum(report["rows"].values()) + report["modern"]["rows"]
    assert f"The first five decide step times: {of_steps} numbers for {read:,} rows" in (DOCS / "fit.md").read_text(encoding="utf-8")
