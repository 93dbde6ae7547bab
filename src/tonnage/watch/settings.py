"""What running engines say of themselves, compared with what a plan counts on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tonnage.bench.scrape import fetch
from tonnage.formats.prometheus import Page
from tonnage.plan.candidate import Pool
from tonnage.spec.catalog import engines, find_engine
from tonnage.spec.catalog.checkpoints import HALF, find_checkpoints
from tonnage.spec.precision import find_precision
from tonnage.spec.typed_values import MOST_DIGITS
from tonnage.watch.expected import signals_on

Value = str | int | float | bool | None

# Timeout of /server_info: for its first answer vLLM collects the software of its machine, which
# takes seconds
INFO_S = 60.0

BLOCKS_WITHIN = 0.1
"""How far KV blocks may be from the prediction: the worst of four engines that were measured is 4 %
off (perf/memory.py)."""

MIXED = (
    "compressed-tensors",
    "modelopt",
    "modelopt_fp4",
    "modelopt_fp8",
    "quark",
    "auto-round",
    "online",
    "torchao",
)
"""Quantisation methods whose name does not say the number format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting that the plan counts on."""

    name: str  # such as "context"
    planned: Value  # value of the plan
    running: Value  # value of the engine; None where it does not publish it
    off: bool  # whether they differ
    told: str = ""  # the difference in words; empty where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One running instance."""

    url: str  # where it answers
    served: str  # the name by which clients ask for its model; empty where it does not say it
    settings: tuple[Setting, ...]  # next to the plan's

    @property
    def off(self) -> tuple[Setting, ...]:
        """The settings that differ."""
        return tuple(setting for setting in self.settings if setting.off)

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return {"url": self.url, "settings": [asdict(setting) for setting in self.settings]}


def instance(url: str, pool: Pool) -> Instance:
    """Ask an engine what it runs, and compare that with a pool of a plan."""
    running = _running(url, Page(fetch(f"{url}/metrics") or fetch(f"{url}/prometheus/metrics")))
    return Instance(
        url=url, served=str(running["served"] or ""), settings=tuple(_settings(pool, running))
    )


def _running(url: str, page: Page) -> dict[str, Value]:
    """The settings that an engine reports, under one name for all engines."""
    signals = signals_on(page)
    family = "" if signals is None else signals.running.partition(":")[0] or "tensorrt-llm"
    cards = _json(f"{url}/v1/models").get("data")
    card = cards[0] if isinstance(cards, list) and cards and isinstance(cards[0], dict) else {}
    server_info = _json(f"{url}/server_info?config_format=json", timeout_s=INFO_S)
    settings: dict[str, Value] = {
        "engine": family or None,
        "version": _json(f"{url}/version").get("version") or server_info.get("version"),
    }
    settings |= {
        "model": card.get("root") or card.get("id"),
        "served": card.get("id"),
        "context": card.get("max_model_len"),
    }
    info = page.of("vllm:cache_config_info")
    labels: Mapping[str, Any] = info[0].labels if info else {}
    settings |= {
        "block": labels.get("block_size"),
        "blocks": labels.get("num_gpu_blocks"),
        "kv_format": labels.get("cache_dtype"),
        "prefix cache": labels.get("enable_prefix_caching"),
    }
    settings |= (
        _of_vllm(server_info["vllm_config"])
        if isinstance(server_info.get("vllm_config"), dict)
        else _of_sglang(server_info)
        if "tp_size" in server_info
        else {}
    )
    return {name: _plain(value) for name, value in settings.items()}


