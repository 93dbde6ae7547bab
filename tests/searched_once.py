"""Searches that several tests need, made once in a run of the tests.

README and the pages show the same questions as the examples, asked for a report, for single lines
or for an explanation. The search for the answer takes seconds, and what these tests are about
begins where it ends. A search is a function of its question, so that its plan is kept beside the
tests' temporary folders, where all processes of the run find it. A question that differs in
anything is another one."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tonnage.api import services
from tonnage.sizing import planner


def remembering(search: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """The same search, which gives what it gave for the same question before."""

    def known(
        question: Any, *, requests: int | None = None, seed: int | None = None, **beside: Any
    ) -> Any:
        numbers = {
            name: value
            for name, value in (("requests", requests), ("seed", seed))
            if value is not None
        }
        asked = (question, numbers, beside.get("rows", True))
        file = (
            folder
            / f"{hashlib.blake2b(pickle.dumps(asked, protocol=5), digest_size=16).hexdigest()}.answer"
        )
        if file.exists():
            return pickle.loads(file.read_bytes())
        answer = search(question, **numbers, **beside)
        file.parent.mkdir(parents=True, exist_ok=True)
        own = file.with_suffix(f".{os.getpid()}")
        own.write_bytes(pickle.dumps(answer, protocol=5))
        own.replace(file)
        return answer

    return known


@contextmanager
def searched_once(folder: Path) -> Iterator[None]:
    """Have the searches of plans and of services answer each question once, in this process or in
    another one of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "size", remembering(planner.size, folder))
        patch.setattr(services, "choose_settings", remembering(services.choose_settings, folder))
        yield
