"""Files of step times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.step_files import HEADER, file
from tests.step_times import deployment
from tonnage.errors import InputError
from tonnage.perf.measured_steps import read_step_times, reduced
from tonnage.spec.step_times import TimedStep


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


def test_steps_that_do_not_say_enough_are_refused() -> None:
    def step(p: int, b: int, context: int) -> TimedStep:
        return TimedStep(
            prefill_tokens=p,
            prefill_sequences=1,
            past_tokens=0,
            decode_sequences=b,
            context_tokens=context,
            seconds=0.01,
        )

    enough = [step(0, 1, 9), step(0, 1, 99), step(8, 0, 0), step(16, 0, 0)]
    assert reduced(enough, "x.csv").steps == 4
    for left, says in (
        ((1, 2, 3), "two context_tokens"),
        ((0, 1, 2), "two numbers of prefill_tokens"),
    ):
        with pytest.raises(InputError, match=rf"^step_model: x\.csv needs .*{says}"):
            reduced([enough[i] for i in left], "x.csv")
