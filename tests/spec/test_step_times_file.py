from pathlib import Path

import pytest

from tests.step_times import deployment
from tonnage.errors import InputError
from tonnage.spec.step_times import AICONFIGURATOR, StepSource, TimedStep
from tonnage.spec.step_times_file import read_step_times, step_source

HEADER = "prefill_tokens,decode_sequences,context_tokens,seconds"


def file(folder: Path, *lines: str, header: str = HEADER) -> str:
    path = folder / "steps.csv"
    path.write_text("\n".join([header, *lines, ""]))
    return str(path)


def test_the_step_models_by_name(tmp_path: Path) -> None:
    assert step_source("fitted") is None
    assert step_source(" AIConfigurator ") == StepSource(name=AICONFIGURATOR)
    path = file(tmp_path, "0,4,4000,0.01")
    assert step_source(Path(path)) == read_step_times(path)
    with pytest.raises(InputError, match=r"'roofline' is not a step model; choose fitted, aiconfigurator or a \.csv"):
        step_source("roofline")


def test_a_line_is_a_step(tmp_path: Path) -> None:
    source = read_step_times(file(tmp_path, "# measured on Monday", "512,4,4000,0.02", "0,1,9,5e-3"))
    steps = source.steps_of(deployment())
    assert steps[0] == TimedStep(
        prefill_tokens=512, prefill_sequences=1, past_tokens=0, decode_sequences=4, context_tokens=4000, seconds=0.02
    )
    assert (steps[0].tokens, steps[0].attention_pairs_2, steps[1].attention_pairs_2) == (516, 512 * 512, 0)
    assert not source.names_owners


def test_prompts_and_past_of_a_step(tmp_path: Path) -> None:
    header = f"{HEADER},prefill_sequences,past_tokens"
    (step,) = read_step_times(file(tmp_path, "512,0,0,0.02,2,100", header=header)).steps_of(deployment())
    assert step.attention_pairs_2 == 2 * (256 * (2 * 100 + 256))


def test_steps_belong_to_the_deployment_that_the_file_names(tmp_path: Path) -> None:
    header = f"{HEADER},model,gpu,precision,tp,engine"
    lines = ("0,1,9,1,Llama-3.1-8B,h100,fp8,1,vllm", "0,1,9,2,llama-3.1-8b,h100,fp8,2,vllm", "0,1,9,3,,,,,")
    source = read_step_times(file(tmp_path, *lines, header=header))
    assert [step.seconds for step in source.steps_of(deployment(tp=1))] == [1, 3]
    assert [step.seconds for step in source.steps_of(deployment(tp=2))] == [2, 3]
    assert not source.names_owners
    named = read_step_times(file(tmp_path, *lines[:2], header=header))
    assert named.names_owners
    with pytest.raises(InputError, match=r"has no step times of llama-3.1-8b, h100-sxm-80gb, fp8, TP 4, vllm"):
        named.steps_of(deployment(tp=4))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0,4,4000,0", "seconds '0' is not a duration"),
        ("0,4,4000,nan", "seconds 'nan' is not a duration"),
        ("0,4,4000,", "seconds '' is not a duration"),
        ("-1,4,4000,1", "prefill_tokens '-1' is not a whole number"),
        ("0,2.5,4000,1", r"decode_sequences '2\.5' is not a whole number"),
        ("0,,4000,1", "decode_sequences '' is not a whole number"),
        ("0,0,0,1", ".*both 0"),
        ("0,4,3,1", "context_tokens 3 is the sum over 4 decode sequences"),
        ("5,0,7,1", "context_tokens 7 without decode_sequences"),
        ("1e13,0,0,1", "prefill_tokens '1e13' is not a whole number"),
    ],
)
def test_a_line_that_is_no_step_is_named(line: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^step_model: .*steps\.csv:3: {says}"):
        read_step_times(file(tmp_path, "0,4,4000,0.01", line))


@pytest.mark.parametrize(("column", "value"), [("model", "llama-9"), ("gpu", "h900"), ("precision", "fp3"), ("tp", "0"), ("engine", "x")])
def test_an_owner_that_is_not_known_is_named(column: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf":2: .*{column if column == 'tp' else 'unknown'}"):
        read_step_times(file(tmp_path, f"0,1,9,1,{value}", header=f"{HEADER},{column}"))


def test_a_file_that_is_no_table_of_steps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no column seconds"):
        read_step_times(file(tmp_path, "1,2,3", header="prefill_tokens,decode_sequences,context_tokens"))
    with pytest.raises(InputError, match="holds no step"):
        read_step_times(file(tmp_path))
    with pytest.raises(InputError, match="cannot be read"):
        step_source(tmp_path / "absent.csv")
