"""A run folder comes back as it was written, whole or not at all, the same bytes from the same
run."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tonnage.errors import DataError, InputError
from tonnage.results import store
from tonnage.results.metrics import summarize
from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, ROW_COLUMNS, Requests
from tonnage.results.store import (
    Batch,
    RunWriter,
    check_free,
    checked,
    gap_counts,
    json_text,
    parquet_table,
    read_mapping,
    read_run,
    read_tokens,
    requests_table,
    summary_document,
    write_json,
    write_run,
    write_together,
    write_yaml,
)

SCENARIO = {
    "model": "llama-3-8b",
    "isl": 2000,
    "limits": ["TTFT p95 ≤ 500 ms"],
    "load": {"concurrency": 10},
}
PROVENANCE = {"tonnage": "0.1.0", "seed": 7, "command": "tonnage simulate"}
FILES = {"scenario.yaml", "requests.parquet", "gaps.parquet", "summary.json", "provenance.json"}


@st.composite
def records(draw: st.DrawFn) -> Requests:
    """Any record that holds times below a hundred years, consistent or not."""
    count = draw(st.integers(0, 30))
    times = hnp.arrays(np.int64, count, elements=st.integers(-1, 3 * 10**18))
    small = hnp.arrays(np.int64, count, elements=st.integers(0, 10**7))
    gaps = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
    for bucket, index, number in draw(
        st.lists(
            st.tuples(
                st.integers(0, POSITION_BUCKETS - 1),
                st.integers(0, GAP_BINS - 1),
                st.integers(1, 10**12),
            ),
            max_size=20,
        )
    ):
        gaps[bucket, index] = number
    return Requests(
        due_ns=draw(times),
        sent_ns=draw(times),
        first_token_ns=draw(times),
        last_token_ns=draw(times),
        isl=draw(small),
        osl=draw(small),
        cached_tokens=draw(small),
        instance=draw(hnp.arrays(np.int32, count, elements=st.integers(-1, 99))),
        status=draw(hnp.arrays(np.int8, count, elements=st.integers(0, 3))),
        preemptions=draw(hnp.arrays(np.int32, count, elements=st.integers(0, 99))),
        gaps=gaps,
        window_ns=draw(st.integers(-1, 10**15)),
    )


def a_record(count: int = 50) -> Requests:
    rng = np.random.default_rng(3)
    due = np.sort(rng.integers(0, 10**10, count))
    first = due + rng.integers(10**7, 10**9, count)
    gaps = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
    gaps[:3, 900:930] = rng.integers(0, 5, (3, 30))
    return Requests(
        due_ns=due,
        sent_ns=due,
        first_token_ns=first,
        last_token_ns=first + rng.integers(10**8, 10**10, count),
        isl=np.full(count, 2000),
        osl=np.full(count, 200),
        cached_tokens=np.zeros(count, dtype=np.int64),
        instance=np.zeros(count, dtype=np.int32),
        status=np.zeros(count, dtype=np.int8),
        preemptions=np.zeros(count, dtype=np.int32),
        gaps=gaps,
    )


def same(a: Requests, b: Requests) -> bool:
    pairs = [(getattr(a, name), getattr(b, name)) for name in (*ROW_COLUMNS, "gaps")]
    return a.window_ns == b.window_ns and all(
        x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs
    )


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(records())
def test_a_record_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory, requests: Requests
) -> None:
    folder = tmp_path_factory.mktemp("run")
    summary = summarize(requests)
    write_run(folder, SCENARIO, requests, summary, PROVENANCE)
    run = read_run(folder)
    assert same(run.requests, requests)
    assert run.scenario == SCENARIO
    assert run.provenance == PROVENANCE
    assert json_text(run.summary) == json_text(summarize(run.requests).to_json())
    assert {p.name for p in folder.iterdir()} == FILES


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        requests = a_record()
        write_run(tmp_path / name, SCENARIO, requests, summarize(requests), PROVENANCE)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_summary_of_something_else_is_refused(tmp_path: Path) -> None:
    requests = a_record()
    with pytest.raises(ValueError, match="summarize"):
        write_run(tmp_path / "run", SCENARIO, requests, summarize(a_record(20)), PROVENANCE)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused_and_kept(tmp_path: Path) -> None:
    requests = a_record()
    summary = summarize(requests)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for name, message in (("used", "is not empty"), ("file", "is a file")):
        with pytest.raises(InputError, match=message):
            write_run(tmp_path / name, SCENARIO, requests, summary, PROVENANCE)
        with pytest.raises(InputError, match=message):
            check_free(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "used"]
    assert (tmp_path / "used" / "mine.txt").read_text() == "keep"
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "empty", SCENARIO, requests, summary, PROVENANCE)
    write_run(tmp_path / "deep" / "er", SCENARIO, requests, summary, PROVENANCE)
    assert same(read_run(tmp_path / "deep" / "er").requests, requests)


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt, MemoryError, OSError(28, "No space left on device")]
)
def test_nothing_is_left_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    requests = a_record()

    def fails(rows: Requests) -> None:
        assert next(tmp_path.glob(".*partial*/requests.parquet"), None), "the first table is there"
        raise failure

    monkeypatch.setattr(store, "gaps_table", fails)
    with pytest.raises((KeyboardInterrupt, MemoryError, InputError)) as caught:
        write_run(tmp_path / "run", SCENARIO, requests, summarize(requests), PROVENANCE)
    if isinstance(failure, OSError):
        assert "No space left" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_values_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    requests = a_record()
    with pytest.raises(Exception, match="represent"):
        write_run(tmp_path / "run", {"model": object()}, requests, summarize(requests), PROVENANCE)
    with pytest.raises(TypeError):
        write_json(tmp_path / "plan.json", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_json_is_plain_and_finite(tmp_path: Path) -> None:
    document = {"a": math.nan, "b": (1, np.int64(2), np.float64(2.5)), "c": {"µ": math.inf}}
    write_json(tmp_path / "plan.json", document)
    write_json(tmp_path / "plan.json", document)
    assert json.loads((tmp_path / "plan.json").read_text()) == {
        "a": None,
        "b": [1, 2, 2.5],
        "c": {"µ": None},
    }
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_json(tmp_path / "folder", document)
    with pytest.raises(InputError, match="cannot be written"):
        write_json(tmp_path / "plan.json" / "below", document)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from(sorted(FILES)), damage=st.binary(max_size=80), at=st.floats(0, 1))
def test_damage_is_named(
    tmp_path_factory: pytest.TempPathFactory, name: str, damage: bytes, at: float
) -> None:
    folder = tmp_path_factory.mktemp("run") / "run"
    requests = a_record(5)
    write_run(folder, SCENARIO, requests, summarize(requests), PROVENANCE)
    data = (folder / name).read_bytes()
    cut = int(at * len(data))
    (folder / name).write_bytes(data[:cut] + damage)
    message = name
    try:
        read_run(folder)
    except DataError as error:
        message = str(error)
    assert name in message
    assert "\n" not in message


def test_tables_of_another_kind_are_named(tmp_path: Path) -> None:
    requests = a_record()
    write_run(tmp_path / "run", SCENARIO, requests, summarize(requests), PROVENANCE)
    rows, gaps = tmp_path / "run" / "requests.parquet", tmp_path / "run" / "gaps.parquet"
    good_rows, good_gaps = pq.read_table(rows), pq.read_table(gaps)
    for bad, message in (
        (good_rows.drop(["isl"]), "its columns are"),
        (good_rows.slice(1), "ids"),
        (good_rows.set_column(6, "osl", good_rows.column("osl").cast("int32")), "int32"),
        (good_rows.replace_schema_metadata(None), "damaged"),
    ):
        pq.write_table(bad, rows)
        with pytest.raises(DataError, match=message):
            read_run(tmp_path / "run")
    pq.write_table(good_rows, rows)
    buckets, low, count = (
        good_gaps.column(name).to_numpy() for name in ("bucket", "bin_low_ns", "count")
    )
    for place, name, values, message in (
        (1, "bin_low_ns", count, "bins are not those"),
        (0, "bucket", np.where(buckets == buckets[0], -1, buckets), "out of range"),
        (0, "bucket", np.where(buckets == buckets[0], POSITION_BUCKETS, buckets), "out of range"),
        (2, "count", np.where(low == low[0], -count, count), "out of range"),
    ):
        kind = good_gaps.schema.field(name)
        pq.write_table(good_gaps.set_column(place, kind, pa.array(values, kind.type)), gaps)
        with pytest.raises(DataError, match=message):
            read_run(tmp_path / "run")


@pytest.mark.parametrize("fails", ["tokens", "requests", "gaps"])
def test_a_record_that_cannot_be_written_is_still_whole_in_memory(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third write of that file fails, as on a disk that fills up meanwhile; nothing of the
    folder is left."""
    column, room = {
        "tokens": ("offsets_ns", 2),
        "requests": ("due_ns", 2),
        "gaps": ("bin_low_ns", 0),
    }[fails]
    whole, count = pq.ParquetWriter.write_table, 0

    def filling(writer: Any, table: Any, *further: Any, **more: Any) -> None:
        nonlocal count
        count += column in table.column_names
        if count > room:
            raise OSError(28, "No space left on device")
        whole(writer, table, *further, **more)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", filling)
    writer = RunWriter(tmp_path / "run")
    rows = np.arange(60, dtype=np.int64).reshape(6, 10) + 1
    rows[:, 8] = 0
    for part in np.split(rows, 6):
        writer.add(
            Batch(
                rows=part,
                offsets_ns=np.array([5], dtype=np.int64),
                lengths=np.array([1], dtype=np.int64),
            )
        )
    record = writer.finish()
    assert writer.fault == "No space left on device"
    assert record.due_ns.tolist() == rows[:, 0].tolist()
    assert record.osl.tolist() == rows[:, 5].tolist()
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_files_that_belong_together_are_all_there_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.yaml").write_bytes(b"old")
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if b"second" in data:
            write(path, data[:3])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        write_together(tmp_path, {"a.csv": b"first", "b.yaml": b"second"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"b.yaml": b"old"}
    write_together(tmp_path, {"a.csv": b"first", "b.yaml": b"third"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.csv": b"first",
        "b.yaml": b"third",
    }


def test_a_small_file_that_expands_to_a_thousand_times_its_size_is_not_read(tmp_path: Path) -> None:
    ids = pa.table({"id": np.zeros(5_000_000, np.int64)})
    with pq.ParquetWriter(tmp_path / "bomb.parquet", ids.schema) as file:
        for _ in range(4):
            file.write_table(ids, row_group_size=len(ids))
    assert (tmp_path / "bomb.parquet").stat().st_size < 100_000
    with pytest.raises(ValueError, match="it has 20,000,000 values in "):
        parquet_table(tmp_path / "bomb.parquet")
    several = pa.table({"id": np.arange(1_000_000)})
    pq.write_table(several, tmp_path / "long.parquet")
    assert parquet_table(tmp_path / "long.parquet").equals(several)


def test_a_pipe_in_a_run_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "summary.json")
    with pytest.raises(DataError, match=r"summary.json: is damaged .it is no file"):
        checked(tmp_path / "summary.json", read_mapping)


def batch(first: int, count: int) -> Batch:
    rows = np.zeros((count, 10), dtype=np.int64)
    rows[:, 0] = np.arange(first, first + count) * 1_000_000
    rows[:, 3] = rows[:, 0] + 5_000_000
    rows[:, 5] = 3
    return Batch(
        rows=rows,
        offsets_ns=np.tile([1, 2, 3], count).astype(np.int64),
        lengths=np.full(count, 3, dtype=np.int64),
    )


def test_a_run_written_in_batches_reads_back_as_one(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for start, count in ((0, 4), (4, 1), (5, 7)):
        writer.add(batch(start, count))
    requests = writer.finish()
    assert not (tmp_path / "run").exists()
    writer.close(scenario={"a": 1}, summary={"b": 2}, provenance={}, run={"c": 3})
    found = read_run(tmp_path / "run")
    assert (
        list(found.requests.due_ns) == list(requests.due_ns) == [k * 1_000_000 for k in range(12)]
    )
    offsets, lengths = read_tokens(tmp_path / "run")
    assert (list(offsets), list(lengths)) == ([1, 2, 3] * 12, [3] * 12)


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.add(batch(0, 3))
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_gaps_are_counted_by_the_place_and_by_the_width_of_their_bin() -> None:
    """Bins begin at 0, 1.01 µs and 1 % further each; places at powers of two."""
    gaps = np.array([0, 1_009, 1_010, 1_019, 1_020, 2_000, 2_000, 2_000])
    places = np.array([1, 2, 3, 4, 7, 8, 2**23, 2**40])
    found = gap_counts(gaps, places)
    edges = store.gap_edges_ns()
    assert edges[:4].tolist() == [0, 1_010, 1_020, 1_030]
    wide = int(np.searchsorted(edges, 2_000, side="right")) - 1
    counted = {(int(b), int(i)): int(found[b, i]) for b, i in np.argwhere(found)}
    assert counted == {
        (0, 0): 1,
        (1, 0): 1,
        (1, 1): 1,
        (2, 1): 1,
        (2, 2): 1,
        (3, wide): 1,
        (23, wide): 2,
    }
    assert found.dtype == np.int64


def test_a_yaml_file_is_replaced_in_one_step_beside_names_that_are_taken(tmp_path: Path) -> None:
    (tmp_path / ".a.yaml.partial0").write_text("of another process")
    write_yaml(tmp_path / "a.yaml", {"z": 1, "a": "µ", "list": [1, None]})
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == "z: 1\na: µ\nlist:\n- 1\n- null\n"
    write_yaml(tmp_path / "new" / "a.yaml", {})
    assert (tmp_path / "new" / "a.yaml").read_text() == "{}\n"
    (tmp_path / "new" / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder: cannot be written \(Is a directory\); name a"):
        write_yaml(tmp_path / "new" / "folder", {})
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        *(".a.yaml.partial0", "a.yaml", "a.yaml", "folder", "new")
    ]
    assert json_text({1: (np.float32(0.5), "µ")}) == '{\n  "1": [\n    0.5,\n    "µ"\n  ]\n}\n'


def test_the_summary_of_a_measured_run_has_what_a_reader_must_not_miss(tmp_path: Path) -> None:
    requests = a_record(20)
    summary = summarize(requests)
    document = summary_document(summary, requests, [("valid", False), ("counted", 3)])
    assert document == {**summary.to_json(), "valid": False, "counted": 3}
    with pytest.raises(ValueError, match=r"is summarize\(requests\)"):
        summary_document(summary, a_record(21), [])
    with pytest.raises(InputError, match=r"is not a run folder .it has no requests.parquet"):
        read_run(tmp_path)
    with pytest.raises(InputError, match=r"holds no times of single tokens \(no tokens.parquet\)"):
        read_tokens(tmp_path)
    (tmp_path / "tokens.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"tokens.parquet: is damaged \(.*\); measure again$"):
        read_tokens(tmp_path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("two\n words"), "it: is damaged (two words); run the command again into a new"),
        (KeyError(), "it: is damaged (KeyError); run"),
        (RecursionError("x" * 200), f"it: is damaged ({'x' * 160}); run"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_short_line(error: Exception, words: str) -> None:
    def fails(_: Path) -> None:
        raise error

    with pytest.raises(DataError) as refused:
        checked(Path("it"), fails)
    assert str(refused.value).startswith(words)
    with pytest.raises(DataError, match=r"\); measure again$"):
        checked(Path("it"), fails, "measure again")
    assert checked(Path("it"), lambda path: path.name) == "it"


def test_mappings_are_read_by_the_name_of_their_file(tmp_path: Path) -> None:
    for name, text in (("a.json", '{"a": 1}'), ("a.yaml", "a: 1")):
        (tmp_path / name).write_text(text)
        assert read_mapping(tmp_path / name) == {"a": 1}
        (tmp_path / name).write_text("[1]")
        with pytest.raises(ValueError, match="not a mapping"):
            read_mapping(tmp_path / name)


def test_a_table_of_requests_is_checked_cell_by_cell(tmp_path: Path) -> None:
    file = tmp_path / "requests.parquet"
    requests = a_record(3)
    pq.write_table(store.gaps_table(requests), tmp_path / "gaps.parquet")
    table = requests_table(requests)
    assert table.schema.metadata == {b"tonnage.window_ns": b"-1"}
    assert table.column("status").to_pylist() == ["completed"] * 3
    place = table.column_names.index("status")
    for name, column, why in (
        ("status", pa.array(["completed", "lost", "failed"]), "a status is none of completed,"),
        ("isl", pa.array([1, None, 2]), "it has empty cells"),
        ("id", pa.array([0, 2, 1]), "its ids are not the row numbers"),
    ):
        at = table.column_names.index(name)
        pq.write_table(table.set_column(at, name, column), file)
        with pytest.raises(DataError, match=why):
            store.read_requests(tmp_path)
    known = pa.array(["failed", "rejected", "unfinished"])
    pq.write_table(table.set_column(place, "status", known), file)
    assert store.read_requests(tmp_path).status.tolist() == [3, 1, 2]


def test_a_run_without_moments_of_tokens_and_one_without_requests(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", tokens=False)
    assert writer.partial.name == f".run.partial{os.getpid()}"
    gaps = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
    gaps[3, 5] = 2
    writer.add_gaps(gaps)
    writer.add(batch(0, 2))
    writer.add_gaps(gaps)
    requests = writer.finish()
    assert (requests.gaps[3, 5], requests.gaps.sum(), writer.fault) == (4, 4, "")
    writer.close(scenario={"a": 1}, summary={"b": 2}, provenance={"p": 4}, run={"c": 3})
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*FILES, "run.json"}
    assert read_mapping(tmp_path / "run" / "run.json") == {"c": 3}
    found = read_run(tmp_path / "run")
    assert (found.scenario, found.summary, found.provenance) == ({"a": 1}, {"b": 2}, {"p": 4})
    writer.discard()  # nothing is left to remove
    assert (tmp_path / "run").is_dir()
    nobody = RunWriter(tmp_path / "empty")
    assert len(nobody.finish()) == 0
    nobody.close(scenario={}, summary={}, provenance={}, run={})
    assert [values.tolist() for values in read_tokens(tmp_path / "empty")] == [[], []]
    ids = pq.read_table(tmp_path / "run" / "requests.parquet").column("id").to_pylist()
    assert ids == [0, 1]
    with pytest.raises(InputError, match="is not empty"):
        RunWriter(tmp_path / "run")


def test_the_first_fault_of_a_disk_is_the_one_that_is_named(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for error in (OSError(28, "No space\n left"), OSError(5, "Input error")):
        with writer.noting_faults():
            raise error
    assert writer.fault == "No space left"
    with RunWriter(tmp_path / "other").noting_faults():
        pass
    plain = RunWriter(tmp_path / "plain")
    with plain.noting_faults():
        raise OSError("no number")
    assert plain.fault == "no number"
