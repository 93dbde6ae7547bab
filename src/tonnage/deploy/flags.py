"""The engine's flags, without those that a target sets by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.plan.candidate import Role


def without(words: Sequence[str], *left_out: str) -> list[str]:
    """The words of a command without some flags and the values behind them."""
    found: list[str] = []
    place = 0
    while place < len(words):
        if words[place] in left_out:
            place += 2
            continue
        found.append(words[place])
        place += 1
    return found


LEADER = "$(LWS_LEADER_ADDRESS)"
"""Address of the first pod of a group, which LeaderWorkerSet puts into the environment of each; ``WORKER`` is a pod's own place."""

WORKER = "$(LWS_WORKER_INDEX)"
"""Set by LeaderWorkerSet from 0.6 on (its documentation and manifests, read 2026-11-25)."""


def node_words(family: str, *, nodes: int, rank: str) -> tuple[str, ...]:
    """The engine's own flags of one of several nodes of an instance; vLLM takes its mp executor for them, without Ray."""
    shared = ("--nnodes", str(nodes), "--node-rank", rank)
    if family == "sglang":
        return (*shared, "--dist-init-addr", f"{LEADER}:5000")
    return (*shared, "--master-addr", LEADER, "--distributed-executor-backend", "mp", *(() if rank == "0" else ("--headless",)))


# What makes an engine one of two pools: the flags and the file by which prefill instances send their KV cache to decode instances.


NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
"""vLLM's connector (Dynamo's examples/backends/vllm/deploy/v1beta1/disagg.yaml, read 2026-11-23); both sides take the role kv_both."""

CONTEXT = "--max_seq_len"
"""The flag of TensorRT-LLM whose value the transfer's buffer has to hold."""


def transfer_words(family: str, role: Role) -> tuple[str, ...]:
    """The engine's own flags; none where instances do both, and none of TensorRT-LLM, which is told by its file.

    Those of SGLang were read in llm-d's guides/pd-disaggregation on 2026-11-23.
    """
    if role == "serve":
        return ()
    if family == "sglang":
        return ("--disaggregation-mode", role, "--disaggregation-transfer-backend", "nixl")
    return ("--kv-transfer-config", NIXL) if family == "vllm" else ()


def transfer_file(role: Role, launch: Sequence[str]) -> Mapping[str, Any]:
    """What TensorRT-LLM's file holds in addition; its prefill instances take no overlap scheduler.

    Read in Dynamo's examples/backends/trtllm/engine_configs/deepseek-r1/disagg on 2026-11-23.
    """
    if role == "serve":
        return {}
    tokens = {"max_tokens_in_buffer": int(launch[launch.index(CONTEXT) + 1])} if CONTEXT in launch else {}
    return {"disable_overlap_scheduler": role == "prefill", "cache_transceiver_config": {"backend": "UCX", **tokens}}
