"""A run as a report needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.runs import example_run
from tonnage.cli.main import run
from tonnage.errors import DataError, InputError
from tonnage.report.runs.shown_run import read_shown_runs


def test_what_is_no_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="is no run folder, and none lies inside it"):
        read_shown_runs(tmp_path)
    folder = example_run.measured(tmp_path / "run")
    assert run(["report", str(folder), "--explain"]) == 2
    assert "--explain is for a plan, and " in capsys.readouterr().err
    (folder / "run.json").write_text("[", encoding="utf-8")
    with pytest.raises(DataError, match=r"run\.json: is damaged"):
        read_shown_runs(folder)
