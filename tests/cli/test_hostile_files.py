"""Files from outside: whatever they hold, a command that reads one ends with lines of bounded
length and nothing that steers a terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.plans import dense
from tonnage import api
from tonnage.cli.main import run
from tonnage.errors import HIDDEN, InputError, InputErrors, short_of_memory, visible
from tonnage.spec.scenario_file import read_scenario
from tonnage.spec.typed_values import DEEPEST, bounded, parse_json, parse_yaml

ESCAPE = "\x1b[2J\x1b]0;x\x07"
CONTENTS: dict[str, bytes] = {
    "100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "900 levels of objects": b'{"schema": ' + b'{"a": ' * 900 + b"1" + b"}" * 900 + b"}",
    "900 levels in a list of rows": b'[{"model": ' + b"[" * 900 + b"]" * 900 + b"}]",
    "a number of 6,000 digits": b'{"schema": "tonnage-plan/4", "seed": ' + b"9" * 6_000 + b"}",
    "a number of 4,000 digits": (
        b'{"schema": "tonnage-plan/4", "model": "m", "seed": ' + b"9" * 4_000 + b"}"
    ),
    "a lone surrogate": b'{"schema": "\\ud800", "model": "\\udfff", "\\ud800": 1}',
    "terminal escapes": json.dumps({"schema": ESCAPE, "model": ESCAPE, ESCAPE: 1}).encode(),
    "terminal escapes as they are": ESCAPE.encode() * 3,
    "a text of 100,000 characters": (
        json.dumps({"schema": "x" * 10**5, "model": "y" * 10**5, "z" * 10**5: 1}).encode()
    ),
    "no UTF-8": b"\xff\xfe{\x00",
    "a secret": b"root:x:0:0:root:/root:/bin/bash\n",
}
QUESTION = "--model llama-3.1-8b --isl 100 --osl 10 --peak-rps 1"
COMMANDS = (
    "report FILE",
    "report FILE --json",
    "explain FILE",
    "diff FILE FILE",
    "deploy FILE --target compose --output OUT",
    "serve --plan FILE",
    "watch http://127.0.0.1:9 --plan FILE",
    "verify http://127.0.0.1:9 --plan FILE",
    "compress FILE --output OUT",
    "compare FILE FILE",
    "import FILE --output OUT",
    "score FILE",
    "calibrate FILE --output OUT",
    "size FILE.yaml",
    "size FILE.yaml FILE.yaml",
    f"size {QUESTION} --benchmarks FILE",
    f"size {QUESTION} --coefficients FILE",
    f"size {QUESTION} --prices FILE.yaml",
    "size --model llama-3.1-8b --trace FILE",
    "size --model llama-3.1-8b --trace FILE.csv",
    "size --model llama-3.1-8b --sessions FILE",
    "size --model llama-3.1-8b --isl FILE.csv --osl 10 --peak-rps 1",
    "memory --model FILE",
    f"simulate {QUESTION.rpartition(' --')[0]} --request-rate 1 --step-times FILE.csv",
    "workload describe FILE",
    "workload fit FILE --output OUT",
)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_hostile_file_is_refused_in_a_line(
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for ending in ("json", "json.yaml", "json.csv"):
        (tmp_path / f"f.{ending}").write_bytes(content)
    before = {path.name for path in tmp_path.iterdir()}
    for command in COMMANDS:
        code = run(command.replace("FILE", "f.json").split())
        out, err = capsys.readouterr()
        lines = err.splitlines()
        assert code in (1, 2), (command, code, err[:300])
        assert not out, (command, out[:300])
        assert all(line.startswith("tonnage: ") for line in lines), (command, err[:300])
        assert 0 < len(lines) <= 42, (command, err[:300])
        assert max(map(len, lines)) < 1_000, (command, [line[:200] for line in lines[:3]])
        assert not HIDDEN.search(err.replace("\n", " ")), (command, err[:300])
        assert "root:x" not in err, (command, err[:300])
        assert {path.name for path in tmp_path.iterdir()} == before, command


@pytest.mark.parametrize("hidden", [ESCAPE, "\ud800", "\x07", "\u202e"])
@pytest.mark.parametrize("place", [("schema",), ("scenario", "model"), ("scenario", "router")])
def test_hidden_characters_of_a_whole_plan_reach_no_terminal_and_no_file(
    place: tuple[str, ...],
    hidden: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    document = part = dense().to_json()
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] += hidden
    (tmp_path / "plan.json").write_text(json.dumps(document))
    for command in (
        "report plan.json",
        "explain plan.json",
        "deploy plan.json --target kubernetes --output out",
        "serve --engine vllm --dry-run --plan plan.json",
    ):
        assert run(command.split()) == 2, command
        out, err = capsys.readouterr()
        assert not out, command
        assert f"holds the hidden character U+{ord(hidden[0]):04X}" in err, (command, err)
        assert not HIDDEN.search(err.replace("\n", "")), command
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_every_text_of_a_document_is_looked_at() -> None:
    for document in (
        {"a": [{"b": ESCAPE}]},
        {ESCAPE: 1},
        [["\ud800"]],
        {"a": 10**41},
        {"a": "\u202e"},
    ):
        with pytest.raises(
            InputError,
            match=(
                r"f: holds (the hidden character U\+[0-9A-F]{4} in|a number of more than 40 digits)"
            ),
        ):
            bounded(document, "f")
    assert bounded({"a": "tab\tand\nline", "b": 10**39, "聊天": "🚀"}, "f")
    nested: object = 1
    for _ in range(DEEPEST - 1):
        nested = [nested]
    assert bounded(nested, "f") == nested
    with pytest.raises(InputError, match="has more than 100 levels"):
        bounded([nested], "f")
    with pytest.raises(InputError, match="more than 500,000 values"):
        parse_json("[" + "1," * 500_000 + "1]", "f")
    with pytest.raises(InputError, match=r"f: holds the hidden character U\+001B"):
        parse_yaml('a: "\\e[2J"', "f")


def test_a_scenario_holds_no_hidden_characters(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text('title: "a\\x07b"\nmodel: llama-3.1-8b\n')
    with pytest.raises(
        InputError, match=r"s.yaml: holds the hidden character U\+0007 in 'a\\x07b'; remove it"
    ):
        read_scenario(str(file))


def test_hidden_characters_are_shown_as_codes() -> None:
    assert visible("a\x1b[31m\x9b\u202e\ud800\r\tb\n") == "a\\x1b[31m\\x9b\\u202e\\ud800\\r\tb\n"
    assert str(InputError(f"model: {ESCAPE}")) == "model: \\x1b[2J\\x1b]0;x\\x07"
    assert visible("聊天 é 🚀") == "聊天 é 🚀"
    assert len(str(InputError(f"model: '{'x' * 10**6}' is unknown; give another"))) < 4_000
    assert str(InputError(f"model: '{'x' * 10**6}' is unknown; give another")).endswith(
        "is unknown; give another"
    )


@pytest.mark.parametrize("verb", ["catalog h100", "catalog h100 --json", "--help", "schema"])
def test_an_output_that_cannot_be_written_is_said_in_a_line(verb: str) -> None:
    words, environment = (
        [sys.executable, "-m", "tonnage", *verb.split()],
        {**os.environ, "PYTHONUNBUFFERED": ""},
    )
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert ended.returncode == 1
    assert (
        ended.stderr
        == "tonnage: standard output cannot be written (No space left on device); the answer is not"
        " whole\n"
    )
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *words], capture_output=True, text=True, check=False
    )
    assert closed.returncode == 1
    assert "standard output cannot be written (Bad file descriptor)" in closed.stderr
    dumb = subprocess.run(
        words, capture_output=True, env={**environment, "PYTHONIOENCODING": "ascii"}, check=False
    )
    assert (dumb.returncode, dumb.stderr) == (0, b"")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory") / "run"
    load = ["--isl", "100", "--osl", "20", "--request-rate", "5", "--requests", "2000"]
    assert (
        run(
            ["simulate", "--model", "llama-3.1-8b", "--gpu", "h100", *load, "--output", str(folder)]
        )
        == 0
    )
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize(
    "verb",
    [
        "report RUN",
        "compare RUN RUN",
        f"size {QUESTION} --gpu h100 --quiet",
        "calibrate POINTS --output OUT",
        "workload describe TRACE",
    ],
)
def test_short_memory_is_one_line(verb: str, run_folder: Path, tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    names = {
        "RUN": run_folder,
        "OUT": tmp_path / "out.json",
        "POINTS": examples / "nim-llama-3-8b-h100-fp8.csv",
    }
    words = [
        str({**names, "TRACE": examples / "code-completion.csv"}.get(word, word))
        for word in verb.split()
    ]
    # nothing compiled yet, as on a new machine: LLVM once never returned there
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for limit in (900_000, 700_000):
        command = [
            "sh",
            "-c",
            f'ulimit -v {limit}; exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "tonnage",
            *words,
        ]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        compiles = verb.startswith(("size", "calibrate"))
        assert ended.returncode in ([1] if compiles else [0, 1]), ended.stderr
        assert bool(ended.stdout) == (ended.returncode == 0), ended.stdout
        if ended.returncode == 1:
            assert ended.stderr.splitlines()[-1].startswith(
                "tonnage: memory is short; give this process more of it"
            ), ended.stderr
            assert "Traceback" not in ended.stderr
        assert "damaged" not in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["report", "{}.json"],
        [
            "serve",
            "--engine",
            "vllm",
            "--model",
            "llama-3.1-8b",
            "--checkpoint",
            "/{}",
            "--dry-run",
        ],
        ["serve", "--engine", "vllm", "--model", "/{}", "--dry-run"],
    ],
)
def test_a_name_of_5000_letters_is_refused_by_every_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word.format("9" * 5_000) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tonnage: ")
    assert len(line) < 1_000


@pytest.mark.parametrize("name", ["model", "gpu", "trace", "isl", "coefficients", "prices"])
@pytest.mark.parametrize("text", ["9" * 300, "/" + "9" * 5_000 + ".csv"])
def test_a_text_that_is_too_long_for_a_file_is_refused_as_any_other(name: str, text: str) -> None:
    given = {"model": "llama-3.1-8b", "gpu": "h100", "isl": 100, "osl": 10, "ttft": "p95<=1s"}
    load = {} if name == "trace" else {"peak_rps": 1}
    with pytest.raises(InputErrors, match=name):
        api.size(**given | load | {name: text})


def test_a_search_with_little_memory_is_refused_before_it_begins() -> None:
    words = ["size", "--model", "llama-3.1-8b", "--isl", "1000", "--osl", "100", "--peak-rps", "30"]
    command = ["sh", "-c", 'ulimit -v 400000; exec "$@"', "sh", sys.executable, "-m", "tonnage"]
    ended = subprocess.run(
        [*command, *words, "--gpu", "h100"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("tonnage: memory is short; give this process more of it")


def test_an_error_of_memory_is_known_by_its_words() -> None:
    for words in (
        "/x.so: failed to map segment from shared object",
        "can't start new thread",
        "std::bad_alloc",
        "Cannot allocate memory",
    ):
        outer = ValueError("could not be loaded")
        outer.__cause__ = OSError(words)
        assert short_of_memory(outer)
    assert short_of_memory(MemoryError())
    assert not short_of_memory(ValueError("a damaged file"))
