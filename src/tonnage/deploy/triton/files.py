"""The files of a deployment with Triton on one machine."""

from __future__ import annotations

import json
from typing import Any

from tonnage.deploy.alerts import rules
from tonnage.deploy.dashboard import dashboard_text
from tonnage.deploy.noted import noted, yaml_text
from tonnage.deploy.ray_serve.engine_arguments import engine_arguments
from tonnage.deploy.service import Service
from tonnage.deploy.told import head
from tonnage.deploy.triton.configs import Config, detokenize, engine_model, ensemble, tokenize, vllm_model
from tonnage.deploy.triton.models import DETOKENIZE, TOKENIZE
from tonnage.deploy.triton.readme import readme
from tonnage.deploy.triton.text import pbtxt
from tonnage.errors import InputError, option

FIRST_METRICS = 8102
"""Port of the metrics of the first instance on its machine; the others follow."""

REPOSITORY = "repository"


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name.

    Raises:
        InputError: an engine that Triton has no backend for, several machines, or attention ranks.
    """
    where = option("target")
    if service.family not in ("vllm", "tensorrt-llm"):
        raise InputError(f"{where}: triton has backends for vllm and tensorrt-llm, and the plan's engine is {service.pool.engine}")
    if service.pool.dp > 1 or service.pool.pp > 1:
        raise InputError(f"{where}: triton is written for instances split by tensors alone; take kubernetes")
    if service.pool.systems > 1:
        raise InputError(
            f"{where}: triton is for one machine, and the plan has {service.pool.systems} × {service.pool.system}; take kubernetes"
        )
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
    targets = [f"127.0.0.1:{FIRST_METRICS + 10 * place}" for place in range(service.pool.instances)]
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            noted(
                {"job_name": "triton", "static_configs": [{"targets": targets, "labels": label}]},
                "Triton's own metrics, and vLLM's behind them under vLLM's names.",
            ),
            {"job_name": "gpus", "honor_labels": True, "static_configs": [{"targets": ["127.0.0.1:9400"], "labels": label}]},
        ],
    }


def _text(service: Service, config: Config) -> str:
    lines = "".join(f"# {line}\n" for line in head(service).splitlines())
    return lines + pbtxt(config)
