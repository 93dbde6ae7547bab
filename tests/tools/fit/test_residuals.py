import json
import math
from pathlib import Path

import pytest

from tonnage.evidence.predict import read_point
from tonnage.perf.residuals import Regime, residuals_of
from tools.fit import fit as fitting
from tools.fit.data import FILES, Row
from tools.fit.folds import Fold, held_out_folds
from tools.fit.residuals import held_out_rows
from tools.fit.silicon import sample

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; the table of errors is not made")


def test_errors_of_a_fold_become_logarithms_by_group() -> None:
    row = {"model": "llama-3-8b", "gpu": "h100", "precision": "fp16", "tp": 1, "isl": 200, "osl": 200, "engine": "nim"}
    points = [read_point({**row, "concurrency": 4}), read_point({**row, "gpu": "l40s", "batch": 4, "engine": None})]
    found = held_out_rows(points, {"ttft_ms": [0.1, -0.2], "output_tok_s": [math.nan, 0.05]}, unseen_gpu=True)
    assert [(r.metric, round(math.exp(r.log_error), 6)) for r in found] == [("ttft_ms", 1.1), ("ttft_ms", 0.8), ("requests_s", 1.05)]
    assert [r.regime.kind for r in found] == ["loaded", "static", "static"]
    assert len({r.group for r in found}) == 2
    assert all(r.unseen_gpu for r in found)


@pytest.mark.accuracy
@needs_data
def test_a_fit_with_folds_leaves_a_table_of_their_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the rows, three folds: terms.json and residuals.json appear, and the table speaks of what was left out."""
    for name, every in zip(FILES.values(), (40, 5, 12), strict=True):
        header, *lines = (DATA / name).read_text(encoding="utf-8").splitlines()
        (tmp_path / name).write_text("\n".join([header, *lines[::every]]) + "\n", encoding="utf-8")
    wanted = ("NIM, one group left out", "static batches, a GPU left out", "static batches, a model left out")

    def few(rows: dict[str, list[Row]]) -> list[Fold]:
        found = list(held_out_folds(rows))
        return [next(fold for fold in found if fold.title == title) for title in wanted]

    monkeypatch.setattr(fitting, "held_out_folds", few)
    monkeypatch.setattr(sample, "installed_sample", lambda: None)  # with the wheel it would take 20 minutes
    report = fitting.fit(tmp_path, output=tmp_path / "out")
    assert {title for title in report.held_out if not title.startswith("current engines")} == set(wanted)
    assert json.loads((tmp_path / "out" / "terms.json").read_text())["report"]["held_out"] == report.held_out
    document = json.loads((tmp_path / "out" / "residuals.json").read_text())
    table = residuals_of(document)
    assert {"ttft_ms", "itl_ms", "e2e_ms"} <= set(table.quantiles)
    assert document["report"]["date"] == fitting.DATE
    low, high = table.interval("e2e_ms", 100.0, Regime(load="light", mix="output", family="dense"))
    assert 50 < low < high < 200
