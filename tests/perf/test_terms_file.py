"""The file of terms: its keys, and the efficiencies that hold for one GPU alone."""

from __future__ import annotations

import copy

import pytest

from tests.perf.fitted_terms_cases import A100, H100, NIM, calibrated, known
from tonnage.errors import DataErrors
from tonnage.perf import step_terms as at
from tonnage.perf.fitted_terms import terms_by_key
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import ACTS_ON, OF_THE_GPU, checked, overlaid, shipped
from tonnage.spec.calibration import MULTIPLIERS, Calibration
from tools.fit.silicon.dense_terms import silicon_layout
from tools.fit.silicon.moe import moe_layout
from tools.fit.terms import layout


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            ("engines", "vllm", "kv_bandwith"),
            "engines.vllm.kv_bandwith: unknown key; did you mean kv_bandwidth",
        ),
        (("gpus", "l40s", "compute_9"), "gpus.l40s.compute_9: unknown key"),
        (("engine",), "engine: unknown key; did you mean engines"),
    ],
)
def test_a_misspelt_key_is_refused_by_its_path(path: tuple[str, ...], message: str) -> None:
    document = copy.deepcopy(shipped())
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = 1.0
    with pytest.raises(DataErrors) as caught:
        checked(document, "terms.json")
    assert str(caught.value).startswith(f"terms.json: {message}")
    assert len(caught.value.lines) == 1


LAYOUTS = {
    "TensorRT-LLM of 2024": layout([(H100, "8"), (A100, "16")]),
    "current engines": silicon_layout(shipped()),
    "experts": moe_layout(shipped(), {"vllm", "sglang", "tensorrt-llm-1.1"}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_fit_moves_only_what_is_described(name: str) -> None:
    terms = LAYOUTS[name].terms(LAYOUTS[name].start)
    assert [path for *path, term in terms_by_key(terms, known()) if term is None] == []


def test_every_factor_has_something_to_act_on_and_leaves_the_shipped_terms_alone() -> None:
    assert set(ACTS_ON) == set(MULTIPLIERS)
    before = repr(shipped())
    for name in MULTIPLIERS:
        c = Calibration(preset="nim-2024", gpu="l40s", multipliers=((name, 2.0),), data="")
        assert overlaid(shipped(), c, "l40s") != shipped()
    assert repr(shipped()) == before


def test_the_efficiencies_of_a_gpu_hold_for_it_alone() -> None:
    other = calibrated(gpu="a100-sxm-80gb", compute=0.5, memory=0.5, step_s=2.0)
    c, plain = step_model(other).coefficients, step_model(NIM).coefficients
    assert c[at.LINEAR_FLOPS] == plain[at.LINEAR_FLOPS]
    assert c[at.HOST_STEP] == pytest.approx(2 * plain[at.HOST_STEP])
    assert set(OF_THE_GPU) == {"compute", "memory"}
