"""./benchmark lists the benchmarks and runs one; those that the pages name are there."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import field, mutations, utilisation
from benchmarks.claims import SENSITIVITY, Claim, claims, drawn_at, of_the_sensitivity, planned
from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import shipped
from tonnage.sizing.extrapolation import CLOSED_TIMES, GROWTH, STEADY
from tonnage.sizing.loads.runs import Runs
from tools.fit.processes import Processes

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
NAMED = re.compile(r"\./benchmark (\w+)")
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "benchmark", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture(scope="module")
def listed() -> dict[str, str]:
    done = benchmark()
    assert done.returncode == 0
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[2:])


def test_the_list_says_what_each_is_for(listed: dict[str, str]) -> None:
    assert len(listed) > 20
    assert listed["scale"].startswith("What a simulated request costs")
    assert "prefix_traffic" not in listed  # a part of balance


@pytest.mark.accuracy
def test_each_finds_what_it_imports(listed: dict[str, str]) -> None:
    for name in listed:
        assert callable(importlib.import_module(f"benchmarks.{name}").main), name


def test_what_they_and_the_tools_import_of_the_package_is_there() -> None:
    """Imports inside functions too, which no test of an import reaches."""
    files = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tools").rglob("*.py")]
    froms = {
        (node.module, name.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tonnage")
        for name in node.names
    }
    assert len(froms) > 100
    absent = {
        (module, name)
        for module, name in froms
        if not hasattr(importlib.import_module(module), name)
        and importlib.util.find_spec(f"{module}.{name}") is None
    }
    assert absent == set()


@pytest.mark.accuracy
@pytest.mark.skipif(
    not DATA.is_dir(),
    reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; the errors near saturation are not checked",
)
def test_what_plans_say_near_saturation_is_what_the_benchmark_finds() -> None:
    """On the rows of NIM, each without its group: the only ones that state a p95, and a third of
    what the figures of open loops are of."""
    with Processes(2) as processes:
        rows = utilisation.of_nim(DATA, processes)
    assert utilisation.closed_growth(rows) == pytest.approx(CLOSED_TIMES, abs=0.1)
    growth = dict(GROWTH)
    longer = utilisation.longer_waits(rows, Runs())
    assert list(longer) == list(growth)
    assert longer[STEADY] == pytest.approx(growth[STEADY], abs=0.15)
    assert growth[0.9] / 2 < longer[0.9] < 2 * growth[0.9]


def test_every_one_that_a_page_or_a_benchmark_names_is_listed(listed: dict[str, str]) -> None:
    files = [*PAGES, *sorted((ROOT / "benchmarks").glob("*.py"))]
    named = {
        (file.name, name)
        for file in files
        for name in NAMED.findall(file.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert {(file, name) for file, name in named if name not in listed} == set()


def test_an_unknown_one_is_one_line_and_exit_code_2() -> None:
    done = benchmark("speed")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "benchmark: there is no benchmark 'speed'; ./benchmark lists those that there are\n"
    )


# Figures of the fit's report that pages quote outside the generated ones: they follow the shipped
# coefficients, or a test fails.

DOCS = Path(__file__).resolve().parents[1] / "docs"


def table_rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table of a page that begins with the given heading, without the heading and
    the line below it."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines[lines.index(heading) + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_page_on_intervals_has_the_coverage_of_the_shipped_table() -> None:
    kinds = {
        "static batches": "static",
        "NIM, 0.15 throughput": "loaded",
        "current engines, a model left out": "current",
        "calibrated on another curve": "calibrated",
    }
    coverage = shipped_residuals().report["coverage"]
    columns = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s")
    rows = table_rows("intervals.md", "| | TTFT | p95 TTFT | TPOT | E2E | requests/s |")
    assert [row[0] for row in rows] == list(kinds)
    for name, *cells in rows:
        shares = [coverage[column].get(kinds[name]) for column in columns]
        assert cells == ["" if share is None else f"{share:.0f}" for share in shares], name


def test_the_page_on_calibration_has_what_the_fit_found_with_groups_left_out() -> None:
    held_out = shipped()["report"]["held_out"]
    title = "NIM, the other five curves of a group that was left out, {} on each curve in turn"
    means = [held_out[title.format(way)]["mean"] for way in ("shipped", "calibrated")]
    rows = table_rows("calibrate.md", "| | TTFT | E2E | requests/s | TPOT |")
    assert [row[1:] for row in rows] == [
        [f"{mean[m]:.1f}" for m in ("ttft_ms", "e2e_ms", "requests_s", "itl_ms")] for mean in means
    ]


def test_the_page_on_the_fit_counts_the_free_terms_and_the_rows_that_were_read() -> None:
    report = shipped()["report"]
    rows = table_rows("fit.md", "| stage | free terms |")
    assert {name: int(count) for name, count in rows} == report["free_terms"]
    of_steps = sum(list(report["free_terms"].values())[:5])
    read = sum(report["rows"].values()) + report["modern"]["rows"]
    assert f"The first five decide step times: {of_steps} numbers for {read:,} rows" in (
        DOCS / "fit.md"
    ).read_text(encoding="utf-8")


# Every claim of the plans of drawn questions, asked directly: none is false (``./check --claims``).

QUESTIONS, SEED = 40, 1


def false(found: list[Claim]) -> list[str]:
    return [
        f"{claim.what}: said {claim.said}; asked directly {claim.found}"
        for claim in found
        if not claim.true
    ]


@pytest.mark.claims
@pytest.mark.parametrize("place", range(QUESTIONS))
def test_no_claim_of_a_plan_is_false(place: int) -> None:
    arguments = drawn_at(SEED, place)
    try:
        found = list(claims(arguments))
    except InputError as refused:
        pytest.fail(f"{arguments} was refused: {refused}")
    assert false(found) == [], arguments


@pytest.mark.claims
@pytest.mark.parametrize("place", [0, 1, 2, 5])
def test_the_sensitivity_is_what_the_question_would_be_answered(place: int) -> None:
    """Within one system and 10 %."""
    found = list(of_the_sensitivity(*planned(SENSITIVITY[place])))
    assert len(found) >= 8
    assert false(found) == []


def test_what_a_source_taught_is_undone_while_it_is_left_out() -> None:
    taught = {
        "github Subrahmanyam2305/LLM-serve": ("llama-3.2-3b", "a10g-24gb", "fp16", 1, "vllm", True),
        "github sariekr/gpu_conc": (
            "gpt-oss-20b",
            "h200-sxm-141gb",
            "mxfp4",
            1,
            "vllm-0.10",
            False,
        ),
        "github IOG-Foundation/llm-inference-benchmarks": (
            "llama-3.1-8b",
            "rtx-4090",
            "fp16",
            2,
            "vllm-0.8",
            True,
        ),
    }
    assert set(taught) == set(field.TAUGHT)
    for source, (model, gpu, precision, tp, engine, faster) in taught.items():
        d = deployment_of(model=model, gpu=gpu, precision=precision, tp=tp, engine=engine)
        shipped = step_model(d).seconds(0, 0, 8, 0, 800)
        with field.TAUGHT[source]():
            without = step_model(d).seconds(0, 0, 8, 0, 800)
        assert (without < shipped) == faster
        assert step_model(d).seconds(0, 0, 8, 0, 800) == shipped


PROGRAM = """
LIMIT = 3

