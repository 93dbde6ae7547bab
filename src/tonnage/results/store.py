"""Reads and writes run folders and JSON files, which appear on disk whole or not at all.

A run folder holds five files; nothing in it depends on the clock, so the same seed gives the same
bytes.

    scenario.yaml      the inputs
    requests.parquet   one row per request: id, due_ns, sent_ns, first_token_ns, last_token_ns, isl, osl,
                       cached_tokens, instance, status, preemptions; window_ns in the file's
                       metadata
    gaps.parquet       histogram of single gaps: bucket, bin_low_ns, count, where the count is not zero
    summary.json       ``summarize`` of these two, nothing else
    provenance.json    version, coefficients, seed, command
"""  # noqa: E501

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.csv_file import read_text
from tonnage.errors import DataError, InputError, option, short_of_memory
from tonnage.results.metrics import Summary, summarize
from tonnage.results.requests import (
    GAP_BINS,
    POSITION_BUCKETS,
    STATUS_NAMES,
    Requests,
    gap_edges_ns,
)
from tonnage.spec.typed_values import parse_yaml

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray


_TIMES = ("due_ns", "sent_ns", "first_token_ns", "last_token_ns")
_TYPES = {
    **dict.fromkeys((*_TIMES, "isl", "osl", "cached_tokens"), "int64"),
    "instance": "int32",
    "preemptions": "int32",
}
COLUMNS = ("id", *_TIMES, "isl", "osl", "cached_tokens", "instance", "status", "preemptions")
_WINDOW = b"tonnage.window_ns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The contents of a run folder."""

    scenario: dict[str, Any]
    requests: Requests
    summary: dict[str, Any]
    provenance: dict[str, Any]


def json_text(document: Any) -> str:
    """Write a document as indented JSON with a line end; NaN and infinities become null."""
    return json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value


def write_json(path: Path, document: Any) -> None:
    """Write a document as JSON, replacing a file of that name in one step. Raises InputError: the
    file cannot be written.
    """
    _write_text(path, json_text(document))


def write_run(
    directory: Path,
    scenario: dict[str, Any],
    requests: Requests,
    summary: Summary,
    provenance: dict[str, Any],
) -> None:
    """Write a run folder in one step: it appears whole or not at all.

    Args:
        provenance: plain values for JSON; a date, if any, comes from the caller.

    Raises:
        InputError: the folder is in use or cannot be written.
        ValueError: the summary is not that of these requests.
    """
    import pyarrow.parquet as pq

    if json_text(summary.to_json()) != json_text(summarize(requests).to_json()):
        raise ValueError(
            "the summary of a run folder is summarize(requests), the whole run or its own window"
        )
    check_free(directory)
    with _reported(directory), _beside(directory) as partial:
        partial.mkdir()
        pq.write_table(requests_table(requests), partial / "requests.parquet", compression="zstd")
        pq.write_table(gaps_table(requests), partial / "gaps.parquet", compression="zstd")
        _write_small(
            partial, scenario, {"summary.json": summary.to_json(), "provenance.json": provenance}
        )
        os.rename(partial, directory)


def _write_small(folder: Path, scenario: dict[str, Any], documents: Mapping[str, Any]) -> None:
    """The question as YAML, and the other small files of a run folder as JSON."""
    import yaml

    text = yaml.safe_dump(_plain(scenario), sort_keys=False, allow_unicode=True)
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    for name, document in documents.items():
        (folder / name).write_text(json_text(document), encoding="utf-8")


def check_free(directory: Path) -> None:
    """Refuse a run folder that is in use, before the work that would fill it.

    Raises InputError: a file, or a folder with anything in it, is there.
    """
    with _reported(directory):
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{directory}: is a file; name a new folder for the run")
        if directory.is_dir() and any(directory.iterdir()):
            raise InputError(f"{directory}: is not empty; name a new folder for the run")


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); name a place that can"
        ) from None


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A free name in the same folder, for what is renamed to ``path`` when complete; removed on any
    failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    names = (path.parent / f".{path.name}.partial{n}" for n in itertools.count())
    partial = next(name for name in names if not name.exists())
    try:
        yield partial
    except BaseException:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)
        raise


def write_yaml(path: Path, document: dict[str, Any]) -> None:
    """Write plain values as YAML, replacing a file of that name in one step. Raises InputError: it
    cannot be written.
    """
    import yaml

    _write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _write_text(path: Path, text: str) -> None:
    with _reported(path), _beside(path) as partial:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)


