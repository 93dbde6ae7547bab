"""The chat page of lesson 09 in Chromium, against a simulated server."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from tests.notebooks.test_lessons import FOLDER
from tests.report.writers.chromium import Chromium, path
from tonnage import api

pytestmark = [
    pytest.mark.notebooks,
    pytest.mark.browser,
    pytest.mark.skipif(path() is None, reason="no chromium on this machine"),
]
LINES = "[...document.querySelectorAll('#talk p')].map(p => [p.className, p.textContent])"


def say(browser: Chromium, words: str) -> list[list[str]]:
    """Type and send a message; the conversation once it is answered."""
    browser.write("input", words)
    browser.click("button")
    until = time.monotonic() + 20
    while browser.value(
        "document.querySelector('button').disabled || !document.querySelector('#talk p')"
    ):
        assert time.monotonic() < until
        time.sleep(0.1)
    lines: list[list[str]] = browser.value(LINES)
    return lines


def test_a_conversation_and_then_a_server_that_has_gone() -> None:
    spec = spec_from_file_location("chat", FOLDER / "chat.py")
    assert spec is not None
    assert spec.loader is not None
    chat = module_from_spec(spec)
    spec.loader.exec_module(chat)
    with ExitStack() as engine, Chromium() as browser:
        url = engine.enter_context(
            api.served(model="llama-3.1-8b", gpu="h100-sxm-80gb", precision="fp8")
        )
        server = chat.chat_server(url, port=0, max_tokens=20)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{server.server_port}", 800, 700)
        first = say(browser, "<img src=x onerror=alert(1)>")
        assert [role for role, _ in first] == ["user", "assistant"]
        assert first[0][1] == "<img src=x onerror=alert(1)>"
        assert len(first[1][1].split()) == 20
        second = say(browser, "And then?")
        assert [role for role, _ in second] == ["user", "assistant"] * 2
        assert second[:2] == first
        assert browser.value("document.querySelectorAll('#talk img').length") == 0
        assert browser.value("document.getElementById('pace').textContent").startswith(
            "first token after "
        )
        assert browser.complaints == []
        assert {
            request
            for request in browser.requests
            if not request.startswith(f"http://127.0.0.1:{server.server_port}/")
        } == set()
        engine.close()
        last = say(browser, "Still there?")[-1]
        assert last[0] == "failed"
        assert url in last[1]
        server.shutdown()
        server.server_close()
