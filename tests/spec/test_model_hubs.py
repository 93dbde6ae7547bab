"""Names that are looked up on a hub, and its readers."""

from __future__ import annotations

import re

import pytest

from tonnage.spec import model_hubs


@pytest.mark.parametrize(
    ("name", "of_a_hub"),
    [
        ("meta-llama/Llama-3.1-8B", True),
        ("a/b@v1.0/x", True),
        ("llama-3.1-8b", False),
        ("./models/llama", False),
        ("a/../b", False),
        ("a/b/c", False),
        ("a/" + "b" * 97, False),
    ],
)
def test_a_name_of_a_hub_has_an_owner_and_leads_nowhere_else(name: str, of_a_hub: bool) -> None:
    assert bool(re.fullmatch(model_hubs.HUB_NAME, name)) == of_a_hub


def test_a_reader_is_asked_once_however_often_it_was_put_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_hubs, "_readers", [])

    def reader(name: str, layout: str) -> str:
        return f"{name} is not there"

    model_hubs.look_also(reader)
    model_hubs.look_also(reader)
    assert model_hubs.readers() == (reader,)
