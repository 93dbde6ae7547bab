"""The files of a deployment with Triton on one machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tonnage.deploy.alerts import rules
from tonnage.deploy.checkpoint import Loading, source_of
from tonnage.deploy.dashboard import dashboard_text
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.ray_serve.engine_arguments import engine_arguments
from tonnage.deploy.service import Service
from tonnage.deploy.told import head
from tonnage.deploy.triton.configs import Config, detokenize, engine_model, ensemble, tokenize, vllm_model
from tonnage.deploy.triton.models import DETOKENIZE, TOKENIZE
from tonnage.deploy.triton.readme import readme
from tonnage.deploy.triton.text import pbtxt
from tonnage.plan.pool import Pool
from tonnage.spec.precision import find_precision

FIRST_METRICS = 8102
"""Port of the metrics of the first instance on its machine; the others follow."""

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


def lacks(pool: Pool, family: str) -> str:
    """The reason why Triton cannot run a pool, as a clause; empty if it can."""
    if pool.dp > 1 or pool.pp > 1:
        return "deploy supports triton only with tensor parallelism"
    weights = find_precision(pool.precision).weights
    if family == "tensorrt-llm" and weights not in FORMATS:
        return f"triton's TensorRT-LLM backend needs a compiled engine, which does not exist in {weights}"
    return ""


def loads(service: Service) -> Loading:
    """The checkpoint on Triton: the TensorRT-LLM backend needs an engine compiled from the 16-bit checkpoint."""
    if service.family != "tensorrt-llm":
        return service.loading
    name = service.checkpoint if service.loading.named else source_of(service.pool.model)
    pool, precision = service.pool, find_precision(service.pool.precision)
    words = f"--qformat {FORMATS[precision.weights]}" + (" --kv_cache_dtype fp8" if precision.kv == "fp8" else "")
    limits = [word for flag in LIMITS if flag in pool.launch for word in (flag, pool.launch[pool.launch.index(flag) + 1])]
    return replace(
        service.loading,
        checkpoint=name,
        told=(
            f"Triton's TensorRT-LLM backend runs an engine compiled from `{name}` on the plan's GPUs. The plan assumes TensorRT-LLM's "
            "PyTorch backend, which NVIDIA recommends instead (Triton 26.09): measure before you rely on the plan. Compile the engine in "
            "this folder, inside the image below, with `quantize.py` from TensorRT-LLM's `examples/quantization`:"
        ),
        make=(
            f"python quantize.py --model_dir {name} {words} --tp_size {pool.tp} --output_dir converted",
            f"trtllm-build --checkpoint_dir converted --output_dir engines/tp{pool.tp} {' '.join(limits)}",
        ),
    )


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    found = dict(vllm_files(service) if service.family == "vllm" else ensemble_files(service))
    if service.family == "vllm":
        gpus = f'DCGM_FI_DEV_GPU_UTIL{{deployment="{service.name}"}}'
        found["alerts.yaml"] = yaml_text(rules(service, gpus, service.pool.instances))
        found["prometheus.yaml"] = yaml_text(prometheus(service))
        found["dashboard.json"] = dashboard_text(service)
    found["README.md"] = readme(service)
    return found


def vllm_files(service: Service) -> dict[str, str]:
    """One model, which is vLLM."""
    arguments = {"model": service.checkpoint, "served_model_name": service.served, **engine_arguments(service.pool.launch)}
    return {
        f"{REPOSITORY}/{service.name}/config.pbtxt": _text(service, vllm_model(service)),
        f"{REPOSITORY}/{service.name}/1/model.json": json.dumps(arguments, indent=2) + "\n",
    }


def ensemble_files(service: Service) -> dict[str, str]:
    """A tokenizer, the engine, and a detokenizer, and the three as one model; the tokenizer lies beside them."""
    models: dict[str, Config] = {
        service.name: ensemble(service),
        f"{service.name}-tokenize": tokenize(service),
        f"{service.name}-engine": engine_model(service),
        f"{service.name}-detokenize": detokenize(service),
    }
    code = {f"{service.name}-tokenize": TOKENIZE, f"{service.name}-detokenize": DETOKENIZE}
    found = {f"{REPOSITORY}/{name}/config.pbtxt": _text(service, config) for name, config in models.items()}
    found |= {f"{REPOSITORY}/{name}/1/model.py": text for name, text in code.items()}
    empty = "A version's folder must be there, though its model is elsewhere.\n"
    found |= {f"{REPOSITORY}/{name}/1/README": empty for name in models if name not in code}
    return found


def prometheus(service: Service) -> dict[str, Any]:
    """What is scraped, and which rules are watched."""
    label = {"deployment": service.name}
    places = range(service.pool.instances)
    targets = [f"{service.machine_of(place)}:{FIRST_METRICS + 10 * (place % service.per_machine)}" for place in places]
    exporters = [f"{name}:9400" for name in dict.fromkeys(map(service.machine_of, places))]
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            noted(
                {"job_name": "triton", "static_configs": [{"targets": targets, "labels": label}]},
                "Triton's own metrics, and vLLM's behind them under vLLM's names.",
            ),
            {"job_name": "gpus", "honor_labels": True, "static_configs": [{"targets": exporters, "labels": label}]},
        ],
    }


def _text(service: Service, config: Config) -> str:
    lines = "".join(f"# {line}\n" for line in head(service).splitlines())
    return lines + pbtxt(config)
