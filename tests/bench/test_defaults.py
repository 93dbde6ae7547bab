"""What holds of a measurement where nothing is said, and the bounds that it keeps to."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

from tests.defaults import of_class, of_function
from tonnage.bench import (
    arguments,
    benchmark,
    client,
    conductor,
    connection,
    conversations,
    endpoints,
    exact_replies,
    exact_server,
    find_max,
    http_response,
    infer,
    intervals,
    load,
    measure,
    prompts,
    receiver,
    recorder,
    reply,
    scrape,
    selftest,
    steady,
    tiers,
    timer,
    validity,
    workers,
)


@pytest.mark.parametrize(
    ("kind", "usual"),
    [
        (
            benchmark.Wanted,
            {
                "percentiles": (),
                "error_rate": 0.01,
                "slo": (),
                "tokens": True,
                "tiers": (),
                "priced": None,
                "seed": 0,
            },
        ),
        (benchmark.Measured, {"unwritten": ""}),
        (conductor._Talk, {"open": 0, "tokens": 0, "failures": 0, "history": []}),
        (connection.Target, {"tls": False, "path": "", "grpc": False}),
        (
            connection.Setup,
            {
                "timeout_s": 600.0,
                "tls": None,
                "reuse": True,
                "warmup": 0,
                "headers": (),
                "ca_file": None,
                "workers": 1,
                "talks": False,
                "first": 0,
                "step": 1,
            },
        ),
        (
            conversations.Conversations,
            {"due_ns": None, "texts": (), "follows": None, "contents": None},
        ),
        (conversations.Turn, {"osl": 0, "pause_s": None}),
        (
            endpoints.Delta,
            {
                "text": "",
                "tokens": -1,
                "prompt": -1,
                "cached": -1,
                "reasoning": 0,
                "finish": "",
                "error": "",
                "thought": False,
                "choices": 1,
            },
        ),
        (endpoints.Chat, {"streaming": True, "pinned": True, "extra": {}, "omitted": ()}),
        (exact_replies.Request, {"usage": True}),
        (
            exact_server.Served,
            {
                "started_ns": -1,
                "first_ns": -1,
                "last_ns": -1,
                "sends": [],
                "place": 0,
                "event": b"",
            },
        ),
        (
            infer.Tensors,
            {
                "batched": True,
                "binary": False,
                "called": "",
                "seed": 0,
                "counter": None,
                "characters": 1.0,
                "exact": True,
                "_made": {},
            },
        ),
        (
            load.Talk,
            {"file": None, "sessions": None, "count": None, "pinned": True},
        ),
        (
            load.Question,
            {
                "pairs": None,
                "listed": None,
                "burst": 0,
                "seconds": None,
                "ramp_s": 0.0,
                "grace_s": math.inf,
                "seed": 0,
                "talk": None,
            },
        ),
        (
            measure.Observed,
            {"ends_ns": (), "endpoint": None, "held": 0, "waits": 0, "turns": None},
        ),
        (
            prompts.Prompts,
            {
                "counter": None,
                "characters": 4.0,
                "additive": False,
                "shared": "",
                "shared_tokens": 0,
                "salt": 0,
            },
        ),
        (recorder.TokenTimes, {"shared": False, "hidden": 0}),
        (
            recorder.Tally,
            {
                **{name: Counter() for name in ("outcomes", "sources", "finishes")},
                **dict.fromkeys(("shared", "tokens", "events", "hidden", "hiding", "uncounted"), 0),
                **dict.fromkeys(("several", "isl_off", "osl_off", "osl_far", "isl_extra"), 0),
                "prompt_counts": 0,
                "examples": [],
            },
        ),
        (workers.Part, {"requests": None, "fault": ""}),
    ],
)
def test_a_record_holds_this_where_nothing_is_said(kind: type, usual: dict[str, Any]) -> None:
    assert of_class(kind) == usual


def test_intervals_of_a_run_and_of_a_ratio_are_not_known_until_they_are() -> None:
    for kind, names in ((steady.Steady, 3), (intervals.Ratio, 2)):
        values = [value for value in of_class(kind).values() if isinstance(value, float)]
        assert len(values) == names
        assert all(map(math.isnan, values))


def test_arguments_of_the_command_hold_this_where_nothing_is_said() -> None:
    """What is not in this table has no value until the user gives one."""
    usual = of_class(arguments.BenchArguments)
    lists = {name for name, value in usual.items() if value == ()}
    assert lists == {
        *("extra_inputs", "omit_inputs", "header", "metrics_url", "tensor", "percentiles"),
        *("slo", "attain", "tier", "price", "export"),
    }
    assert {name: usual[name] for name in usual if usual[name] not in (None, ())} == {
        "endpoint_type": "chat",
        "streaming": True,
        "pin_output": True,
        "api_key_env": "OPENAI_API_KEY",
        "request_timeout": "10min",
        "reuse_connections": True,
        "gpu_metrics": False,
        "binary_tensors": False,
        "arrival_pattern": "poisson",
        "cv": 1.0,
        "benchmark_grace_period": "30s",
        "warmup_request_count": 0,
        "characters_per_token": 4.0,
        "shared_prefix": 0,
        "workers": 1,
        "seed": 0,
        "max_error_rate": 0.01,
        "tokens": True,
    }
    assert of_class(arguments.ExactArguments) == {
        "port": 0,
        "ttft": "50ms",
        "itl": "10ms",
        "tokens_per_event": 1,
        "slots": 0,
        "freeze_at": "0s",
        "freeze_for": "0s",
        "fault": "none",
        "fault_every": 0,
    }
    several = [part.name for part in fields(arguments.BenchArguments) if part.metadata["several"]]
    assert several == ["percentiles"]


@pytest.mark.parametrize(
    ("function", "usual"),
    [
        (benchmark.benchmark, {"watchers": (), "metrics": None}),
        (client.Client, {"tls": None, "reuse": True}),
        (connection.request_head, {"key": "", "headers": ()}),
        (connection.request_bytes, {"further": b""}),
        (endpoints.model_path, {"verb": ""}),
        (
            endpoints.find_endpoint,
            {"streaming": True, "pinned": True, "extra": None, "omitted": ()},
        ),
        (exact_server.serve, {"host": "127.0.0.1", "port": 0, "seconds": 86_400.0}),
        (exact_server.exact_server, {"seconds": 600.0}),
        (exact_server.ExactServer, {"host": "127.0.0.1", "port": 0}),
        (find_max.Threshold, {"whole": False, "precision": 0.05}),
        (find_max.find_max, {"most_runs": 12}),
        (infer.tensors, {"called": ""}),
        (intervals.intervals, {"seed": 0}),
        (intervals.needed, {"confidence": 0.99}),
        (intervals.rank_interval, {"confidence": 0.99}),
        (intervals.compare, {"slo": (), "seed": 0}),
        (measure.measure, {"watchers": (), "gate": None}),
        (prompts.prompts, {"characters": 4.0, "shared_tokens": 0}),
        (prompts.TokenizerFile.words, {"most_words": 4_096}),
        (recorder.Recorder, {"count": None, "gaps": True}),
        (reply.Reply, {"keep_text": False}),
        (scrape.fetch, {"timeout_s": 2.0}),
        (scrape.Scraper, {"gpus": None, "every_s": 1.0}),
        (selftest.self_test, {"streams": 64, "requests": 0}),
        (validity.judge, {"percentiles": (), "error_rate": 0.01}),
        (workers.measure_by_workers, {"metrics": None}),
    ],
)
def test_a_function_takes_this_where_nothing_is_said(function: Any, usual: dict[str, Any]) -> None:
    assert of_function(function) == usual


@pytest.mark.parametrize(
    ("module", "bounds"),
    [
        (client, {"SWEEP_S": 0.1}),
        (
            conductor,
            {
                "AHEAD": 1_024,
                "AHEAD_BYTES": 64 * 2**20,
                "AT_ONCE_NS": 100_000_000,
                "SHORTEST_WAIT_S": 0.01,
                "LONGEST_WAIT_S": 1.0,
                "LONGEST_OF_A_COUNT_S": 0.05,
            },
        ),
        (connection, {"PIECE": 65_536, "HELD": 128, "LARGE": 16_384}),
        (conversations, {"LONGEST": 10_000_000, "STATISTICS": (50, 95)}),
        (exact_replies, {"MAX_REQUEST": 64 * 2**20}),
        (exact_server, {"LOGGED": 250_000, "LONGEST_S": 86_400.0}),
        (
            find_max,
            {
                "GROWTH": 2.0,
                "CELLS": 2_000,
                "CONFIDENCE": 0.9,
                "SUREST": 0.98,
                "NEAR": 0.02,
                "ODD": 0.005,
                "SETTLED": 7,
                "TAIL": 0.08,
                "LEAST_SURE": 0.05,
                "MOST_RUNS": 12,
                "CLEAR": 0.98,
                "SAME": 0.02,
                "MOST_ROOM": 0.05,
                "SPREAD": 1.96,
                "RISE": 0.02,
            },
        ),
        (
            http_response,
            {"MAX_HEAD": 32_768, "MAX_SIZE_LINE": 1_024, "MAX_EVENT": 16 * 2**20},
        ),
        (infer, {"PIECE": 65_536, "WAIT_S": 10.0, "MOST_BODY": 256_000_000}),
        (
            intervals,
            {
                "CONFIDENCE": 0.95,
                "BLOCKS": 30,
                "FEWEST_BLOCKS": 8,
                "BLOCK_REQUESTS": 5,
                "DRAWS": 200,
                "SAMPLES_CONFIDENCE": 0.99,
                "PERCENTILES": (50, 90, 95, 99),
                "QUANTILES": tuple(range(1, 100)),
            },
        ),
        (load, {"MOST_TALKS": 20_000, "MOST": 1_000_000}),
        (measure, {"KEPT": 1_000}),
        (
            prompts,
            {"OWN_WORDS": 12, "WORDS": 4_096, "FEWEST_WORDS": 16, "MOST_BYTES": 2_000_000_000},
        ),
        (
            receiver,
            {
                "MOST_PIECES": 64,
                "PIECE": 16_384,
                "MOST_PAUSE_NS": 2_000_000,
                "LEAST_PAUSE_NS": 100_000,
                "OF_REQUEST": 100,
                "OF_GAP": 5,
                "SLOWLY": 8,
                "EMPTY_ROUNDS": 2,
                "SLACK_NS": 1_000_000,
                "SLICE_NS": 1_000_000,
                "HELD_UP_NS": 20_000,
            },
        ),
        (
            recorder,
            {"UNSEEN": 2, "FOLD_TOKENS": 2_048, "BATCH_TOKENS": 2**20, "EXAMPLES": 20},
        ),
        (
            reply,
            {
                "MAX_DOCUMENT": 64 * 2**20,
                "MAX_STREAM": 256 * 2**20,
                "MAX_EVENTS": 4 * 2**20,
                "MAX_QUOTED": 65_536,
            },
        ),
        (
            scrape,
            {
                "EVERY_S": 1.0,
                "MOST_BYTES": 16 * 2**20,
                "GPU_COUNTERS": {
                    "nvml:energy_j": 1.0,
                    "amdsmi:energy_j": 1.0,
                    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 0.001,
                    "nv_energy_consumption": 1.0,
                },
                "GPU_WATTS": dict.fromkeys(
                    (
                        *("nvml:power_w", "amdsmi:power_w", "DCGM_FI_DEV_POWER_USAGE"),
                        *("nv_gpu_power_usage", "gpu_package_power", "gpu_average_package_power"),
                    ),
                    1.0,
                ),
                "HOST_COUNTERS": {"rapl:energy_j": 1.0},
                "PDU_WATTS": {"rPDU2DeviceStatusPower": 10.0},
            },
        ),
        (selftest, {"TOKENS": 64, "CPU_SHARE": 0.85}),
        (
            steady,
            {
                "FEWEST_OF_TREND": 20,
                "BLOCKS": 10,
                "MOST_LEFT_OUT": 5,
                "FEWEST": 50,
                "DRIFT": 0.2,
                "SURE": 3.0,
                "RISING": 5.0,
            },
        ),
        (timer, {"BEAT_NS": 10_000_000, "SLICE_NS": 1_000_000_000}),
        (
            validity,
            {
                "MEAN_MS": 2.0,
                "MEAN_SHARE": 0.02,
                "P99_MS": 10.0,
                "P99_SHARE": 0.1,
                "CPU_SHARE": 0.85,
                "CPU_PEAK": 0.95,
                "CPU_PEAKS": 0.05,
                "REACHED": 0.95,
                "PERCENTILES": (50, 90, 95, 99),
                "KINDS_SHOWN": 4,
            },
        ),
        (workers, {"AHEAD_NS": 50_000_000}),
    ],
)
def test_the_bounds_of_a_measurement(module: ModuleType, bounds: dict[str, Any]) -> None:
    """In bytes, seconds, nanoseconds or shares, as their names say."""
    assert {name: getattr(module, name) for name in bounds} == bounds


def test_three_speeds_are_those_of_a_reader_and_of_two_programs() -> None:
    """30, 100 and 300 tokens a second after 15 s at most."""
    tiers_of = [(tier.tokens_per_second, tier.ttft_s) for tier in tiers.TIERS]
    assert tiers_of == [(30.0, 15.0), (100.0, 15.0), (300.0, 15.0)]
