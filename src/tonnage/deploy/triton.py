"""The files of a deployment with Triton on one machine.

Fields of ``config.pbtxt`` are those of ``protobuf/model_config.proto`` of Triton (read 2026-11-22).
Names, types and shapes of the tensors and the parameters of TensorRT-LLM's backend are those of
NVIDIA/TensorRT-LLM, triton_backend/all_models/inflight_batcher_llm (config.pbtxt of tensorrt_llm at
0c8de69a, of ensemble at 2a9abd95, of preprocessing at 08dc37e3; read 2026-11-28); those of vLLM's
are recalled.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from tonnage.deploy.checkpoint import source_of
from tonnage.deploy.monitoring import dashboard_text, rules
from tonnage.deploy.pbtxt import Said, Word, pbtxt
from tonnage.deploy.plan_text import (
    Rows,
    argv_notes,
    bench_command,
    compare_command,
    gpu_words,
    head,
    page_text,
    paragraph,
)
from tonnage.deploy.ray_serve import engine_arguments
from tonnage.deploy.service import Service
from tonnage.deploy.yaml_comments import noted, yaml_text
from tonnage.spec.precision import find_precision

STRING, INT32, BOOL = Word("TYPE_STRING"), Word("TYPE_INT32"), Word("TYPE_BOOL")
FP32, UINT64 = Word("TYPE_FP32"), Word("TYPE_UINT64")

# Inputs of a request that the engine takes as they are: its name of each, the ensemble's, and the
# type
SAMPLING = (
    ("temperature", "temperature", FP32),
    ("runtime_top_p", "top_p", FP32),
    ("runtime_top_k", "top_k", INT32),
    ("seed", "seed", UINT64),
    ("exclude_input_in_output", "exclude_input_in_output", BOOL),
    ("streaming", "stream", BOOL),
)

TEXT_BATCH = 64  # Texts that the tokenizer takes at once
# Longest that a text waits for others, in microseconds: far below any limit on the first token
DELAY_US = 1_000

Config = dict[str, Any]


def vllm_model(service: Service) -> Config:
    """VLLM's own backend: it batches by itself, so that Triton hands every request on."""
    return {
        "_": Said(f"vLLM's backend reads its arguments from 1/model.json.\n{argv_notes(service)}"),
        "name": service.name,
        "backend": "vllm",
        "max_batch_size": 0,
        "model_transaction_policy": {"decoupled": True},
        "input": [
            _tensor("text_input", STRING, 1),
            _tensor("stream", BOOL, 1, optional=True),
            _tensor("sampling_parameters", STRING, 1, optional=True),
        ],
        "output": [_tensor("text_output", STRING, -1)],
        "instance_group": [{"count": 1, "kind": Word("KIND_MODEL")}],
    }


