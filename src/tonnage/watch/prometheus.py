"""The history of a deployment from a Prometheus server, over its HTTP interface (``/api/v1/query_range``)."""

from __future__ import annotations

import base64
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from tonnage.errors import InputError, TonnageError, option
from tonnage.formats.prometheus import HISTORIES, INCREASE, Signals, curves
from tonnage.formats.table import inside
from tonnage.workload.history import HOUR_S, WATTS

MOST_POINTS = 10_000
"""Points of a series in one answer; Prometheus refuses more than 11,000."""
TIMEOUT_S = 120.0
MANY = 50
"""Instances from which on requests are read every five minutes and not every minute."""


class Server:
    """A Prometheus, Thanos, Mimir or VictoriaMetrics.

    Attributes:
        name: its URL without a password.
    """

    def __init__(self, url: str, *, headers: Sequence[str] = (), select: str = "") -> None:
        """Ask nothing yet. Raises InputError: no header.

        Args:
            url: such as http://prometheus:9090; user:password@ before the host is sent as basic authentication.
            select: label matchers of the deployment, such as 'namespace="prod",model_name="llama"'.
        """
        parts = urlsplit(url)
        self.name = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._url = f"{self.name}/api/v1/query_range"
        self._headers = {}
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        for one in headers:
            name, colon, value = one.partition(":")
            if not colon or not name.strip():
                raise InputError(f"{option('header')}: '{one}' is no header; write such as 'Authorization: Bearer …'")
            self._headers[name.strip()] = value.strip()
        self._select = select

    def read(self, seconds: float, *, until: float | None = None) -> list[Any]:
        """What it answers on the engine's traffic of the last so many seconds, up to the last whole hour.

        Raises:
            InputError: a query that it refuses, or no engine that is known.
            TonnageError: no answer.
        """
        end = HOUR_S * math.floor((time.time() if until is None else until) / HOUR_S)
        start = end - HOUR_S * math.ceil(seconds / HOUR_S)
        names = "|".join(one.requests for one in HISTORIES.values())
        counted = self._ask(f"count by (__name__) ({self._of(names, exact=False)})", start, end, HOUR_S)
        known = {one.name: float(one.values.max()) for one in curves([counted], self._url)}
        found = [one for one in HISTORIES.values() if one.requests in known]
        if len(found) != 1:
            if found:
                raise InputError(f"{self._url}: counts {' and '.join(known)}; narrow it to one deployment with {option('select')}")
            told = f"in that time it has none of {names.replace('|', ', ')}"
            raise InputError(f"{self._url}: {told}; give another {option('range')} or {option('select')}")
        return list(self._answers(found[0], start, end, known[found[0].requests]))

    def _answers(self, signals: Signals, start: float, end: float, instances: float) -> Iterator[Any]:
        """The requests of each instance as they were counted, and everything else by the hour over all instances."""
        requests = self._of(signals.requests)
        often = curves([self._ask(_named("often", f"max(count_over_time({requests}[1h]))"), start, end, HOUR_S)], self._url)
        scrape_s = HOUR_S / max(1.0, *(float(one.values.max()) for one in often)) if often else 60.0
        least = 300.0 if instances > MANY else 60.0
        step, begin = least * math.ceil(scrape_s / least - 0.05), start
        while begin < end:
            upto = min(end, begin + step * MOST_POINTS)
            yield self._ask(requests, begin, upto, step)
            begin = upto
        histograms = [one for one in (signals.isl, signals.osl, *signals.histograms.values()) if one]
        counters = [f"{one}_sum" for one in histograms]
        counters += [one for one in (signals.prompt_tokens, signals.output_tokens, signals.cache_queries, signals.cache_hits) if one]
        grown = [(f"{one}_bucket", "sum by (le) (increase({}[1h]))") for one in histograms]
        grown += [(one, "sum(increase({}[1h]))") for one in dict.fromkeys(counters)]
        for name, query in grown:
            yield self._ask(_named(name + INCREASE, query.format(self._of(name))), start + HOUR_S, end, HOUR_S)
        for name in (signals.running, signals.waiting, *WATTS):
            if name:
                yield self._ask(_named(name, f"sum(avg_over_time({self._of(name)}[1h]))"), start + HOUR_S, end, HOUR_S)

    def _of(self, name: str, *, exact: bool = True) -> str:
        inner = f'__name__{"=" if exact else "=~"}"{name}"'
        return f"{{{inner}{',' + self._select if self._select else ''}}}"

    def _ask(self, query: str, start: float, end: float, step: float) -> Any:
        """One answer."""
        data = urlencode({"query": query, "start": start, "end": end, "step": step}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self._url, data, self._headers), timeout=TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            body = error.read(100_000).decode("utf-8", "replace")
            try:
                said = str(inside(json.loads(body), "error") or body)
            except ValueError:
                said = body
            raise InputError(f"{self._url}: answers {error.code} to {query}: {' '.join(said.split())[:200]}") from None
        except (OSError, ValueError) as error:
            raise TonnageError(f"{self._url}: no answer of a Prometheus ({' '.join(str(error).split())[:120]}); is it up?") from None


def _named(name: str, expression: str) -> str:
    """The series of an expression under a name of ours, since what is computed has none."""
    return f'label_replace({expression}, "__name__", "{name}", "", "")'
