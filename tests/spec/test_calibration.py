import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.step_times import deployment
from tonnage.errors import InputError
from tonnage.perf.measured_steps import read_step_times
from tonnage.spec.calibration import MULTIPLIERS, SCHEMA, read_calibration
from tonnage.spec.step_times import TimedStep

GOOD: dict[str, Any] = {
    "schema": SCHEMA,
    "preset": "nim-2024",
    "gpu": "h100-sxm-80gb",
    "multipliers": {"step_s": 1.25, "compute": 0.9},
    "data": "10 points of my.csv",
    "date": "2026-11-21",
}


def written(tmp_path: Path, document: object) -> Path:
    file = tmp_path / "my.json"
    file.write_text(
        document if isinstance(document, str) else json.dumps(document), encoding="utf-8"
    )
    return file


def test_a_written_calibration_is_read_back_or_refused_by_name(tmp_path: Path) -> None:
    found = read_calibration(written(tmp_path, GOOD))
    assert (found.preset, found.gpu, found.data) == (
        "nim-2024",
        "h100-sxm-80gb",
        "10 points of my.csv, 2026-11-21",
    )
    assert dict(found.multipliers) == {"compute": 0.9, "step_s": 1.25}
    assert hash(found) == hash(read_calibration(written(tmp_path, GOOD)))
    for file in (
        tmp_path / "nowhere.json",
        written(tmp_path, "{"),
        written(tmp_path, '{"schema": NaN}'),
        written(tmp_path, "[]"),
    ):
        with pytest.raises(InputError, match="calibrate"):
            read_calibration(file)
    for change, word in [
        ({"schema": "tonnage.plan/1"}, "no calibration"),
        ({"gpu": 7}, "gpu"),
        ({"multipliers": {"warp": 1.0}}, "warp"),
        ({"multipliers": {"step_s": 0.0}}, "step_s"),
        ({"multipliers": {"step_s": 1e6}}, "from 0.05 to 20"),
    ]:
        with pytest.raises(InputError, match=word) as caught:
            read_calibration(written(tmp_path, {**GOOD, **change}))
        assert caught.value.path == ("coefficients",)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["schema", "preset", "gpu", "multipliers", "data", "date"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.floats()
            | st.text()
            | st.sampled_from([SCHEMA, "compute"]),
            lambda inner: st.dictionaries(
                st.text() | st.sampled_from(MULTIPLIERS), inner, max_size=3
            ),
            max_leaves=5,
        ),
    )
)
def test_any_document_is_read_or_refused_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    file = written(tmp_path_factory.mktemp("fuzz"), {**GOOD, **document})
    lines, factors = [], []
    try:
        factors = [factor for _, factor in read_calibration(file).multipliers]
    except InputError as error:
        lines = str(error).splitlines()
    assert all(line.startswith(("coefficients: ", "and ")) for line in lines)
    assert all(0 < factor <= 20 for factor in factors)


HEADER = "prefill_tokens,decode_sequences,context_tokens,seconds"


def file(folder: Path, *lines: str, header: str = HEADER) -> str:
    path = folder / "steps.csv"
    path.write_text("\n".join([header, *lines, ""]))
    return str(path)


def test_a_line_is_a_step(tmp_path: Path) -> None:
    source = read_step_times(
        file(tmp_path, "# measured on Monday", "512,4,4000,0.02", "0,1,9,5e-3")
    )
    steps = source.steps_of(deployment())
    assert steps[0] == TimedStep(
        prefill_tokens=512,
        prefill_sequences=1,
        past_tokens=0,
        decode_sequences=4,
        context_tokens=4000,
        seconds=0.02,
    )
    assert (steps[0].tokens, steps[0].attention_pairs_2, steps[1].attention_pairs_2) == (
        516,
        512 * 512,
        0,
    )
    assert not source.names_owners
    header = f"{HEADER},prefill_sequences,past_tokens"
    (step,) = read_step_times(file(tmp_path, "512,0,0,0.02,2,100", header=header)).steps_of(
        deployment()
    )
    assert step.attention_pairs_2 == 2 * (256 * (2 * 100 + 256))


def test_steps_belong_to_the_deployment_that_the_file_names(tmp_path: Path) -> None:
    header = f"{HEADER},model,gpu,precision,tp,engine"
    lines = (
        "0,1,9,1,Llama-3.1-8B,h100,fp8,1,vllm",
        "0,1,9,2,llama-3.1-8b,h100,fp8,2,vllm",
        "0,1,9,3,,,,,",
    )
    source = read_step_times(file(tmp_path, *lines, header=header))
    assert [step.seconds for step in source.steps_of(deployment(tp=1))] == [1, 3]
    assert [step.seconds for step in source.steps_of(deployment(tp=2))] == [2, 3]
    assert not source.names_owners
    named = read_step_times(file(tmp_path, *lines[:2], header=header))
    assert named.names_owners
    with pytest.raises(
        InputError, match=r"has no step times of llama-3.1-8b, h100-sxm-80gb, fp8, TP 4, vllm"
    ):
        named.steps_of(deployment(tp=4))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0,4,4000,0", "seconds '0' is not a duration"),
        ("-1,4,4000,1", "prefill_tokens '-1' is not a whole number"),
        ("0,2.5,4000,1", r"decode_sequences '2\.5' is not a whole number"),
        ("0,0,0,1", ".*both 0"),
        ("0,4,3,1", "context_tokens 3 is the sum over 4 decode sequences"),
        ("5,0,7,1", "context_tokens 7 without decode_sequences"),
    ],
)
def test_a_line_that_is_no_step_is_named(line: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^step_model: .*steps\.csv:3: {says}"):
        read_step_times(file(tmp_path, "0,4,4000,0.01", line))
