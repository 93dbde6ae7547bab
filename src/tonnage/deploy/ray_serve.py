"""The files of a deployment with Ray Serve."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tonnage.deploy.plan_text import (
    argv_notes,
    bench_command,
    compare_command,
    head,
    least_line,
    page_text,
)
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.yaml_comments import noted, yaml_text

# vLLM's command as keywords of its engine, as Ray hands them on.


SERVER = ("api_server_count",)  # Settings of vLLM's HTTP server, which Ray runs in its place

Value = bool | int | float | str | dict[str, Any]


def engine_arguments(argv: Sequence[str]) -> dict[str, Value]:
    """The flags of a command "vllm serve MODEL …" by the names of the engine's arguments; those of
    its server are left out.
    """
    return {name: value for name, value in _pairs(argv[3:]) if name not in SERVER}


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, Value]]:
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, _, joined = word.removeprefix("--").partition("=")
        following = words[place + 1] if place + 1 < len(words) else "--"
        name = flag.replace("-", "_")
        if joined:
            yield name, _value(joined)
        elif not following.startswith("--"):
            yield name, _value(following)
        else:
            yield name.removeprefix("no_"), not name.startswith("no_")


def _value(text: str) -> Value:
    if text.startswith("{"):
        mapping: dict[str, Any] = json.loads(text)
        return mapping
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_BY_NAME = (
    *(
        "v100-sxm2-32gb",
        "t4",
        "l4",
        "l40s",
        "a10g-24gb",
        "h100-pcie-80gb",
        "h100-sxm-80gb",
        "h100-nvl-94gb",
        "h200-sxm-141gb",
    ),
    *(
        "h200-nvl-141gb",
        "h20-96gb",
        "b200-sxm-180gb",
        "b300-sxm-270gb",
        "gb200-186gb",
        "gb300-279gb",
    ),
)
ACCELERATORS = {
    **{gpu: gpu.partition("-")[0].upper() for gpu in _BY_NAME},
    **dict.fromkeys(("a100-pcie-40gb", "a100-sxm-40gb"), "A100-40G"),
    **dict.fromkeys(("a100-pcie-80gb", "a100-sxm-80gb"), "A100-80G"),
    "rtx-pro-6000-blackwell-se": "RTX-PRO-6000",
}
"""Ray's names of GPUs, by catalog id (Ray 2.60, ``ray/util/accelerators``, read 2026-11-23). For
other GPUs the type is left out."""

MANUAL = ("A100-40G", "A100-80G")  # Names that Ray does not give to nodes by itself (same source)


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    return {
        "serve.yaml": yaml_text(application(service), head=head(service)),
        "README.md": readme(service),
    }


def application(service: Service) -> dict[str, Any]:
    """Write the file that ``serve deploy`` reads."""
    loading = {"model_id": service.served, "model_source": service.checkpoint}
    accelerator = _accelerator(service.gpu.name)
    config = {
        "model_loading_config": noted(
            loading,
            (
                ""
                if accelerator
                else f"Ray has no name for {service.gpu.name}: use nodes of this GPU only."
            ),
        ),
        **accelerator,
        "engine_kwargs": noted(engine_arguments(service.pool.launch), argv_notes(service)),
        "deployment_config": deployment(service),
    }
    serve_app = {
        "name": service.name,
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [config]},
    }
    return {"http_options": {"host": "0.0.0.0", "port": PORT}, "applications": [serve_app]}


def _accelerator(gpu: str) -> dict[str, Any]:
    """The GPU type of the nodes; empty if Ray has no name for it."""
    name = ACCELERATORS.get(gpu)
    if name is None:
        return {}
    note = (
        "Ray does not set this label itself: start the nodes with the resource"
        f" accelerator_type:{name}."
    )
    return {"accelerator_type": noted(name, note if name in MANUAL else "")}


def deployment(service: Service) -> dict[str, Any]:
    """Write the deployment: its number of replicas, and the requests that each of them holds."""
    drain = {"graceful_shutdown_timeout_s": service.drain_seconds}
    target, concurrency = service.target_in_flight, service.choice.concurrency_per_instance
    if target is None or concurrency is None:
        return {
            "num_replicas": noted(
                service.pool.instances, "The plan's instances, spare ones included."
            ),
            **drain,
        }
    scaling = {
        "min_replicas": noted(service.least_instances, least_line(service)),
        "max_replicas": noted(service.pool.instances, "The plan's instances, spare ones included."),
        "target_ongoing_requests": noted(
            target,
            f"Requests in flight of one instance at the {service.choice.sized_rate:.4g} requests/s"
            " that the plan counts on.",
        ),
        "downscale_delay_s": noted(
            service.scale_down_seconds,
            f"An instance takes up to {service.startup_seconds} s to come back.",
        ),
    }
    return {
        "autoscaling_config": scaling,
        "max_ongoing_requests": noted(
            math.ceil(2 * concurrency),
            f"Twice what an instance holds where the limits end, {concurrency:,.0f}; others wait.",
        ),
        **drain,
    }


def readme(service: Service) -> str:
    """The page in Markdown."""
    needs = f"""\
The cluster's nodes need `ray[llm]`, which brings a vLLM of its own: look at `vllm --version`, since the plan is for
{service.pool.engine_preset}. A gated model needs `HF_TOKEN` in the environment in which Ray was started."""  # noqa: E501
    further = """\
`compare` takes the plan's number of instances; say `--instances` if others run. Ray shares requests by the shorter of two queues. Metrics
and dashboards are Ray's own; rules for its names are not written."""  # noqa: E501
    commands = (
        "serve deploy serve.yaml",
        f"serve status --name {service.name}",
        f"curl --fail http://127.0.0.1:{PORT}/v1/models",
        bench_command(service, f"http://127.0.0.1:{PORT}", instances=service.pool.instances),
        compare_command(instances=None),
    )
    replicas = f"{service.least_instances} to {service.pool.instances} replicas"
    rows = [("`serve.yaml`", f"the application: the model, the engine's arguments, {replicas}")]
    return page_text(
        service, f"{service.served} with Ray Serve", needs, commands, rows=rows, further=further
    )