def text_model(
    service: Service,
    name: str,
    *,
    inputs: list[Config],
    outputs: list[Config],
    in_order: bool = False,
) -> Config:
    """A model in Python before or behind the engine, batched; ``in_order``: answers leave in the
    order of requests, as a stream must.
    """
    queue = {
        "timeout_action": Word("REJECT"),
        "default_timeout_microseconds": int(1e6 * service.drain_seconds),
        "allow_timeout_override": True,
        "max_queue_size": _queue(service),
    }
    return {
        "name": f"{service.name}-{name}",
        "backend": "python",
        "max_batch_size": TEXT_BATCH,
        "input": inputs,
        "output": outputs,
        "dynamic_batching": {
            "preferred_batch_size": [8, 32],
            "max_queue_delay_microseconds": DELAY_US,
            **({"preserve_ordering": True} if in_order else {}),
            "priority_levels": 2,
            "default_priority_level": 2,
            "default_queue_policy": queue,
        },
        "instance_group": [{"count": max(1, service.cpus // 4), "kind": Word("KIND_CPU")}],
        "parameters": [{"key": "tokenizer", "value": {"string_value": "tokenizer/tokenizer.json"}}],
    }


def tokenize(service: Service) -> Config:
    """Text to tokens."""
    return text_model(
        service,
        "tokenize",
        inputs=[
            *(
                _tensor("TEXT", STRING, 1),
                _tensor("MAX_TOKENS", INT32, 1),
                _tensor("STOP_WORDS", STRING, -1, optional=True),
            ),
            *(_tensor(name, INT32, 1, optional=True) for name in ("END_ID", "PAD_ID")),
        ],
        outputs=[
            *(
                _tensor("INPUT_IDS", INT32, -1),
                _tensor("INPUT_LENGTHS", INT32, 1),
                _tensor("REQUEST_OUTPUT_LEN", INT32, 1),
            ),
            *(
                _tensor("STOP_WORDS_IDS", INT32, 2, -1),
                _tensor("OUT_END_ID", INT32, 1),
                _tensor("OUT_PAD_ID", INT32, 1),
            ),
        ],
    )


def detokenize(service: Service) -> Config:
    """Tokens to text."""
    return text_model(
        service,
        "detokenize",
        inputs=[_tensor("OUTPUT_IDS", INT32, -1, -1), _tensor("SEQUENCE_LENGTH", INT32, -1)],
        outputs=[_tensor("TEXT_OUTPUT", STRING, -1)],
        in_order=True,
    )


def engine_model(service: Service) -> Config:
    """TensorRT-LLM's backend on a compiled engine, batching in flight."""
    knobs = service.pool.knobs
    parameters = {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": f"engines/tp{service.pool.tp}",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "kv_cache_free_gpu_mem_fraction": f"{knobs.kv_fraction:g}" if knobs else "0.9",
        "enable_chunked_context": "true" if knobs and knobs.chunked_prefill else "false",
        "exclude_input_in_output": "true",
        "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
    }
    return {
        "_": Said(argv_notes(service)),
        "name": f"{service.name}-engine",
        "backend": "tensorrtllm",
        "max_batch_size": knobs.max_batch_size if knobs else 1,
        "model_transaction_policy": {"decoupled": True},
        "input": [
            _tensor("input_ids", INT32, -1, optional=True) | {"allow_ragged_batch": True},
            *(_tensor(name, INT32, 1) | SCALAR for name in ("input_lengths", "request_output_len")),
            *(_tensor(name, INT32, 1, optional=True) | SCALAR for name in ("end_id", "pad_id")),
            _tensor("stop_words_list", INT32, 2, -1, optional=True) | {"allow_ragged_batch": True},
            *(_tensor(name, kind, 1, optional=True) | SCALAR for name, _, kind in SAMPLING),
        ],
        "output": [_tensor("output_ids", INT32, -1, -1), _tensor("sequence_length", INT32, -1)],
        "dynamic_batching": {
            "preserve_ordering": False,
            "default_queue_policy": {"max_queue_size": _queue(service)},
        },
        "instance_group": [{"count": 1, "kind": Word("KIND_CPU")}],
        "parameters": [
            {"key": key, "value": {"string_value": value}} for key, value in parameters.items()
        ],
    }


def ensemble(service: Service) -> Config:
    """The three as one model."""
    name = service.name
    steps = [
        ensemble_step(
            f"{name}-tokenize",
            {
                "TEXT": "text_input",
                "MAX_TOKENS": "max_tokens",
                "STOP_WORDS": "stop_words",
                "END_ID": "end_id",
                "PAD_ID": "pad_id",
            },
            {
                "INPUT_IDS": "ids",
                "INPUT_LENGTHS": "lengths",
                "REQUEST_OUTPUT_LEN": "wanted",
                "STOP_WORDS_IDS": "stops",
                "OUT_END_ID": "end",
                "OUT_PAD_ID": "pad",
            },
        ),
        ensemble_step(
            f"{name}-engine",
            {
                "input_ids": "ids",
                "input_lengths": "lengths",
                "request_output_len": "wanted",
                "stop_words_list": "stops",
                "end_id": "end",
                "pad_id": "pad",
                **{name: parameter for name, parameter, _ in SAMPLING},
            },
            {"output_ids": "made", "sequence_length": "made_lengths"},
        ),
        ensemble_step(
            f"{name}-detokenize",
            {"OUTPUT_IDS": "made", "SEQUENCE_LENGTH": "made_lengths"},
            {"TEXT_OUTPUT": "text_output"},
        ),
    ]
    return {
        "name": name,
        "platform": "ensemble",
        "max_batch_size": TEXT_BATCH,
        "input": [
            *(
                _tensor("text_input", STRING, 1),
                _tensor("max_tokens", INT32, 1),
                _tensor("stop_words", STRING, -1, optional=True),
            ),
            *(_tensor(name, INT32, 1, optional=True) for name in ("end_id", "pad_id")),
            *(_tensor(parameter, kind, 1, optional=True) for _, parameter, kind in SAMPLING),
        ],
        "output": [_tensor("text_output", STRING, -1)],
        "ensemble_scheduling": {"step": steps},
    }


def ensemble_step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> Config:
    """A model's inputs and outputs by the names that they have between the models."""
    maps = {"input_map": inputs, "output_map": outputs}
    pairs = {
        name: [{"key": key, "value": value} for key, value in mapping.items()]
        for name, mapping in maps.items()
    }
    return {"model_name": model, "model_version": -1, **pairs}


def _tensor(name: str, kind: Word, *dims: int, optional: bool = False) -> Config:
    more = {"optional": True} if optional else {}
    return {"name": name, "data_type": kind, "dims": list(dims), **more}


SCALAR: Config = {"reshape": {"shape": []}}
"""An input of one number for each request, which the engine takes without a dimension."""


def _queue(service: Service) -> int:
    """Requests that may wait: as many as an instance holds where the plan's limits end."""
    return max(64, math.ceil(service.choice.concurrency_per_instance or 64))


BEGINNING = '''
import json
import os

import numpy as np
import triton_python_backend_utils as triton
from tokenizers import Tokenizer


class TritonPythonModel:
    """Holds the tokenizer."""

    def initialize(self, args):
        """Read the tokenizer, whose path is relative to the repository."""
        said = json.loads(args["model_config"])["parameters"]["tokenizer"]["string_value"]
        path = os.path.join(os.path.dirname(args["model_repository"]), said)
        self.tokenizer = Tokenizer.from_file(path)
        self.ends, self.pad = [], None
        for name in ("generation_config.json", "config.json"):
            if not self.ends and os.path.exists(os.path.join(os.path.dirname(path), name)):
                with open(os.path.join(os.path.dirname(path), name), encoding="utf-8") as file:
                    told = json.load(file)
                ends = told.get("eos_token_id")
                self.ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
                self.pad = told.get("pad_token_id")

'''

TOKENIZE = f'''"""Text to tokens; run by Triton's Python backend."""
{BEGINNING}    def execute(self, requests):
        """Each request has rows of one text and the tokens wanted; rows are padded with 0 behind their end."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Tokens, what ends the answer, and how long it may be."""
        texts, wanted = self.given(request, "TEXT"), self.given(request, "MAX_TOKENS").astype(np.int32)
        rows = [self.tokenizer.encode(text.decode("utf-8")).ids for text in texts[:, 0]]
        lengths = np.array([[len(row)] for row in rows], dtype=np.int32)
        ids = np.zeros((len(rows), int(lengths.max())), dtype=np.int32)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        ends = np.full((len(rows), 1), self.ends[0] if self.ends else -1, dtype=np.int32)
        end = self.given(request, "END_ID", ends).astype(np.int32)
        pad = self.given(request, "PAD_ID", end if self.pad is None else np.full_like(end, self.pad)).astype(np.int32)
        words = self.given(request, "STOP_WORDS", np.zeros((len(rows), 0), dtype=object))
        stops = self.stops([[word.decode("utf-8") for word in row if word] for row in words])
        tensors = {{"INPUT_IDS": ids, "INPUT_LENGTHS": lengths, "REQUEST_OUTPUT_LEN": wanted}}
        tensors |= {{"STOP_WORDS_IDS": stops, "OUT_END_ID": end, "OUT_PAD_ID": pad}}
        return triton.InferenceResponse([triton.Tensor(name, value) for name, value in tensors.items()])

    def given(self, request, name, otherwise=None):
        """An input of a request, which may lack an optional one."""
        tensor = triton.get_input_tensor_by_name(request, name)
        return otherwise if tensor is None else tensor.as_numpy()

    def stops(self, rows):
        """Stop words in the form that the engine takes: the tokens in a row, and below them where each word ends.

        The model's further end tokens are words of one token. The row of ends is filled up with -1.
        """
        words = [[*[[token] for token in self.ends[1:]], *[self.tokenizer.encode(word, add_special_tokens=False).ids for word in row]]
                 for row in rows]
        width = max(1, *(sum(map(len, row)) for row in words))
        made = np.zeros((len(words), 2, width), dtype=np.int32)
        made[:, 1] = -1
        for place, row in enumerate(words):
            flat = [token for word in row for token in word]
            made[place, 0, : len(flat)] = flat
            made[place, 1, : len(row)] = np.cumsum([len(word) for word in row])
        return made
'''  # noqa: E501

DETOKENIZE = f'''"""Tokens to text; run by Triton's Python backend."""
{BEGINNING}    def execute(self, requests):
        """Each request has rows of beams of tokens, and how many tokens of each count."""
        found = []
        for request in requests:
            ids = triton.get_input_tensor_by_name(request, "OUTPUT_IDS").as_numpy()
            lengths = triton.get_input_tensor_by_name(request, "SEQUENCE_LENGTH").as_numpy()
            texts = [
                [self.tokenizer.decode(beam[:count].tolist()).encode("utf-8") for beam, count in zip(row, counts, strict=True)]
                for row, counts in zip(ids, lengths, strict=True)
            ]
            found.append(triton.InferenceResponse([triton.Tensor("TEXT_OUTPUT", np.array(texts, dtype=object))]))
        return found
'''  # noqa: E501


IMAGES = {
    "vllm": "nvcr.io/nvidia/tritonserver:26.10-vllm-python-py3",
    "tensorrt-llm": "nvcr.io/nvidia/tritonserver:26.10-trtllm-python-py3",
}
"""Pattern of the tags recalled, 2026-11-22; take the newest month there is."""

SERVER = "nvcr.io/nvidia/tritonserver:26.10-py3"  # The image for models that are not LLMs


def readme(service: Service) -> str:
    """The page in Markdown."""
    image = IMAGES[service.family]
    first = f"docker pull {image}"
    if service.family != "vllm":
        first = (
            f"hf download {service.checkpoint} --include tokenizer.json '*config.json' --local-dir"
            " repository/tokenizer"
        )
        if service.local:
            first = (
                "mkdir --parents repository/tokenizer && cp"
                f" {service.checkpoint}/{{tokenizer,*config}}.json repository/tokenizer/"
            )
    gpus = ",".join(map(str, range(service.gpus)))
    start = (
        f"docker run --detach --name {service.name} --gpus '\"device={gpus}\"' --shm-size"
        f" {service.shared_memory_gib}g --env HF_TOKEN --publish 8000:8000 --publish 8102:8002 \\\n"
        f"    --volume $PWD:/deployment --workdir /deployment {image} tritonserver"
        " --model-repository /deployment/repository"
    )
    commands = (
        first,
        start,
        (
            "curl --fail --retry 100 --retry-connrefused --retry-delay 10"
            " http://127.0.0.1:8000/v2/health/ready"
        ),
        bench_command(service, "http://127.0.0.1:8000", instances=1, triton=True),
        compare_command(instances=1),
    )
    machines = math.ceil(service.pool.instances / service.per_machine)
    several = (
        f" ({service.per_machine} per machine; copy this folder to all {machines} machines)"
        if machines > 1
        else ""
    )
    further = paragraph(
        f"The second command starts one of the plan's {service.pool.instances} instances, on"
        f" {gpu_words(service)}. Start each further instance{several} with other GPUs and ports,"
        " and put `tonnage gateway` in front of them. If tritonserver is installed without a"
        " container, start it with `tonnage serve --engine triton --model repository`."
    )
    what, rows = _parts(service)
    return page_text(
        service, f"{service.served} with Triton", what, commands, rows=rows, further=further
    )


def _parts(service: Service) -> tuple[str, Rows]:
    """Describe the repository's models and their folders."""
    name = service.name
    if service.family == "vllm":
        return "vLLM's backend batches by itself and streams; Triton hands every request on.", [
            (f"`repository/{name}`", "the model: vLLM's backend and its arguments"),
            (
                "`alerts.yaml`, `prometheus.yaml`, `dashboard.json`",
                "the rules on vLLM's metrics, what is scraped, the dashboard",
            ),
        ]
    what = (
        "The model is an ensemble of a tokenizer, the engine and a detokenizer. The engine is"
        " decoupled and streams: with `stream` set, each step's tokens become a piece of text, and"
        " `bench` measures TTFT. Pieces are decoded by themselves; a tokenizer that marks spaces at"
        " the beginning of words may lose some. An answer ends at the checkpoint's end tokens, at"
        " `stop_words`, or after `max_tokens`; `temperature`, `top_p`, `top_k`, `seed`, `end_id`"
        " and `pad_id` go to the engine, and answers leave the prompt out."
    )
    return what, [
        (f"`repository/{name}`", "the ensemble"),
        (
            f"`repository/{name}-tokenize`, `-detokenize`",
            "text to tokens and back, batched, with priorities and time limits",
        ),
        (f"`repository/{name}-engine`", "TensorRT-LLM"),
    ]


FIRST_METRICS = 8102  # Port of the metrics of the first instance on its machine; the others follow

REPOSITORY = "repository"

FORMATS = {
    "fp16": "full_prec",
    "bf16": "full_prec",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "int8-sq": "int8_sq",
    "awq": "int4_awq",
    "w4a8": "w4a8_awq",
    "int8-wo": "int8_wo",
    "int4-wo": "int4_wo",
}
"""What TensorRT-LLM's examples/quantization/quantize.py calls a number format (read 2026-11-23)."""

LIMITS = ("--max_batch_size", "--max_num_tokens", "--max_seq_len")
"""Flags that trtllm-build takes as trtllm-serve does (its documentation, read 2026-11-23)."""


def prepared(service: Service) -> Service:
    """The deployment with its checkpoint on Triton: the TensorRT-LLM backend needs an engine
    compiled from the 16-bit checkpoint.
    """
    if service.family != "tensorrt-llm":
        return service
    name = service.checkpoint if service.loading.named else source_of(service.pool.model)
    pool, precision = service.pool, find_precision(service.pool.precision)
    words = f"--qformat {FORMATS[precision.weights]}" + (
        " --kv_cache_dtype fp8" if precision.kv == "fp8" else ""
    )
    limits = [
        word
        for flag in LIMITS
        if flag in pool.launch
        for word in (flag, pool.launch[pool.launch.index(flag) + 1])
    ]
    loading = replace(
        service.loading,
        checkpoint=name,
        told=(
            f"Triton's TensorRT-LLM backend runs an engine compiled from `{name}` on the plan's"
            " GPUs. The plan assumes TensorRT-LLM's PyTorch backend, which NVIDIA recommends"
            " instead (Triton 26.09): measure before you rely on the plan. Compile the engine in"
            " this folder, inside the image below, with `quantize.py` from TensorRT-LLM's"
            " `examples/quantization`:"
        ),
        make=(
            (
                f"python quantize.py --model_dir {name} {words} --tp_size {pool.tp} --output_dir"
                " converted"
            ),
            (
                f"trtllm-build --checkpoint_dir converted --output_dir engines/tp{pool.tp}"
                f" {' '.join(limits)}"
            ),
        ),
    )
    return replace(service, loading=loading)


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    texts = dict(vllm_files(service) if service.family == "vllm" else ensemble_files(service))
    if service.family == "vllm":
        gpus = f'DCGM_FI_DEV_GPU_UTIL{{deployment="{service.name}"}}'
        texts["alerts.yaml"] = yaml_text(rules(service, gpus, service.pool.instances))
        texts["prometheus.yaml"] = yaml_text(prometheus(service))
        texts["dashboard.json"] = dashboard_text(service)
    texts["README.md"] = readme(service)
    return texts


def vllm_files(service: Service) -> dict[str, str]:
    """Write the repository of vLLM's backend, which has one model."""
    arguments = {
        "model": service.checkpoint,
        "served_model_name": service.served,
        **engine_arguments(service.pool.launch),
    }
    return {
        f"{REPOSITORY}/{service.name}/config.pbtxt": _text(service, vllm_model(service)),
        f"{REPOSITORY}/{service.name}/1/model.json": json.dumps(arguments, indent=2) + "\n",
    }


def ensemble_files(service: Service) -> dict[str, str]:
    """A tokenizer, the engine, and a detokenizer, and the three as one model; the tokenizer is next
    to them.
    """
    models: dict[str, Config] = {
        service.name: ensemble(service),
        f"{service.name}-tokenize": tokenize(service),
        f"{service.name}-engine": engine_model(service),
        f"{service.name}-detokenize": detokenize(service),
    }
    code = {f"{service.name}-tokenize": TOKENIZE, f"{service.name}-detokenize": DETOKENIZE}
    texts = {
        f"{REPOSITORY}/{name}/config.pbtxt": _text(service, config)
        for name, config in models.items()
    }
    texts |= {f"{REPOSITORY}/{name}/1/model.py": text for name, text in code.items()}
    empty = "A version's folder must be there, though its model is elsewhere.\n"
    texts |= {f"{REPOSITORY}/{name}/1/README": empty for name in models if name not in code}
    return texts


def prometheus(service: Service) -> dict[str, Any]:
    """Write Prometheus' configuration: the targets to scrape, and the files of rules."""
    label = {"deployment": service.name}
    places = range(service.pool.instances)
    targets = [
        f"{service.machine_of(place)}:{FIRST_METRICS + 10 * (place % service.per_machine)}"
        for place in places
    ]
    exporters = [f"{name}:9400" for name in dict.fromkeys(map(service.machine_of, places))]
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            noted(
                {"job_name": "triton", "static_configs": [{"targets": targets, "labels": label}]},
                "Triton's own metrics, and vLLM's behind them under vLLM's names.",
            ),
            {
                "job_name": "gpus",
                "honor_labels": True,
                "static_configs": [{"targets": exporters, "labels": label}],
            },
        ],
    }


def _text(service: Service, config: Config) -> str:
    lines = "".join(f"# {line}\n" for line in head(service).splitlines())
    return lines + pbtxt(config)
