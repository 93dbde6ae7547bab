"""What all tests share: how far properties are searched, and which files begin.

A property is tried on 40 examples in ./check, and on as many as one likes with a profile: on others
each time, but in CI, where what passed passes again.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from cyclopts.argument import ArgumentCollection
from hypothesis import settings

from tests.simulated_once import MEMORY

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks a real hub

# a busy machine may take long for any
settings.register_profile("core", max_examples=40, deadline=None, derandomize="CI" in os.environ)
# ./check --hypothesis-profile=thorough
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("core")

LONGEST = """
docs page/size_view page/browser_compare cli/tables cli/examples deploy/every_target
sizing/fleet/purchase plan/launch
deploy/mixed sizing/fleet/mixed sizing/prefix_cache sizing/sensitivity
page/worker api/question/horizon api/question/choice gateway/failures cli/saved_plans gateway/server
sizing/fleet/autoscaling names sizing/search/search cli/first_screen cli/hostile_files
sizing/planner spec/config_fields simulator/kernel/uncompiled evidence/calibrate deploy/monitoring
bench/conversations bench/conductor bench/workers serve/app serve/transfer gateway/cli
gateway/haproxy sizing/steadiness sizing/recorded_sessions cli/first_lines bench/measure layers
watch/verify sizing/extrapolation simulator/services/batching bench/cli watch/deployment_status
report/writers/browser sizing/use_cases cli/simulate cli/field_pools sizing/loads/confidence
bench/infer serve/bounded_headers report/plans/screen laws/search sizing/fleet/existing
cost/break_even sizing/services sizing/bounds api/question/objectives sizing/pools bench/scrape
formats/invalid_runs prose workload/fit deploy/services laws/runs evidence/measurement watch/drift
simulator/kernel/pools formats/changed_files api/recordings bench/intervals workload/description
bench/sessions evidence/own_terms sizing/attainment cost/mixed plan/plan compress/refusals
simulator/fleet simulator/tiers simulator/kernel/routing simulator/kernel/run spec/recorded_lengths
"""
"""The files of three seconds and more, or of few and long tests, about the longest first: none is
left to one process at the end. Each without ``tests/``, ``test_`` and its ending."""


@pytest.fixture(scope="module")
def plans_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No question is searched for twice by the modules that use this; see
    ``tests/searched_once.py``."""
    from tests.searched_once import searched_once

    # of this process; with several, they lie in a folder of the run
    own = tmp_path_factory.getbasetemp()
    with searched_once((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "plans"):
        yield


@pytest.fixture(scope="session", autouse=True)
def read_once() -> Iterator[None]:
    """The arguments of a verb are read off its function once in a process, which takes more than
    half of a command that is refused."""
    assemble, known = App.assemble_argument_collection, dict[Any, ArgumentCollection]()

    def once(app: App, **how: Any) -> ArgumentCollection:
        asked = (app.default_command, *sorted(how.items()))
        if asked not in known:
            known[asked] = assemble(app, **how)
        found = ArgumentCollection(copy.copy(one) for one in known[asked])
        for one in found:
            one.tokens = []
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(App, "assemble_argument_collection", once)
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the one file that needs schemathesis where its plugin is not loaded: loading it
    takes every process seconds."""
    return (
        True
        if collection_path.name == "test_schema.py"
        and not config.pluginmanager.has_plugin("schemathesis")
        else None
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the tests of a file share what they simulate."""
    MEMORY.begin(item)


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make alone: a full collection, as `bench` begins with
    one, took half a second of every run. And let memories of runs be shared, where a test is
    collected that may make one."""
    if runs := sys.modules.get("tonnage.sizing.loads.runs"):
        MEMORY.share(runs.Runs)
    gc.freeze()
    gc.unfreeze = lambda: None  # what a test has frozen stays so


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those with the most tests; pytest-xdist gives them out in
    this order."""
    files = {item: item.nodeid.partition("::")[0] for item in items}
    tests = Counter(files.values())
    places = {name: place for place, name in enumerate(LONGEST.split())}
    short = {
        file: file.removeprefix("tests/").removesuffix(".py").replace("test_", "") for file in tests
    }
    items.sort(
        key=lambda item: (
            places.get(short[files[item]], len(places)),
            -tests[files[item]],
            files[item],
        )
    )
