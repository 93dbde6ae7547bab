"""Every table of every verb at 80, 100 and 120 columns, as it is rendered: no row loses what tells
it from another, no word breaks.

A table is taken from the document that a command prints, so that a table that is added later is
looked at as well."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.example_plan import HERE, full
from tests.report.runs import example_run
from tonnage.cli.main import run
from tonnage.report.document import Block, Document, Drawing, Table
from tonnage.report.plans.candidates import IDENTITY
from tonnage.report.plans.plan_document import to_json
from tonnage.report.writers import terminal as writer
from tonnage.report.writers.terminal import table_lines
from tonnage.results.store import json_text

COLUMNS = (80, 100, 120)
MANY = (
    "size --model llama-3.1-8b --isl 2000 --osl 200 --ttft p95<=500ms --tpot p95<=50ms"
    " --peak-rps 300"
)
POINT = ["simulate", "--model", "gpt-j-6b", "--isl", "300", "--osl", "20", "--requests", "40"]
VERBS = {
    "size": [
        MANY.split(),
        [*MANY.split(), "--full"],
        ["size", "examples/training-data.yaml", "--explain"],
    ],
    "simulate": [
        [*POINT, "--concurrency", "1,9"],
        [*POINT, "--request-rate", "2"],
        ["simulate", "--ticks"],
    ],
    "catalog": [["catalog"], ["catalog", "formats"]],
    "memory": [["memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm-80gb"]],
    "score": [["score", "examples/nim-llama-3-8b-h100-fp8.csv"]],
    "calibrate": [["calibrate", "examples/nim-llama-3-8b-h100-fp8.csv"]],
    "report": [
        ["report", "PLANS"],
        ["report", "PLANS", "--full"],
        ["report", "RUN"],
        ["report", "SWEEP"],
    ],
    "compare": [["compare", "RUN", "SIMULATED"]],
    "bench": [["bench", "selftest", "--streams", "8,16"]],
}
EACH = [pytest.param(verb, marks=pytest.mark.live if verb == "bench" else ()) for verb in VERBS]
MADE = {
    "PLANS": lambda folder: _plans(folder / "plans.json"),
    "RUN": lambda folder: example_run.measured(folder / "run"),
    "SIMULATED": lambda folder: example_run.simulated(folder / "simulated"),
    "SWEEP": lambda folder: example_run.sweep(folder / "sweep"),
}


def _plans(path: Path) -> Path:
    """Two plans, of which the second is split in every way that there is."""
    plan = full()
    pool = replace(
        plan.candidates[0].pools[0],
        tp=8,
        pp=2,
        dp=8,
        ep=64,
        engine="tensorrt-llm-1.1",
        precision="w4a8+kv-fp8",
    )
    other = replace(plan.candidates[0], pools=(replace(pool, engine="sglang-0.5.6"),))
    split = replace(
        plan,
        candidates=(replace(plan.candidates[0], pools=(pool,)), other, *plan.candidates),
        pareto=(),
    )
    path.write_text(json_text(to_json((plan, split))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def documents(
    tmp_path_factory: pytest.TempPathFactory, plans_of_this_run: None
) -> dict[str, list[Document]]:
    """What each verb prints, as documents, when it is looked up; size's question is README's, which
    is run too."""
    folder = tmp_path_factory.mktemp("tables")
    paths = {name: str(make(folder)) for name, make in MADE.items()}
    # counts its lines with the real writer, whose name it takes when it loads
    importlib.import_module("tonnage.report.plans.screen")

    class Printed(dict[str, list[Document]]):
        def __missing__(self, verb: str) -> list[Document]:
            printed = self[verb] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(HERE.parents[1])
                patch.setattr(writer, "terminal", lambda document: printed.append(document) or "")
                for command in VERBS[verb]:
                    assert run([paths.get(word, word) for word in command]) in (0, 3), command
            assert len(printed) == len(VERBS[verb])
            return printed

    return Printed()


def tables(blocks: Iterator[Block]) -> Iterator[Table]:
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Drawing):
            yield block.numbers


def _tables_of(printed: list[Document]) -> list[Table]:
    return list(
        tables(
            block
            for document in printed
            for section in document.sections
            for block in section.blocks
        )
    )


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("verb", EACH)
def test_every_table_fits_and_no_word_that_it_keeps_is_broken(
    documents: dict[str, list[Document]], verb: str, columns: int
) -> None:
    width = min(columns, writer.WIDEST)
    found = _tables_of(documents[verb])
    assert found or verb == "memory"
    for table in found:
        lines = table_lines(table, width)
        assert max(map(len, lines)) <= width, table.header
        words = set(" ".join(lines).split())
        never_spared = [i for i, name in enumerate(table.header) if name not in table.spare]
        missing = {
            word
            for row in table.rows
            for i in never_spared
            for word in row[i].split()
            if word not in words
        }
        assert not missing, (table.header, columns)


@pytest.mark.parametrize("verb", EACH)
def test_rows_that_differ_still_differ_where_every_spare_column_is_gone(
    documents: dict[str, list[Document]], verb: str
) -> None:
    for table in _tables_of(documents[verb]):
        kept = [i for i, name in enumerate(table.header) if name not in table.spare]
        short = [tuple(row[i] for i in kept) for row in table.rows]
        for (one, other), (a, b) in zip(
            itertools.combinations(table.rows, 2), itertools.combinations(short, 2), strict=True
        ):
            assert a != b or one == other, (table.header, one, other)


def test_what_identifies_a_deployment_is_never_spare(documents: dict[str, list[Document]]) -> None:
    seen = [
        table
        for table in _tables_of(documents["size"] + documents["report"])
        if set(IDENTITY) <= set(table.header)
    ]
    assert len(seen) >= 3
    for table in seen:
        assert not set(IDENTITY) & set(table.spare)
        places = [table.header.index(name) for name in IDENTITY]
        names = [tuple(row[i] for i in places) for row in table.rows]
        assert len(set(names)) == len(names), "two candidates have the same name"
        for columns in COLUMNS:
            text = " ".join(" ".join(table_lines(table, min(columns, writer.WIDEST))).split())
            assert all(
                word in text.split() for row in names for name in row for word in name.split()
            )


def test_a_format_names_the_gpus_on_which_engines_unpack_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`size --gpu a100 --precision fp8` answers with vLLM, though Ampere multiplies no FP8."""
    assert run(["catalog", "precisions"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Gaudi2; on Ampere unpacked to FP16 by vllm-0.32 and sglang-0.5.9 int8-sq" in text
    assert "on Ampere, Ada, Hopper unpacked to FP16 by vllm-0.32 nvfp4" in text
