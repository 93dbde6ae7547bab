"""Whatever cannot be used gives one clear line on standard error, nothing on standard output, and
exit code 2."""

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.strategies import examples
from tonnage.cli.main import run

SIZE = "size --model llama-3-8b"
LENGTHS = "--isl 200 --osl 50"
SIMULATE = f"simulate --model llama-3-8b {LENGTHS}"
BEYOND = ",".join(["1e308"] * 24)
CASES: dict[str, tuple[str, str]] = {
    "unknown verb": ("sise", "size"),
    "unknown flag": (f"{SIZE} {LENGTHS} --peek-rps 3", "--peek-rps"),
    "unknown model": (f"size --model lama-3-8b {LENGTHS} --peak-rps 3", "llama-3-8b"),
    "unknown model, which may be a file": (
        "memory --model my-own",
        "(the path of a config.json works too)",
    ),
    "hours that are none": (
        f"{SIZE} {LENGTHS} --profile 1,x,3",
        "'1,x,3' is no file and no list of numbers; write 24 or 168",
    ),
    "too few hours": (f"{SIZE} {LENGTHS} --profile 1,2,3", "--profile: has 3 values; write 24"),
    "hours beyond all": (f"{SIZE} {LENGTHS} --profile {BEYOND}", "is not a load"),
    "a share for a percentile": (
        f"{SIZE} {LENGTHS} --mean-rps 3 --peak-percentile 0.95",
        "1 to below 100, such as 95",
    ),
    "a limit on p99.9": (
        f"{SIZE} {LENGTHS} --peak-rps 3 --ttft p99.9<=3s",
        "one of mean, p50, p90, p95, p99",
    ),
    "several limits in one": (
        f"{SIZE} {LENGTHS} --peak-rps 3 --ttft p95<=3s,mean<=1s",
        'give each by itself, such as --ttft "mean',
    ),
    "a time without a unit": (
        f"{SIZE} {LENGTHS} --requests 1k --within 8",
        "write 8ms, 8s, 8min or 8h",
    ),
    "several values with a space": (
        f"{SIZE} {LENGTHS} --peak-rps 3 --gpu h100 l40s",
        "with commas between, such as h100,l40s",
    ),
    "one option twice": (
        f"{SIZE} {LENGTHS} --tp 1 --tp 2",
        "--tp: is given twice; give it once, several values with commas",
    ),
    "a CV of Poisson arrivals": (
        f"{SIZE} {LENGTHS} --peak-rps 3 --cv 2",
        "--cv: belongs to --arrivals gamma; add that",
    ),
    "half of a GPU's name": (f"{SIZE} --gpu h10 {LENGTHS} --peak-rps 3", "did you mean h100-"),
    "a plan as CSV": (
        f"{SIZE} {LENGTHS} --peak-rps 3 --output x.csv",
        "is written as JSON; name it x.json",
    ),
    "no model": (f"size {LENGTHS} --peak-rps 3", "--model"),
    "no lengths": (f"{SIZE} --peak-rps 3", "--isl"),
    "no demand": (f"{SIZE} {LENGTHS}", "--peak-rps"),
    "two demands": (f"{SIZE} {LENGTHS} --peak-rps 3 --mean-rps 3", "--mean-rps"),
    "zero demand": (f"{SIZE} {LENGTHS} --peak-rps 0", "--peak-rps"),
    "negative length": (f"{SIZE} --isl -200 --osl 50 --peak-rps 3", "--isl"),
    "context overflow": (f"{SIZE} --isl 8000 --osl 500 --peak-rps 3", "8,192"),
    "limit without a unit": (f"{SIZE} {LENGTHS} --peak-rps 3 --ttft p95<=3", "--ttft"),
    "impossible limit": (f"{SIZE} {LENGTHS} --peak-rps 3 --e2e p95<=0s", "--e2e"),
    "limit given twice": (f"{SIZE} {LENGTHS} --peak-rps 3 --ttft p95<=3s --ttft p95<=2s", "twice"),
    "TP that no system has": (f"{SIZE} --tp 3 {LENGTHS} --peak-rps 3", "--tp"),
    "negative seed": (f"{SIZE} {LENGTHS} --peak-rps 3 --seed -1", "--seed"),
    "no such benchmark file": (
        f"{SIZE} {LENGTHS} --peak-rps 3 --benchmarks nowhere.csv",
        "nowhere.csv",
    ),
    "price of a benchmark": ("size --benchmarks nowhere.csv --peak-rps 3 --price pue=1", "--price"),
    "passages of a benchmark": (
        "size --benchmarks nowhere.csv --peak-rps 3 --retrieved 5x400",
        "--retrieved",
    ),
    "no load": (SIMULATE, "--concurrency"),
    "a cap of several instances": (
        f"{SIMULATE} --concurrency 3 --request-rate 3 --instances 2",
        "--concurrency",
    ),
    "half a client": (f"{SIMULATE} --concurrency 1.5", "--concurrency"),
    "no requests": (f"{SIMULATE} --concurrency 1 --requests 0", "--requests"),
    "window of an open loop": (f"{SIMULATE} --request-rate 1 --window 10s", "--window"),
    "speculation without numbers": (
        f"{SIMULATE} --request-rate 1 --speculation eagle",
        "acceptance=0.7",
    ),
    "speculation of a plan without numbers": (
        f"{SIZE} {LENGTHS} --peak-rps 3 --speculation 'eagle k=3'",
        "--speculation",
    ),
    "more guesses than any engine makes": (
        f"{SIMULATE} --request-rate 1 --speculation 'mtp k=99 acceptance=1'",
        "1 to 16",
    ),
    "an unknown draft model": (
        "memory --model llama-3-8b --speculation 'draft=x k=3 acceptance=0.5'",
        "'x'",
    ),
    "speculation of static batches": (
        f"{SIMULATE} --concurrency 1 --batcher static --speculation 'ngram k=3 acceptance=0.5'",
        "in-flight",
    ),
    "an interval of another engine": (
        f"{SIMULATE} --request-rate 1 --receive-interval 30",
        "--engine sglang",
    ),
    "another's wait": (
        f"{SIMULATE} --request-rate 1 --engine vllm --batch-wait-steps 20 --batch-wait-ratio 0.9",
        "TensorRT-LLM does",
    ),
    "a wait without its ratio": (
        f"{SIMULATE} --request-rate 1 --batch-wait-steps 20",
        "go together",
    ),
    "a ratio above all": (
        f"{SIMULATE} --request-rate 1 --batch-wait-steps 20 --batch-wait-ratio 2",
        "write 0 to 1",
    ),
    "precision that the GPU lacks": (
        f"{SIMULATE} --request-rate 1 --gpu a100-sxm-80gb --precision fp8",
        "fp8",
    ),
    "TP that the heads do not allow": (f"{SIMULATE} --request-rate 1 --tp 3", "--tp"),
    "weights that do not fit": (
        f"simulate --model llama-3-70b {LENGTHS} --request-rate 1",
        "do not fit 1 × 80 GB",
    ),
    "lesson flag without the lesson": (f"{SIMULATE} --request-rate 1 --slots 4", "--ticks"),
    "engine flag in the lesson": ("simulate --ticks --gpu h100", "--gpu"),
    "two sweeps in the lesson": ("simulate --ticks --concurrency 1,2 --slots 2,4", "--concurrency"),
    "memory of nothing": ("memory --model llama-3-8b --isl 0", "--isl"),
    "catalog without a match": ("catalog zzzz", "zzzz"),
    "no such measured file": ("score nowhere.csv", "nowhere.csv"),
    "nothing to calibrate on": ("calibrate", "points.csv"),
    "a folder without points": ("calibrate src", "src"),
    "coefficients that are not there": (
        f"{SIMULATE} --request-rate 1 --coefficients nowhere.json",
        "nowhere.json",
    ),
    "coefficients that are none": (
        f"{SIMULATE} --request-rate 1 --coefficients README.md",
        "README.md",
    ),
    "coefficients of the lesson": ("simulate --ticks --coefficients my.json", "--coefficients"),
}


