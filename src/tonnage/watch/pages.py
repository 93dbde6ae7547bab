"""The metrics pages of a deployment, fetched: of its instances, of the gateway before them, of the exporters of its GPUs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from tonnage.bench.scrape import fetch
from tonnage.errors import InputError, option
from tonnage.watch.page import Page
from tonnage.watch.reading import Reading, backends_on, reading

PATH = "/metrics"
AT_ONCE = 16


class Pages:
    """Where the pages are."""

    def __init__(self, urls: Sequence[str], *, gpus: Sequence[str] = (), path: str = PATH) -> None:
        """Nothing is fetched yet.

        Args:
            urls: of instances, or of a gateway, whose backends are then watched.
            gpus: of exporters.
            path: where the engine publishes its metrics, for URLs without one.

        Raises:
            InputError: something that is no address.
        """
        self.urls = tuple(dict.fromkeys(_address(url, "url") for url in urls))
        self._gpus = tuple(_with_path(_address(url, "gpu_metrics"), PATH) for url in gpus)
        self._path = path

    def read(self) -> Reading:
        """All of them, at this moment."""
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            first = dict(zip(self.urls, pool.map(self._page, self.urls), strict=True))
            instances = {url: page for url, page in first.items() if not backends_on(page)}
            behind = [url for page in first.values() for url in backends_on(page) if url not in instances]
            instances |= dict(zip(behind, pool.map(self._page, behind), strict=True))
            others = [page for page in first.values() if backends_on(page)]
            others += map(Page, pool.map(fetch, self._gpus))
            at_s = time.monotonic()
        return reading(at_s, instances, others)

    def _page(self, url: str) -> Page:
        """An instance's page: where its engine publishes it, or where engines usually do."""
        own = fetch(_with_path(url, self._path))
        return Page(own or (fetch(_with_path(url, PATH)) if self._path != PATH else ""))


def _with_path(url: str, path: str) -> str:
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + path


def _address(text: str, name: str) -> str:
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    try:
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise InputError(f"{option(name)}: '{text}' is no address; write one such as http://127.0.0.1:8000")
    return url