def write_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files that belong together, the last of which names the others, replacing those of
    their names: all, or none of them.

    Raises InputError: they cannot be written.
    """
    with _reported(folder), ExitStack() as stack:
        partials = [(stack.enter_context(_beside(folder / name)), name) for name in files]
        for partial, name in partials:
            partial.write_bytes(files[name])
        for partial, name in partials:
            os.replace(partial, folder / name)


def requests_table(requests: Requests) -> pa.Table:
    """The rows as an Arrow table with ``COLUMNS``; status by name."""
    import pyarrow as pa

    status = pa.DictionaryArray.from_arrays(
        pa.array(requests.status, type=pa.int8()), pa.array(STATUS_NAMES)
    )
    columns = {
        name: pa.array(getattr(requests, name), type=pa.type_for_alias(kind))
        for name, kind in _TYPES.items()
    }
    columns["id"] = pa.array(np.arange(len(requests)), type=pa.int64())
    columns["status"] = status
    table = pa.table({name: columns[name] for name in COLUMNS})
    return table.replace_schema_metadata({_WINDOW: str(requests.window_ns).encode()})


def gaps_table(requests: Requests) -> pa.Table:
    """The histogram as an Arrow table of its counts that are not zero."""
    import pyarrow as pa

    bucket, index = np.nonzero(requests.gaps)
    return pa.table(
        {
            "bucket": pa.array(bucket, type=pa.int32()),
            "bin_low_ns": pa.array(gap_edges_ns()[index], type=pa.int64()),
            "count": pa.array(requests.gaps[bucket, index], type=pa.int64()),
        }
    )


def read_run(directory: Path) -> Run:
    """Read a run folder back; the record equals the one that was written.

    Raises InputError: no run folder there; DataError: one of its files is damaged; the message
    names it.
    """
    if not (directory / "requests.parquet").is_file():
        raise InputError(
            f"{directory}: is not a run folder (it has no requests.parquet); give a folder that"
            " `tonnage simulate` wrote"
        )
    return Run(
        scenario=checked(directory / "scenario.yaml", read_mapping),
        requests=read_requests(directory),
        summary=checked(directory / "summary.json", read_mapping),
        provenance=checked(directory / "provenance.json", read_mapping),
    )


def read_requests(directory: Path) -> Requests:
    """The record of a run folder. Raises DataError: one of its two files is damaged; the message
    names it.
    """
    gaps = checked(directory / "gaps.parquet", _read_gaps)
    return Requests(gaps=gaps, **checked(directory / "requests.parquet", _read_columns))


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping of a YAML or JSON file. Raises ValueError: it holds something else."""
    text = read_text(path)
    mapping = json.loads(text) if path.suffix == ".json" else parse_yaml(text, str(path))
    if not isinstance(mapping, dict):
        raise ValueError("not a mapping")
    return mapping


def checked(
    path: Path, read: Callable[[Path], Any], again: str = "run the command again into a new folder"
) -> Any:
    """What ``read`` makes of a file. Raises DataError: it fails; the message names why, and what to
    do ``again``.
    """
    import pyarrow as pa
    import yaml

    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")
        return read(path)
    except (
        InputError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
        pa.ArrowException,
        yaml.YAMLError,
    ) as error:
        if short_of_memory(error):
            raise MemoryError from error
        why = " ".join(str(error).split())[:160] or type(error).__name__
        raise DataError(f"{path}: is damaged ({why}); {again}") from None


MOST_EXPANSION = 200
"""Times a file's size that its values may take; those of runs take up to 30 times as much."""


