import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deployments import deployment
from tests.perf.prediction_error_cases import NOWHERE, regime, width
from tests.results.test_metrics import record
from tonnage import api
from tonnage.evidence.rows import errors
from tonnage.formats.measured_files import read_measured
from tonnage.perf.prediction_error import _known_family, intervals_of, regime_of, run_noise
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms_file import shipped
from tonnage.results.requests import COMPLETED, FAILED
from tonnage.spec.calibration import Calibration
from tonnage.spec.catalog import find_model
from tonnage.spec.step_times import StepSource
from tools.fit.data import FILES
from tools.fit.fitting import WEIGHTS, rows_of
from tools.fit.residuals import HeldOut, coverage, held_out_rows
from tools.fit.solving import solve
from tools.fit.terms import NIM, STATIC, layout

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


needs_data = pytest.mark.skipif(
    not DATA.is_dir(),
    reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; coverage is not checked on them",
)


def test_a_gpu_without_rows_is_less_sure_where_its_vendor_has_few_with_some() -> None:
    asked = {"model": "llama-3.1-70b", "precision": "fp8", "tp": 8, "engine": "vllm"}
    amd, nvidia = (
        regime_of(api.deployment_of(gpu=gpu, **asked), isl=1000, osl=1000, clients=16)
        for gpu in ("mi300x", "h200-sxm-141gb")
    )
    assert (amd.known_gpu, amd.few_of_vendor, nvidia.few_of_vendor) == (True, True, False)
    of_amd, of_nvidia = (
        width(shipped_residuals().interval("itl_ms", 1.0, found.on_unknown_gpu))
        for found in (amd, nvidia)
    )
    assert of_amd > 1.5 * of_nvidia
    assert width(shipped_residuals().interval("itl_ms", 1.0, amd)) < of_nvidia


@pytest.mark.accuracy
@needs_data
def test_intervals_cover_nim_groups_that_neither_the_terms_nor_the_table_have_seen() -> None:
    """Terms fitted without each group in turn, then a table of errors without each: its intervals
    hold about 80 % of the group.

    A twelfth of the static rows makes it quick and rougher than the shipped table, whose coverage
    is tested above."""
    nim = [
        row
        for row in read_measured(DATA / FILES[NIM])
        if row["requests_s"] * row["e2e_ms"] / 1e3 / row["concurrency"] >= 0.95
    ]
    static = read_measured(DATA / FILES[STATIC])[::12]
    found = layout(
        {("h100-sxm-80gb", "16"), ("h100-sxm-80gb", "8"), ("a100-sxm-80gb", "16"), ("l40s", "16")}
    )
    rows: list[HeldOut] = []
    for out in sorted({(row["model"], row["gpu"]) for row in nim}):
        kept = {STATIC: static, NIM: [row for row in nim if (row["model"], row["gpu"]) != out]}
        x = solve(
            found,
            [(WEIGHTS[e], rows_of(e, part)) for e, part in kept.items()],
            found.start,
            found.free(kept),
        )
        left = rows_of(NIM, [row for row in nim if (row["model"], row["gpu"]) == out])
        rows += held_out_rows(left.points, errors(left, found.terms(x)), unseen_gpu=False)
    shares = [kinds["loaded"] for kinds in coverage(rows).values()]
    assert len(shares) == 5
    assert 70 <= np.mean(shares) <= 90
    assert all(65 <= share <= 95 for share in shares)


def test_columns_take_the_errors_of_what_they_are_made_of() -> None:
    found = intervals_of(
        {
            "tpot_ms": 10.0,
            "itl_ms": 10.0,
            "output_tok_s": 100.0,
            "requests_s": 1.0,
            "peak_gpu_memory_gb": 3.0,
        },
        regime(),
    )
    assert found["tpot_ms"] == found["itl_ms"]
    assert found["output_tok_s"] == pytest.approx([100 * bound for bound in found["requests_s"]])
    assert "peak_gpu_memory_gb" not in found
    assert set(intervals_of({"requests_s": 1.0, "e2e_ms": 1.0}, regime("open"))) == {"e2e_ms"}


