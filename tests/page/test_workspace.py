"""What the page holds while it runs."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.page.guarded import TOKEN
from tonnage.errors import InputError
from tonnage.page.workspace import Desk

if TYPE_CHECKING:
    from starlette.testclient import TestClient


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for folder in (Path("/proc/tonnage"), Path("/proc"), tmp_path / "file" / "folder"):
        with pytest.raises(
            InputError, match=r"cannot be written \(.*\); name a folder that can, tonnage ui FOLDER"
        ):
            Desk(folder)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tonnage.page.files_view.tempfile.mkstemp", full)
    answer = client.put("/files/a.csv", content=b"x", headers={"x-tonnage-token": TOKEN})
    assert answer.status_code == 422
    assert (
        "a file of the run folder cannot be read or written (No space left on device)"
        in answer.text
    )