def parquet_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The columns of a file, all unless named. Raises ValueError: it would expand to more than
    ``MOST_EXPANSION`` times its size, and to more than 100 MB.
    """
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    cells = sum(group.column(j).num_values for group in groups for j in range(group.num_columns))
    if 8 * cells > max(MOST_EXPANSION * path.stat().st_size, 10**8):
        raise ValueError(f"it has {cells:,} values in {path.stat().st_size:,} bytes")
    return file.read(columns=columns, use_threads=False)


def _read_columns(path: Path) -> dict[str, Any]:
    """The columns of ``Requests`` except the gaps, checked."""
    table = parquet_table(path)
    if tuple(table.column_names) != COLUMNS:
        raise ValueError(f"its columns are {', '.join(table.column_names)}")
    if any(table.column(name).null_count for name in COLUMNS):
        raise ValueError("it has empty cells")
    if not np.array_equal(table.column("id").to_numpy(), np.arange(len(table))):
        raise ValueError("its ids are not the row numbers")
    columns: dict[str, Any] = {name: _integers(table, name, kind) for name, kind in _TYPES.items()}
    columns["status"] = _status_codes(table)
    columns["window_ns"] = int(table.schema.metadata[_WINDOW])
    return columns


def _status_codes(table: pa.Table) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pc.index_in(table.column("status").cast(pa.string()), value_set=pa.array(STATUS_NAMES))
    if codes.null_count:
        raise ValueError(f"a status is none of {', '.join(STATUS_NAMES)}")
    return codes.to_numpy().astype(np.int8)


def _integers(table: pa.Table, name: str, kind: str) -> Any:
    column = table.column(name)
    if str(column.type) != kind:
        raise ValueError(f"column {name} is {column.type}, not {kind}")
    return column.to_numpy()


def _read_gaps(path: Path) -> Any:
    """The histogram, int64 of (POSITION_BUCKETS, GAP_BINS)."""
    table = parquet_table(path)
    bucket, low, count = (
        _integers(table, n, k)
        for n, k in (("bucket", "int32"), ("bin_low_ns", "int64"), ("count", "int64"))
    )
    edges = gap_edges_ns()
    index = np.searchsorted(edges, low)
    if (index >= GAP_BINS).any() or (edges[np.minimum(index, GAP_BINS - 1)] != low).any():
        raise ValueError("its bins are not those of this version")
    if (bucket < 0).any() or (bucket >= POSITION_BUCKETS).any() or (count < 0).any():
        raise ValueError("a bucket or a count is out of range")
    gaps = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
    gaps[bucket, index] = count
    return gaps


# A run folder written while the run lasts: rows in batches, nothing kept, whole or not there at the
# end. The files are those of ``store``, with one more for measured runs: tokens.parquet id,
# offsets_ns: when each output token came, in nanoseconds after ``sent_ns``, as a list run.json what
# else belongs to a measurement: validity, self-test, environment


TOKENS = "tokens.parquet"

BATCH_ROWS = 4_096  # Requests that are written at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of some requests, in the order of their ids."""

    # int64 of shape (requests, 10): the columns of ``Requests`` in its order, from ``due_ns`` to
    # ``preemptions``
    rows: NDArray[np.int64]
    # the moments of all their output tokens after ``sent_ns``, request by request
    offsets_ns: NDArray[np.int64]
    lengths: NDArray[np.int64]  # how many of these belong to each request

    def requests(self, gaps: NDArray[np.int64]) -> Requests:
        """The rows as a record."""
        narrow = {"instance": np.int32, "status": np.int8, "preemptions": np.int32}
        rows = zip(COLUMNS[1:], map(np.ascontiguousarray, self.rows.T), strict=True)
        columns: dict[str, Any] = {
            name: column.astype(narrow.get(name, column.dtype), copy=False) for name, column in rows
        }
        return Requests(**columns, gaps=gaps)