def test_a_calibration_narrows_predictions_of_what_it_was_measured_on_alone() -> None:
    c = Calibration(
        preset="nim-2024",
        gpu="h100-sxm-80gb",
        multipliers=(("step_s", 1.1),),
        data="mine",
        deployments=("llama-3-8b fp16 tp1",),
    )
    asked = {
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp16",
        "tp": 1,
        "engine": "nim-2024",
    }

    def kind(calibration: Calibration = c, **change: object) -> str:
        d = replace(api.deployment_of(**{**asked, **change}), calibration=calibration)
        return regime_of(d, isl=200, osl=200, clients=8).kind

    assert kind() == "calibrated"
    for change in (
        {"model": "llama-3.1-8b"},
        {"precision": "fp8"},
        {"tp": 2},
        {"gpu": "h200-sxm-141gb"},
    ):
        assert kind(**change) == "loaded"
    assert kind(replace(c, multipliers=())) == "loaded"
    assert kind(replace(c, deployments=())) == "loaded"
    # enough points confirm the shipped terms
    for points, found in ((5, "loaded"), (6, "calibrated")):
        assert kind(replace(c, multipliers=(), left_out=(("itl_ms", 0.03, points),))) == found
        assert (
            kind(replace(c, multipliers=(), left_out=(("itl_ms", 0.03, points),)), tp=2) == "loaded"
        )
    d = replace(api.deployment_of(**asked), calibration=c)
    assert regime_of(d, isl=200, osl=200, batch=8).kind == "static"


@pytest.mark.parametrize(
    ("change", "unknown"),
    [
        ({"precision": "awq"}, "known_format"),
        ({"model": "mixtral-8x7b", "tp": 2}, "known_family"),
        ({"model": "deepseek-v3", "precision": "fp8", "tp": 8}, "known_family"),
        ({"gpu": "gb300-279gb"}, "known_gpu"),
        ({"engine": "vllm", "gpu": "l40s"}, "known_engine"),
    ],
)
def test_what_no_row_is_of_widens_the_interval_and_never_fails(
    change: dict[str, object], unknown: str
) -> None:
    asked = {
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp16",
        "tp": 1,
        "engine": "nim-2024",
    }
    d = api.deployment_of(**{**asked, **change})
    for load in ({"clients": 8}, {"batch": 8}, {}):
        found = regime_of(d, isl=200, osl=200, **load)
        assert not getattr(found, unknown)
        for metric in ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s"):
            known = replace(
                found, known_gpu=True, known_engine=True, known_format=True, known_family=True
            )
            assert width(shipped_residuals().interval(metric, 1.0, found)) > width(
                shipped_residuals().interval(metric, 1.0, known)
            )


