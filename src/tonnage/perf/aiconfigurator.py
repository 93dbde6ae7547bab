"""Step times of NVIDIA's AIConfigurator: the tables of the wheel ``aiconfigurator-core`` 0.12,
asked step by step.

The wheel is an extra and is imported only here, when asked for. A deployment becomes its engine
handle (``aiconfigurator_core.sdk.engine.EngineHandle.compile``), which is requested a grid of
prefill, decode and mixed steps. Dense models and plain mixtures of experts are described by their
sizes; others only where the wheel knows the model by name. Its times are of kernels: it has no host
terms, and none are added.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from tonnage.errors import InputError, option
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.model import Model
from tonnage.spec.precision import Precision
from tonnage.spec.step_times import TimedStep

PACKAGE = "aiconfigurator-core"

SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm",
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "b200-sxm-180gb": "b200_sxm",
    "gb200-186gb": "gb200",
    "b300-sxm-270gb": "b300_sxm",
    "l40s": "l40s",
}
"""Systems of the wheel that have measured tables, by GPU."""

BACKENDS = {"tensorrt-llm": "trtllm", "nim": "trtllm", "vllm": "vllm", "sglang": "sglang"}
"""The wheel's backend, by the family of the engine."""

FORMATS: dict[str, tuple[str, str]] = {
    "fp16": ("bfloat16", "bfloat16"),
    "bf16": ("bfloat16", "bfloat16"),
    "fp8": ("fp8_static", "fp8"),
    "int8-sq": ("sq", ""),
    "int8-wo": ("int8_wo", ""),
    "int4-wo": ("int4_wo", "int4_wo"),
    "awq": ("int4_wo", "int4_wo"),
    "gptq": ("int4_wo", "int4_wo"),
    "int4-g32": ("int4_wo", "int4_wo"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "mxfp4": ("", "w4a16_mxfp4"),
}
"""The wheel's formats of matrices and of experts; empty where it has none. FP8 has the static
scales of ModelOpt's checkpoints, as the wheel itself infers."""

BLOCK_SCALED = ("deepseek-r1", "deepseek-v3", "minimax-m2.5", "qwen3-30b-a3b", "qwen3-235b-a22b")
"""Models whose FP8 checkpoints have a scale for each block of weights."""

KV = {16: "bfloat16", 8: "fp8"}

NAMED = {
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
}
"""Models of other architectures that the wheel describes itself."""

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384)
PROMPTS = (
    16,
    32,
    64,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    16384,
)
PACKS = (2, 4, 8)
"""The grid: decode sequences, contexts, prompt lengths, and prompts in one step."""

MOST_TOKENS = 32_768
"""Most tokens of one step of the grid."""

_ONE_AT_A_TIME = Lock()


def installed_version() -> str | None:
    """Version of the installed wheel; None without it."""
    if find_spec("aiconfigurator_core") is None:
        return None
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "unknown version"


def require() -> None:
    """Refuse to go on without the wheel. Raises InputError: with what to install."""
    if installed_version() is None:
        raise InputError(
            f"{option('step_model')}: {PACKAGE} is not installed; pip install"
            " 'tonnage[aiconfigurator]', or choose fitted or a .csv"
        )


