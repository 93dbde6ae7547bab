"""``tonnage bench --report``: a page of what was measured, whether or not its folder is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run

if TYPE_CHECKING:
    import pytest

ASKED = ["bench", "--model", "m", "--isl", "uniform:20-400", "--osl", "5", "--no-selftest", "--request-count", "24"]


def test_a_page_is_written_with_and_without_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, sweep, folder = tmp_path / "run.html", tmp_path / "sweep.html", tmp_path / "runs"
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        assert run([*ASKED, "--url", url, "--concurrency", "4", "--report", str(page)]) in (0, 3)
        assert run([*ASKED, "--url", url, "--concurrency", "2,4", "--report", str(sweep), "--artifact-dir", str(folder)]) in (0, 3)
    assert capsys.readouterr().err == ""
    text = page.read_text(encoding="utf-8")
    for figure in ("Time to first token against prompt length", "Token-to-token latency against output position", "Requests one by one"):
        assert figure in text
    assert "Latency against throughput" in sweep.read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["concurrency-2", "concurrency-4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "runs", "sweep.html"]


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nowhere" / "run.html"
    assert run([*ASKED, "--url", "127.0.0.1:9", "--concurrency", "1", "--report", str(missing)]) == 2
    assert "--report: cannot write" in capsys.readouterr().err