def test_an_engine_older_than_every_one_with_rows_has_intervals_that_hold_the_courses_measurement() -> (
    None
):
    asked = {"model": "llama-2-70b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 4}
    old, fitted = (
        regime_of(
            api.deployment_of(**asked, engine=f"tensorrt-llm-0.{n}"), isl=3500, osl=99, batch=8
        )
        for n in (5, 9)
    )
    assert replace(old, before_rows=False) == fitted
    for metric, predicted, measured in (("ttft_ms", 2_002, 2_600), ("itl_ms", 20.6, 26.8)):
        (low, high), (_, near) = (
            shipped_residuals().interval(metric, predicted, one) for one in (old, fitted)
        )
        assert low < predicted < near < measured < high


def test_regimes() -> None:
    d = api.deployment_of(
        model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=1, engine="nim-2024"
    )
    assert regime_of(d, isl=2000, osl=200, clients=8) == regime("light", "prompt")
    assert regime_of(d, isl=200, osl=200, clients=64) == regime("heavy", "output")
    assert regime_of(d, isl=200, osl=200).load == "open"
    assert regime_of(d, isl=200, osl=200, batch=64).kind == "static"
    unseen = api.deployment_of(
        model="mixtral-8x7b", gpu="gb300-279gb", precision="fp16", tp=1, engine="vllm"
    )
    assert regime_of(unseen, isl=200, osl=200, clients=10) == regime(
        "middle", "output", "moe", **NOWHERE, current=True, apart=frozenset({"host"})
    )
    of_no_row = api.deployment_of(
        model="mixtral-8x7b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="nim-2024"
    )
    assert not regime_of(of_no_row, isl=200, osl=200, clients=10).known_family


def test_a_model_without_rows_has_wider_intervals_and_one_with_newer_kinds_wider_still() -> None:
    table = shipped_residuals()

    def sides(model: str) -> tuple[float, float]:
        """How far the bounds are from the middle: longer times, and shorter ones."""
        d = api.deployment_of(
            model=model, gpu="h200-sxm-141gb", precision="fp8", tp=8, engine="vllm"
        )
        near = replace(regime_of(d, isl=1000, osl=1000, clients=32), apart=frozenset())
        shorter, middle, longer = (table.log_error("itl_ms", near, p) for p in (0.9, 0.5, 0.1))
        return middle - longer, shorter - middle

    measured, sibling = sides("qwen3-235b-a22b"), sides("qwen3-coder-480b-a35b")
    assert sibling == pytest.approx(measured)
    plain, newer = sides("llama-4-scout"), sides("nemotron-3-super-120b-a12b")
    assert plain == pytest.approx((1.3 * measured[0], 1.1 * measured[1]), rel=0.02)
    assert newer[0] > 1.4 * plain[0]
    assert newer[1] == pytest.approx(plain[1], rel=0.05)


APART = {"model": "qwen3-235b-a22b", "gpu": "h200-sxm-141gb", "precision": "fp8", "tp": 8}


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        ({}, {"host"}),
        ({"dp": 8, "tp": 1}, {"host", "ranks"}),
        ({"dp": 2, "tp": 4}, {"host", "ranks"}),
        # experts in four bits, and few weights of a token, are what rows of vLLM have
        ({"model": "gpt-oss-120b", "precision": "mxfp4", "tp": 1}, {"host"}),
        ({"model": "gpt-oss-20b", "precision": "mxfp4", "tp": 1}, {"host"}),
        # and its 0.10 has none
        (
            {"model": "gpt-oss-20b", "precision": "mxfp4", "tp": 1, "engine": "vllm-0.10"},
            {"host", "four bits", "light weights"},
        ),
        # dense: four bits that are unpacked, those that Blackwell multiplies, and small steps
        (
            {"model": "qwen3-8b", "precision": "awq", "tp": 1},
            {"host", "four bits", "light weights"},
        ),
        ({"model": "qwen3-32b", "precision": "awq", "tp": 1}, {"host", "four bits"}),
        (
            {"model": "qwen3-32b", "precision": "nvfp4", "tp": 1, "gpu": "b200-sxm-180gb"},
            {"host"},
        ),
        ({"model": "qwen2.5-0.5b", "precision": "bf16", "tp": 1}, {"host", "light weights"}),
        ({"model": "llama-3.3-70b", "precision": "fp8"}, {"host"}),
        ({"model": "qwen2.5-72b", "precision": "fp8"}, {"host"}),
        (
            {"model": "qwen2.5-32b", "precision": "bf16", "tp": 2, "gpu": "a100-pcie-80gb"},
            {"host", "pcie"},
        ),
        ({"engine": "nim-2024", "model": "llama-3-8b", "tp": 1}, set()),
    ],
)
def test_what_sets_a_deployment_apart(change: dict[str, object], causes: set[str]) -> None:
    d = api.deployment_of(**{**APART, "engine": "vllm", **change})
    found = regime_of(d, isl=1000, osl=1000, clients=32)
    assert found.causes == causes
    alike = replace(found, apart=found.causes)
    for metric in ("ttft_ms", "itl_ms", "requests_s"):
        table = shipped_residuals()
        assert table.interval(metric, 1.0, alike) == table.interval(metric, 1.0, found)


def test_a_rate_has_the_factors_of_rates_where_the_token_latency_stands_in_for_it() -> None:
    """Errors of rates of today's engines are those of the time per token, the other way; a burst of
    prompts makes that one five times as uncertain, and tokens/s not at all.
    """
    d = api.deployment_of(**{**APART, "engine": "vllm"})
    steady, burst = (
        regime_of(d, isl=1000, osl=1000, clients=64, burst=burst) for burst in (False, True)
    )
    table = shipped_residuals()
    assert table.interval("requests_s", 1.0, burst) == table.interval("requests_s", 1.0, steady)
    assert table.interval("itl_ms", 1.0, burst)[1] > 1.5 * table.interval("itl_ms", 1.0, steady)[1]


def test_first_support_widens_the_slower_side_alone() -> None:
    """A pair of which no release was measured may be slower by what one in ten of such points was,
    but no faster than others."""
    family, model, precision, gpu = shipped()["origins"]["first_support"][0].split()
    regime = regime_of(
        deployment(model=model, gpu=gpu, precision=precision, tp=8, engine=family),
        isl=1000,
        osl=1000,
        clients=32,
    )
    assert regime.first_support
    table, released = shipped_residuals(), replace(regime, first_support=False)
    for metric, slower in (("itl_ms", 1), ("requests_s", 0)):
        first, usual = (table.interval(metric, 10.0, kind) for kind in (regime, released))
        assert first[1 - slower] == pytest.approx(usual[1 - slower])
        assert abs(math.log(first[slower] / usual[slower])) > 0.1
    wide = table.interval(
        "itl_ms",
        10.0,
        replace(regime, known_model=True, known_engine=True, differs=1.0, apart=frozenset()),
    )
    assert wide[1] > 1.6 * 10.0


