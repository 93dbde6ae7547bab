"""Replies, batches, drivers and tokenizers, made."""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tonnage.bench.prompts import PLAIN_WORDS


def words_tokenizer(path: Path) -> Path:
    """A byte-level BPE tokenizer that knows some words whole, and the others in pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = [" ".join(PLAIN_WORDS[:60])] * 20 + list(PLAIN_WORDS[:60]) * 20
    tokenizer.train_from_iterator(
        text,
        trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.save(str(path))
    return path


MS = 1_000_000


class NvmlFault(Exception):
    pass


def library(
    *,
    gpus: int = 2,
    driver: bool = True,
    energy: Callable[[float], float] = lambda now: 300.0 * now,
) -> types.ModuleType:
    """A stand-in for ``pynvml``: GPU 1 does not tell its power."""
    made = types.ModuleType("pynvml")

    def init() -> None:
        if not driver:
            raise NvmlFault("Driver Not Loaded")

    def power(handle: int) -> int:
        if handle == 1:
            raise NvmlFault("Not Supported")
        return 412_500

    for name, value in {
        "NVMLError": NvmlFault,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": init,
        "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda place: place,
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200" if handle else "NVIDIA H100",
        "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(gpu=87, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(used=70 * 2**30),
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1_755,
        "nvmlDeviceGetTemperature": lambda handle, kind: 61,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: round(1e3 * energy(time.monotonic())),
    }.items():
        setattr(made, name, value)
    return made
