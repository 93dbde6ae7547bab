"""Text and CSV files: what is read, and what is refused with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.csv_file import csv_rows, named_rows, read_text, text_lines
from tonnage.errors import InputError


def test_rows_have_the_columns_of_the_first_line_and_their_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf# a note\r\nISL , Osl\r\n\r\n"1,000",2\r\n#3,4\r\n5\r\n')
    assert list(named_rows(path, "lengths", ("isl", "osl"))) == [
        (4, {"isl": "1,000", "osl": "2"}),
        (6, {"isl": "5", "osl": ""}),
    ]
    assert text_lines(path)[1] == "ISL , Osl"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"isl,out\n1,2\n", "has no column osl; it has isl, out"),
        (b"\xff\xfe\x00\n", "not UTF-8 text at byte 0; save it in UTF-8"),
        (b"isl,osl\n\x00,2\n", "binary data at character 8"),
        (b"isl,ISL,osl\n", "has two columns isl; leave one of them out"),
        (b'isl,osl\n"1,2\n', "line 2: not a CSV line"),
        (b"# nothing\n", "is empty; its first line names the columns isl, osl"),
        (b'1.2.3.4 - - [28/Nov/2026:10:00:00 +0000] "POST"\n', "an access log in text"),
    ],
)
def test_what_is_no_table_is_refused_with_its_file(
    content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as refused:
        list(named_rows(path, "lengths", ("isl", "osl")))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_above_the_bound_is_refused_rather_than_read(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("x" * 11)
    assert read_text(path, most_bytes=11) == "x" * 11
    with pytest.raises(InputError, match="larger than 1e-05 MB; give a part of it"):
        read_text(path, most_bytes=10)


def test_lines_without_content_are_left_out_and_the_others_keep_their_numbers() -> None:
    assert list(csv_rows('a,b\n , \n"x\ny",z\n', "t")) == [(1, ["a", "b"]), (4, ["x\ny", "z"])]