class RunWriter:
    """Writes a run folder batch by batch, under another name until ``close``.

    Attributes:
        partial: the folder while it is written.
        fault: why it cannot be written, such as a full disk; "" where it can. The rows are kept,
            and the moments of tokens are lost.
    """

    def __init__(self, directory: Path, *, tokens: bool = True) -> None:
        """Make the folder's place.

        Args:
            tokens: whether ``tokens.parquet`` is kept.

        Raises:
            InputError: the folder is in use or cannot be written.
        """
        import pyarrow.parquet  # noqa: F401 — half a second of imports, which must not fall into the run

        check_free(directory)
        self._directory = directory
        self.partial = directory.parent / f".{directory.name}.partial{os.getpid()}"
        self._tokens = tokens
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._written = 0
        self.fault = ""
        self._rows: list[NDArray[np.int64]] = []
        self._gaps: NDArray[np.int64] = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
        with _reported(directory):
            directory.parent.mkdir(parents=True, exist_ok=True)
            self.partial.mkdir()

    def add(self, batch: Batch) -> None:
        """Write the next rows; their ids go on where the last batch ended."""
        self._rows.append(batch.rows)
        with self.noting_faults():
            self._add(batch)

    @contextmanager
    def noting_faults(self) -> Iterator[None]:
        """Note a file that cannot be written as the ``fault``; the first one stays."""
        try:
            yield
        except OSError as error:
            self.fault = self.fault or " ".join(str(error.strerror or error).split())

    def _add(self, batch: Batch) -> None:
        import pyarrow as pa

        table = requests_table(batch.requests(self._gaps))
        first, self._written = self._written, self._written + len(batch.rows)
        ids = pa.array(np.arange(first, self._written), type=pa.int64())
        self._write("requests.parquet", table.set_column(0, "id", ids))
        if self._tokens:
            starts = pa.array(np.concatenate([[0], np.cumsum(batch.lengths)]), type=pa.int32())
            lists = pa.ListArray.from_arrays(starts, pa.array(batch.offsets_ns, type=pa.int64()))
            self._write(TOKENS, pa.table({"id": ids, "offsets_ns": lists}))

    def add_gaps(self, gaps: NDArray[np.int64]) -> None:
        """Add counts to the histogram: int64 of (POSITION_BUCKETS, GAP_BINS)."""
        self._gaps += gaps

    def _write(self, name: str, table: Any) -> None:
        import pyarrow.parquet as pq

        if self.fault:
            return
        if name not in self._writers:
            self._writers[name] = pq.ParquetWriter(
                self.partial / name, table.schema, compression="zstd"
            )
        self._writers[name].write_table(table)

    def finish(self) -> Requests:
        """Return the whole record, read back, or from memory where it cannot be written; no batch
        may follow.
        """
        import pyarrow.parquet as pq

        empty = Batch(
            rows=np.zeros((0, 10), np.int64),
            offsets_ns=np.zeros(0, np.int64),
            lengths=np.zeros(0, np.int64),
        )
        if not self._written:
            self.add(empty)
        with self.noting_faults():
            self._close_writers()
            pq.write_table(
                gaps_table(empty.requests(self._gaps)),
                self.partial / "gaps.parquet",
                compression="zstd",
            )
        return (
            replace(empty, rows=np.concatenate(self._rows)).requests(self._gaps)
            if self.fault
            else read_requests(self.partial)
        )

    def close(
        self,
        *,
        scenario: dict[str, Any],
        summary: dict[str, Any],
        provenance: dict[str, Any],
        run: dict[str, Any],
    ) -> None:
        """Write the small files and give the folder its name. Raises InputError: the folder cannot
        be written.
        """
        with _reported(self._directory):
            _write_small(
                self.partial,
                scenario,
                {"summary.json": summary, "provenance.json": provenance, "run.json": run},
            )
            os.rename(self.partial, self._directory)

    def _close_writers(self) -> None:
        while self._writers:
            _, writer = self._writers.popitem()
            writer.close()

    def discard(self) -> None:
        """Remove what was written; nothing where ``close`` has been called."""
        with self.noting_faults():
            self._close_writers()
        shutil.rmtree(self.partial, ignore_errors=True)


def gap_counts(gaps_ns: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The histogram of single gaps; ``positions`` holds the output token before each, counted from
    1.
    """
    bins = np.searchsorted(gap_edges_ns(), gaps_ns, side="right") - 1
    buckets = np.minimum(np.log2(positions).astype(np.int64), POSITION_BUCKETS - 1)
    flat = np.bincount(buckets * GAP_BINS + bins, minlength=POSITION_BUCKETS * GAP_BINS)
    return flat.reshape(POSITION_BUCKETS, GAP_BINS).astype(np.int64)


def read_tokens(directory: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The moments of all output tokens of a measured run after ``sent_ns``, and how many belong to
    each request, in order of id.

    Raises InputError: the run was made without them; DataError: the file is damaged.
    """
    path = directory / TOKENS
    if not path.is_file():
        raise InputError(
            f"{directory}: holds no times of single tokens (no {TOKENS}); measure again with"
            f" {option('tokens')}"
        )
    tokens: tuple[NDArray[np.int64], NDArray[np.int64]] = checked(
        path, _read_tokens, "measure again"
    )
    return tokens


def _read_tokens(path: Path) -> tuple[Any, Any]:
    import pyarrow as pa

    column = parquet_table(path, ["offsets_ns"]).column("offsets_ns").combine_chunks()
    lists = column if isinstance(column, pa.ListArray) else pa.concat_arrays(column.chunks)
    return lists.flatten().to_numpy(), np.asarray(
        lists.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64
    )


def summary_document(
    summary: Summary, requests: Requests, further: Sequence[tuple[str, Any]]
) -> dict[str, Any]:
    """``summary.json`` of a measured run: the summary of its record, and what ``run.json`` says
    that a reader must not miss.

    Raises ValueError: the summary is not that of these requests.
    """
    if json_text(summary.to_json()) != json_text(summarize(requests).to_json()):
        raise ValueError("the summary of a run folder is summarize(requests)")
    return {**summary.to_json(), **dict(further)}
