"""What all tests share: how far properties are searched, and which files begin.

A property is tried on 40 examples in ./check, and on as many as one likes with a profile: on others each time, but in CI, where what
passed passes again.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("core", max_examples=40, deadline=None, derandomize="CI" in os.environ)  # a busy machine may take long for any
settings.register_profile("thorough", max_examples=1000, deadline=None)  # ./check --hypothesis-profile=thorough
settings.load_profile("core")

LONGEST = (
    "tests/test_docs.py",
    "tests/page/test_browser_size.py",
    "tests/cli/test_tables.py",
    "tests/cli/test_examples.py",
    "tests/sizing/test_recorded_sessions.py",
    "tests/serve/test_deployments_served.py",
    "tests/sizing/test_prefix_cache.py",
    "tests/sizing/test_search.py",
    "tests/sizing/test_fleet_check.py",
    "tests/cli/test_first_screen.py",
    "tests/page/test_browser_measure.py",
    "tests/sizing/test_sensitivity.py",
    "tests/page/test_browser_compare.py",
    "tests/deploy/test_every_target.py",
    "tests/simulator/test_kernel.py",
    "tests/cli/test_explain_and_diff.py",
    "tests/bench/test_conversations.py",
    "tests/sizing/test_confidence.py",
    "tests/cli/test_absurd_numbers.py",
    "tests/sizing/test_steadiness.py",
    "tests/cli/test_simulate.py",
    "tests/cli/test_bad_input.py",
    "tests/sizing/test_existing.py",
    "tests/deploy/test_verify.py",
    "tests/simulator/test_prefix_cache.py",
    "tests/report/writers/test_browser.py",
    "tests/bench/test_cli.py",
    "tests/simulator/test_pools.py",
    "tests/evidence/test_measurement.py",
    "tests/sizing/test_use_cases.py",
    "tests/bench/test_measure.py",
    "tests/api/test_choice.py",
    "tests/workload/test_describe.py",
    "tests/cli/test_size.py",
    "tests/bench/test_infer.py",
    "tests/simulator/test_fleet.py",
    "tests/page/test_ui.py",
    "tests/api/test_growth.py",
    "tests/bench/test_find_max.py",
    "tests/serve/test_app.py",
    "tests/watch/test_verify.py",
    "tests/test_layers.py",
    "tests/simulator/test_engine.py",
    "tests/sizing/test_autoscaling.py",
    "tests/evidence/test_calibrate.py",
    "tests/deploy/test_simulated.py",
    "tests/deploy/test_alerts.py",
    "tests/evidence/test_own_terms.py",
    "tests/page/test_browser_lesson.py",
    "tests/serve/test_faults.py",
    "tests/cli/test_ask.py",
    "tests/bench/test_receiver.py",
    "tests/simulator/services/test_batching.py",
)
"""The files of more than three CPU seconds or of few and long tests, about the longest first: none is left to one process at the end."""


@pytest.fixture(scope="module")
def plans_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No question is searched for twice by the modules that use this; see ``tests/searched_once.py``."""
    from tests.searched_once import searched_once

    own = tmp_path_factory.getbasetemp()  # of this process; with several, they lie in a folder of the run
    with searched_once((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "plans"):
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the one file that needs schemathesis where its plugin is not loaded: loading it takes every process seconds."""
    return True if collection_path.name == "test_schema.py" and not config.pluginmanager.has_plugin("schemathesis") else None


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make alone: a full collection, as `bench` begins with one, took half a second of every run."""
    gc.freeze()
    gc.unfreeze = lambda: None  # what a test has frozen stays so


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those with the most tests; pytest-xdist gives them out in this order."""
    files = {item: item.nodeid.partition("::")[0] for item in items}
    tests = Counter(files.values())
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (places.get(files[item], len(places)), -tests[files[item]], files[item]))
