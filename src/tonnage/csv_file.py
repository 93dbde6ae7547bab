"""Reads text and CSV files in UTF-8; every error names the file and the line.

There is one reader of CSV; what the columns mean is up to anyone who asks: lengths, a trace, step
times or measurements.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import select
import stat
from collections.abc import Iterator
from pathlib import Path

from tonnage.errors import InputError

MAX_NAME = 100  # characters of a file's name in a message
MAX_BYTES = 200_000_000
"""Size of a file above which it is refused rather than read."""


def read_text(
    path: str | Path,
    where: str = "",
    *,
    give: str = "the path of a text file",
    most_bytes: int = MAX_BYTES,
) -> str:
    """The text of a UTF-8 file, without its byte order mark.

    Args:
        path: the file.
        where: what it was given for, such as ``option("trace")``, for messages.
        give: what to give in place of a file that cannot be read.
        most_bytes: size above which a file is refused, in bytes.

    Raises:
        InputError: no such file, a folder, too large, not UTF-8 text, or a proxy's log in text.
    """
    name = str(path)
    name = name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"
    place = f"{where}: {name}" if where else name
    try:
        data = _bytes_of(path, most_bytes)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{place}: cannot be read ({reason}); give {give}") from None
    if len(data) > most_bytes:
        raise InputError(f"{place}: larger than {most_bytes / 1e6:,g} MB; give a part of it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: not UTF-8 text at byte {error.start}; save it in UTF-8"
        ) from None
    if "\0" in text:
        raise InputError(
            f"{place}: holds binary data at character {text.index(chr(0))}; give a text file in"
            " UTF-8"
        )
    refuse_text_log(text, place)
    return text


def _bytes_of(path: str | Path, most_bytes: int) -> bytearray:
    """The first ``most_bytes`` bytes of a file or of a pipe that is being written, and one more
    where there is one. Raises OSError: unreadable, or a pipe that no process has open for writing.
    """
    data = bytearray()
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        while len(data) <= most_bytes:
            piece = file.read(min(1 << 24, most_bytes + 1 - len(data)))
            if piece is None:  # a pipe whose writer has not written yet
                select.select([file], [], [])
            elif piece:
                data += piece
            else:
                break
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EPIPE, "a pipe that nothing writes to")
    return data


def text_lines(path: str | Path, where: str = "") -> list[str]:
    """The lines of a text file without their ends. Raises InputError: as ``read_text``."""
    return read_text(path, where).replace("\r\n", "\n").replace("\r", "\n").split("\n")


def csv_rows(text: str, place: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers, counted from 1, and cells of a CSV text; lines without any content are left
    out.

    Args:
        text: the content of the file.
        place: the file, for messages.

    Raises:
        InputError: quotes that do not close, and other breakage.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{place}, line {reader.line_num}: not a CSV line ({error}); quotes must come in"
                " pairs"
            ) from None
        if row is None:
            return
        if any(cell.strip() for cell in row):
            yield reader.line_num, row


TEXT_LOG = re.compile(r"\[\d{1,2}/[A-Z][a-z]{2}/\d{4}(:\d{2}){3}")
"""The moment of a request in the text logs of HAProxy, Apache and nginx."""


def refuse_text_log(text: str, place: str) -> None:
    """Refuse a proxy's log in text, which no reader of requests can use. Raises InputError."""
    first = text.lstrip().partition("\n")[0]
    if first[:1] not in "{[" and TEXT_LOG.search(first):
        raise InputError(
            f"{place} is an access log in text, which has no counts of tokens; let the proxy write"
            " a JSON object a request, with such as startTime, duration_ms, prompt_tokens and"
            " completion_tokens"
        )


COLUMN = re.compile(r"[a-z_][\w .()%/-]{0,60}")
"""How a column is named, in lower case. A first line of anything else, or of one name, is in no
message: the file may be no table."""


def column_names(cells: list[str], place: str) -> list[str]:
    """The columns of a first line, in lower case. Raises InputError: two have one name."""
    names = [cell.strip().lower() for cell in cells]
    if twice := next((name for i, name in enumerate(names) if name and name in names[:i]), ""):
        what = f"two columns {twice}" if COLUMN.fullmatch(twice) else "two columns of one name"
        raise InputError(f"{place} has {what}; leave one of them out")
    return names


def named_rows(
    path: str | Path, where: str, needed: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line numbers and cells by lower-case column name, for every line that is neither empty nor a
    comment (#).

    Args:
        path: the file.
        where: what it was given for, for messages.
        needed: columns that must be there.

    Raises:
        InputError: no such file, not text, or a column is missing.
    """
    place = f"{where}: {path}"
    header: list[str] = []
    for number, cells in csv_rows(read_text(path, where), place):
        if cells[0].lstrip().startswith("#"):
            continue
        if not header:
            header = column_names(cells, place)
            missing = [name for name in needed if name not in header]
            if missing:
                has = (
                    f"; it has {', '.join(header[:8])}"
                    if len(header) > 1 and all(map(COLUMN.fullmatch, header))
                    else ", and its first line names no columns"
                )
                raise InputError(f"{place} has no column {' and no column '.join(missing)}{has}")
            continue
        yield (
            number,
            dict(
                zip(header, [*(cell.strip() for cell in cells), *("",) * len(header)], strict=False)
            ),
        )
    if not header:
        raise InputError(f"{place} is empty; its first line names the columns {', '.join(needed)}")
