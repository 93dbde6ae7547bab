"""Models, GPUs, systems and engines that Tonnage knows by name, each with its source and date."""

from tonnage.spec.catalog.accuracy import QualityScore, TradeOff, accuracy_and_calibration, find_quality, find_score, trade_offs
from tonnage.spec.catalog.lookup import (
    Entry,
    engines,
    find_encoder,
    find_engine,
    find_gpu,
    find_model,
    find_system,
    gpu_of,
    gpus,
    machine_meant,
    models,
    search,
    system_of,
    systems,
)

__all__ = [
    "Entry",
    "QualityScore",
    "TradeOff",
    "accuracy_and_calibration",
    "engines",
    "find_encoder",
    "find_engine",
    "find_gpu",
    "find_model",
    "find_quality",
    "find_score",
    "find_system",
    "gpu_of",
    "gpus",
    "machine_meant",
    "models",
    "search",
    "system_of",
    "systems",
    "trade_offs",
]
