"""The server answers its own pages alone, and changes nothing without its token."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tonnage.errors import InputError
from tonnage.page.server import application
from tonnage.page.workspace import Desk

PORT = 8765
TOKEN = "the-token"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The application without its processes, which begin with the server."""
    monkeypatch.chdir(tmp_path)
    return TestClient(
        application(Desk(tmp_path, TOKEN), PORT),
        base_url=f"http://127.0.0.1:{PORT}",
        raise_server_exceptions=False,
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:8765", ""]
)
def test_another_name_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/size", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:1"]
)
def test_another_origin_is_refused(client: TestClient, origin: str) -> None:
    assert client.get("/size", headers={"origin": origin}).status_code == 403
    assert client.post("/api/v1/size", json={}, headers={"origin": origin}).status_code == 403


def test_a_page_of_another_site_may_link_here_and_nothing_else(client: TestClient) -> None:
    assert (
        client.get(
            "/size", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        ).status_code
        == 200
    )
    for site in ("cross-site", "same-site"):
        assert (
            client.get(
                "/size", headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
            ).status_code
            == 403
        )
    for path in ("/measure/live", "/measure/watch"):
        for site in ("cross-site", "same-site"):
            assert (
                client.post(
                    path, headers={"sec-fetch-site": site, "x-tonnage-token": TOKEN}
                ).status_code
                == 403
            )
        assert client.post(path, headers={"sec-fetch-site": "same-origin"}).status_code == 401
        assert client.get(path, headers={"x-tonnage-token": TOKEN}).status_code == 405, (
            "a link sends no requests"
        )


def test_the_token_is_in_no_cookie_which_other_ports_would_get(client: TestClient) -> None:
    for path in ("/", f"/?token={TOKEN}", "/size", "/measure", "/files"):
        answer = client.get(path, follow_redirects=False)
        assert "set-cookie" not in answer.headers
        assert TOKEN not in answer.text
    for name in ("token", "tonnage-token", "x-tonnage-token"):
        assert client.post("/token", headers={"cookie": f"{name}={TOKEN}"}).status_code == 401
    assert client.post(f"/token?token={TOKEN}").status_code == 401
    assert client.post("/token", headers={"x-tonnage-token": TOKEN}).status_code == 204


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


def test_a_scenario_of_aliases_is_refused_in_the_pages_own_process(client: TestClient) -> None:
    levels = [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    bomb = "\n".join(["a0: &a0 [x]", *levels, "model: *a39", "demand: *a39"])
    headers = {"x-tonnage-token": TOKEN}
    assert client.put("/files/a.yaml", content=bomb.encode(), headers=headers).status_code == 201
    answer = client.get("/files/a.yaml/look")
    assert answer.status_code == 422
    assert "more than 500,000 values, counted with its aliases" in answer.text


def test_what_a_page_may_do_is_said_on_every_response(client: TestClient) -> None:
    for path in ("/size", "/static/page.js", "/nothing", "/api/v1/catalog?text=h100"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_scripts_in_names_are_words(client: TestClient) -> None:
    page = client.get(
        "/size",
        params={
            "title": "<script>alert(1)</script>",
            "model": '"><img src=x onerror=alert(1)>',
            "isl": "1",
        },
    ).text
    assert "<script>alert" not in page
    assert "<img" not in page
    faults = client.get(
        "/size/estimate",
        params={"model": "<script>alert(1)</script>", "isl": "1", "osl": "1", "peak_rps": "1"},
    ).text
    assert "<script>" not in faults
    assert "unknown model" in faults


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


@pytest.mark.parametrize(
    "query",
    [
        "trace=/etc/passwd",
        "model=../../etc",
        "gpu=/etc/x.yaml",
        "prices=~/.aws",
        "frobnicate=1",
        "x" * 20_000,
    ],
)
def test_a_question_that_leads_out_is_refused(client: TestClient, query: str) -> None:
    said = client.get(f"/size/estimate?{query}")
    assert said.status_code == 200
    assert 'role="alert"' in said.text
    assert client.get(f"/plan.json?{query}").status_code == 422


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
