"""What the catalog does not hold is read from a hub as its file by path is, and no fault of the hub
costs long or a traceback."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.api.hub_server import COMMIT, DEEP, hub
from tests.questions import plans_with
from tests.spec.published_configs import config_of
from tonnage import api
from tonnage.api import hub as reader
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.plan.plan import Plan
from tonnage.spec import catalog

few_parts = plans_with()


CONFIG = config_of("Qwen2ForCausalLM")
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine that asks its hub, with an empty cache."""
    for name in (
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_HUB_CACHE",
        "HF_TOKEN_PATH",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(reader, "_refused", {})
    monkeypatch.setattr(catalog, "_kept", {})
    return monkeypatch


def by_path(folder: Path, config: dict[str, Any]) -> Path:
    """The folder of a config.json, whose name becomes the model's."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize("config", [CONFIG, CONFIG | AWQ], ids=["bf16", "awq"])
def test_the_answer_of_an_unknown_repository_equals_that_of_its_file(
    online: pytest.MonkeyPatch,
    tmp_path: Path,
    config: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    local = by_path(tmp_path / "newmodel-x", config)
    with hub({"maker/NewModel-X": {"config.json": config}}) as server:
        online.setenv("HF_ENDPOINT", server.address)
        answers = []
        for name in ("maker/NewModel-X", str(local)):
            assert run(["memory", "--model", name, "--json"]) == 0
            answers.append(json.loads(capsys.readouterr().out))
    where = f"config.json of maker/NewModel-X, revision {COMMIT[:12]}, from the hub"
    assert answers[0].pop("model_read") == where
    assert answers[0]["equations"].pop(0) == where
    assert answers[0] == answers[1]


def test_a_plan_holds_the_model_and_a_kept_revision_needs_no_network(
    online: pytest.MonkeyPatch,
) -> None:
    asked = {
        "model": "maker/NewModel-X@v1.0",
        "gpu": "h100",
        "isl": 300,
        "osl": 50,
        "peak_rps": 2,
        "engine": "vllm",
        "tp": 1,
    }
    with hub({"maker/NewModel-X": {"config.json": CONFIG}}) as server:
        online.setenv("HF_ENDPOINT", server.address)
        plan = api.size(**asked)
        assert "/resolve/v1.0/" in server.asked[0][0]
    document = json.loads(json.dumps(plan.to_json()))
    online.setattr(catalog, "_kept", {})
    online.setenv("HF_HUB_OFFLINE", "1")
    assert api.size(**asked) == plan, "from the cache"
    online.setattr(catalog, "_kept", {})
    online.setenv("XDG_CACHE_HOME", "/nonexistent")
    assert Plan.from_json(document) == plan
    assert catalog.find_model("newmodel-x") == next(
        note.model for note in plan.notes if note.code == "model-read"
    )


def test_a_separate_file_says_the_format_and_the_index_the_size_of_the_weights(
    online: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quantized = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}
    half = 2 * catalog.find_model(str(by_path(tmp_path / "local", CONFIG))).parameters
    index = b'{"metadata": {"total_size": %d}, "weight_map": {' + b'"a": "b", ' * 50_000
    files = {"config.json": CONFIG, "hf_quant_config.json": quantized}
    with hub(
        {
            "maker/fp8": files,
            "maker/alike": {"config.json": CONFIG, "model.safetensors.index.json": index % half},
            "maker/apart": {
                "config.json": CONFIG,
                "model.safetensors.index.json": index % (2 * half),
            },
            "maker/alone": {"config.json": CONFIG, "model.safetensors": bytes(1_000)},
        }
    ) as server:
        online.setenv("HF_ENDPOINT", server.address)
        assert catalog.find_model("maker/fp8").released.startswith("fp8")
        readings = {
            name: catalog.find_model(f"maker/{name}").reading
            for name in ("alike", "apart", "alone")
        }
    assert "index" not in readings["alike"]
    assert (
        f"its index says {2 * half / 1e9:,.2f} GB of weights, {half / 1e9:,.2f} GB are counted"
        " (-50%)" in readings["apart"]
    )
    assert "its index says 0.00 GB of weights" in readings["alone"]


def test_the_token_goes_to_the_hub_and_nowhere_else(online: pytest.MonkeyPatch) -> None:
    held = {f"{owner}/a": {"config.json": CONFIG} for owner in ("plain", "gated", "moved", "away")}
    with hub(held) as other, hub(held, other.address) as server:
        online.setenv("HF_ENDPOINT", server.address)
        with pytest.raises(InputError, match=r"no such repository, or it is gated: .*set HF_TOKEN"):
            catalog.find_model("gated/a")
        online.setattr(reader, "_refused", {})
        online.setenv("HF_TOKEN", "hf_wrong")
        with pytest.raises(InputError, match="gated/a is gated at 127"):
            catalog.find_model("gated/a")
        online.setattr(reader, "_refused", {})
        online.setenv("HF_TOKEN", "hf_right")
        for name in ("gated/a", "moved/a", "away/a"):
            assert catalog.find_model(name).hidden == CONFIG["hidden_size"]
        assert {token for path, token in server.asked if path.startswith("/api/")} == {
            "Bearer hf_right"
        }
        assert other.asked
        assert {token for _, token in other.asked} == {None}


HOSTILE: dict[str, Any] = {
    "huge": b'{"a": "' + b"x" * 5_000_000 + b'"}',
    "deep": DEEP.encode(),
    "deep-inside": b'{"architectures": ' + DEEP.encode() + b"}",
    "list": [1, 2],
    "text": b"<html>not what was asked</html>",
    "bytes": bytes(range(256)),
    "empty": b"",
    "types": CONFIG | {"hidden_size": "many", "architectures": {"a": 1}},
    "numbers": CONFIG | {"hidden_size": 10**40},
    "no-decoder": {"architectures": ["BertModel"], "hidden_size": 8},
}


def test_no_fault_of_a_hub_costs_a_traceback(
    online: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {f"hostile/{name}": {"config.json": config} for name, config in HOSTILE.items()}
    with hub(held) as server:
        online.setenv("HF_ENDPOINT", server.address)
        for name in (*held, "missing/a", "circle/a", "cut/a", "gated/a"):
            began = time.monotonic()
            assert run(["memory", "--model", name]) == 2, name
            message = capsys.readouterr().err
            assert len(message.splitlines()) == 1, message
            assert "Traceback" not in message
            assert time.monotonic() - began < 3, name
        assert sum(path.startswith("/missing/a") for path, _ in server.asked) == 1
        assert run(["memory", "--model", "missing/a"]) == 2
        assert sum(path.startswith("/missing/a") for path, _ in server.asked) == 1, (
            "refused once, not asked again"
        )


def test_a_slow_hub_is_not_waited_for(online: pytest.MonkeyPatch) -> None:
    online.setattr(reader, "LIMIT_S", 0.5)
    with hub({}) as server:
        online.setenv("HF_ENDPOINT", server.address)
        began = time.monotonic()
        with pytest.raises(
            InputError,
            match=r"did not answer within 0\.5 s; download http.* into .*models--drip--a",
        ):
            catalog.find_model("drip/a")
        assert time.monotonic() - began < 2
        with pytest.raises(InputError, match="did not answer"):
            catalog.find_model("drip/b")
        assert len(server.asked) == 1, "a hub that did not answer is not asked again"
    assert reader.LIMIT_S < 10


def test_a_format_that_is_not_told_refuses_and_an_index_that_comes_late_does_not(
    online: pytest.MonkeyPatch,
) -> None:
    online.setattr(reader, "LIMIT_S", 0.5)
    with hub({"late/a": {"config.json": CONFIG}, "broken/a": {"config.json": CONFIG}}) as server:
        online.setenv("HF_ENDPOINT", server.address)
        assert "index" not in catalog.find_model("late/a").reading
        with pytest.raises(
            InputError,
            match=r"does not say the number format of broken/a \(hf_quant_config\.json: HTTP 500\)",
        ):
            catalog.find_model("broken/a")


def test_offline_says_what_to_download_and_takes_it_from_there(
    online: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--offline", "memory", "--model", "maker/other"]) == 2
    message = capsys.readouterr().err
    assert "download https://huggingface.co/maker/other/resolve/main/config.json into " in message
    folder = message.partition(" into ")[2].partition(", or")[0]
    by_path(Path(folder), CONFIG)
    assert run(["memory", "--model", "maker/other"]) == 0
    assert "revision main, from the hub" in capsys.readouterr().out


def test_the_hubs_own_cache_is_looked_into(online: pytest.MonkeyPatch, tmp_path: Path) -> None:
    online.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "huggingface" / "hub" / "models--maker--held"
    by_path(folder / "snapshots" / COMMIT, CONFIG)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    assert COMMIT[:12] in catalog.find_model("maker/held").reading


@pytest.mark.parametrize(
    "name", ["a/../b", "a/b@../../c", "a/b c", "a/b@x y", "/etc/passwd", "a//b", "a/b/c"]
)
def test_names_that_are_no_repository_never_reach_the_hub(
    online: pytest.MonkeyPatch, name: str
) -> None:
    with hub({}) as server:
        online.setenv("HF_ENDPOINT", server.address)
        with pytest.raises(InputError):
            catalog.find_model(name)
        assert not server.asked