def described(deployment: Deployment) -> str:
    """The tables that a deployment's step times come from, in words."""
    return (
        f"{PACKAGE} {installed_version()}, {SYSTEMS.get(deployment.gpu.name, '')}"
        f" {_backend(deployment)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a deployment in the wheel's words: system, backend, parallelism, and formats of
    matrices, experts and KV cache.
    """

    model: Model
    system: str
    backend: str
    parallelism: Parallelism
    gemm: str
    experts: str
    kv: str

    def refuse(self, why: object) -> InputError:
        """What the wheel says of a deployment that it has no step times of, on one line."""
        what = (
            f"{self.model.name}, {self.system} {self.backend} {self.gemm} TP {self.parallelism.tp}"
        )
        return InputError(
            f"{option('step_model')}: {PACKAGE} cannot estimate {what}:"
            f" {' '.join(str(why).split())[:160]}"
        )


def timed_steps(deployment: Deployment) -> tuple[TimedStep, ...]:
    """The grid of steps of a deployment. Raises InputError: the wheel is not installed, or has no
    tables for this deployment.
    """
    require()
    with _ONE_AT_A_TIME:
        return _grid(tables_of(deployment))


def tables_of(deployment: Deployment) -> Tables:
    """The tables that a deployment needs. Raises InputError: the wheel has none."""
    d = deployment
    if d.gpu.name not in SYSTEMS:
        raise InputError(
            f"{option('step_model')}: {PACKAGE} has no tables of {d.gpu.name}; it has"
            f" {', '.join(SYSTEMS)}"
        )
    gemm, experts = _formats(d.model, d.precision)
    if experts == "w4a16_mxfp4" and d.gpu.arch == "Blackwell" and _backend(d) == "trtllm":
        experts = "w4a8_mxfp4_mxfp8"
    return Tables(
        model=d.model,
        system=SYSTEMS[d.gpu.name],
        backend=_backend(d),
        parallelism=d.parallelism,
        gemm=gemm,
        experts=experts,
        kv=KV[d.precision.kv_bits],
    )


def _formats(model: Model, precision: Precision) -> tuple[str, str]:
    """Formats of matrices and of experts."""
    gemm, experts = FORMATS.get(precision.weight_format, ("", ""))
    if precision.weight_format == "fp8" and model.name in BLOCK_SCALED:
        gemm = experts = "fp8_block"
    if precision.experts_only:
        gemm = "bfloat16"
    if not gemm or (model.is_moe and not experts) or precision.sparse:
        raise InputError(
            f"{option('step_model')}: {PACKAGE} is used only for {', '.join(FORMATS)}; {model.name}"
            f" is in {precision.name}"
        )
    return gemm, experts


def _backend(deployment: Deployment) -> str:
    family = find_engine(deployment.engine).family
    if family not in BACKENDS:
        raise InputError(
            f"{option('step_model')}: {PACKAGE} has no tables of the engine {deployment.engine}"
        )
    return BACKENDS[family]


@lru_cache(maxsize=32)
def compiled(tables: Tables) -> Any:
    """The wheel's ``EngineHandle``. Raises InputError: the wheel cannot be imported, or has no such
    tables.
    """
    try:
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError as error:
        raise InputError(
            f"{option('step_model')}: {PACKAGE} cannot be imported ({error}); pip install"
            " 'tonnage[aiconfigurator]'"
        ) from None
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = NAMED.get(tables.model.name) or written(tables.model, Path(folder))
            return EngineHandle.compile(
                path,
                tables.system,
                tables.backend,
                tp_size=tables.parallelism.tp,
                **formats(tables),
            )
    except InputError:
        raise
    except Exception as error:  # the wheel raises many kinds, and some come from other packages
        raise tables.refuse(error) from None


def formats(tables: Tables) -> dict[str, Any]:
    """Formats that the wheel infers from such checkpoints, and for experts how they are split."""
    narrow = tables.backend == "trtllm" and tables.kv == "fp8" and not tables.model.has_latent_cache
    attention = "fp8" if narrow else "bfloat16"
    modes: dict[str, Any] = {
        "gemm_quant_mode": tables.gemm,
        "kvcache_quant_mode": tables.kv,
        "fmha_quant_mode": attention,
    }
    if tables.model.is_moe:
        p = tables.parallelism
        modes |= {
            "moe_quant_mode": tables.experts,
            "attention_dp_size": p.dp,
            "moe_tp_size": p.moe_tp,
            "moe_ep_size": p.ep,
        }
    return modes


def written(model: Model, folder: Path) -> str:
    """A folder with the model's sizes as a ``config.json`` of Llama or Mixtral."""
    plain = (
        model.gated
        and not model.mixers
        and model.latent is None
        and model.shared_experts == 0
        and model.dense_layers == 0
        and not model.parallel_block
    )
    if not plain:
        raise InputError(
            f"{option('step_model')}: {PACKAGE} does not cover the architecture of {model.name};"
            " leave it out"
        )
    config: dict[str, Any] = {
        "architectures": ["MixtralForCausalLM" if model.is_moe else "LlamaForCausalLM"],
        "model_type": "mixtral" if model.is_moe else "llama",
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "num_hidden_layers": model.layers,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab,
        "max_position_embeddings": model.max_context,
        "torch_dtype": "bfloat16",
    }
    if model.is_moe:
        config |= {
            "num_local_experts": model.experts,
            "num_experts_per_tok": model.experts_per_token,
        }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


@lru_cache(maxsize=256)
def _grid(tables: Tables) -> tuple[TimedStep, ...]:
    handle, max_context = compiled(tables), tables.model.max_context
    try:
        return (
            *_decodes(handle, max_context),
            *_prefills(handle, max_context),
            *_mixed(handle, max_context),
        )
    except Exception as error:  # as above
        raise tables.refuse(error) from None


def _decodes(handle: Any, max_context: int) -> Iterator[TimedStep]:
    """Steps that only decode; the wheel counts the new token as part of the context."""
    for batch in BATCHES:
        for context in CONTEXTS:
            if context < max_context:
                ms = handle.decode_step_latency(batch, context, 2)
                yield _step(0, 1, batch, batch * (context + 1), ms)


def _prefills(handle: Any, max_context: int) -> Iterator[TimedStep]:
    """Steps of whole prompts."""
    for prompt in PROMPTS:
        for pack in (1, *PACKS):
            if prompt <= max_context and prompt * pack <= MOST_TOKENS:
                yield _step(prompt * pack, pack, 0, 0, handle.predict_prefill_latency(pack, prompt))


def _mixed(handle: Any, max_context: int) -> Iterator[TimedStep]:
    """Steps of a whole prompt and decodes whose contexts are that prompt and half of 128 tokens of
    output.
    """
    output = 128
    for prompt in PROMPTS:
        for batch in BATCHES[::3]:
            if prompt + output < max_context:
                ms = handle.mixed_step_latency(prompt, batch, prompt, output)
                yield _step(prompt, 1, batch, batch * (prompt + output // 2), ms)


def _step(prefill: int, prompts: int, decodes: int, context: int, ms: float) -> TimedStep:
    return TimedStep(
        prefill_tokens=prefill,
        prefill_sequences=prompts,
        past_tokens=0,
        decode_sequences=decodes,
        context_tokens=context,
        seconds=ms / 1e3,
    )