def _of_vllm(document: Mapping[str, Any]) -> dict[str, Value]:
    """``/server_info`` of vLLM with VLLM_SERVER_DEV_MODE (0.32.0 entrypoints/serve/dev/server_info,
    read 2026-11-25).
    """
    model, cache, split, steps = (
        document.get(f"{part}_config") or {} for part in ("model", "cache", "parallel", "scheduler")
    )
    settings = {
        "format": (model.get("quantization") or "none") if model else None,
        "slots": steps.get("max_num_seqs"),
        "step tokens": steps.get("max_num_batched_tokens"),
        "chunked prefill": steps.get("enable_chunked_prefill"),
        "TP": split.get("tensor_parallel_size"),
        "PP": split.get("pipeline_parallel_size"),
        "DP": split.get("data_parallel_size"),
        "kv_format": cache.get("cache_dtype"),
        "prefix cache": cache.get("enable_prefix_caching"),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _of_sglang(document: Mapping[str, Any]) -> dict[str, Value]:
    """``/server_info`` of SGLang: its arguments, and its scheduler's (0.5.9
    entrypoints/http_server.py, read 2026-11-25).
    """
    ranks = int(document.get("dp_size") or 1) if document.get("enable_dp_attention") else 1
    chunk = document.get("chunked_prefill_size")
    return {
        "format": document.get("quantization") or "none",
        "slots": document.get("max_running_requests"),
        "step tokens": None if chunk == -1 else chunk,
        "chunked prefill": None if chunk is None else chunk != -1,
        "TP": int(document["tp_size"]) // ranks,
        "PP": document.get("pp_size"),
        "DP": document.get("dp_size"),
        "block": document.get("page_size"),
        "tokens": document.get("max_total_num_tokens"),
        "kv_format": document.get("kv_cache_dtype"),
        "prefix cache": None
        if document.get("disable_radix_cache") is None
        else not document["disable_radix_cache"],
        "context": document.get("context_length"),
    }


def _settings(pool: Pool, running: Mapping[str, Value]) -> Iterator[Setting]:
    engine, knobs, precision = (
        find_engine(pool.engine_preset or pool.engine),
        pool.knobs,
        find_precision(pool.precision),
    )
    yield _same("engine", engine.family, running["engine"])
    yield _version(engine.family, engine.name, running["version"])
    names = {
        pool.model,
        *(
            part
            for checkpoint in find_checkpoints(pool.model)
            for part in (checkpoint.repository, checkpoint.repository.rsplit("/", 1)[-1])
        ),
    }
    model = running["model"]
    same_model = (
        model is None
        or model in names
        or running["served"] in names
        or str(model).rsplit("/", 1)[-1] in names
    )
    yield Setting(
        name="model",
        planned=pool.model,
        running=model,
        off=not same_model,
        told="" if same_model else f"it serves {model}",
    )
    launch = find_engine(pool.engine_preset or pool.engine).launch
    flag = None if launch is None else launch.flag("max_context")
    context = int(pool.launch[pool.launch.index(flag) + 1]) if flag in pool.launch else None
    yield _same("context", context, running["context"])
    split = pool.parallelism
    for name, degree in (("TP", split.tp), ("PP", split.pp), ("DP", split.dp)):
        yield _same(name, degree, running.get(name))
    yield _format(precision.weights, running.get("format"))
    kv = running["kv_format"]
    narrow = None if kv is None else str(kv).startswith("fp8")
    yield _same("KV cache in FP8", precision.kv == "fp8", narrow)
    if knobs is not None:
        yield _same("slots", knobs.max_batch_size, running.get("slots"))
        yield _same("step tokens", knobs.max_num_tokens, running.get("step tokens"))
        yield _same("chunked prefill", knobs.chunked_prefill, running.get("chunked prefill"))
        yield _same("tokens of a KV block", knobs.tokens_per_block, running["block"])
        yield _same("prefix cache", knobs.prefix_caching, running["prefix cache"])
    if pool.kv_tokens is not None:
        yield _kv_tokens(pool.kv_tokens // split.dp, running)


def _same(name: str, planned: Value, running: Value) -> Setting:
    off = planned is not None and running is not None and planned != running
    return Setting(
        name=name,
        planned=planned,
        running=running,
        off=off,
        told=f"{running} in place of {planned}" if off else "",
    )


def _version(family: str, preset: str, running: Value) -> Setting:
    """The version is one that the plan's preset is for: from its own on, up to that of the next
    preset of the family.
    """
    if running is None:
        return Setting(name="version", planned=preset, running=None, off=False)
    numbers = _numbers(str(running))
    of_family = sorted(
        (engine for engine in engines() if engine.family == family),
        key=lambda engine: _numbers(engine.since),
    )
    met = [
        engine_preset.name
        for engine_preset in of_family
        if _numbers(engine_preset.since) <= numbers
    ]
    off = not met or met[-1] != preset
    remark = f"{running} is not a version of {preset}" + (f" but of {met[-1]}" if met else "")
    return Setting(
        name="version", planned=preset, running=running, off=off, told=remark if off else ""
    )


def _format(planned: str, running: Value) -> Setting:
    if running is None or str(running) in MIXED:
        return Setting(name="number format", planned=planned, running=running, off=False)
    half = running in ("none", *HALF)
    off = half != (planned in HALF) or not (half or _family_of(str(running)) == _family_of(planned))
    return Setting(
        name="number format",
        planned=planned,
        running=running,
        off=off,
        told=f"{running} in place of {planned}" if off else "",
    )


def _family_of(text: str) -> str:
    """Such as "fp8" of "fp8_per_tensor", or "awq" of "awq_marlin"."""
    return re.split(r"[_+-]", text)[0]


def _kv_tokens(planned: int, running: Mapping[str, Value]) -> Setting:
    block, blocks, tokens = running["block"], running["blocks"], running.get("tokens")
    running_tokens = (
        int(block) * int(blocks) if isinstance(block, int) and isinstance(blocks, int) else tokens
    )
    if not isinstance(running_tokens, int):
        return Setting(name="tokens of the KV cache", planned=planned, running=None, off=False)
    share = running_tokens / planned - 1
    off = abs(share) > BLOCKS_WITHIN
    remark = (
        f"{abs(share):.0%} {'more' if share > 0 else 'less'} than the {planned:,} predicted"
        if off
        else ""
    )
    return Setting(
        name="tokens of the KV cache", planned=planned, running=running_tokens, off=off, told=remark
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,9}", text.partition("+")[0])[:3]))


def _plain(value: Any) -> Value:
    """Labels of metrics are texts: numbers, switches and "None" again as what they stand for."""
    if not isinstance(value, str):
        return value if isinstance(value, bool | int | float) else None
    if value in ("None", ""):
        return None
    if value in ("True", "False"):
        return value == "True"
    return int(value) if value.isdigit() and len(value) < MOST_DIGITS else value


def _json(url: str, timeout_s: float = 2.0) -> dict[str, Any]:
    """The object behind a URL; empty where there is none."""
    try:
        document = json.loads(fetch(url, timeout_s) or "{}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
