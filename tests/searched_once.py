"""Searches that several tests need, made once in a run of the tests.

README and the pages show the same questions as the examples, asked for a report, for single lines or for an explanation. The search for
the answer takes seconds, and what these tests are about begins where it ends. A search is a function of its question, so that its plan
is kept beside the tests' temporary folders, where all processes of the run find it. A question that differs in anything is another one.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tonnage.plan.plan import Plan
from tonnage.sizing import planner
from tonnage.sizing.question import Question


@contextmanager
def searched_once(folder: Path) -> Iterator[None]:
    """Have ``planner.size`` give what it gave for the same question before, in this process or in another one of the run."""
    search = planner.size

    def known(question: Question, **beside: Any) -> Plan:
        file = folder / f"{hashlib.blake2b(pickle.dumps(question, protocol=5), digest_size=16).hexdigest()}.plan"
        if file.exists():
            found: Plan = pickle.loads(file.read_bytes())
            return found
        plan = search(question, **beside)
        file.parent.mkdir(parents=True, exist_ok=True)
        own = file.with_suffix(f".{os.getpid()}")
        own.write_bytes(pickle.dumps(plan, protocol=5))
        own.replace(file)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "size", known)
        yield
