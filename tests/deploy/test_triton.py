"""Triton's model repository: what stands in it, and that Triton's own schema reads it (./check --install)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.deploy.service import service_of
from tonnage.deploy.targets import target_files

NAME = "llama-3-1-8b"
PARSE = """
import importlib.util, json, pathlib, sys
from google.protobuf import json_format, text_format
path = next(p for root in sys.path for p in pathlib.Path(root).glob("tritonclient/grpc/model_config_pb2.py"))
spec = importlib.util.spec_from_file_location("model_config_pb2", path)
read = importlib.util.module_from_spec(spec)
spec.loader.exec_module(read)
found = {}
for file in sorted(pathlib.Path(sys.argv[1]).glob("*/config.pbtxt")):
    config = text_format.Parse(file.read_text(encoding="utf-8"), read.ModelConfig())
    found[file.parent.name] = json_format.MessageToDict(config, preserving_proto_field_name=True)
print(json.dumps(found))
"""


def files(engine: str) -> dict[str, str]:
    return target_files(service_of(dense(engine), checkpoint=DENSE_CHECKPOINT), "triton")


@pytest.mark.install
@pytest.mark.parametrize("engine", ["vllm-0.32", "tensorrt-llm-1.2"])
def test_tritons_own_schema_reads_every_config(engine: str, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "protobuf", "tritonclient"], check=True)
    written = files(engine)
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run([str(python), "-c", PARSE, str(tmp_path / "repository")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {name.split("/")[1] for name in written if name.endswith("config.pbtxt")}
    if engine == "vllm-0.32":
        assert found[NAME]["instance_group"] == [{"kind": "KIND_MODEL", "count": 1}]
        assert found[NAME]["model_transaction_policy"] == {"decoupled": True}
    else:
        steps = found[NAME]["ensemble_scheduling"]["step"]
        made = {value for step in steps for value in step["output_map"].values()}
        assert {value for step in steps for value in step["input_map"].values()} <= made | {"text_input", "max_tokens", "stream"}
        assert found[f"{NAME}-engine"]["model_transaction_policy"] == {"decoupled": True}
        batching = found[f"{NAME}-tokenize"]["dynamic_batching"]
        assert batching["default_queue_policy"]["max_queue_size"] == 200
        assert found[f"{NAME}-engine"]["max_batch_size"] == 2_048
        for step in steps:
            inputs = {one["name"] for one in found[step["model_name"]]["input"]}
            assert set(step["input_map"]) == inputs
