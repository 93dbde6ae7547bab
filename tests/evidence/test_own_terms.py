"""Terms of a user's own loads, on hardware and a model that no catalog has: they come back from
runs that were made with them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.questions import plans_with
from tonnage import api
from tonnage.api.question.deployment import deployment_of
from tonnage.cli.main import run
from tonnage.errors import InputError, InputErrors
from tonnage.evidence.calibrate import CalibrationReport
from tonnage.evidence.sample import FEWEST_LOADS, WIDTH
from tonnage.perf.terms import step_model
from tonnage.spec.calibration import OWN_TERMS, read_calibration

few_parts = plans_with()

TRUTH = {
    "compute": 0.55,
    "memory": 0.6,
    "attention": 0.3,
    "kv_bandwidth": 0.5,
    "step_s": 0.0023,
    "sequence_s": 0.00021,
    "prefill_s": 0.004,
    "frontend_s": 0.009,
    "turnaround_s": 0.0005,
}
HARDWARE = "name: one-core\nfp16_tflops: 0.4\nmemory_gb: 8\nmemory_bandwidth_gb_s: 25\n"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 8000,
    "max_position_embeddings": 4096,
}
SHORT = {"isl": "uniform:64-192", "osl": "uniform:32-96"}
LONG = {"isl": "uniform:256-640", "osl": "uniform:16-48"}


class Machine:
    """Hardware and a model of one's own, with files that say what they are, and a calibration that
    says what is true of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hardware, self.model, self.truth = (
            folder / "core.yaml",
            folder / "tiny" / "config.json",
            folder / "truth.json",
        )
        self.model.parent.mkdir()
        self.hardware.write_text(HARDWARE, encoding="utf-8")
        self.model.write_text(json.dumps(CONFIG), encoding="utf-8")
        told = {
            "schema": "tonnage.calibration/1",
            "preset": "vllm",
            "gpu": "one-core",
            "multipliers": {},
            "terms": TRUTH,
            "data": "truth",
        }
        self.truth.write_text(json.dumps(told), encoding="utf-8")
        self.what = {
            "model": str(self.model),
            "gpu": str(self.hardware),
            "precision": "bf16",
            "tp": 1,
            "engine": "vllm",
        }

    def measure(self, name: str, clients: str, requests: int, **lengths: Any) -> Path:
        """Run folders as a benchmark of this machine leaves them."""
        runs = api.simulate_sweep(
            **self.what, coefficients=self.truth, concurrency=clients, requests=requests, **lengths
        )
        api.write_runs(self.folder / name, runs, {"seed": 0})
        return self.folder / name


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def folders(machine: Machine) -> list[Path]:
    return [
        machine.measure("short", "1,2,4,8,16,32", 160, **SHORT),
        machine.measure("long", "1,4,12", 60, **LONG),
    ]


@pytest.fixture(scope="module")
def report(machine: Machine, folders: list[Path]) -> CalibrationReport:
    return api.calibrate(folders, output=machine.folder / "my.json", **machine.what)


def test_the_terms_come_back(report: CalibrationReport) -> None:
    """What the loads determine is near the truth, and the rest is within its own widths of it."""
    assert report.kept
    assert report.own
    assert report.units == "load"
    assert report.points == 9
    for name, width in report.shrinkage.items():
        off = abs(math.log(report.factors[name] / TRUTH[name]))
        assert off < 2.5 * width * WIDTH, (name, report.factors[name])
        if width < 0.5:
            assert off < 0.15, (name, report.factors[name])
    assert {name for name, width in report.shrinkage.items() if width < 0.5} >= {
        "compute",
        "sequence_s",
    }
    assert max(report.after[name] for name in ("e2e_ms", "itl_ms", "requests_s")) < 2.0
    assert max(report.left_out[name] for name in ("e2e_ms", "itl_ms")) < 3.0
    assert report.before["e2e_ms"] > 20


@pytest.mark.parametrize(
    "step",
    [
        (0, 0, 1, 0, 128),
        (0, 0, 32, 0, 4096),
        (128, 1, 3, 128**2, 400),
        (640, 2, 8, 2 * 320**2, 2400),
    ],
)
def test_the_steps_come_back(
    machine: Machine, report: CalibrationReport, step: tuple[int, int, int, int, int]
) -> None:
    """Weights and host cannot be told apart by one model, but their sum can; part of a lone
    prompt's step may pass for front end."""
    true, mine = (
        step_model(deployment_of(**machine.what, coefficients=file)).seconds(*step)
        for file in (machine.truth, machine.folder / "my.json")
    )
    assert mine == pytest.approx(true, rel=0.05 if step[0] == 0 else 0.1)


