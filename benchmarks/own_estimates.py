"""AIConfigurator's own estimates of measured rows, without our simulator; only docs/accuracy.md
uses them.

A static batch is its ``EngineHandle.run_static``; a closed loop is its aggregated estimate,
``run_agg``, at a batch of as many requests as there are clients and with a context budget of one
prompt, which is what its command line takes by default (recalled; with the engine's own token
budget TTFT comes out worse, TPOT alike). Formats are those that our step model asks for.
"""

from __future__ import annotations

import logging
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.evidence.predict import Point
from tonnage.perf import aiconfigurator
from tonnage.perf.aiconfigurator import NAMED, Tables, tables_of

FOLDER = tempfile.TemporaryDirectory()
MS_PER_S = 1e3


def estimate(point: Point) -> dict[str, float]:
    """AIConfigurator's prediction of a row by column; empty where it has none."""
    try:
        tables = tables_of(point.deployment)
        return _static(point, tables) if point.batch is not None else _closed(point, tables)
    except InputError:
        return {}
    except ImportError:  # a wheel without what it needs would look like one that has no estimate
        raise
    except Exception:  # the wheel raises many kinds
        return {}


def _static(point: Point, tables: Tables) -> dict[str, float]:
    batch = point.batch or 1
    prefill, decode, whole = aiconfigurator.compiled(tables).run_static(
        batch_size=batch, isl=point.isl, osl=point.osl
    )
    found = {
        "ttft_ms": prefill,
        "e2e_ms": whole,
        "output_tok_s": batch * point.osl / whole * MS_PER_S,
    }
    return found | ({"itl_ms": decode / (point.osl - 1)} if point.osl > 1 else {})


def _closed(point: Point, tables: Tables) -> dict[str, float]:
    # a queue of everything at once has no steady batch
    if point.concurrency is None or point.concurrency == point.requests:
        return {}
    from aiconfigurator_core.sdk.config import RuntimeConfig

    backend, model, database = _session(tables)
    run = RuntimeConfig(batch_size=point.of_rank.concurrency, isl=point.isl, osl=point.osl)
    found = backend.run_agg(model, database, run, ctx_tokens=point.isl).get_result_dict()
    names = {
        "ttft_ms": "ttft",
        "itl_ms": "tpot",
        "e2e_ms": "request_latency",
        "requests_s": "seq/s",
    }
    return {column: float(found[name]) for column, name in names.items()}


@lru_cache(maxsize=64)
def _session(tables: Tables) -> tuple[Any, Any, Any]:
    from aiconfigurator_core.sdk.backends.factory import get_backend
    from aiconfigurator_core.sdk.config_builders import build_model_config
    from aiconfigurator_core.sdk.models import get_model
    from aiconfigurator_core.sdk.perf_database import get_database

    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    folder = (
        Path(FOLDER.name) / f"{tables.model.name}-{tables.system}-{tables.backend}-{tables.gemm}"
    )
    folder.mkdir(exist_ok=True)
    path = NAMED.get(tables.model.name) or aiconfigurator.written(tables.model, folder)
    formats = aiconfigurator.formats(tables)
    parallel = (
        tables.parallelism.tp,
        1,
        *(formats.pop(name, 1) for name in ("attention_dp_size", "moe_tp_size", "moe_ep_size")),
    )
    config = build_model_config(*parallel, **formats)
    return (
        get_backend(tables.backend),
        get_model(path, config, tables.backend),
        get_database(tables.system, tables.backend, "current"),
    )
