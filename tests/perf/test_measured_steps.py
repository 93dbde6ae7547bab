from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.step_times import deployment, timed, written
from tests.strategies import ROOFLINE, step_models
from tonnage.errors import InputError, InputErrors
from tonnage.perf import step_terms as at
from tonnage.perf.measured_steps import (
    Reduction,
    _array,
    _curvature,
    _floor,
    _knots,
    _not_negative,
    _terms,
    check_source,
    checked_source,
    reduced,
    reduction,
    source_mark,
    step_source,
)
from tonnage.perf.step import StepModel, batch_seconds, step_seconds, tabulated_seconds
from tonnage.perf.step_terms import COEFFICIENTS, GRAPHED_TO, LAUNCHES, NORM
from tonnage.perf.terms import step_model
from tonnage.simulator.kernel import run_recorded
from tonnage.simulator.reference import run_reference
from tonnage.spec.calibration import Calibration
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.step_times import StepSource, TimedStep
from tonnage.spec.workload import ClosedLoop, Lengths, Workload


def with_table(folder: Path, d: Deployment) -> Deployment:
    source = checked_source(written(step_model(d).coefficients, folder / "ours.csv"))
    return replace(d, step_source=source)


def test_a_table_of_our_own_steps_predicts_what_we_predict(tmp_path: Path) -> None:
    d = deployment()
    other = with_table(tmp_path, d)
    stated = reduction(other)
    assert stated.worst < 25  # where CUDA graphs end
    assert stated.prefill_mape < 1.7
    assert step_model(other).frontend_s == step_model(d).frontend_s
    a, b = (step_model(each).coefficients for each in (d, other))
    for p, n, decodes, context in (
        (0, 0, 3, 900),
        (0, 0, 100, 300_000),
        (700, 1, 0, 0),
        (3000, 2, 20, 40_000),
    ):
        ours, theirs = (step_seconds(c, p, n, decodes, p * p // max(n, 1), context) for c in (a, b))
        assert theirs == pytest.approx(ours, rel=stated.worst / 100 + 0.005)


def test_kernel_and_reference_price_a_table_alike(tmp_path: Path) -> None:
    d = with_table(tmp_path, deployment())
    trace = Workload(
        isl=Lengths(mean=300), osl=Lengths(mean=30), arrivals=ClosedLoop(concurrency=7), requests=40
    ).trace(3)
    step = step_model(d)
    record, steps = run_recorded(trace, step, d.knobs, 1000, most_steps=10_000)
    expected = run_reference(trace, step, d.knobs, 1000)
    np.testing.assert_array_equal(record.last_token_ns, expected.requests.last_token_ns)
    assert [tuple(row) for row in steps.steps] == expected.steps


def test_what_a_step_model_cannot_go_with(tmp_path: Path) -> None:
    d = with_table(tmp_path, deployment())
    calibration = Calibration(preset="vllm", gpu="h100-sxm-80gb", multipliers=(), data="x")
    check_source(None, calibration, 5)
    check_source(StepSource(name="aiconfigurator"), None, 5)
    with pytest.raises(InputError, match="leave one of them out"):
        check_source(d.step_source, calibration, 1)
    with pytest.raises(InputError) as several:
        check_source(d.step_source, None, 2)
    assert str(several.value).endswith(
        "ours.csv does not say which of 2 deployments its steps are of; add columns such as model,"
        " gpu, precision, tp, engine, or ask for one deployment"
    )
    check_source(d.step_source, None, 1)
    with pytest.raises(InputError, match="pipeline stages"):
        reduction(replace(d, parallelism=Parallelism(tp=1, pp=2)))


@settings(max_examples=30, deadline=None)
@given(step_models())
def test_the_stated_error_is_that_of_the_steps(model: StepModel) -> None:
    steps = list(timed(model.coefficients))
    found = reduced(steps, "ours")
    errors = [
        100 * abs(step_seconds(found.coefficients, s.prefill_tokens, s.prefill_sequences if s.prefill_tokens else 0,
                               s.decode_sequences, s.attention_pairs_2, s.context_tokens) / s.seconds - 1)
        for s in steps
    ]  # fmt: skip
    decode = [error for error, s in zip(errors, steps, strict=True) if s.prefill_tokens == 0]
    assert max(errors) == pytest.approx(found.worst, abs=1e-6)
    assert np.mean(decode) == pytest.approx(found.decode_mape, abs=1e-6)
    assert found.steps == len(steps)


@pytest.mark.parametrize(
    ("engine", "mean", "worst"), [("vllm", 1, 25), ("tensorrt-llm-0.15", 1, 5), ("nim-2024", 4, 15)]
)
def test_steps_of_our_own_model_come_back(engine: str, mean: float, worst: float) -> None:
    """Decode attention of 2024 goes in waves of blocks, which two terms only follow on average.

    Where vLLM's CUDA graphs end, a step of 520 tokens takes 1.6 to 2.7 times as long as one of 512;
    two such steps are no floor yet."""
    for tp in (1, 4):
        found = reduced(
            list(timed(step_model(deployment(tp=tp, engine=engine)).coefficients)), "ours"
        )
        assert found.decode_mape < mean
        assert found.prefill_mape < 1.7
        assert found.worst < worst


@settings(max_examples=30, deadline=None)
@given(step_models(), st.integers(1, 300), st.integers(1, 300), st.integers(0, 10**6))
def test_a_reduced_step_costs_something_and_more_context_more(
    model: StepModel, fewer: int, more: int, context: int
) -> None:
    c = reduced(list(timed(model.coefficients)), "ours").coefficients
    assert (c[COEFFICIENTS + 1 :: 2] >= 0).all()
    assert (np.diff(c[COEFFICIENTS::2]) > 0).all()
    assert (
        step_seconds(c, 0, 0, fewer, 0, context + more)
        >= step_seconds(c, 0, 0, fewer, 0, context)
        > 0
    )


def test_the_table_is_linear_between_entries_and_goes_on() -> None:
    c = np.concatenate([np.zeros(COEFFICIENTS), [1, 2.0, 10, 3.0, 100, 30.0]])
    c[NORM] = 1.0
    assert [tabulated_seconds(c, t) for t in (0, 1, 10, 55, 100, 200)] == pytest.approx(
        [2.0, 2.0, 3.0, 16.5, 30.0, 60.0]
    )
    assert batch_seconds(c, 55, 3) == pytest.approx(16.5)


def test_a_floor_beyond_cuda_graphs_comes_back() -> None:
    """Steps of few tokens are spared the floor, and what else launching costs is part of the
    table."""
    c = ROOFLINE.copy()
    c[LAUNCHES], c[GRAPHED_TO] = 0.02, 64
    found = reduced(list(timed(c)), "ours")
    assert found.coefficients[LAUNCHES] == pytest.approx(0.02)
    assert 64 <= found.coefficients[GRAPHED_TO] < 72
    assert found.worst < 2
    assert step_seconds(found.coefficients, 64, 1, 0, 64 * 64, 0) == pytest.approx(
        step_seconds(c, 64, 1, 0, 64 * 64, 0), rel=0.02
    )
    assert step_seconds(found.coefficients, 64, 1, 0, 64 * 64, 0) < 0.01
    assert step_seconds(found.coefficients, 72, 1, 0, 72 * 72, 0) == pytest.approx(0.02)


def step_of(
    prefill: int = 0,
    prompts: int = 1,
    decodes: int = 0,
    context: int = 0,
    *,
    past: int = 0,
    seconds: float = 1.0,
) -> TimedStep:
    return TimedStep(
        prefill_tokens=prefill,
        prefill_sequences=prompts,
        past_tokens=past,
        decode_sequences=decodes,
        context_tokens=context,
        seconds=seconds,
    )


def test_entries_of_a_table_are_a_twelfth_apart_by_hand() -> None:
    """2^(1/8) is 1.09: 2.1 is too near 2, 105 too near 100, and 100 not too near 110."""
    tokens = np.array([4, 2, 1, 1, 2.1, 110, 105, 100.0])
    assert _knots(tokens).tolist() == [1, 2, 4, 100, 110]
    assert _knots(np.array([1, 2, 100, 108.0])).tolist() == [1, 2, 108]
    assert _knots(np.array([3.0, 5.0])).tolist() == [3, 5]
    assert _knots(np.array([1, 2, 4.0])).tolist() == [1, 2, 4]


def test_what_multiplies_each_term_by_hand() -> None:
    """Sequences, a prefill, pairs, context, and the mean context."""
    steps = [
        step_of(decodes=3, context=300),
        step_of(decodes=1, context=50),
        step_of(10, 2, past=5),
        step_of(10, 2, 4, 8),
    ]
    assert _terms(steps).tolist() == [
        [3, 0, 0, 300, 100],
        [1, 0, 0, 50, 50],
        # ten tokens see ten before them, and half of the five of their prompt
        [2, 1, 75, 0, 0],
        [6, 1, 25, 8, 2],
    ]


def test_entries_are_drawn_to_the_line_between_their_neighbours_by_hand() -> None:
    """2 is a third of the way from 1 to 4, and 4 from 2 to 8; in units of a hundredth of a step."""
    rows = _curvature(np.array([1, 2, 4, 8.0]), np.array([1, 2, 4, 8.0]), 6)
    assert rows == pytest.approx(
        np.array([[2 / 3, -1, 1 / 3, 0, 0, 0], [0, 1 / 3, -1 / 2, 1 / 6, 0, 0]])
        * np.array([[0.005], [0.005]])
    )
    assert _curvature(np.array([1, 2.0]), np.array([1, 1.0]), 4).shape == (0, 4)


def test_least_squares_without_negative_solutions_by_hand() -> None:
    line = np.array([[1, 0], [1, 1], [1, 2.0]])
    assert _not_negative(line, np.array([1, 3, 5.0])) == pytest.approx([1, 2])
    # a line that falls becomes the mean, and one that starts below 0 starts there
    assert _not_negative(line, np.array([2, 1, 0.4])) == pytest.approx([3.4 / 3, 0], abs=1e-12)
    assert _not_negative(line, np.array([-1, 1, 3.0])) == pytest.approx([0, 1.4], abs=1e-12)
    assert _not_negative(np.eye(3), np.array([-1, -2, 3.0])).tolist() == [0, 0, 3]


@pytest.mark.parametrize(("values", "beyond"), [([1, 2, 3.0], 5.0), ([3, 2, 1.0], 1.0)])
def test_a_table_goes_on_by_its_last_line_and_never_falls_by_hand(
    values: list[float], beyond: float
) -> None:
    c = _array(np.array([1, 2, 4.0]), np.array([*values, 10, 20, 30, 40, 50]))
    expected = np.zeros(COEFFICIENTS)
    expected[NORM] = 1.0
    places = (at.HOST_SEQUENCE, at.HOST_PREFILL, at.ATTENTION, at.CONTEXT, at.WALK)
    for place, value in zip(places, (10, 20, 30, 40, 50), strict=True):
        expected[place] = value
    assert c[:COEFFICIENTS].tolist() == expected.tolist()
    first, second, third = values
    assert c[COEFFICIENTS:].tolist() == [1, first, 2, second, 4, third, 8, beyond]


@pytest.mark.parametrize(
    ("tokens", "seconds", "floor"),
    [
        ([8, 16, 32, 64, 128, 256], [1, 1, 1, 1.004, 2, 3], (1.0, 0.0)),
        ([8, 16, 32, 64, 128, 256], [1.004, 1, 1.005, 1, 2, 3], (1.0, 0.0)),
        # three that are alike, or four whose tokens are too near each other
        ([8, 16, 32, 64, 128, 256], [1, 1, 1, 1.006, 2, 3], (0.0, 0.0)),
        ([10, 11, 12, 19, 100, 200], [1, 1, 1, 1, 2, 3], (0.0, 0.0)),
        ([10, 11, 12, 20, 100, 200], [1, 1, 1, 1, 2, 3], (1.0, 0.0)),
        # one longer step is too few
        ([8, 16, 32, 64, 128], [1, 1, 1, 1, 2], (0.0, 0.0)),
        ([8, 16, 32, 64, 128, 128], [1, 1, 1, 1, 2, 3], (0.0, 0.0)),
        # graphs of up to 4 tokens, and of up to 6
        ([4, 8, 16, 32, 64, 128, 256], [0.5, 1, 1, 1, 1, 2, 3], (1.0, 4.0)),
        ([4, 6, 8, 16, 32, 64, 128, 256], [0.5, 0.7, 1, 1, 1, 1, 2, 3], (1.0, 6.0)),
    ],
)
def test_a_floor_of_steps_with_prompts_by_hand(
    tokens: list[float], seconds: list[float], floor: tuple[float, float]
) -> None:
    assert _floor(np.array(tokens, float), np.array(seconds, float)) == floor


def prompts_at_a_floor(last: float) -> list[TimedStep]:
    """Decodes of a millisecond, and prompts whose floor is a second; the fifth takes ``last``."""
    decodes = [
        step_of(decodes=batch, context=context, seconds=1e-3)
        for batch in (1, 2)
        for context in (10, 100)
    ]
    at_floor = [step_of(tokens, seconds=1.0) for tokens in (8, 16, 32, 64)]
    above = [step_of(tokens, seconds=seconds) for tokens, seconds in ((128, last), (1024, 2.0))]
    return [*decodes, *at_floor, *above, step_of(2048, seconds=4.0)]


def test_steps_at_the_floor_say_nothing_of_the_table() -> None:
    """Up to half a percent above the floor is the floor; beyond it a step is one of the table's."""
    for last, is_floor in ((1.005, True), (1.006, False)):
        found = reduced(prompts_at_a_floor(last), "mine")
        assert (found.coefficients[LAUNCHES], found.coefficients[GRAPHED_TO]) == (1.0, 0.0)
        table = found.coefficients.copy()
        table[LAUNCHES] = 0.0
        free = step_seconds(table, 128, 1, 0, 128 * 128, 0)
        assert (abs(free - last) > 0.1) == is_floor
        assert step_seconds(found.coefficients, 128, 1, 0, 128 * 128, 0) >= 1.0
        assert found.steps == 11


@pytest.mark.parametrize(
    ("steps", "missing"),
    [
        (
            [step_of(decodes=1, context=9), step_of(decodes=2, context=99), step_of(8), step_of(9)],
            "mine needs steps of decodes alone (prefill_tokens 0) with two context_tokens at one"
            " number of decode_sequences; otherwise their cost is unknown",
        ),
        (
            [step_of(decodes=1, context=9), step_of(decodes=1, context=99), step_of(8), step_of(8)],
            "mine needs steps with two numbers of prefill_tokens; otherwise their cost is unknown",
        ),
        # contexts next to prompts say nothing of decodes alone
        (
            [step_of(8, 1, 1, 9), step_of(9, 1, 1, 99), step_of(decodes=1, context=9)],
            "mine needs steps of decodes alone (prefill_tokens 0) with two context_tokens at one"
            " number of decode_sequences; otherwise their cost is unknown",
        ),
    ],
)
def test_steps_that_leave_a_cost_open_are_refused(steps: list[TimedStep], missing: str) -> None:
    with pytest.raises(InputError) as error:
        reduced(steps, "mine")
    assert str(error.value) == f"step_model: {missing}"


def test_a_reduction_in_words() -> None:
    found = Reduction(
        coefficients=np.zeros(1), decode_mape=1.26, prefill_mape=2.34, worst=17.5, steps=42
    )
    assert str(found) == (
        "42 steps reduced with an error of 1.3 % in decode steps, 2.3 % in steps with prefill,"
        " 18 % at most"
    )
    assert source_mark(deployment()) == ""
    with pytest.raises(InputError, match="no step model is named"):
        reduction(deployment())


HEADER = "prefill_tokens,decode_sequences,context_tokens,seconds,prefill_sequences,past_tokens,model,gpu,precision,tp,engine"


def test_a_file_of_step_times_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    rows = (
        "0,2,200,0.01,,,Llama-3.1-8B,h100,float16,2.0,vllm",
        "100,0,0,0.02,2,30,llama-3.1-8b,h100-sxm-80gb,fp16,2,vllm",
        "7,1,9,0.03,1,0,,,,,",
    )
    path.write_text("\n".join((HEADER, *rows)))
    source = step_source(f" {path} ")
    assert source is not None
    (mine, of_mine), (nobody, of_nobody) = source.table
    assert set(mine) >= {"llama-3.1-8b", "h100-sxm-80gb", "fp16", "2"}
    assert set(nobody) == {""}
    assert of_mine == (
        step_of(decodes=2, context=200, seconds=0.01),
        step_of(100, 2, past=30, seconds=0.02),
    )
    assert of_nobody == (step_of(7, 1, 1, 9, seconds=0.03),)
    assert not source.names_owners


def test_bad_lines_of_step_times_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    bad = {
        "x,1,1,1,,,,,,,": "prefill_tokens 'x' is not a whole number of 0 or more",
        "0,1.5,1,1,,,,,,,": "decode_sequences '1.5' is not a whole number of 0 or more",
        "0,1,1000000000001,1,,,,,,,": "context_tokens '1000000000001' is not a whole number of 0 or"
        " more",
        "-1,1,1,1,,,,,,,": "prefill_tokens '-1' is not a whole number of 0 or more",
        "0,1,1,0,,,,,,,": "seconds '0' is not a duration; write a number above 0",
        "0,0,0,1,,,,,,,": "a step computes something; prefill_tokens and decode_sequences are both 0",
        "2,0,0,1,3,,,,,,": "prefill_sequences 3 and prefill_tokens 2 do not go together",
        "2,0,0,1,0,,,,,,": "prefill_sequences 0 and prefill_tokens 2 do not go together",
        "0,4,3,1,,,,,,,": "context_tokens 3 is the sum over 4 decode sequences, at least 1 each",
        "2,0,5,1,1,,,,,,": "context_tokens 5 without decode_sequences",
        "0,1,1,1,,,,,,0,": "tp '0' is not a degree of parallelism; write a whole number from 1",
        "0,1,1,1,,,,,,1.5,": "tp '1.5' is not a degree of parallelism; write a whole number from 1",
    }
    good = ("2,0,0,1,2,,,,,,", "0,4,4,1,,,,,,1,", "0,1,1000000000000,0.001,,,,,,,")
    path.write_text("\n".join((HEADER, *good, *bad)))
    with pytest.raises(InputErrors) as errors:
        step_source(path)
    assert str(errors.value).splitlines() == [
        f"step_model: {path}:{line}: {fault}" for line, fault in enumerate(bad.values(), 5)
    ]
    path.write_text(HEADER)
    with pytest.raises(InputErrors, match="holds no step; write one line per step under prefill_t"):
        step_source(path)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (" Fitted ", None),
        ("KERNELS", StepSource(name="kernels")),
        ("aiconfigurator", StepSource(name="aiconfigurator")),
    ],
)
def test_step_models_by_name(name: str, source: StepSource | None) -> None:
    assert step_source(name) == source
    with pytest.raises(InputError) as error:
        step_source("roofline")
    assert str(error.value) == (
        "step_model: 'roofline' is not a step model; choose fitted, kernels, aiconfigurator or a"
        " .csv of step times"
    )
