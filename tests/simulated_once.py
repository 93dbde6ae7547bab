"""Runs of the simulator that several tests of a file need, made once for the file.

A run depends on its deployment, traffic, load, length and seed, never on the rest of a question, as
the local page relies on, whose questions share one memory. So all memories that the tests of a file
make are one. Each keeps its own where a test changes the program (``monkeypatch``), and where
mutants are tried: a test is taken there to reach only what it runs itself.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from tonnage.sizing.loads.runs import Runs
    from tonnage.spec.deployment import Slo

MUTATIONS = Path(sys.argv[0]).name == "mutations.py"


class Memory:
    """The runs of a file, without and with the latencies of single requests."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.shared = False
        self.clear()

    def clear(self) -> None:
        self.instances: dict[Hashable, object] = {}
        self.runs: tuple[dict[Hashable, object], ...] = ({}, {})

    def begin(self, item: pytest.Item) -> None:
        """A test begins: with an empty memory if its file does."""
        if item.path != self.path:
            self.path = item.path
            self.clear()
        fixtures = getattr(item, "fixturenames", ())
        self.shared = not MUTATIONS and "monkeypatch" not in fixtures

    def share(self, kind: type[Runs]) -> None:
        """Have all that are made from now on look into this memory while a test may."""
        begin, keep_requests = kind.__init__, kind.keep_requests

        def remember(runs: Runs, slo: Slo = ()) -> None:
            begin(runs)
            if self.shared:
                runs._instances, runs._kept = self.instances, self.runs[0]
            runs.keep_requests(slo)

        def by_request(runs: Runs, slo: Slo) -> None:
            if runs._kept is not self.runs[0]:
                keep_requests(runs, slo)
            elif any(limit.share is not None for limit in slo):
                runs._by_request, runs._kept = True, self.runs[1]

        kind.__init__, kind.keep_requests = remember, by_request


MEMORY = Memory()
