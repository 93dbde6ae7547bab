"""A run folder written while the run lasts: rows in batches, nothing kept, whole or not there at the end.

The files are those of ``store``, with one more for measured runs:

    tokens.parquet     id, offsets_ns: when each output token came, in nanoseconds after ``sent_ns``, as a list
    run.json           what else belongs to a measurement: validity, self-test, environment
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError, InputError, option
from tonnage.results.metrics import Summary, summarize
from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, Requests, gap_edges_ns
from tonnage.results.store import check_free, gaps_table, json_text, read_run, requests_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

TOKENS = "tokens.parquet"

BATCH_ROWS = 4_096
"""Requests that are written at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of some requests, in the order of their ids.

    Attributes:
        rows: int64 of shape (requests, 10): the columns of ``Requests`` in its order, from ``due_ns`` to ``preemptions``.
        offsets_ns: int64, the moments of all their output tokens after ``sent_ns``, request by request.
        lengths: int64, how many of these belong to each request.
    """

    rows: NDArray[np.int64]
    offsets_ns: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def requests(self, gaps: NDArray[np.int64], window_ns: int = -1) -> Requests:
        """The rows as a record."""
        import numpy as np

        due, sent, first, last, isl, osl, cached, instance, status, preemptions = (np.ascontiguousarray(c) for c in self.rows.T)
        return Requests(
            due_ns=due,
            sent_ns=sent,
            first_token_ns=first,
            last_token_ns=last,
            isl=isl,
            osl=osl,
            cached_tokens=cached,
            instance=instance.astype(np.int32),
            status=status.astype(np.int8),
            preemptions=preemptions.astype(np.int32),
            gaps=gaps,
            window_ns=window_ns,
        )


class RunWriter:
    """Writes a run folder batch by batch, under another name until ``close``.

    Attributes:
        partial: the folder while it is written.
    """

    def __init__(self, directory: Path, *, tokens: bool = True) -> None:
        """Make the folder's place.

        Args:
            tokens: whether ``tokens.parquet`` is kept.

        Raises:
            InputError: the folder is in use or cannot be written.
        """
        import numpy as np
        import pyarrow.parquet  # noqa: F401 — half a second of imports, which must not fall into the run

        check_free(directory)
        self._directory = directory
        self.partial = directory.parent / f".{directory.name}.partial{os.getpid()}"
        self._tokens = tokens
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._written = 0
        self._gaps: NDArray[np.int64] = np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64)
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            self.partial.mkdir()
        except OSError as error:
            raise InputError(f"{directory}: cannot be written ({error.strerror or error}); name a place that can") from None

    def add(self, batch: Batch) -> None:
        """Write the next rows; their ids go on where the last batch ended."""
        import numpy as np
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

        if name not in self._writers:
            self._writers[name] = pq.ParquetWriter(self.partial / name, table.schema, compression="zstd")
        self._writers[name].write_table(table)

    def finish(self) -> Requests:
        """The whole record, read back; no batch may follow."""
        import numpy as np
        import pyarrow.parquet as pq

        if not self._written:
            self.add(Batch(rows=np.zeros((0, 10), np.int64), offsets_ns=np.zeros(0, np.int64), lengths=np.zeros(0, np.int64)))
        self._close_writers()
        empty = Batch(rows=np.zeros((0, 10), np.int64), offsets_ns=np.zeros(0, np.int64), lengths=np.zeros(0, np.int64))
        pq.write_table(gaps_table(empty.requests(self._gaps)), self.partial / "gaps.parquet", compression="zstd")
        for name in ("summary.json", "provenance.json"):
            (self.partial / name).write_text("{}", encoding="utf-8")
        (self.partial / "scenario.yaml").write_text("{}\n", encoding="utf-8")
        return read_run(self.partial).requests

    def close(self, *, scenario: dict[str, Any], summary: dict[str, Any], provenance: dict[str, Any], run: dict[str, Any]) -> None:
        """Write the small files and give the folder its name. Raises InputError: the folder cannot be written."""
        import yaml

        try:
            plain = json.loads(json_text(scenario))
            (self.partial / "scenario.yaml").write_text(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), encoding="utf-8")
            for name, document in (("summary.json", summary), ("provenance.json", provenance), ("run.json", run)):
                (self.partial / name).write_text(json_text(document), encoding="utf-8")
            os.rename(self.partial, self._directory)
        except OSError as error:
            raise InputError(f"{self._directory}: cannot be written ({error.strerror or error}); name a place that can") from None

    def _close_writers(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def discard(self) -> None:
        """Remove what was written; nothing where ``close`` has been called."""
        self._close_writers()
        shutil.rmtree(self.partial, ignore_errors=True)


@cache
def _edges() -> NDArray[np.int64]:
    """The edges of the bins, computed once."""
    return gap_edges_ns()


def gap_counts(gaps_ns: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The histogram of single gaps; ``positions`` holds the output token before each, counted from 1."""
    import numpy as np

    bins = np.searchsorted(_edges(), gaps_ns, side="right") - 1
    buckets = np.minimum(np.log2(positions).astype(np.int64), POSITION_BUCKETS - 1)
    flat = np.bincount(buckets * GAP_BINS + bins, minlength=POSITION_BUCKETS * GAP_BINS)
    return flat.reshape(POSITION_BUCKETS, GAP_BINS).astype(np.int64)


def read_tokens(directory: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The moments of all output tokens of a measured run after ``sent_ns``, and how many belong to each request, in order of id.

    Raises InputError: the run was made without them; DataError: the file is damaged.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = directory / TOKENS
    if not path.is_file():
        raise InputError(f"{directory}: holds no times of single tokens (no {TOKENS}); measure again with {option('tokens')}")
    try:
        column = pq.ParquetFile(path).read(columns=["offsets_ns"]).column("offsets_ns").combine_chunks()
        lists = column if isinstance(column, pa.ListArray) else pa.concat_arrays(column.chunks)
        lengths = np.asarray(lists.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
        return lists.flatten().to_numpy(), lengths
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path}: is damaged ({' '.join(str(error).split())[:160]}); measure again") from None


def summary_document(summary: Summary, requests: Requests, further: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """``summary.json`` of a measured run: the summary of its record, and what ``run.json`` says that a reader must not miss.

    Raises ValueError: the summary is not that of these requests.
    """
    if json_text(summary.to_json()) != json_text(summarize(requests).to_json()):
        raise ValueError("the summary of a run folder is summarize(requests)")
    return {**summary.to_json(), **dict(further)}
