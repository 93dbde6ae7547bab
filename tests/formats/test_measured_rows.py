"""Measured tables come in typed, or are refused in one line that says where and why."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.formats.measured_files import read_measured

SHARED = Path(__file__).parents[3] / "shared" / "data"


HEADER = "model,gpu,precision,tp,isl,osl,concurrency,ttft_ms,requests_s"


LINE = "llama-3-8b,h100-sxm-80gb,fp8,1,2000,200,10,220.845,5.195428"


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "points.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_row_has_every_key_with_its_type(tmp_path: Path) -> None:
    (row,) = read_measured(table(tmp_path, HEADER, LINE))
    assert row["line"] == 2
    assert (row["model"], row["tp"], row["isl"], row["concurrency"]) == ("llama-3-8b", 1, 2000, 10)
    assert (row["pp"], row["ep"], row["ttft_ms"], row["requests_s"]) == (1, 1, 220.845, 5.195428)
    for name in (
        "batch",
        "request_rate",
        "engine",
        "requests",
        "window_s",
        "itl_ms",
        "e2e_p95_ms",
        "peak_gpu_memory_gb",
    ):
        assert row[name] is None
    (row,) = read_measured(
        table(tmp_path, HEADER, LINE.replace("220.845", "0.25").replace(",10,", ",1000000000,"))
    )
    assert (row["ttft_ms"], row["concurrency"]) == (0.25, 10**9)
    with pytest.raises(InputError, match="out of range"):
        read_measured(table(tmp_path, HEADER, LINE.replace(",10,", ",1000000001,")))
    soft = table(
        tmp_path,
        HEADER.replace("isl", "Input Sequence Length (tokens)"),
        LINE.replace("2000", "1999.66"),
    )
    assert read_measured(soft)[0]["isl"] == 2000
    both = table(tmp_path, "Input Sequence Length (tokens)," + HEADER, "1234.5," + LINE)
    assert read_measured(both)[0]["isl"] == 2000
    varied = LINE.replace(",2000,200,", ",1600-2000,200+-20%,")
    first, second = read_measured(
        table(tmp_path, f"{HEADER},range_ratio", f"{varied},", f"{LINE},0.8")
    )
    assert (first["isl"], first["osl"], first["range_ratio"]) == (1800, 200, None)
    assert (first["isl_drawn"], first["osl_drawn"]) == ("1600-2000", "200+-20%")
    assert (second["isl"], second["isl_drawn"], second["range_ratio"]) == (2000, None, 0.8)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("nim_inflight", 240), ("trtllm_static_batch", 2790), ("trtllm_throughput", 388)],
)
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data lies beside a working copy only")
def test_shared_tables_are_read_whole(name: str, rows: int) -> None:
    assert len(read_measured(SHARED / f"{name}.csv")) == rows


def test_byte_order_mark_separators_and_blank_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    separated = LINE.replace("220.845", '"1,220.5"')
    path.write_bytes(
        b"\xef\xbb\xbf" + "\r\n".join([HEADER, "", LINE, separated, ",,,,,,,,", ""]).encode()
    )
    rows = read_measured(path)
    assert [row["ttft_ms"] for row in rows] == [220.845, 1220.5]
    assert [row["line"] for row in rows] == [3, 4]


def test_bad_tables_and_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    for lines, message in [
        ((HEADER,), "no line below"),
        (("",), "is empty"),
        ((HEADER.replace("tp,", ""), LINE.replace("fp8,1,", "fp8,")), "missing column tp"),
        ((HEADER.replace("concurrency", "x"), LINE), "batch, concurrency or request_rate"),
        ((HEADER + ",batch", LINE + ",4"), "line 2: has batch and concurrency"),
        ((HEADER, LINE.replace(",10,", ",,")), "line 2: has no load"),
        (
            (HEADER, LINE.replace("220.845", "fast")),
            "line 2, column 'ttft_ms': 'fast' is not a number",
        ),
        ((HEADER, LINE.replace("220.845", "-3")), "column 'ttft_ms': -3 is not a measurement"),
        (
            (HEADER, LINE.replace(",2000,", ",2000-1000,")),
            "column 'isl': '2000-1000' ends below where it begins",
        ),
        ((HEADER, LINE.replace("llama-3-8b", "")), "column 'model': is empty"),
        ((HEADER, LINE, LINE + ",7"), "line 3: 10 cells, but the header has 9"),
        ((HEADER + ",Time To First Token (ms)", LINE + ",7"), "both mean ttft_ms"),
        ((HEADER.replace("ttft_ms", "ttft"), LINE), "column 'ttft' has no unit"),
        ((HEADER.replace("requests_s", "Request Throughput (per min)"), LINE), "per second"),
        ((HEADER.replace("ttft_ms", "a").replace("requests_s", "b"), LINE), "no measured column"),
    ]:
        with pytest.raises(InputError) as caught:
            read_measured(table(tmp_path, *lines))
        assert message in str(caught.value)
        assert "points.csv" in str(caught.value)
        assert "\n" not in str(caught.value)
    for data, message in [
        (b"", "is empty"),
        (b"\x00\x01\x02", "binary"),
        ("model;gpu".encode("utf-16"), "not UTF-8"),
    ]:
        path = tmp_path / "junk.csv"
        path.write_bytes(data)
        with pytest.raises(InputError, match=message):
            read_measured(path)


CELLS = st.one_of(
    st.sampled_from(
        [
            *HEADER.split(","),
            "batch",
            "request_rate",
            "ttft_p95_ms",
            "Time To First Token (ms)",
            "ttft",
            *LINE.split(","),
        ]
    ),
    st.sampled_from(
        [
            "",
            " ",
            "nan",
            "inf",
            "-1",
            "0",
            "1e309",
            "1,000.5",
            "１２",
            "\u0664",
            '"',
            "\n",
            "\r",
            "a" * 200,
            "µs",
            "1e400",
        ]
    ),
    st.text(max_size=12),
)


@given(st.lists(st.lists(CELLS, max_size=10), max_size=5))
def test_any_cells_give_rows_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([HEADER.split(","), LINE.split(","), *rows])
    check_bytes(tmp_path_factory, text.getvalue().encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
def test_any_bytes_give_rows_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    check_bytes(tmp_path_factory, data)


def check_bytes(factory: pytest.TempPathFactory, data: bytes) -> None:
    path = factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(data)
    try:
        rows = read_measured(path)
    except InputError as error:
        message = str(error)
        assert "\n" not in message
        assert "fuzz.csv" in message
    else:
        assert all(row["tp"] >= 1 and row["ttft_ms"] != 0 for row in rows)
