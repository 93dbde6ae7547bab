from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from tests.deploy.plans import dense
from tests.in_turn import in_turn
from tonnage.deploy.service import Service
from tonnage.deploy.targets import TARGETS, deployed, target_files
from tonnage.errors import InputError
from tonnage.plan.launch import command, listening, with_drafter, with_metrics
from tonnage.spec.catalog import find_engine, find_gpu, usual_offloading
from tonnage.spec.catalog.interfaces import Interface, find_interface, starts_offloading
from tonnage.spec.deployment import EngineKnobs, Parallelism, Speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.kv_tiers import AskedTier
from tools.interfaces import WHEELS

PRESETS = (*WHEELS, "tensorrt-llm-1.0", "tensorrt-llm-1.1", "tensorrt-llm-1.2")

KNOBS = {
    "max_batch_size": 96,
    "max_num_tokens": 4_000,
    "graph_tokens": 256,
    "stream_interval": 4,
    "receive_interval": 2,
    "front_ends": 3,
    "batch_wait_steps": 2,
    "batch_wait_ratio": 0.5,
}


def interface_of(preset: str) -> Interface:
    found = find_interface(preset)
    assert found is not None
    return found


def speculations(preset: str) -> list[Speculation | None]:
    launch = find_engine(preset).launch
    return [
        None,
        *(Speculation(method=method, tokens=3, acceptance=0.7) for method, _ in launch.speculation),
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_command_that_a_preset_can_make_is_taken_by_its_version(preset: str) -> None:
    engine, interface = find_engine(preset), interface_of(preset)
    offloading = usual_offloading(engine.family)
    for split, overlap, chunked, kv_8bit, speculation in itertools.product(
        (Parallelism(), Parallelism(tp=2, pp=2, dp=4, ep=8)),
        (False, True),
        (False, True),
        (False, True),
        speculations(preset),
    ):
        knobs: EngineKnobs = replace(
            default_knobs(engine, find_gpu("h100-sxm-80gb"), ranks=1),
            **KNOBS,
            overlap_schedule=overlap,
        )
        knobs = replace(knobs, chunked_prefill=chunked)
        made = command(
            engine.launch,
            checkpoint="a/m",
            parallelism=split,
            knobs=knobs,
            max_context=4_096,
            kv_8bit=kv_8bit,
            speculation=speculation,
            offloading=offloading,
            tiers=(AskedTier(name="host", size=10**12),)
            if starts_offloading(offloading, engine)
            else (),
        )
        started = with_drafter(made, "a/drafter")
        words = (*started.argv, *listening(engine.family, host="0.0.0.0", port=8_000, name="m"))
        assert interface.fault(words, with_metrics(started.file)) == ""
    for _, words in engine.launch.quantize:
        assert interface.fault(words, {}) == ""


def test_what_a_version_does_not_take_is_named() -> None:
    vllm, sglang, tensorrt = (
        interface_of("vllm-0.10"),
        interface_of("sglang-0.5.9"),
        interface_of("tensorrt-llm-1.2"),
    )
    assert (
        vllm.fault(("vllm", "serve", "m", "--stream-interval", "4"), {})
        == "vllm-0.10 (0.10.2) has no flag --stream-interval"
    )
    assert (
        vllm.fault(("vllm", "serve", "m", "--max-model-len"), {})
        == "--max-model-len lacks its value"
    )
    assert vllm.fault(("vllm", "serve", "m", "--enable-expert-parallel=1"), {}).endswith(
        "has no flag --enable-expert-parallel=1"
    )
    assert "auto, fp8_e5m2, fp8_e4m3" in sglang.fault(("--kv-cache-dtype", "fp8"), {})
    assert tensorrt.fault((), {"kv_cache_config": {"size": 1}}).endswith(
        "has no key kv_cache_config.size in its configuration file"
    )
    assert tensorrt.fault((), {"speculative_config": {"decoding_type": "DraftTarget"}}).endswith(
        "not DraftTarget"
    )


def served(preset: str, target: str) -> Service | None:
    try:
        return deployed(dense(preset), target)
    except InputError:
        return None


METRIC = re.compile(r"\b(?:vllm|sglang):[a-z]+_\w+|\btrtllm_\w+_(?:seconds|total)\w*")


@pytest.mark.parametrize(("preset", "target"), in_turn(PRESETS, tuple(TARGETS)))
def test_every_metric_and_image_of_the_files_is_in_the_table(preset: str, target: str) -> None:
    service = served(preset, target)
    if service is None:
        return
    interface = interface_of(preset)
    known = set(interface.metrics.split())
    files = target_files(service, target)
    for name, text in files.items():
        for metric in METRIC.findall(text):
            assert (
                metric in known or re.sub("_(bucket|sum|count)$", "", metric) in interface.buckets
            ), (name, metric)
        for image in re.findall(
            r"(?:vllm/vllm-openai|lmsysorg/sglang|tensorrt-llm/release):[\w.-]+", text
        ):
            assert interface.image.endswith(image)
    flags = "compose.yaml" if target == "compose" else "deployment.yaml"
    if interface.recalled and flags in files:
        assert "recalled" in files[flags]
