"""The ``config.pbtxt`` of each model of a repository.

Fields are those of ``protobuf/model_config.proto`` of Triton (read 2026-11-22); what the backends of vLLM and TensorRT-LLM call their
tensors and parameters is recalled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.deploy.plan_text import argv_notes
from tonnage.deploy.service import Service

# Protobuf's text format, as Triton reads ``config.pbtxt``.


@dataclass(frozen=True, slots=True)
class Word:
    """The name of a value of an enumeration, which stands without quotation marks."""

    name: str


@dataclass(frozen=True, slots=True)
class Said:
    """A comment, on its own lines, under any key that no field has."""

    text: str


def pbtxt(message: Mapping[str, Any]) -> str:
    """A message: mappings are messages, lists are repeated fields, and a field that is a ``Said`` is a comment."""
    return "".join(f"{line}\n" for line in _fields(message))


def _fields(message: Mapping[str, Any]) -> Iterator[str]:
    for name, value in message.items():
        if isinstance(value, Said):
            yield from (f"# {line}" for line in value.text.splitlines())
        elif isinstance(value, Mapping):
            yield from _block(name, value)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for part in value:
                yield from _block(name, part)
        elif isinstance(value, list):
            yield f"{name}: [ {', '.join(map(_scalar, value))} ]"
        else:
            yield f"{name}: {_scalar(value)}"


def _block(name: str, message: Mapping[str, Any]) -> Iterator[str]:
    yield f"{name} {{"
    yield from (f"  {line}" for line in _fields(message))
    yield "}"


def _scalar(value: Any) -> str:
    if isinstance(value, Word):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


STRING, INT32, BOOL = Word("TYPE_STRING"), Word("TYPE_INT32"), Word("TYPE_BOOL")

TEXT_BATCH = 64
"""Texts that the tokenizer takes at once."""

DELAY_US = 1_000
"""Longest that a text waits for others, in microseconds: far below any limit on the first token."""

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


def text_model(service: Service, name: str, *, inputs: list[Config], outputs: list[Config], in_order: bool = False) -> Config:
    """A model in Python before or behind the engine, batched, with two priorities and a limit on its queue.

    ``in_order`` says whether answers leave in the order of their requests, as the pieces of a stream must.
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
        inputs=[_tensor("TEXT", STRING, 1), _tensor("MAX_TOKENS", INT32, 1)],
        outputs=[_tensor("INPUT_IDS", INT32, -1), _tensor("INPUT_LENGTHS", INT32, 1), _tensor("REQUEST_OUTPUT_LEN", INT32, 1)],
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
    }
    return {
        "_": Said(argv_notes(service)),
        "name": f"{service.name}-engine",
        "backend": "tensorrtllm",
        "max_batch_size": knobs.max_batch_size if knobs else 1,
        "model_transaction_policy": {"decoupled": True},
        "input": [
            *(_tensor("input_ids", INT32, -1), _tensor("input_lengths", INT32, 1), _tensor("request_output_len", INT32, 1)),
            _tensor("streaming", BOOL, 1, optional=True),
        ],
        "output": [_tensor("output_ids", INT32, -1, -1), _tensor("sequence_length", INT32, -1)],
        "dynamic_batching": {"preserve_ordering": False, "default_queue_policy": {"max_queue_size": _queue(service)}},
        "instance_group": [{"count": 1, "kind": Word("KIND_CPU")}],
        "parameters": [{"key": key, "value": {"string_value": value}} for key, value in parameters.items()],
    }


def ensemble(service: Service) -> Config:
    """The three as one model."""
    name = service.name
    steps = [
        _step(
            f"{name}-tokenize",
            {"TEXT": "text_input", "MAX_TOKENS": "max_tokens"},
            {"INPUT_IDS": "ids", "INPUT_LENGTHS": "lengths", "REQUEST_OUTPUT_LEN": "wanted"},
        ),
        _step(
            f"{name}-engine",
            {"input_ids": "ids", "input_lengths": "lengths", "request_output_len": "wanted", "streaming": "stream"},
            {"output_ids": "made", "sequence_length": "made_lengths"},
        ),
        _step(f"{name}-detokenize", {"OUTPUT_IDS": "made", "SEQUENCE_LENGTH": "made_lengths"}, {"TEXT_OUTPUT": "text_output"}),
    ]
    return {
        "name": name,
        "platform": "ensemble",
        "max_batch_size": TEXT_BATCH,
        "input": [_tensor("text_input", STRING, 1), _tensor("max_tokens", INT32, 1), _tensor("stream", BOOL, 1, optional=True)],
        "output": [_tensor("text_output", STRING, -1)],
        "ensemble_scheduling": {"step": steps},
    }


def _step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> Config:
    maps = {"input_map": inputs, "output_map": outputs}
    pairs = {name: [{"key": key, "value": value} for key, value in found.items()] for name, found in maps.items()}
    return {"model_name": model, "model_version": -1, **pairs}


def _tensor(name: str, kind: Word, *dims: int, optional: bool = False) -> Config:
    more = {"optional": True} if optional else {}
    return {"name": name, "data_type": kind, "dims": list(dims), **more}


def _queue(service: Service) -> int:
    """Requests that may wait: as many as an instance holds where the plan's limits end."""
    return max(64, math.ceil(service.choice.concurrency_per_instance or 64))