def test_a_load_that_was_not_used_is_predicted_and_its_interval_is_narrow_and_holds_it(
    machine: Machine, report: CalibrationReport
) -> None:
    unseen = {"isl": "uniform:128-384", "osl": "uniform:24-72", "concurrency": 6, "requests": 120}
    true, mine, without = (
        api.simulate(**machine.what, **unseen, **({"coefficients": file} if file else {})).to_json()
        for file in (machine.truth, machine.folder / "my.json", None)
    )
    for metric in ("e2e_ms", "tpot_ms"):
        assert mine[metric]["mean"] == pytest.approx(true[metric]["mean"], rel=0.05)
        (low, high), (far, wide) = (found["intervals"][metric] for found in (mine, without))
        assert low <= true[metric]["mean"] <= high
        assert math.log(high / low) < 0.5 * math.log(wide / far)
    assert mine["marks"] == [f"terms fitted to {read_calibration(machine.folder / 'my.json').data}"]
    assert any("no measurements" in mark for mark in without["marks"])


def test_size_takes_hardware_model_and_terms(
    machine: Machine, report: CalibrationReport, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "size",
        "--model",
        str(machine.model),
        "--gpu",
        str(machine.hardware),
        "--precision",
        "bf16",
        "--tp",
        "1",
        "--engine",
        "vllm",
    ]
    load = ["--isl", "128", "--osl", "64", "--peak-rps", "20", "--ttft", "p95<=2s", "--json"]
    code = run([*asked, "--coefficients", str(machine.folder / "my.json"), *load])
    plan = json.loads(capsys.readouterr().out)
    assert code == 0
    assert plan["choice"]["gpu"] == "one-core"
    assert plan["scenario"]["model"] == "tiny"
    carried = plan["choice"]["requests_per_second_per_instance"]
    code = run([*asked, "--coefficients", str(machine.truth), *load])
    true = json.loads(capsys.readouterr().out)
    assert code == 0
    assert carried == pytest.approx(true["choice"]["requests_per_second_per_instance"], rel=0.06)


def test_the_command_says_what_it_fitted(
    machine: Machine, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [part for name, value in machine.what.items() for part in (f"--{name}", str(value))]
    assert run(["calibrate", *map(str, folders), *flags, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["terms"]) == set(OWN_TERMS) - {"allreduce_s"}
    assert document["multipliers"] == {}
    assert document["left_out_by"] == "load"
    assert "terms of its own" in document["verdict"][0]


def test_too_few_loads_are_refused_with_the_number(machine: Machine, folders: list[Path]) -> None:
    with pytest.raises(
        InputError, match=f"6 different loads; terms of one's own need at least {FEWEST_LOADS}"
    ):
        api.calibrate(folders[0], **machine.what)


def test_a_file_with_terms_and_factors_or_with_half_the_terms_is_refused(
    machine: Machine, tmp_path: Path
) -> None:
    told = json.loads(machine.truth.read_text())
    half = {name: value for name, value in TRUTH.items() if name != "step_s"}
    for change, says in (
        ({"multipliers": {"compute": 1.1}}, "either"),
        ({"terms": half}, "without step_s"),
        ({"terms": {**TRUTH, "compute": -1}}, "terms.compute"),
        ({"terms": {**TRUTH, "layer_s": 1e-6}}, "no term that is fitted by itself"),
    ):
        file = tmp_path / "bad.json"
        file.write_text(json.dumps({**told, **change}), encoding="utf-8")
        with pytest.raises(InputErrors, match=says):
            read_calibration(file)


def test_terms_of_one_gpu_say_nothing_of_another(machine: Machine) -> None:
    what = {
        "model": "llama-3-8b",
        "isl": 500,
        "osl": 50,
        "engine": "vllm",
        "concurrency": 4,
        "requests": 20,
    }
    plain = api.simulate(**what, gpu="h100-sxm-80gb").to_json()
    with_it = api.simulate(**what, gpu="h100-sxm-80gb", coefficients=machine.truth).to_json()
    assert with_it["e2e_ms"] == plain["e2e_ms"]
    assert any("of one-core alone" in mark for mark in with_it["marks"])


def test_hardware_of_an_unknown_generation_is_less_sure_than_an_unknown_gpu_of_a_known_one(
    machine: Machine, tmp_path: Path
) -> None:
    ada = tmp_path / "ada.yaml"
    ada.write_text(HARDWARE + "arch: Ada\n", encoding="utf-8")
    asked = {"isl": 128, "osl": 64, "concurrency": 4, "requests": 20}
    widths = []
    for gpu in (str(machine.hardware), str(ada)):
        low, high = api.simulate(**{**machine.what, "gpu": gpu}, **asked).to_json()["intervals"][
            "e2e_ms"
        ]
        widths.append(math.log(high / low))
    assert widths[0] > 1.2 * widths[1]
