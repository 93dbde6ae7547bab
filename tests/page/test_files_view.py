"""The Files view: no path leads to other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.page.guarded import TOKEN

if TYPE_CHECKING:
    from starlette.testclient import TestClient


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e%2fserver.py",
        "/static/page.py",
        "/plan.exe",
        "/../../etc/passwd",
    ],
)
def test_no_path_leads_to_other_files(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (404, 405)


def test_an_upload_that_is_too_large_leaves_nothing(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.page.files_view.LARGEST_FILE", 1_000)
    headers = {"x-tonnage-token": TOKEN}
    assert client.put("/files/a.csv", content=b"x" * 1_001, headers=headers).status_code == 422
    assert list(tmp_path.iterdir()) == []
    assert client.put("/files/a.csv", content=b"x" * 1_000, headers=headers).status_code == 201
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_link_in_the_folder_leads_nowhere_else(client: TestClient, tmp_path: Path) -> None:
    secret = tmp_path.parent / f"{tmp_path.name}-secret.csv"
    secret.write_text("secret")
    (tmp_path / "link.csv").symlink_to(secret)
    headers = {"x-tonnage-token": TOKEN}
    assert client.get("/files/link.csv/look").status_code == 422
    assert client.put("/files/link.csv", content=b"x", headers=headers).status_code == 422
    assert client.delete("/files/link.csv", headers=headers).status_code == 422
    assert secret.read_text() == "secret"