def test_the_noise_of_a_run_by_hand() -> None:
    """A hundred requests every 10 ms, in blocks of ten; the first half have a first token after
    10 ms and the others after 30. Order and requests that failed change nothing."""
    due = [10 * number for number in range(100)]
    first = [at + (10 if at < 500 else 30) for at in due]
    whole = record(due, first, [at + 10 for at in first], [3] * 100)
    expected = {
        "ttft_ms": 0.5 / 3,
        "itl_ms": 0.0,
        "e2e_ms": 1 / 9,
        # answers end 12 ms apart in the block in which the slow ones begin, else 10
        "requests_s": 0.2 / 10.2,
    }
    assert run_noise(whole) == pytest.approx(expected, abs=1e-12)
    backwards = record(due[::-1], first[::-1], [at + 10 for at in first[::-1]], [3] * 100)
    assert run_noise(backwards) == pytest.approx(expected, abs=1e-12)
    lost = record(
        [*due, 305, 306],
        [*first, -1, 307],
        [*(at + 10 for at in first), -1, 999],
        [3] * 102,
        status=[COMPLETED] * 100 + [FAILED] * 2,
    )
    assert run_noise(lost) == pytest.approx(expected, abs=1e-12)
    least, fewer = (
        record(due[:count], first[:count], first[:count], [1] * count) for count in (40, 39)
    )
    assert run_noise(least) == pytest.approx(dict.fromkeys(expected, 0.0))
    assert run_noise(fewer) == {}


@pytest.mark.parametrize(
    ("asked", "load"),
    [
        ({"batch": 1}, "small batch"),
        ({"batch": 8}, "small batch"),
        ({"batch": 9}, "large batch"),
        ({"batch": 9, "clients": 2}, "large batch"),
        ({"clients": 8}, "light"),
        ({"clients": 9}, "middle"),
        ({"clients": 63.9}, "middle"),
        ({"clients": 64}, "heavy"),
        ({}, "open"),
    ],
)
def test_which_load_it_is(asked: dict[str, Any], load: str) -> None:
    d = deployment(engine="vllm")
    for isl, osl, mix in ((400, 200, "prompt"), (399, 200, "output")):
        found_regime = regime_of(d, isl=isl, osl=osl, **asked)
        assert (found_regime.load, found_regime.mix, found_regime.family) == (load, mix, "dense")
    # of a single batch nothing sets it apart, and no second step model is heard
    assert bool(found_regime.apart) == (load not in ("small batch", "large batch"))


