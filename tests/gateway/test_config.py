"""Settings from a file, read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage import api
from tonnage.cli.main import run

WHOLE = """
backends: [http://127.0.0.1:8001, 127.0.0.1:8002=2]
policy: power-of-two
max_in_flight: 7
port: 9000
"""


def test_a_file_says_what_the_flags_say_and_more(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(WHOLE)
    found = api.gateway_from(path, {"port": 9001})
    assert [(target.authority, weight) for target, weight in found.backends] == [("127.0.0.1:8001", 1.0), ("127.0.0.1:8002", 2.0)]
    assert (found.policy, found.limits.in_flight, found.port) == ("power-of-two", 7, 9001)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("backends: []", "backend"),
        ("backend: [a:1]", "backend"),
        ("backends: [a:1]\npolicy: round-robbin", "round-robin"),
        ("backends: [a:1]\nkeys: [{name: x}]", "keys"),
        ("backends: [a:1]\nmax_in_flight: many", "max_in_flight"),
        ("backends: [", "is not YAML"),
        ("- a", "keys with values"),
    ],
)
def test_what_a_file_cannot_say_is_said_in_one_line_with_its_place(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    assert run(["gateway", "--config", str(path)]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.splitlines()) == 1
