"""A page of Prometheus metrics as samples (text exposition format 0.0.4)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$", re.ASCII)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line of a page.

    Attributes:
        name: of the series.
        labels: by name.
        value: of the moment.
    """

    name: str
    labels: Mapping[str, str]
    value: float


class Page:
    """The samples of one page, by name."""

    def __init__(self, text: str) -> None:
        """Read a page; lines that are no samples are passed over, and so are values that are no numbers."""
        self._by_name: dict[str, list[Sample]] = {}
        for one in _samples(text):
            self._by_name.setdefault(one.name, []).append(one)

    def __contains__(self, name: str) -> bool:
        """Whether the page has series of this name."""
        return name in self._by_name

    def of(self, name: str) -> tuple[Sample, ...]:
        """The samples of a name."""
        return tuple(self._by_name.get(name, ()))

    def total(self, name: str) -> float:
        """The sum of the samples of a name; 0 where there are none."""
        return math.fsum(one.value for one in self.of(name))

    def values(self, name: str) -> tuple[float, ...]:
        """The values of the samples of a name."""
        return tuple(one.value for one in self.of(name))

    def under(self, prefix: str) -> tuple[str, ...]:
        """The names of series that begin so."""
        return tuple(name for name in self._by_name if name.startswith(prefix))


def _samples(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line.strip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if not math.isnan(value):
            labels = {name: re.sub(r'\\[\\"n]', lambda found: _ESCAPED[found[0]], text) for name, text in _LABEL.findall(match[2] or "")}
            yield Sample(name=match[1], labels=labels, value=value)
