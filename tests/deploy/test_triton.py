"""Triton's model repository: what stands in it, and that Triton's own schema reads it (./check
--install)."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.deploy import triton
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
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "protobuf", "tritonclient"], check=True
    )
    written = files(engine)
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [str(python), "-c", PARSE, str(tmp_path / "repository")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {name.split("/")[1] for name in written if name.endswith("config.pbtxt")}
    if engine == "vllm-0.32":
        assert found[NAME]["instance_group"] == [{"kind": "KIND_MODEL", "count": 1}]
        assert found[NAME]["model_transaction_policy"] == {"decoupled": True}
    else:
        steps = found[NAME]["ensemble_scheduling"]["step"]
        made = {value for step in steps for value in step["output_map"].values()}
        assert {
            value for step in steps for value in step["input_map"].values()
        } <= made | PUBLISHED_ENSEMBLE.keys()
        assert found[f"{NAME}-engine"]["model_transaction_policy"] == {"decoupled": True}
        batching = found[f"{NAME}-tokenize"]["dynamic_batching"]
        assert batching["default_queue_policy"]["max_queue_size"] == 200
        assert found[f"{NAME}-engine"]["max_batch_size"] == 2_048
        for step in steps:
            inputs = {one["name"] for one in found[step["model_name"]]["input"]}
            assert set(step["input_map"]) == inputs


# What TensorRT-LLM's backend publishes of its model: name, type, dims, optional.
# NVIDIA/TensorRT-LLM, triton_backend/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt at
# 0c8de69a, read 2026-11-28; those that are written here.
PUBLISHED_INPUTS = {
    "input_ids": ("TYPE_INT32", (-1,), True),
    "input_lengths": ("TYPE_INT32", (1,), False),
    "request_output_len": ("TYPE_INT32", (1,), False),
    "end_id": ("TYPE_INT32", (1,), True),
    "pad_id": ("TYPE_INT32", (1,), True),
    "stop_words_list": ("TYPE_INT32", (2, -1), True),
    "temperature": ("TYPE_FP32", (1,), True),
    "runtime_top_p": ("TYPE_FP32", (1,), True),
    "runtime_top_k": ("TYPE_INT32", (1,), True),
    "seed": ("TYPE_UINT64", (1,), True),
    "exclude_input_in_output": ("TYPE_BOOL", (1,), True),
    "streaming": ("TYPE_BOOL", (1,), True),
}
# with allow_ragged_batch; the others of one number have an empty reshape
RAGGED = {"input_ids", "stop_words_list"}
PUBLISHED_OUTPUTS = {
    "output_ids": ("TYPE_INT32", (-1, -1)),
    "sequence_length": ("TYPE_INT32", (-1,)),
}
# ensemble/config.pbtxt at 2a9abd95
PUBLISHED_ENSEMBLE = {
    "text_input": ("TYPE_STRING", (1,), False),
    "max_tokens": ("TYPE_INT32", (1,), False),
    "stop_words": ("TYPE_STRING", (-1,), True),
    "exclude_input_in_output": ("TYPE_BOOL", (1,), True),
    "end_id": ("TYPE_INT32", (1,), True),
    "pad_id": ("TYPE_INT32", (1,), True),
    "top_k": ("TYPE_INT32", (1,), True),
    "top_p": ("TYPE_FP32", (1,), True),
    "temperature": ("TYPE_FP32", (1,), True),
    "seed": ("TYPE_UINT64", (1,), True),
    "stream": ("TYPE_BOOL", (1,), True),
}
PUBLISHED_PARAMETERS = {
    *(
        "gpt_model_type",
        "gpt_model_path",
        "batch_scheduler_policy",
        "kv_cache_free_gpu_mem_fraction",
        "enable_chunked_context",
    ),
    *("exclude_input_in_output", "executor_worker_path"),
}
SERVICE = service_of(dense("tensorrt-llm-1.2"), checkpoint=DENSE_CHECKPOINT)
CONFIGS: dict[str, Any] = {
    NAME: triton.ensemble(SERVICE),
    f"{NAME}-tokenize": triton.tokenize(SERVICE),
    f"{NAME}-engine": triton.engine_model(SERVICE),
    f"{NAME}-detokenize": triton.detokenize(SERVICE),
}


def tensors(config: Any, side: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {one["name"]: (one["data_type"].name, tuple(one["dims"])) for one in config[side]}


def inputs(config: Any) -> dict[str, tuple[str, tuple[int, ...], bool]]:
    return {
        one["name"]: (one["data_type"].name, tuple(one["dims"]), one.get("optional", False))
        for one in config["input"]
    }


def test_the_engine_and_the_ensemble_have_the_tensors_that_the_backend_publishes() -> None:
    engine = CONFIGS[f"{NAME}-engine"]
    assert inputs(engine) == PUBLISHED_INPUTS
    assert {one["name"] for one in engine["input"] if one.get("allow_ragged_batch")} == RAGGED
    assert {
        one["name"] for one in engine["input"] if one.get("reshape") == {"shape": []}
    } == PUBLISHED_INPUTS.keys() - RAGGED
    assert tensors(engine, "output") == PUBLISHED_OUTPUTS
    assert inputs(CONFIGS[NAME]) == PUBLISHED_ENSEMBLE
    written = {one["key"]: one["value"]["string_value"] for one in engine["parameters"]}
    assert written.keys() == PUBLISHED_PARAMETERS
    assert written["exclude_input_in_output"] == "true"


def test_the_tensors_of_the_ensemble_fit_each_other() -> None:
    """Each is of one type and shape wherever it goes, every needed input is there, and nothing is
    read before it is made."""
    kinds = {name: (kind, dims) for name, (kind, dims, _) in inputs(CONFIGS[NAME]).items()}
    optional = {name for name, (_, _, optional) in inputs(CONFIGS[NAME]).items() if optional}
    for step in CONFIGS[NAME]["ensemble_scheduling"]["step"]:
        model = CONFIGS[step["model_name"]]
        taken = {pair["key"]: pair["value"] for pair in step["input_map"]}
        assert taken.keys() == inputs(model).keys()
        for name, (kind, dims, may_lack) in inputs(model).items():
            assert kinds[taken[name]] == (kind, dims), (step["model_name"], name)
            assert may_lack or taken[name] not in optional
        made = tensors(model, "output")
        assert {pair["key"] for pair in step["output_map"]} == made.keys()
        kinds |= {pair["value"]: made[pair["key"]] for pair in step["output_map"]}
    assert kinds["text_output"] == tensors(CONFIGS[NAME], "output")["text_output"]


class Tensor:
    """Triton's own, as far as the models use it."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def as_numpy(self) -> Any:
        return self.value


