"""Arguments of what is served: each declared once, for flags, Python and their help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tonnage.spec.typed_values import about


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedArguments:
    """The arguments of what is served, and where."""

    model: str | None = about(
        "Catalog id or path of a config.json; for openvino a GGUF file or a folder in OpenVINO's"
        " format."
    )
    precision: str | None = about(
        "Number format (default: the one that the model is published in; for openvino auto, or"
        " fp32)."
    )
    max_model_len: int | None = about(
        "Prompt plus output at most, in tokens (default: what the model allows)."
    )
    prefix_caching: bool = about(
        "Share the blocks of equal prompt beginnings (the default).", default=True
    )
    max_waiting: int = about(
        "Requests that may wait when another comes; further ones get 503 (default: no limit).",
        default=0,
    )
    served_model_name: str | None = about(
        "Name that clients use for the model (default: its catalog id, or the name of its file)."
    )
    host: str = about("Address to listen on (default: 127.0.0.1).", default="127.0.0.1")
    port: int = about("Port to listen on; 0 takes a free one (default: 8000).", default=8000)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetArguments(ServedArguments):
    """The arguments of the fleet: how many instances there are."""

    instances: int | None = about("Engines behind one router (default: 1, or what the plan says).")
    router: str = about(
        "Router between the instances: round-robin, random, power-of-two and others (default:"
        " least-outstanding).",
        default="least-outstanding",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedArguments(FleetArguments):
    """A simulated engine, as well."""

    gpu: str | None = about("GPU id (default: h100-sxm-80gb).")
    tp: int | None = about("Tensor-parallel degree (default: 1).")
    plan: Path | None = about("A plan that tonnage size --output wrote: its choice is served.")
    rules: str | None = about(
        "Engine preset whose scheduler and step times are simulated (default: the newest of vLLM)."
    )
    speed: float = about(
        "Speed of the simulated time, as a multiple of wall-clock time (default: 1).", default=1.0
    )
    tokenizer: Path | None = about("Local tokenizer.json; without one, 4 characters are a token.")
    osl: str | None = about(
        "Length of answers that end by themselves, such as 200 or lognormal:211,163 (default: as in"
        " Azure's traces)."
    )
    reasoning_parser: str | None = about(
        "Any name, as in vLLM: the model thinks before it answers."
    )
    runner: str = about(
        "As in vLLM: generate (default), or pooling for a model that embeds.", default="generate"
    )
    kv_events: str = about(
        "ZeroMQ address for the events of the prefix cache, such as tcp://*:5557 (the extra"
        " events).",
        default="",
    )
    kv_events_replay: str = about(
        "ZeroMQ address at which they are sent again, such as tcp://*:5558.", default=""
    )
    kv_events_topic: str = about("Topic before each batch of them (default: none).", default="")
    kv_role: str | None = about(
        "Side of prefill and decode apart, as vLLM's NIXL connector: producer or consumer (default:"
        " neither)."
    )
    kv_link: str | None = about(
        "Bytes per second that a GPU sends to the other side (default: 50GB/s, a port of 400 Gb/s)."
    )
    kv_overlap: bool = about(
        "Send a layer's KV cache as soon as it is computed (default: no).", default=False
    )
    rank_ports: bool = about(
        "Give every instance or attention rank a separate port, from the given one on.",
        negative=False,
        default=False,
    )
    emulate: str = about(
        "Engine whose errors, replies and names of metrics clients see: vllm, tensorrt-llm, sglang,"
        " nim or triton (default: vllm).",
        default="vllm",
    )
    fault: Sequence[str] = about(
        'Fault to inject, such as "slow factor=5 instance=1 from=10s"; once for each'
        " (docs/serve.md).",
        default=(),
    )
    seed: int = about("Seed of which requests faults meet (default: 0).", default=0)
    coefficients: Path | None = about(
        "File that tonnage calibrate wrote; its factors are applied to the shipped terms."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenvinoArguments(ServedArguments):
    """A real model on this machine's CPU, as well."""

    default_osl: int = about(
        "Output tokens of a chat that sets no limit (default: what the context leaves).", default=0
    )
    max_batch_size: int = about("Requests that share a step (default: 32).", default=32)
    max_num_tokens: int = about(
        "Tokens of a step; longer prompts are read in parts (default: 256).", default=256
    )
    kv_cache_gb: int = about("Memory of the KV cache in GB (default: 1).", default=1)
    threads: int = about("CPU threads (default: OpenVINO's choice).", default=0)