@pytest.mark.parametrize(
    ("what", "changed", "expected"),
    [
        ({}, {}, {}),
        ({"precision": "gptq"}, {}, {"known_format": True}),
        ({"precision": "awq"}, {}, {"known_format": False}),
        ({"precision": "fp8+2:4"}, {}, {"known_format": False}),
        ({"precision": "nf4"}, {}, {"known_format": False}),
        ({"gpu": "h20-96gb"}, {}, {"known_gpu": False}),
        ({"gpu": "l40s"}, {}, {}),
        ({"gpu": "b200", "engine": "vllm"}, {}, {"known_gpu": False, "current": True}),
        ({"gpu": "b200", "engine": "vllm", "precision": "fp8"}, {}, {"current": True}),
        ({"gpu": "mi300x", "engine": "vllm"}, {}, {"few_of_vendor": True, "current": True}),
        (
            {"gpu": "gaudi3", "engine": "vllm"},
            {},
            {"known_gpu": False, "few_of_vendor": True, "current": True, "known_engine": False},
        ),
        ({"model": "phi-4"}, {}, {"known_model": False}),
        (
            {"model": "kimi-linear-48b-a3b"},
            {},
            {
                "family": "moe",
                "known_model": False,
                "newer_kinds": True,
                "known_family": False,
            },
        ),
        (
            {},
            {"model": replace(find_model("llama-3-8b"), architecture="Odd")},
            {"known_layout": False},
        ),
        ({}, {"step_source": StepSource(name="x.csv")}, {"known_engine": False}),
        ({"engine": "tensorrt-llm-0.5"}, {}, {"before_rows": True}),
        ({"engine": "tensorrt-llm-0.10"}, {}, {"known_engine": False}),
    ],
)
def test_how_near_measurements_are(
    what: dict[str, Any], changed: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Of a batch of 8, where neither the host nor a second step model counts."""
    d = replace(deployment(**what), **changed)
    assert regime_of(d, isl=200, osl=200, batch=8) == replace(
        regime("small batch", "output"), **expected
    )


def test_a_calibration_makes_an_engine_known_and_own_terms_the_gpu_too() -> None:
    """Factors are of an engine's terms, and terms of ones own stand for generation and model."""
    d = deployment(gpu="gaudi3", model="phi-4", engine="vllm")
    factors = Calibration(
        preset="vllm",
        gpu=d.gpu.name,
        multipliers=(("step_s", 1.1),),
        data="mine",
        deployments=("phi-4 fp16 tp1",),
        left_out=(("itl_ms", 0.1, 7),),
        by_curve=True,
    )
    usual = regime_of(d, isl=200, osl=200, clients=8)
    shifted = regime_of(replace(d, calibration=factors), isl=200, osl=200, clients=8)
    assert shifted == replace(
        usual, calibrated=True, own=factors.left_out, by_curve=True, apart=frozenset()
    )
    own = replace(factors, multipliers=(), terms=(("step_s", 1.0),))
    fitted = regime_of(replace(d, calibration=own), isl=200, osl=200, clients=8)
    known = ("known_gpu", "known_generation", "known_model", "known_engine", "own_terms")
    assert fitted == replace(shifted, **dict.fromkeys(known, True))


@pytest.mark.parametrize(
    ("model", "preset", "known"),
    [
        ("llama-3-8b", "a", True),
        ("mixtral-8x7b", "a", True),
        ("mixtral-8x7b", "b", False),
        ("mixtral-8x7b", "c", False),
        ("mixtral-8x7b", "tensorrt-llm-0.9", True),
        ("mixtral-8x7b", "tensorrt-llm-0.15", True),
        ("deepseek-v3", "a", False),
        ("deepseek-v3", "b", True),
        ("deepseek-v3", "tensorrt-llm-0.9", False),
    ],
)
def test_of_which_families_an_engine_has_rows(model: str, preset: str, known: bool) -> None:
    origins = {"experts": {"a": 1, "b": 0}, "latent": {"a": 0, "b": 7}}
    assert _known_family(find_model(model), preset, origins) == known


def test_intervals_of_what_can_have_one() -> None:
    """No rate of an open loop, nothing that is none, and the noise of the column that stands for
    it."""
    table, kind = shipped_residuals(), regime("heavy")
    values = {"ttft_ms": 5.0, "itl_ms": 0.0, "e2e_ms": math.inf, "requests_s": 2.0, "odd": 1.0}
    noise = {"ttft_ms": 0.2, "requests_s": 0.1}
    expected = {
        "ttft_ms": table.interval("ttft_ms", 5.0, kind, noise=0.2),
        "requests_s": table.interval("requests_s", 2.0, kind, noise=0.1),
    }
    assert intervals_of(values, kind, noise) == expected
    assert intervals_of(values, kind, {}) == {
        name: table.interval(name, values[name], kind) for name in expected
    }
    assert intervals_of(values, kind, {"itl_ms": 0.5})["ttft_ms"] == table.interval(
        "ttft_ms", 5.0, kind
    )
    assert set(intervals_of(values, regime("open"))) == {"ttft_ms"}


@pytest.mark.parametrize(
    ("layers", "ffn", "light"), [(60, 4864, True), (100, 4864, False), (60, 40_000, False)]
)
def test_from_which_seconds_on_a_step_is_not_light(layers: int, ffn: int, light: bool) -> None:
    """vLLM launches 33 µs a layer, 2 ms for 60, and reads 30 or 219 MB of each at 4.8 TB/s: 0.4 or
    2.7 ms more."""
    d = api.deployment_of(model="qwen2.5-0.5b", gpu="h200", precision="bf16", tp=1, engine="vllm")
    d = replace(d, model=replace(d.model, layers=layers, ffn=ffn, name="mine"))
    apart = regime_of(d, isl=1000, osl=1000, clients=32).apart
    assert ("light weights" in apart) == light