def line_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, hold it to its contract, and give back its one line."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if "compiling" not in line]
    assert captured.out == ""
    assert len(lines) == 1
    assert lines[0].startswith("tonnage: ")
    return lines[0]


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, hint = CASES[name]
    assert hint in line_of(shlex.split(arguments), capsys)


def lines_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run a command whose input has several faults, and give back its lines."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if "compiling" not in line]
    assert captured.out == ""
    assert all(line.startswith("tonnage: ") for line in lines)
    return [line.removeprefix("tonnage: ") for line in lines]


def test_every_bad_flag_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    flags = (
        "--model lama --gpu h1000,h100 --isl x --osl 9 --ttft 3 --peak-percentile 95 --tp 0"
        " --have dgx"
    )
    found = lines_of(
        ["size", *flags.split(), "--spare", "-1", "--price", "pue=0", "--where", "home"], capsys
    )
    hints = [
        "'lama'",
        "--isl: 'x'",
        "--peak-rps",
        "--ttft: '3'",
        "'h1000'",
        "--have: 'dgx'",
        "--tp: '0'",
        "--spare",
        "pue",
        "--where",
    ]
    assert len(found) == len(hints)
    assert all(any(hint in line for line in found) for hint in hints)


SCENARIO = """
model: lama-3-8b
lengths: {isl: 3000 furlongs, osl: 200}
demand: {peak_rps: 0}
limits: {ttft: p95<=500, e2e: [p95<=1s, p95<=2s]}
mode: streaming
prices: {systems: {dgx-h100: 0}, hosting: 3}
have: 3 pigs
"""


