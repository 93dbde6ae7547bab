"""What every request to the page must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.page.guarded import TOKEN

if TYPE_CHECKING:
    from starlette.testclient import TestClient


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
