"""One reader of CSV and text files: whatever is wrong is told with the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.csv_file import csv_rows, named_rows, read_text, text_lines
from tonnage.errors import InputError


def written(folder: Path, data: bytes) -> Path:
    path = folder / "x.csv"
    path.write_bytes(data)
    return path


def test_marks_line_ends_and_comments_are_fine(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf# mine\r\n\r\nISL, osl \r\n1,2\r\n# more\r\n3\r\n")
    assert list(named_rows(path, "w", ("isl",))) == [(4, {"isl": "1", "osl": "2"}), (6, {"isl": "3", "osl": ""})]
    assert text_lines(path) == ["# mine", "", "ISL, osl ", "1,2", "# more", "3", ""]


def test_cells_may_hold_commas_and_line_ends() -> None:
    assert list(csv_rows('a,"b,\nc"\n\n,\nd,e\n', "f")) == [(2, ["a", "b,\nc"]), (5, ["d", "e"])]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty; its first line names the columns isl"),
        (b"osl\n1\n", "has no column isl; it has osl"),
        (b'isl\n"1\n', "line 2: not a CSV line"),
        (b"isl\n\xff\n", "not UTF-8 text at byte 4"),
        (b"isl\n\0\n", "holds binary data at character 4"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(tmp_path: Path, data: bytes, says: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InputError, match=says) as caught:
        list(named_rows(path, "pairs", ("isl",)))
    assert str(caught.value).startswith(f"pairs: {path}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^trace: .*nowhere\.csv: cannot be read \(No such file or directory\)"):
        read_text(tmp_path / "nowhere.csv", "trace")
    with pytest.raises(InputError, match=r"^.*: cannot be read \(Is a directory\)"):
        read_text(tmp_path)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = written(tmp_path_factory.getbasetemp(), data)
    message = ""
    try:
        assert all(cells.keys() >= {"isl"} for _, cells in named_rows(path, "pairs", ("isl",)))
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert not message or message.startswith("pairs: ")