def test_every_fault_of_a_scenario_is_named_at_once_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    found = lines_of(["size", str(path), "--peak-rps", "-3"], capsys)
    assert [line.removeprefix(f"{path}: ").split(":")[0] for line in found] == [
        "model",
        "lengths.isl",
        "--peak-rps",
        "limits.ttft",
        "limits.e2e",
        "have",
        "prices.hosting",
        "prices.systems.dgx-h100",
    ]


TROUBLE: dict[str, tuple[str, str]] = {
    "TTFT above E2E": (
        "limits: {ttft: p95<=2s, e2e: p95<=1s}",
        "limits.ttft: TTFT p95 ≤ 2 s contradicts E2E p95 ≤ 1 s",
    ),
    "TTFT in sequential mode": (
        "limits: {ttft: p95<=2s}\nmode: sequential",
        "mode: sequential contradicts the limit TTFT p95 ≤ 2 s",
    ),
    "limits on a job": (
        "limits: {e2e: p95<=2s}\nmode: offline",
        "mode: offline contradicts the limit E2E",
    ),
    "a job without one": ("mode: offline", "mode: offline asks for a job"),
    "growth without a time": (
        "growth: 3%",
        "growth: '3%' says no time; write for example 3%/month or 3%/year",
    ),
    "growth of systems without a time": (
        "have: 1xdgx-h100\ngrowth: 3%",
        "growth: '3%' says no time",
    ),
    "a use case that is a job": (
        "use_case: offline",
        "use_case: offline asks for a job; give demand.requests and demand.within",
    ),
    "another place": ("where: [on-prem, moon]", "where: 'moon' is not a place"),
    "unknown key": ("modle: x", "modle: unknown key; did you mean mode or model?"),
    "prices that are none": ("prices: nowhere.yaml", "prices: "),
    "no such trace": ("search: {cv: 0}", "search.cv: 0 is not"),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_contradictions_of_a_scenario(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra, says = TROUBLE[name]
    path = tmp_path / "s.yaml"
    path.write_text(
        f"model: llama-3-8b\nlengths: {{isl: 200, osl: 50}}\ndemand: {{peak_rps: 3}}\n{extra}\n",
        encoding="utf-8",
    )
    found = lines_of(["size", str(path)], capsys)
    assert len(found) == 1
    assert found[0].startswith(f"{path}: {says}")


def test_every_bad_line_of_a_trace_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,isl,osl\n0,100,10\n1,-5,10\n0.5,100,10\n", encoding="utf-8")
    found = lines_of(["size", "--model", "llama-3-8b", "--trace", str(path)], capsys)
    assert [line.split("trace.csv:")[1].split(":")[0] for line in found] == ["3", "4"]


CONFIGS: dict[str, object] = {
    "not JSON": "{",
    "a list": "[]",
    "another kind": json.dumps(
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}
    ),
    "negative layers": json.dumps({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": -3}),
    "bytes": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_config_that_is_no_decoder_is_refused(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    content = CONFIGS[kind]
    path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    assert "config.json" in line_of(
        ["size", "--model", str(path), *LENGTHS.split(), "--peak-rps", "1"], capsys
    )


MEASURED = "model,gpu,precision,tp,isl,osl,concurrency,ttft_ms,requests_s\n"
TABLES = {
    "empty": "",
    "header alone": MEASURED,
    "word for a number": MEASURED + "llama-3-8b,h100,fp8,1,2000,200,1,fast,0.8\n",
    "negative": MEASURED + "llama-3-8b,h100,fp8,1,2000,200,1,-3,0.8\n",
    "ragged": MEASURED + "llama-3-8b,h100\n",
    "no such column": "model,speed\nllama-3-8b,3\n",
}


@pytest.mark.parametrize("verb", ["size", "score"])
@pytest.mark.parametrize("kind", TABLES)
def test_broken_table_is_refused(
    verb: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(TABLES[kind], encoding="utf-8")
    command = (
        ["score", str(path)]
        if verb == "score"
        else ["size", "--benchmarks", str(path), "--peak-rps", "3"]
    )
    assert "measured.csv" in line_of(command, capsys)


WORDS = st.one_of(
    st.text(max_size=12).filter(lambda t: not t.startswith("-")),
    st.sampled_from(
        [
            "-1",
            "0",
            "nan",
            "inf",
            "1e400",
            "1,2",
            "p95<=1s",
            "llama-3-8b",
            "fp8",
            "h100",
            "1" * 50,
            "±",
            "uniform:9-1",
            "\x00",
        ]
    ),
)
FLAGS = st.sampled_from(
    [
        "--isl",
        "--osl",
        "--gpu",
        "--peak-rps",
        "--ttft",
        "--precision",
        "--tp",
        "--engine",
        "--mean-rps",
        "--model",
    ]
)


@settings(examples(0.25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flag=FLAGS, word=WORDS, other=FLAGS, another=WORDS)
def test_fuzzed_flags_never_crash(
    flag: str, word: str, other: str, another: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No --peak-rps is among the fixed flags, so that a question is complete only by rare luck."""
    code = run(
        [
            "size",
            "--model",
            "gpt-j-6b",
            "--isl",
            "64",
            "--osl",
            "2",
            "--tp",
            "1",
            "--gpu",
            "t4",
            flag,
            word,
            other,
            another,
        ]
    )
    captured = capsys.readouterr()
    assert code in (0, 2, 3)
    if code == 2:
        lines = [line for line in captured.err.splitlines() if "compiling" not in line]
        assert captured.out == ""
        assert lines
        assert all(line.startswith("tonnage: ") for line in lines)


def test_a_used_folder_is_refused_before_anything_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("keep me", encoding="utf-8")
    assert "new folder" in line_of(
        [*SIMULATE.split(), "--request-rate", "1,2", "--output", str(tmp_path)], capsys
    )
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_an_unknown_key_does_not_hide_the_other_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "model: llama-3-8b\ncolour: red\nlengths: {isl: 2000 bananas, osl: -5}\ndemand: {peak_rps:"
        " 10}\n",
        encoding="utf-8",
    )
    assert run(["size", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [
        any(place in line for line in lines) for place in ("colour", "lengths.isl", "lengths.osl")
    ] == [True] * 3
