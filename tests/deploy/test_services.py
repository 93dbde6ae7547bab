"""A service of models that are not LLMs as files for Triton and KServe."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.test_triton import PARSE
from tonnage.cli.main import run

FILE = "examples/services/image-search.yaml"
pytestmark = pytest.mark.usefixtures("plans_of_this_run")


def written(folder: Path, file: str | Path, target: str = "triton") -> dict[str, str]:
    assert run(["deploy", str(file), "--target", target, "--output", str(folder)]) == 0
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_repository_holds_the_settings_and_the_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written(tmp_path / "out", FILE)
    assert "3 servers of 1 GPU:" in capsys.readouterr().out
    encoder, search = (
        files["repository/encoder/config.pbtxt"],
        files["repository/search/config.pbtxt"],
    )
    for said in (
        'backend: "tensorrt"',
        "max_batch_size: 8",
        "max_queue_delay_microseconds: 500",
        "dims: [ 1, 32, 100 ]",
        "count: 1",
    ):
        assert said in encoder
    assert "preferred_batch_size: [ 4, 8 ]" in files["repository/ranker/config.pbtxt"]
    assert search.index('model_name: "encoder"') < search.index('model_name: "ranker"')
    assert 'value: "0_encoder_embedding"' in search
    page = files["README.md"]
    assert "--saveEngine=repository/encoder/1/model.plan --minShapes=image:1x1x32x100" in page
    assert "--model search --items 1 --request-rate 1333.33" in page
    assert "--model encoder --items 1,2,4,8 --concurrency 1" in page


@pytest.mark.parametrize("target", ["triton", "kserve"])
def test_a_shell_takes_the_name_of_the_file_as_one_word(target: str, tmp_path: Path) -> None:
    file = tmp_path / "A b; touch canary; $(touch canary) 'x.yaml"
    document = yaml.safe_load(Path(FILE).read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump({**document, "latency": []}), encoding="utf-8")
    files = written(tmp_path / "out", file, target)
    (line,) = [line for line in files["README.md"].splitlines() if "touch canary" in line]
    assert shlex.split(line)[:3] == ["tonnage", "calibrate", file.name]
    assert "a-b-touch-canary-touch-canary-x" in files["README.md"]
    if target == "kserve":
        metadata = yaml.safe_load(files["inference-service.yaml"])["metadata"]
        assert metadata["name"] == "a-b-touch-canary-touch-canary-x"


def test_kserve_starts_as_many_tritons(tmp_path: Path) -> None:
    files = written(tmp_path / "out", FILE, "kserve")
    predictor = yaml.safe_load(files["inference-service.yaml"])["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (3, 3)
    assert predictor["model"]["storageUri"] == "pvc://image-search-models/repository"
    assert yaml.safe_load(files["models-volume.yaml"])["metadata"]["name"] == "image-search-models"
    assert files["repository/encoder/config.pbtxt"].startswith('name: "encoder"')


BRANCHING = """
service:
  models:
    a: {time: {1: 1ms}, backend: onnxruntime}
    b: {time: {1: 1ms}, backend: onnxruntime, max_batch_size: 1, dynamic_batching: {}, search: {max_batch_size: [1, 4]}}
  pipelines: {p: [a, {model: b, share: 0.5}]}
traffic: [{to: p, rate: 10}]
latency: p99<=100ms
"""


def test_a_pipeline_that_branches_is_a_script_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "branching.yaml"
    file.write_text(BRANCHING, encoding="utf-8")
    files = written(tmp_path / "out", file)
    assert "repository/p/config.pbtxt" not in files
    assert "p branches or loops, which no ensemble can" in files["README.md"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            ", backend: onnxruntime}",
            "}",
            "service.models.a.backend: is missing or unknown; write one of onnxruntime",
        ),
        (
            "{model: b, share: 0.5}",
            "b",
            "service.models.a.inputs: missing; the pipeline p needs them",
        ),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    file = tmp_path / "lacking.yaml"
    file.write_text(BRANCHING.replace(old, new), encoding="utf-8")
    assert run(["deploy", str(file), "--target", "triton", "--output", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.install
def test_tritons_own_schema_reads_every_config(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "protobuf", "tritonclient"], check=True
    )
    written(tmp_path / "out", FILE)
    done = subprocess.run(
        [str(python), "-c", PARSE, str(tmp_path / "out/repository")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["encoder"]["dynamic_batching"] == {"max_queue_delay_microseconds": "500"}
    assert found["encoder"]["input"] == [
        {"name": "image", "data_type": "TYPE_FP32", "dims": ["1", "32", "100"]}
    ]
    steps = found["search"]["ensemble_scheduling"]["step"]
    assert steps[0]["output_map"] == {"embedding": "0_encoder_embedding"}
    assert steps[1]["input_map"] == {"query": "0_encoder_embedding"}