def loaded(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A written model in Python, with the tokenizer of a folder."""
    utils: Any = ModuleType("triton_python_backend_utils")
    utils.Tensor, utils.InferenceResponse = (
        Tensor,
        lambda made: {one.name: one.value for one in made},
    )
    utils.get_input_tensor_by_name = lambda request, which: (
        Tensor(which, request[which]) if which in request else None
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    scope: dict[str, Any] = {}
    exec(compile(files("tensorrt-llm-1.2")[f"repository/{name}/1/model.py"], name, "exec"), scope)
    model = scope["TritonPythonModel"]()
    config = {"parameters": {one["key"]: one["value"] for one in CONFIGS[name]["parameters"]}}
    model.initialize({"model_config": json.dumps(config), "model_repository": str(folder / name)})
    return model


WORDS = ["<unk>", "</s>", "<eot>", "one", "two", "three", "stop", "now"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a tokenizer of eight words, of which two end an answer."""
    (tmp_path / "tokenizer").mkdir()
    tokenizer = Tokenizer(
        WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<unk>", "</s>", "<eot>"])
    tokenizer.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    (tmp_path / "tokenizer" / "generation_config.json").write_text(
        '{"eos_token_id": [1, 2], "pad_token_id": 0}', encoding="utf-8"
    )
    return tmp_path


def simulated(inputs: dict[str, Any], answer: list[int]) -> Iterator[dict[str, Any]]:
    """A decoupled engine: a token a response, until the end token, a stop word or the most tokens,
    all as its inputs say."""
    flat, ends = inputs["stop_words_list"][0]
    places = [0, *(int(end) for end in ends if end >= 0)]
    stops = [tuple(flat[begin:end].tolist()) for begin, end in itertools.pairwise(places)]
    made: list[int] = []
    for token in answer[: int(inputs["request_output_len"][0, 0])]:
        made.append(token)
        yield {
            "output_ids": np.array([[[token]]], np.int32),
            "sequence_length": np.array([[1]], np.int32),
        }
        if token == int(inputs["end_id"][0, 0]) or any(
            tuple(made[-len(stop) :]) == stop for stop in stops if stop
        ):
            return


def streamed(
    request: dict[str, Any], answer: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The pieces of text that the ensemble streams, by its own maps, with a simulated engine."""
    tokenize, engine, detokenize = CONFIGS[NAME]["ensemble_scheduling"]["step"]
    models = {
        name: loaded(f"{NAME}-{name}", folder, monkeypatch) for name in ("tokenize", "detokenize")
    }
    values = dict(request)

    def of(step: Any) -> dict[str, Any]:
        return {
            pair["key"]: values[pair["value"]]
            for pair in step["input_map"]
            if pair["value"] in values
        }

    (first,) = models["tokenize"].execute([of(tokenize)])
    values |= {pair["value"]: first[pair["key"]] for pair in tokenize["output_map"]}
    pieces = []
    for response in simulated(of(engine), answer):
        values |= {pair["value"]: response[pair["key"]] for pair in engine["output_map"]}
        (text,) = models["detokenize"].execute([of(detokenize)])
        pieces.append(text["TEXT_OUTPUT"][0][0].decode())
    return pieces


def asking(**more: Any) -> dict[str, Any]:
    return {
        "text_input": np.array([[b"one two"]], object),
        "max_tokens": np.array([[9]], np.int32),
        **more,
    }


@pytest.mark.parametrize(
    ("more", "answer", "pieces"),
    [
        ({}, [3, 4, 1, 5, 5], ["one", "two", ""]),  # the model's end token
        ({}, [3, 2, 5, 5], ["one", ""]),  # its other end token, as a stop word
        # the request's own
        ({"end_id": np.array([[5]], np.int32)}, [3, 1, 5, 4], ["one", "", "three"]),
        (
            {"stop_words": np.array([[b"stop now", b"two"]], object)},
            [3, 6, 3, 6, 7, 5],
            ["one", "stop", "one", "stop", "now"],
        ),
        ({"stop_words": np.array([[b"stop now", b"two"]], object)}, [3, 4, 5], ["one", "two"]),
        ({"max_tokens": np.array([[2]], np.int32)}, [3, 4, 5], ["one", "two"]),
    ],
)
def test_a_stream_ends_at_its_end(
    more: dict[str, Any],
    answer: list[int],
    pieces: list[str],
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert streamed(asking(**more), answer, repository, monkeypatch) == pieces


def test_stop_words_are_laid_out_as_the_engine_reads_them(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(f"{NAME}-tokenize", repository, monkeypatch)
    rows = {
        "TEXT": np.array([[b"one"], [b"two three"]], object),
        "MAX_TOKENS": np.array([[1], [2]]),
    }
    (made,) = model.execute(
        [{**rows, "STOP_WORDS": np.array([[b"stop now", b"two"], [b"three", b""]], object)}]
    )
    assert made["STOP_WORDS_IDS"].tolist() == [
        [[2, 6, 7, 4], [1, 3, 4, -1]],
        [[2, 5, 0, 0], [1, 2, -1, -1]],
    ]
    assert made["INPUT_IDS"].tolist() == [[3, 0], [4, 5]]
    assert made["OUT_END_ID"].tolist() == [[1], [1]]
    assert made["OUT_PAD_ID"].tolist() == [[0], [0]]
    (without,) = model.execute([rows])
    assert without["STOP_WORDS_IDS"].tolist() == [[[2], [1]], [[2], [1]]]
    assert all(made[name].dtype == np.int32 for name in made)
