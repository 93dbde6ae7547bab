import json
import re
from pathlib import Path

import pytest

from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms_file import shipped
from tools.fit.fit import count_of, package_folder
from tools.fit.free_terms import DENSE, EXPERTS, FIRST, FRONT_END, MEMORY, MODERN, WIDTHS, free_terms
from tools.fit.modern.layout import ENGINE, modern_layout
from tools.fit.silicon import streaming
from tools.fit.silicon.dense import MEASURED_GPU
from tools.fit.silicon.dense_terms import EARLIER, silicon_layout
from tools.fit.silicon.moe import moe_layout
from tools.fit.terms import Layout, layout

ROOT = Path(__file__).resolve().parents[3]
STAGES = (FIRST, DENSE, EXPERTS, MODERN)


def layouts() -> dict[str, Layout]:
    terms = shipped()
    measured = {(gpu, bits) for gpu, own in terms["gpus"].items() for bits in ("8", "16") if f"compute_{bits}" in own}
    first = layout(pair for pair in measured if pair[0] != MEASURED_GPU)
    experts = moe_layout(terms, [name for name in terms["origins"]["experts"] if name not in EARLIER and name != ENGINE])
    return dict(zip(STAGES, (first, silicon_layout(terms), experts, modern_layout(terms)), strict=True))


def test_what_ships_says_how_many_numbers_the_data_chose() -> None:
    count = shipped()["report"]["free_terms"]
    assert count == count_of(shipped(), shipped_residuals().widths)
    assert (count[FIRST], count[DENSE], count[EXPERTS], count[MODERN]) == (117, 87, 100, 45)
    assert count["total"] == sum(value for stage, value in count.items() if stage != "total")
    memory = json.loads((package_folder() / "memory.json").read_text())
    assert count[MEMORY] == 16
    more = {**memory, "context_gb": memory["context_gb"] | {"Volta": 0.5}}
    assert free_terms(shipped(), memory=more, widths={"compute": 0.1}) == count | {
        MEMORY: 17,
        WIDTHS: 1,
        "total": count["total"] - count[WIDTHS] + 2,
    }


@pytest.mark.parametrize("stage", STAGES)
def test_every_term_that_is_counted_moves_what_the_fit_gives(stage: str) -> None:
    found = layouts()[stage]
    still = found.terms(found.start)
    assert len(set(found.names)) == len(found.names) == shipped()["report"]["free_terms"][stage]
    for place, name in enumerate(found.names):
        moved = found.start.copy()
        moved[place] += 0.1
        assert found.terms(moved) != still, name


def test_front_ends_that_were_chosen_have_values_that_were_tried() -> None:
    chosen = shipped()["origins"]["front_end"]
    assert len(chosen) == shipped()["report"]["free_terms"][FRONT_END] == 3
    assert all(shipped()["engines"][engine]["stream_s"] in streaming.TRIED for engine in chosen)


def test_the_page_has_the_count() -> None:
    text = (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (.+?) \| (\d+) \|$", text, re.MULTILINE))
    assert {stage: int(table[stage]) for stage in (*shipped()["report"]["free_terms"],)} == shipped()["report"]["free_terms"]
