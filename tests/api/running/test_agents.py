"""`tonnage mcp`: the tools and their schemas; and in the tier of notebooks the SDK's own client,
which asks over a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.question.confined_paths import check_inside
from tonnage.api.running.agents import _ID, QUESTIONS, _without_contents, serve_agents
from tonnage.api.sizing import ask
from tonnage.errors import InputError, TonnageError
from tonnage.spec.scenario import leaves
from tonnage.spec.scenario_file import json_schema

ROOT = Path(__file__).parents[3]
SIZED = {
    "model": "llama-3.1-8b",
    "lengths": {"isl": 1000, "osl": 100},
    "demand": {"peak_rps": 300},
    "limits": {"ttft": "p95<=500ms"},
    "search": {"gpu": "h100", "precision": "fp8", "tp": 1, "engine": "vllm"},
}


def nobody(done: int, total: int, name: str) -> None:
    pass


def test_a_question_has_a_schema_and_answers_in_words_and_values() -> None:
    schema = QUESTIONS["size"].schema()
    schema["properties"].pop("full")
    assert schema == json_schema()
    pytest.importorskip("jsonschema")
    document, values = QUESTIONS["memory"].answer({"model": "llama-3.1-8b"}, nobody)
    assert document.sections
    assert values["kv_tokens"] > 100_000


@pytest.mark.parametrize(
    ("name", "value"), [("tp", "{canary}"), ("tp", "%s"), ("isl", "2000words"), ("dp", [1])]
)
def test_memory_is_asked_with_the_kinds_of_its_own_arguments(name: str, value: object) -> None:
    pytest.importorskip("jsonschema")
    with pytest.raises(TonnageError, match=rf"^{name}: .* is not valid"):
        QUESTIONS["memory"].answer({"model": "llama-3.1-8b", name: value}, nobody)
    nulls = {"model": "llama-3.1-8b", "tp": 2, "dp": None, "isl": None}
    _, values = QUESTIONS["memory"].answer(nulls, nobody)
    assert values == QUESTIONS["memory"].answer({"model": "llama-3.1-8b", "tp": 2}, nobody)[1]


@pytest.mark.parametrize(
    ("number", "answered"),
    [
        ("7", 7),
        ("-12", -12),
        ("0", 0),
        ('"a-1"', "a-1"),
        ("0398", None),
        ("-0398", None),
        ("\u0663", None),
        ("1.5", None),
        ("1e5", None),
        ("9" * 16, None),
        ('"\\ud800"', None),
        ("null", None),
    ],
)
def test_a_damaged_line_is_answered_under_its_number_where_that_is_one(
    number: str, answered: object
) -> None:
    match = _ID.search(f'?"jsonrpc": "2.0", "id": {number}, "method": "tools/list"')
    assert (None if match is None else json.loads(match[1])) == answered


def test_both_questions_are_read_before_either_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jsonschema")
    monkeypatch.setattr(
        "tonnage.api.running.agents.answer", lambda *_, **__: pytest.fail("it was answered")
    )
    wrong = {**SIZED, "lengths": {"isl": 100, "osl": -1}}
    with pytest.raises(InputError, match="osl: '-1' is below one token"):
        QUESTIONS["compare"].answer({"first": SIZED, "second": wrong}, nobody)


def test_an_error_quotes_of_files_only_the_columns_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret = "hunter2-the-canary"
    texts = {
        "notes.csv": f"{secret}\n1,2\n",
        "rows.csv": f"timestamp,isl,osl\n0,{secret},5\n",
        "words.txt": f"{secret} and {secret}\n",
        "hours.csv": f"{secret}\n" * 24,
        "points.csv": f"model,gpu,ttft_ms,concurrency\n{secret},{secret},{secret},{secret}\n",
        "prices.yaml": f"on_prem: {{{secret}: 3}}\npue: {secret}\n",
        "plain.yaml": f"password: {secret}\n",
        "config.json": json.dumps({"architectures": [secret], "hidden_size": secret}),
        "plain.json": json.dumps({"schema": secret, "model": secret}),
        "lines.jsonl": json.dumps({"timestamp": secret, "isl": secret}) + "\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    errors: list[tuple[str, str, str]] = []
    for name in texts:
        for leaf in leaves():
            question: dict[str, Any] = {
                "model": "llama-3.1-8b",
                "lengths": {"isl": 100, "osl": 10},
                "demand": {"peak_rps": 1},
            }
            branch = question
            for part in leaf.path[:-1]:
                branch = branch.setdefault(part, {})
            if leaf.name in ("peak_percentile", "seed"):
                continue
            branch[leaf.name] = name
            try:
                ask(question)
            except TonnageError as error:
                errors.append((leaf.name, name, _without_contents(str(error), question)))
    assert len(errors) > 500
    assert not [error for error in errors if secret in error[2]]
    named = {"demand": {"trace": "rows.csv"}}
    shown = _without_contents(f"line 2, column 'isl': '{secret}' is no length, '3' is", named)
    assert shown == "line 2, column 'isl': '…' is no length, '3' is"
    assert (
        _without_contents("unknown model 'llama-99'", {"model": "llama-99", **named})
        == "unknown model 'llama-99'"
    )


def test_a_question_of_an_agent_names_files_of_the_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.csv").write_text("x")
    for name in ("/etc/passwd", "../secret.csv", "~/.ssh/id_rsa"):
        with pytest.raises(
            InputError, match=r"^demand: names a file outside of the folder that is served"
        ):
            check_inside({"demand": {"trace": name}}, tmp_path / "inside")
    pytest.importorskip("mcp")
    with pytest.raises(InputError, match=r"^root: .* is no folder"):
        serve_agents(tmp_path / "nowhere")


REFUSED_LINES = (
    (
        b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "catalog",'
        b' "arguments": {"text": "\\ud800"}}}'
    ),
    b'{"jsonrpc": "2.0", "id": "a", "method": "\\udfff"}',
    b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": '
    + b"[" * 9_999
    + b"]" * 9_999
    + b"}",
    b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "memory", "arguments":'
    b' {"tp": ' + b"9" * 6_000 + b"}}}",
    b"garbage",
    b"\xff\xfe",
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}',
    b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}',
    b'{"jsonrpc": "2.0", "id": 0398, "method": "tools/list"}',
)
CALLS: dict[int, dict[str, Any]] = {
    10: {
        "name": "size",
        "arguments": {"model": "llama-3.1-8b", "demand": {"trace": "/etc/passwd"}},
    },
    11: {"name": "size", "arguments": {"model": "a\x1b[2J"}},
    12: {
        "name": "memory",
        "arguments": {"model": "llama-3.1-8b", "x": json.loads("[" * 150 + "]" * 150)},
    },
    13: {"name": "nothing", "arguments": {}},
    14: {"name": "memory", "arguments": {"model": "llama-3.1-8b"}},
}


@pytest.mark.notebooks
@pytest.mark.filterwarnings("default")
def test_every_request_is_answered(tmp_path: Path) -> None:
    begin = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}).encode()
    ]
    lines += [b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', b"", *REFUSED_LINES]
    called = {"jsonrpc": "2.0", "method": "tools/call"}
    lines += [
        json.dumps({**called, "id": number, "params": call}).encode()
        for number, call in CALLS.items()
    ]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "tonnage", "mcp", "--root", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers = [
            json.loads(server.stdout.readline()) for _ in range(1 + len(REFUSED_LINES) + len(CALLS))
        ]
        server.stdin.close()
        assert server.wait(30) == 0
    refused = [answer["id"] for answer in answers if answer.get("error", {}).get("code") == -32700]
    assert sorted(refused, key=str) == [2, 4, 5, *[None] * 5, "a"]
    by_id = {answer["id"]: answer.get("result") for answer in answers}
    assert [by_id[number]["isError"] for number in CALLS] == [True, True, True, True, False]
    assert "outside of the folder" in by_id[10]["content"][0]["text"]


async def asked(
    *calls: tuple[str, dict[str, Any]],
) -> tuple[list[Any], list[Any], list[tuple[float, float | None]]]:
    """The tools, the answer of each call, and the progress that was told."""
    from mcp import Client, StdioServerParameters

    told: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, words: str | None) -> None:
        told.append((done, total))

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "tonnage", "mcp"], env={"PYTHONPATH": str(ROOT / "src")}
    )
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        answers = [
            await client.call_tool(name, arguments, progress_callback=progress)
            for name, arguments in calls
        ]
    return tools, answers, told


@pytest.mark.notebooks
@pytest.mark.filterwarnings("default")
def test_the_sdks_client_sizes_and_reads_what_is_wrong() -> None:
    import asyncio

    import tonnage

    other = {**SIZED, "demand": {"peak_rps": 600}}
    tools, answers, told = asyncio.run(
        asked(
            ("size", SIZED),
            ("compare", {"first": SIZED, "second": other}),
            (
                "simulate",
                {"model": "llama-3.1-8b", "isl": 500, "osl": 50, "request_rate": 4, "requests": 50},
            ),
            ("catalog", {"text": "l40s"}),
            ("size", {**SIZED, "model": "llama-99"}),
            ("simulate", {"model": "llama-3.1-8b", "users": 5}),
            ("quantise", {}),
        )
    )
    assert [tool.name for tool in tools] == list(QUESTIONS)
    sized, compared, simulated, found, unknown, wrong, missing = answers
    plan = tonnage.size(SIZED)
    assert (
        sized.structured_content["plans"][0]["choice"]["systems_exact"] == plan.choice.systems_exact
    )
    assert f"{plan.choice.systems} × {plan.choice.system}" in sized.content[0].text
    assert told
    assert "600" in compared.content[0].text
    assert simulated.structured_content["points"][0]["requests_per_second"] > 3
    assert "l40s" in found.content[0].text
    assert not any(answer.is_error for answer in answers[:4])
    assert all(answer.is_error for answer in answers[4:])
    assert "llama-99" in unknown.content[0].text
    assert "users" in wrong.content[0].text
    assert "the tools are size, simulate" in missing.content[0].text


@pytest.mark.notebooks
def test_python_runs_the_program_of_the_page(tmp_path: Path) -> None:
    from tests.test_docs import FILES

    (tmp_path / "tonnage").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} -m tonnage "$@"\n'
    )
    (tmp_path / "tonnage").chmod(0o755)
    (tmp_path / "ask.py").write_text(
        FILES["ask.py"].replace('"tonnage"', json.dumps(str(tmp_path / "tonnage")))
    )
    done = subprocess.run(
        [sys.executable, "ask.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "systems to buy" in done.stdout
