import json
import math
import re
from pathlib import Path

import pytest

from tonnage.evidence.predict import read_point
from tonnage.perf.residuals import Regime, residuals_of, shipped_residuals
from tonnage.perf.terms_file import shipped
from tools.fit import fit as fitting
from tools.fit.data import FILES, Row
from tools.fit.fit import count_of, package_folder
from tools.fit.folds import Fold, held_out_folds
from tools.fit.free_terms import DENSE, EXPERTS, FIRST, MEMORY, MODERN, WIDTHS, free_terms
from tools.fit.modern.layout import ENGINE, modern_layout
from tools.fit.residuals import held_out_rows
from tools.fit.silicon import sample
from tools.fit.silicon.dense import MEASURED_GPU
from tools.fit.silicon.dense_terms import EARLIER, silicon_layout
from tools.fit.silicon.moe import moe_layout
from tools.fit.terms import Layout, layout

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(),
    reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; the table of errors is not made",
)


def test_errors_of_a_fold_become_logarithms_by_group() -> None:
    row = {
        "model": "llama-3-8b",
        "gpu": "h100",
        "precision": "fp16",
        "tp": 1,
        "isl": 200,
        "osl": 200,
        "engine": "nim",
    }
    points = [
        read_point({**row, "concurrency": 4}),
        read_point({**row, "gpu": "l40s", "batch": 4, "engine": None}),
    ]
    found = held_out_rows(
        points, {"ttft_ms": [0.1, -0.2], "output_tok_s": [math.nan, 0.05]}, unseen_gpu=True
    )
    assert [(r.metric, round(math.exp(r.log_error), 6)) for r in found] == [
        ("ttft_ms", 1.1),
        ("ttft_ms", 0.8),
        ("requests_s", 1.05),
    ]
    assert [r.regime.kind for r in found] == ["loaded", "static", "static"]
    assert len({r.group for r in found}) == 2
    assert all(r.unseen_gpu for r in found)


@pytest.mark.accuracy
@needs_data
def test_a_fit_with_folds_leaves_a_table_of_their_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the rows, three folds: terms.json and residuals.json appear, and the table speaks
    of what was left out."""
    for name, every in zip(FILES.values(), (40, 5, 12), strict=True):
        header, *lines = (DATA / name).read_text(encoding="utf-8").splitlines()
        (tmp_path / name).write_text("\n".join([header, *lines[::every]]) + "\n", encoding="utf-8")
    wanted = (
        "NIM, one group left out",
        "static batches, a GPU left out",
        "static batches, a model left out",
    )

    def few(rows: dict[str, list[Row]]) -> list[Fold]:
        found = list(held_out_folds(rows))
        return [next(fold for fold in found if fold.title == title) for title in wanted]

    monkeypatch.setattr(fitting, "held_out_folds", few)
    # with the wheel it would take 20 minutes
    monkeypatch.setattr(sample, "installed_sample", lambda: None)
    report = fitting.fit(tmp_path, output=tmp_path / "out")
    assert {title for title in report.held_out if not title.startswith("current engines")} == set(
        wanted
    )
    assert (
        json.loads((tmp_path / "out" / "terms.json").read_text())["report"]["held_out"]
        == report.held_out
    )
    document = json.loads((tmp_path / "out" / "residuals.json").read_text())
    table = residuals_of(document)
    assert {"ttft_ms", "itl_ms", "e2e_ms"} <= set(table.quantiles)
    assert document["report"]["date"] == fitting.DATE
    low, high = table.interval("e2e_ms", 100.0, Regime(load="light", mix="output", family="dense"))
    assert 50 < low < high < 200


ROOT = Path(__file__).resolve().parents[3]
STAGES = (FIRST, DENSE, EXPERTS, MODERN)


def layouts() -> dict[str, Layout]:
    terms = shipped()
    measured = {
        (gpu, bits)
        for gpu, own in terms["gpus"].items()
        for bits in ("8", "16")
        if f"compute_{bits}" in own
    }
    first = layout(pair for pair in measured if pair[0] != MEASURED_GPU)
    experts = moe_layout(
        terms,
        [name for name in terms["origins"]["experts"] if name not in EARLIER and name != ENGINE],
    )
    return dict(
        zip(STAGES, (first, silicon_layout(terms), experts, modern_layout(terms)), strict=True)
    )


def test_what_ships_says_how_many_numbers_the_data_chose() -> None:
    count = shipped()["report"]["free_terms"]
    assert count == count_of(shipped(), shipped_residuals().widths)
    assert (count[FIRST], count[DENSE], count[EXPERTS], count[MODERN]) == (117, 86, 100, 45)
    assert count["total"] == sum(value for stage, value in count.items() if stage != "total")
    memory = json.loads((package_folder() / "memory.json").read_text())
    assert count[MEMORY] == 17
    more = {**memory, "context_gb": memory["context_gb"] | {"Volta": 0.5}}
    assert free_terms(shipped(), memory=more, widths={"compute": 0.1}) == count | {
        MEMORY: 18,
        WIDTHS: 1,
        "total": count["total"] - count[WIDTHS] + 2,
    }
    text = (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (.+?) \| (\d+) \|$", text, re.MULTILINE))
    assert {
        stage: int(table[stage]) for stage in (*shipped()["report"]["free_terms"],)
    } == shipped()["report"]["free_terms"]


@pytest.mark.parametrize("stage", STAGES)
def test_every_term_that_is_counted_moves_what_the_fit_gives(stage: str) -> None:
    found = layouts()[stage]
    still = found.terms(found.start)
    assert len(set(found.names)) == len(found.names) == shipped()["report"]["free_terms"][stage]
    for place, name in enumerate(found.names):
        moved = found.start.copy()
        moved[place] += 0.1
        assert found.terms(moved) != still, name