def outer(values):
    def inner(value):
        return value + 1
    return [
        inner(value)
        for value in values
        if value < LIMIT
    ]

class Kept:
    def last(self):
        if LIMIT:
            return 1
        else:
            return 2
"""


def changed(old: str, new: str) -> set[str] | None:
    programs = [compile(text, "f.py", "exec") for text in (PROGRAM, PROGRAM.replace(old, new))]
    codes = mutations.changed_codes(*programs)
    return None if codes is None else {name for name, _ in codes}


def test_a_mutant_of_a_function_is_its_code_and_what_runs_at_import_is_none() -> None:
    assert changed("value + 1", "value - 1") == {"outer", "outer.<locals>.inner"}
    assert changed("value < LIMIT", "value > LIMIT") == {"outer", "outer.<locals>.<listcomp>"}
    assert changed("return 2", "return 3") == {"Kept.last"}
    assert changed("LIMIT = 3", "LIMIT = 4") is None
    assert changed("class Kept:", "@object.__new__\nclass Kept:") is None
    assert changed("x", "x") == set()


def test_a_changed_line_of_a_function_is_marked_before_its_statement() -> None:
    lines = {
        number: PROGRAM[: PROGRAM.index(part)].count("\n") + 1
        for number, part in enumerate(["value + 1", "value < LIMIT", "return 2", "LIMIT = 3"])
    }
    reached: list[int] = []
    program: dict[str, Any] = {"_mark_of_mutations": reached.append}
    exec(compile(mutations.marked(PROGRAM, lines), "<program>", "exec"), program)
    assert not reached  # the line of LIMIT is in no function
    assert program["outer"]([1, 5]) == [2]
    assert reached == [1, 0]
    assert program["Kept"]().last() == 1
    assert reached == [1, 0]
    program["LIMIT"] = 0
    assert program["Kept"]().last() == 2
    assert reached == [1, 0, 2]


@pytest.mark.parametrize(
    "file", ["cost/break_even.py", "gateway/balancer.py", "evidence/predict.py"]
)
def test_marks_in_functions_leave_the_code_of_module_and_classes_as_it_is(file: str) -> None:
    text = (ROOT / "src/tonnage" / file).read_text()
    lines = dict(enumerate(range(1, text.count("\n"), 20)))
    programs = (ast.parse(text), mutations.marked(text, lines))
    codes = mutations.changed_codes(*(compile(part, file, "exec") for part in programs))
    assert codes


def test_each_source_counts_once_in_the_centre_of_what_users_measured() -> None:
    def measured(source: str, load: str, ratio: float) -> tuple[dict[str, str], Any, float]:
        row = SimpleNamespace(
            errors={"itl_ms": 0.0}, predicted={"itl_ms": 10.0 * ratio}, measured={"itl_ms": 10.0}
        )
        return {"source": source, "load": load}, row, 1.0

    many = [measured("many rows", "1-8", 2.0)] * 9
    others = [measured("right", "open", 1.0), measured("short", "9-64", 0.5)]
    bursts = [measured("burst", "burst", 8.0)]
    *_, line = field.centres([*many, *others, *bursts])
    assert line.startswith("| TPOT | 3 | +0 % | +0 % | 0.69 |")  # log 2, of three logarithms
