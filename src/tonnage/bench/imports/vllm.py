"""``vllm bench serve --save-result --save-detailed`` (0.33): lists with one entry a request, times in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.bench.imports.past_request import PastRequest, PastRun, moments, number
from tonnage.errors import InputError

NS_PER_S = 1e9
_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times")


def read(path: Path, document: dict[str, Any]) -> PastRun:
    """Every request of the file.

    Raises:
        InputError: the file was saved without details, or a list is damaged.
    """
    missing = [name for name in _LISTS if not isinstance(document.get(name), list)]
    if missing:
        raise InputError(f"{path}: has no {', '.join(missing)}; save the run again with vllm bench serve --save-detailed")
    if len({len(document[name]) for name in _LISTS}) != 1:
        raise InputError(f"{path}: its lists have different lengths; give the file as the tool wrote it")
    errors = document.get("errors") or [""] * len(document["ttfts"])
    requests = [_request(document, place, str(errors[place] or ""), f"{path}, request {place}") for place in range(len(document["ttfts"]))]
    requests.sort(key=lambda request: request.sent_ns)
    rate = document.get("request_rate")
    return PastRun(
        tool="vllm",
        model=str(document.get("model_id") or ""),
        concurrency=int(document.get("max_concurrency") or 0),
        rate=float(rate) if isinstance(rate, int | float) and rate < 1e300 else 0.0,
        requests=tuple(requests),
    )


def _request(document: dict[str, Any], place: int, error: str, where: str) -> PastRequest:
    isl, osl, first, start = (
        number(document[name][place], f"{where}, {name}") for name in ("input_lens", "output_lens", "ttfts", "start_times")
    )
    sent = round(start * NS_PER_S)
    if error or (not osl and not first):
        return PastRequest(due_ns=sent, sent_ns=sent, events_ns=(), isl=round(isl), osl=0, outcome=" ".join(error.split())[:60] or "failed")
    gaps = [number(gap, f"{where}, itls") for gap in document["itls"][place]]
    return PastRequest(due_ns=sent, sent_ns=sent, events_ns=moments(sent, first, gaps, NS_PER_S), isl=round(isl), osl=round(osl))
