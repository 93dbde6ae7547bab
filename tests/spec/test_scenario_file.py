"""Scenarios: every error at once, each with its place; flags in place of what the file says;
written files read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, InputErrors
from tonnage.spec.scenario import Scenario, flat, leaves, to_document
from tonnage.spec.scenario_file import (
    displaced,
    json_schema,
    read_document,
    read_scenario,
    scenario_of,
    to_yaml,
)
from tonnage.spec.typed_values import parse_yaml

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))

BAD = """
model: 3
lengths: {isl: 2000, osll: 3}
demand: {calls_per_year: 30e6, peak-factor: 7, mean_rps: yes, working_hours: x}
limits: {ttft: [1, 2]}
mode: fast
ttft: 3s
search: [1]
spare: 1.5
zzz: 1
"""
PLACES = (
    "model lengths.osll demand.mean_rps demand.working_hours demand.peak-factor limits.ttft mode"
    " spare search ttft zzz"
)


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_every_error_at_once_each_with_its_place(tmp_path: Path) -> None:
    path = written(tmp_path / "bad.yaml", BAD)
    with pytest.raises(InputErrors) as caught:
        read_scenario(path)
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}: ").split(":")[0] for line in lines] == PLACES.split()
    said = dict(zip(PLACES.split(), lines, strict=True))
    assert "did you mean osl?" in said["lengths.osll"]
    assert "peak_factor" in said["demand.peak-factor"]
    assert "it stands at limits.ttft" in said["ttft"]
    assert "'fast' is not one of streaming, sequential, offline" in said["mode"]
    assert "1.5 is not a whole number" in said["spare"]
    assert "True is not a number" in said["demand.mean_rps"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "- 1",
        "{",
        "a: b: c",
        "a: 1\na: 2",
        "lengths: {isl: 1, isl: 2}",
        "&a [*a]",
        "!!python/object:os.x {}",
    ],
)
def test_what_is_no_scenario_is_refused(text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "s.yaml", text)
    with pytest.raises(InputError) as caught:
        read_scenario(path)
    assert path in str(caught.value)


def test_files_and_hourly_loads_are_read_beside_the_scenario_that_names_them(
    tmp_path: Path,
) -> None:
    text = (
        "model: m\nlengths: {pairs: p.csv, isl: i.csv, osl: 3}\ndemand: {trace: /abs/t.csv,"
        " profile: [1]}\nprices: q.yaml\n"
    )
    document = read_document(written(tmp_path / "s.yaml", text))
    assert document["lengths"] == {
        "pairs": str(tmp_path / "p.csv"),
        "isl": str(tmp_path / "i.csv"),
        "osl": 3,
    }
    assert document["demand"]["trace"] == "/abs/t.csv"
    assert document["prices"] == str(tmp_path / "q.yaml")
    day = ",".join(str(hour) for hour in range(24))
    for text in (f'"{day}"', f"[{day}]"):
        document = read_document(written(tmp_path / "s.yaml", f"demand: {{profile: {text}}}"))
        assert scenario_of(document, {}).demand.profile == [float(hour) for hour in range(24)]
    assert scenario_of({}, {"profile": day.replace(",", " ")}).demand.profile == [
        float(hour) for hour in range(24)
    ]
    assert scenario_of({}, {"profile": tuple(range(24))}).demand.profile == [
        float(hour) for hour in range(24)
    ]
    document = read_document(written(tmp_path / "s.yaml", "demand: {profile: day.csv}"))
    assert scenario_of(document, {}).demand.profile == str(tmp_path / "day.csv")


def test_numbers_may_be_written_as_people_do() -> None:
    for name, text, value in [
        ("users", "20k", 20_000),
        ("calls_per_year", "30 million", 30e6),
        ("peak_rps", "300/min", 5),
        ("shared_prefix_share", "50%", 0.5),
        ("max_kw", "10 kW", 10),
        ("spare", "N+1", 1),
        ("seed", "7", 7),
    ]:
        path = next(leaf.path for leaf in leaves() if leaf.name == name)
        document = {path[0]: {name: text}} if len(path) > 1 else {name: text}
        for scenario in (scenario_of({}, {name: text}), scenario_of(document, {})):
            assert flat(to_document(scenario)) == {name: value}
    for name, text in [
        ("users", "5 h"),
        ("spare", "1.5"),
        ("spare", "N-1"),
        ("peak_rps", "300/week"),
    ]:
        with pytest.raises(
            InputErrors, match=f"{name}: '{text.replace('.', '[.]')}' is not a (whole )?number; "
        ):
            scenario_of({}, {name: text})


def test_flags_stand_in_place_of_the_file() -> None:
    found = scenario_of(
        {"model": "a", "lengths": None, "limits": {"ttft": "1s", "e2e": "9s"}},
        {"ttft": ["2s"], "isl": 5, "model": None},
        "a.yaml",
    )
    assert (found.model, found.limits.ttft, found.limits.e2e, found.lengths.isl) == (
        "a",
        ["2s"],
        "9s",
        5,
    )


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ({"peak_rps": 3}, {"profile": [1]}),
        ({"mean_rps": 3}, {"profile": [1], "peak_factor": 7}),
        ({"peak_percentile": 99}, {"calls_per_year": 1, "requests_per_call": 2, "profile": [1]}),
        ({"trace": "t.csv"}, {}),
        ({"requests": 5, "within": "8h"}, {}),
        (
            {"requests_per_call": 5},
            {"calls_per_year": 1, "requests_per_call": 2, "profile": [1], "peak_factor": 7},
        ),
    ],
)
def test_a_flag_takes_the_place_of_other_ways_to_say_it(
    flags: dict[str, Any], left: dict[str, Any]
) -> None:
    document = {
        "model": "m",
        "demand": {"calls_per_year": 1, "requests_per_call": 2, "peak_factor": 7, "profile": [1]},
    }
    assert displaced(document, flags) == {"model": "m", "demand": left}


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(
    model=TEXTS | st.lists(TEXTS, min_size=1),
    isl=TEXTS | NUMBERS,
    rate=NUMBERS,
    profile=st.lists(NUMBERS, min_size=1, max_size=3),
    tp=st.integers() | st.lists(st.integers(), min_size=1),
    spare=st.integers(),
)
def test_a_written_scenario_reads_back_as_the_same(**values: Any) -> None:
    values = {("peak_rps" if name == "rate" else name): value for name, value in values.items()}
    scenario = scenario_of({}, values)
    assert scenario_of(yaml.safe_load(to_yaml(scenario)), {}) == scenario
    assert scenario_of({}, flat(to_document(scenario))) == scenario


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([part for leaf in leaves() for part in leaf.path]) | TEXTS | st.integers()


@given(st.dictionaries(KEYS, PLAIN | st.dictionaries(KEYS, PLAIN, max_size=4), max_size=4))
def test_any_document_is_a_scenario_or_input_errors(document: dict[Any, Any]) -> None:
    messages: tuple[str, ...] = ("none",)
    try:
        assert isinstance(scenario_of(document, {}, "x.yaml"), Scenario)
    except InputErrors as errors:
        messages = tuple(line.removeprefix("x.yaml: ") for line in errors.messages)
    assert messages
    assert all(messages)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_scenarios(path: Path) -> None:
    assert read_scenario(str(path)).title


def test_the_schema_names_every_leaf() -> None:
    schema = json.loads(json.dumps(json_schema()))
    for leaf in leaves():
        holder = schema
        for branch in leaf.path[:-1]:
            holder = schema["$defs"][holder["properties"][branch]["$ref"].rsplit("/", 1)[-1]]
        assert holder["properties"][leaf.name]["description"] == leaf.about
        assert holder["additionalProperties"] is False
    patterns = ["short-in-short-out", "short-in-long-out", "long-in-short-out", "long-in-long-out"]
    uses = ["chatbot", "summarization", "rag", "data-generation", "offline", *patterns]
    assert schema["properties"]["use_case"]["anyOf"][0]["enum"] == uses


# YAML is plain values, each key once, whichever parser reads it.


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\na: 2", r"^f:1: is not YAML: 'a' is given twice"),
        ("a: [1", "^f:"),
        ("!!python/object:os.x {}", "^f:1: is not YAML"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_line(
    text: str, says: str, shipped: bool
) -> None:
    with pytest.raises(InputError, match=says):
        parse_yaml(text, "f", shipped=shipped)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"^f: is not YAML that can be read"):
        parse_yaml("[" * 1100, "f")
