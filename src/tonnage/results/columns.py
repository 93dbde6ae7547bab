"""Knows the column names that people and tools give to measured benchmarks, and what each of them means.

A header is read as a quantity, a statistic and a unit in any order and spelling: ``ttft_p95_ms``,
"Time To First Token (ms) p95" and "p95 TTFT [s]" name one column. A latency without a unit is
refused, a name that is not known here is left alone.

Sources: the shared tables of this project; GenAI-Perf 0.0.16 and AIPerf 0.13 report files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tonnage.errors import InputError

Kind = Literal["text", "count", "measure"]

TEXTS = ("model", "gpu", "precision", "engine", "source")
COUNTS = ("tp", "pp", "ep", "dp", "isl", "osl", "batch", "concurrency", "requests")
LATENCIES = ("ttft", "itl", "tpot", "e2e")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def shown(text: str) -> str:
    """A name or cell of a file as it stands in a message: one line, printable, at most 40 characters."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))
    return line if len(line) <= 40 else line[:39] + "…"


def latency_column(metric: str, statistic: str) -> str:
    """The canonical column of a latency: ``ttft_ms`` for the mean, ``ttft_p95_ms`` for a percentile."""
    return f"{metric}_ms" if statistic == "mean" else f"{metric}_{statistic}_ms"


LATENCY_COLUMNS = tuple(latency_column(m, s) for m in LATENCIES for s in STATISTICS)
MEASURES = ("request_rate", "window_s", *LATENCY_COLUMNS, "requests_s", "output_tok_s", "peak_gpu_memory_gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What a header means.

    Attributes:
        name: canonical name, one of ``TEXTS``, ``COUNTS`` or ``MEASURES``.
        scale: factor from the file's unit to the canonical one.
        soft: whether it gives way to a column that carries the canonical name: a measured mean
            length where the nominal one is absent.
    """

    name: str
    scale: float = 1.0
    soft: bool = False

    @property
    def kind(self) -> Kind:
        """Whether its cells are text, whole numbers or measured numbers."""
        if self.name in TEXTS:
            return "text"
        return "count" if self.name in COUNTS else "measure"


_PLAIN = {
    **{name.replace("_", " "): name for name in (*TEXTS, *COUNTS, *MEASURES)},
    "model name": "model",
    "model id": "model",
    "gpu type": "gpu",
    "gpu name": "gpu",
    "hardware": "gpu",
    "data type": "precision",
    "dtype": "precision",
    "quantization": "precision",
    "tensor parallelism": "tp",
    "tensor parallel": "tp",
    "tensor parallel size": "tp",
    "tp size": "tp",
    "pipeline parallelism": "pp",
    "pp size": "pp",
    "expert parallelism": "ep",
    "ep size": "ep",
    "attention data parallelism": "dp",
    "attention dp": "dp",
    "attention dp size": "dp",
    "input length": "isl",
    "input len": "isl",
    "input tokens": "isl",
    "output length": "osl",
    "output len": "osl",
    "output tokens": "osl",
    "batch size": "batch",
    "max concurrency": "concurrency",
    "concurrent requests": "concurrency",
    "concurrency level": "concurrency",
    "clients": "concurrency",
    "request count": "requests",
    "num requests": "requests",
    "num prompts": "requests",
    "rate": "request_rate",
    "backend": "engine",
}
_SOFT = {"input sequence length": "isl", "output sequence length": "osl"}
_LATENCY = {
    "ttft": "ttft",
    "time to first token": "ttft",
    "itl": "itl",
    "inter chunk latency": "itl",
    "inter token latency": "tpot",
    "intertoken latency": "tpot",
    "tpot": "tpot",
    "time per output token": "tpot",
    "e2e": "e2e",
    "e2e latency": "e2e",
    "e2el": "e2e",
    "end to end latency": "e2e",
    "request latency": "e2e",
    "time to last token": "e2e",
    "ttlt": "e2e",
    "first token latency": "ttft",
    "ftl": "ttft",
}
_RATE = {
    "request throughput": "requests_s",
    "requests": "requests_s",
    "requests per second": "requests_s",
    "requests per sec": "requests_s",
    "requests/s": "requests_s",
    "requests/sec": "requests_s",
    "req/s": "requests_s",
    "rps": "requests_s",
    "requests/s per instance": "requests_s",
    "requests per second per instance": "requests_s",
    "request throughput per instance": "requests_s",
    "output token throughput": "output_tok_s",
    "output throughput": "output_tok_s",
    "output tokens per second": "output_tok_s",
    "output tokens/s": "output_tok_s",
    "output tokens/sec": "output_tok_s",
}
_STATISTIC = {"avg": "mean", "average": "mean", "mean": "mean", "median": "p50", **{s: s for s in STATISTICS[1:]}}
_OTHER_STATISTIC = re.compile(r"^(min|max|std|stddev|sum|count|p\d+)$")
_TIME_UNIT = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "msec": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}
_RATE_UNIT = {"", "per sec", "per second", "/s", "req/s", "requests/s", "requests/sec", "tokens/s", "tokens/sec", "tok/s", "s"}
_WORD = re.compile(r"[^\W_]+(?:/[^\W_]+)?")
_UNIT = re.compile(r"[(\[]([^)\]]*)[)\]]")


def find_column(header: str) -> Column | None:
    """What a header of a measured table means, or None for a column that is not used.

    Raises:
        InputError: a latency without a unit, or a rate in a unit other than per second.
    """
    text = header.strip().lower()
    unit = " ".join(u.strip() for u in _UNIT.findall(text))
    words = _WORD.findall(_UNIT.sub(" ", text))
    plain = " ".join(words)
    if plain in _PLAIN and unit in ("", "tokens", "count", "requests"):
        return Column(name=_PLAIN[plain])
    statistics = [w for w in words if w in _STATISTIC]
    rest = [w for w in words if w not in _STATISTIC]
    if len(statistics) > 1 or any(_OTHER_STATISTIC.match(w) for w in rest):
        return None
    statistic = _STATISTIC[statistics[0]] if statistics else "mean"
    if not unit and len(rest) > 1 and rest[-1] in _TIME_UNIT:
        unit = rest.pop()
    return _measured(header, " ".join(rest), statistic, unit)


def _measured(header: str, quantity: str, statistic: str, unit: str) -> Column | None:
    """The column of a quantity in a unit; see ``find_column``."""
    if quantity in _SOFT:
        return Column(name=_SOFT[quantity], soft=True) if statistic == "mean" else None
    if quantity in _LATENCY:
        name = latency_column(_LATENCY[quantity], statistic)
        if unit not in _TIME_UNIT:
            what = f"has the unit '{unit}'" if unit else "has no unit"
            raise InputError(f"column '{shown(header)}' {what}; a latency is in ms or s: name it {name}")
        return Column(name=name, scale=_TIME_UNIT[unit])
    if quantity in _RATE and statistic == "mean":
        if unit not in _RATE_UNIT:
            raise InputError(f"column '{shown(header)}' has the unit '{unit}'; a rate is per second: name it {_RATE[quantity]}")
        return Column(name=_RATE[quantity])
    return None
