"""Layouts read from the fields of a ``config.json``: counted as published, marked where the
architecture is not known, else refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spec.config_files import PLAIN, per_token, read
from tests.spec.published_configs import configs, files, layouts, library, listed
from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError, UnsupportedModel
from tonnage.perf.prediction_error import intervals_of, regime_of
from tonnage.perf.ranges import marks
from tonnage.spec import catalog
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config
from tonnage.spec.model import Model

FIELD = Path(__file__).resolve().parents[3] / "shared" / "field" / "planning"


# billions of parameters, bytes of keys and values per token of layers that keep all of them, layers
# by kind
REFUSED_BEFORE = {
    "f17-refused-command-a": (111.0, 65_536, {"sliding": 48, "full": 16}),
    "f17-refused-exaone4-12b": (1.28, 61_440, {"full": 30}),
    "f17-refused-granite4-h-small": (32.2, 16_384, {"full": 4, "mamba2": 36}),
    "f17-refused-llava15-13b": (13.0, 819_200, {"full": 40}),
    "f17-refused-mistral-small-31": (23.57, 163_840, {"full": 40}),
    "f17-refused-mllama-11b": (9.775, 131_072, {"full": 40}),
    "f17-refused-qwen25vl-7b": (7.62, 57_344, {"full": 28}),
    "f17-refused-seed-oss": (36.15, 262_144, {"full": 64}),
}


LEAVE_OUT = {  # whose files leave a number to the library
    **dict.fromkeys(("FalconForCausalLM", "BloomForCausalLM"), "max_position_embeddings: missing"),
    **dict.fromkeys(
        ("GPTJForCausalLM", "MPTForCausalLM", "MptForCausalLM", "GPT2LMHeadModel"),
        "intermediate_size: missing",
    ),
}


def written(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def per_sequence(model: Model) -> list[tuple[float, float]]:
    """Bytes of windows and of states, by kind of layer."""
    return sorted(
        (layers * cache.window_token * cache.window, layers * cache.sequence)
        for layers, cache in model.caches(16, 1)
    )


def by_kind(model: Model) -> dict[str, int]:
    counted: dict[str, int] = {}
    for some in model.by_kind:
        counted[some.mixer.kind] = counted.get(some.mixer.kind, 0) + some.layers
    return counted


@pytest.mark.skipif(not FIELD.is_dir(), reason="../shared/field is not there")
@pytest.mark.parametrize("case", REFUSED_BEFORE)
def test_architectures_of_the_field_are_counted(case: str) -> None:
    billions, kv, kinds = REFUSED_BEFORE[case]
    model = read_config(FIELD / case)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    assert (per_token(model), by_kind(model), model.layout_mark) == (kv, kinds, "")


@pytest.mark.parametrize(
    ("config", "billions"), configs(), ids=[config["architectures"][0] for config, _ in configs()]
)
def test_a_file_whose_name_is_not_known_is_counted_as_by_its_name_or_refused(
    tmp_path: Path, config: dict[str, Any], billions: float
) -> None:
    """Only what the rebuilt files leave out, two matrices in place of three and one table in place
    of two, may differ: it is added. Formats count no weights, and are held by
    test_released_format.py."""
    config = config | {"quantization_config": None}
    named = read(tmp_path, config)
    said = {
        "hidden_act": "silu" if named.gated else "relu2",
        "tie_word_embeddings": named.tied_embeddings,
    }
    if config["architectures"][0] in ("QWenLMHeadModel", "PhiForCausalLM"):
        # its file says twice the width, as no other does, or leaves it to the library
        said["intermediate_size"] = named.ffn
    renamed = config | said | {"architectures": ["UnheardOfForCausalLM"]}
    if config["architectures"][0] in LEAVE_OUT:
        with pytest.raises(UnsupportedModel, match=LEAVE_OUT[config["architectures"][0]]):
            read(tmp_path, renamed)
        return
    model = read(tmp_path, renamed)
    assert model.architecture == "UnheardOfForCausalLM"
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.02)
    assert (per_token(model), per_sequence(model)) == (per_token(named), per_sequence(named))


def test_files_of_a_public_package_are_counted_by_their_names_and_by_their_fields(
    tmp_path: Path,
) -> None:
    assert len(files()) == 69
    renamed: set[str] = set()
    for entry in files():
        config = entry["config"] | {"quantization_config": None}
        named = read(tmp_path, config)
        assert named.parameters / 1e9 == pytest.approx(entry["billions"], rel=0.004), entry
        if config["architectures"][0] in renamed:
            continue
        renamed.add(config["architectures"][0])
        said = {"tie_word_embeddings": named.tied_embeddings}
        said |= {"hidden_act": "silu" if named.gated else "relu2"}
        model = read(tmp_path, config | said | {"architectures": ["UnheardOfForCausalLM"]})
        assert model.layout_mark
        assert model.parameters == pytest.approx(named.parameters, rel=0.005), entry
        assert (per_token(model), per_sequence(model)) == (per_token(named), per_sequence(named))


def test_150_files_are_looked_up_in_public_repositories() -> None:
    entries = (*listed("published_configs.json"), *layouts(), *files())
    looked_up = [entry for entry in entries if "recalled" not in entry["source"]]
    assert len(looked_up) >= 150


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_attention_heads": 12}, "head_dim"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"num_hidden_layers": 90_000_000}, "num_hidden_layers"),
        ({"moe_num_primary_experts": 32}, "moe_num_primary_experts"),
        ({"layer_types": ["recurrent"] * 24}, "recurrent"),
        ({"layer_types": ["full_attention"] * 23}, "layer_types"),
        ({"layer_types": ["linear_attention", "full_attention"] * 12}, "linear_num_key_heads"),
        ({"num_experts": 8}, "num_experts_per_tok"),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": [512, 1024]},
            "moe_intermediate_size",
        ),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim"),
        ({"block_configs": [{}]}, "block_configs"),
        ({"type_vocab_size": 2}, "encoder"),
        ({"total_ut_steps": 4}, "run several times"),
        ({"draft_vocab_size": 32_000}, "drafter"),
        ({"ffn_multipliers": [0.5, 4.0]}, "differ in their widths"),
        ({"num_key_value_heads_per_layer": [4] * 23}, "num_key_value_heads_per_layer"),
        ({"num_key_value_heads_per_layer": [3] * 24}, "num_key_value_heads_per_layer"),
        ({"layers_block_type": ["mamba"] * 24, "mamba_d_state": 16, "mamba_d_conv": 4}, "KV cache"),
    ],
)
def test_what_fields_leave_open_is_refused_in_one_line_with_the_field(
    tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, PLAIN | fields)
    message = str(error.value)
    assert why in message
    assert "\n" not in message
    assert len(message.removeprefix(str(tmp_path))) < 330


def test_a_prediction_for_an_architecture_that_is_not_known_says_so_and_is_less_sure(
    tmp_path: Path,
) -> None:
    known, unknown = (
        deployment_of(model=str(file), gpu="h100", tp=1, engine="vllm")
        for file in (
            written(tmp_path / name, PLAIN | {"architectures": [name]})
            for name in ("LlamaForCausalLM", "UnheardOfForCausalLM")
        )
    )
    mark = (
        f"{unknown.model.name}: its architecture UnheardOfForCausalLM is not known: counted by its"
        " fields alone; nearest known layout"
    )
    assert f"{mark} LlamaForCausalLM" in marks(unknown)
    assert not any("architecture" in text for text in marks(known))
    sure, unsure = (
        intervals_of({"itl_ms": 10.0}, regime_of(one, isl=2000, osl=200))["itl_ms"]
        for one in (known, unknown)
    )
    assert unsure[0] < sure[0] < 10.0 < sure[1] < unsure[1]


def test_what_an_architecture_adds_to_its_fields(tmp_path: Path) -> None:
    exaone, unknown = (
        read(tmp_path, PLAIN | {"architectures": [name]})
        for name in ("Exaone4ForCausalLM", "UnheardOfForCausalLM")
    )
    assert (exaone.head_norms, unknown.head_norms) == (True, False)
    assert read(tmp_path, PLAIN | {"use_qk_norm": True}).head_norms
    glimmer = read(tmp_path, PLAIN | {"architectures": ["MuseGlimmerForCausalLM"]})
    assert glimmer.parameters - unknown.parameters == 24 * 2048 * 16 * 128  # the gate of the output


def test_decoders_of_the_library_are_counted_as_its_modules_are_or_say_so(tmp_path: Path) -> None:
    """None is counted wrongly without a mark, and four of five are answered; the others lack a
    number, or are of no kind known here."""
    answered = 0
    for entry in library():
        try:
            model = read(tmp_path, entry["config"])
        except InputError:
            continue
        answered += 1
        if not model.architecture or entry["type"] not in COUNTED_OTHERWISE:
            held = entry["parameters"] - MORE_MATRICES.get(entry["type"], 0)
            assert model.parameters == pytest.approx(held, rel=0.02), entry["type"]
    assert answered >= 0.8 * len(library())


def test_a_model_file_in_the_form_of_the_catalog_is_read(tmp_path: Path) -> None:
    known = find_model("gpt-oss-20b")
    written = json.loads(
        (Path(catalog.__file__).parent / "models" / "gpt-oss-20b.json").read_text(encoding="utf-8")
    )
    own = read(tmp_path, {**written, "name": "Own 20B"})
    assert replace(own, name=known.name, source=known.source) == known
    assert own.name == "own-20b"
    for change, why in [
        ({"layers": 0}, "layers: 0 is not possible"),
        ({"hidden": "wide"}, "hidden"),
        ({"kv_heads": 7}, "kv_heads must divide heads"),
        ({"depth": 3}, "depth"),
        ({"window": -1}, "window: is below 0"),
        ({"experts_per_token": 64}, "experts_per_token"),
    ]:
        with pytest.raises(InputError, match=why):
            read(tmp_path, written | change)


# marked; they have further modules inside of their text decoders
COUNTED_OTHERWISE = ("moshi", "phi4_multimodal")


MORE_MATRICES = {"longcat_flash": 28 * 256 * 2 * 6144 * 2048}
"""Weights that the library's modules make and checkpoints do not hold: gate and product of
LongCat's experts that pass a token on."""


LONGCAT = {
    "architectures": ["LongcatFlashForCausalLM"],
    "hidden_size": 6144,
    "ffn_hidden_size": 12288,
    "expert_ffn_hidden_size": 2048,
    "num_layers": 28,
    "num_attention_heads": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "moe_topk": 12,
    "n_routed_experts": 512,
    "zero_expert_num": 256,
    "max_position_embeddings": 131_072,
    "vocab_size": 131_072,
}


MINIMAX_TEXT = {
    "architectures": ["MiniMaxText01ForCausalLM"],
    "attn_type_list": [*[0] * 7, 1] * 10,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "max_position_embeddings": 4_000_000,
    "num_attention_heads": 64,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "shared_intermediate_size": 0,
    "vocab_size": 200_064,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LONGCAT, "longcat-flash-560b"),
        (MINIMAX_TEXT, "minimax-text-01-456b"),
        (
            next(entry["config"] for entry in library() if entry["type"] == "gemma3n_text"),
            "gemma-3n-e4b",
        ),
    ],
)
def test_a_file_is_read_as_the_catalog_has_its_model(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    """The totals are published: 560 and 456 billion, and 6.87 with the tables of per-layer
    inputs."""
    model, known = read(tmp_path, config), find_model(name)
    words = ("name", "source", "date", "notes", "kv_heads", "head_dim", "encoder_parameters")
    assert replace(model, **{word: getattr(known, word) for word in words}) == known
    assert model.notes


ATTENDS = {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}


NO_OP = {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}


LINEAR = {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}


def test_layers_that_a_search_chose_one_by_one_are_counted(tmp_path: Path) -> None:
    """Of NVIDIA's Llama-Nemotron-Super-49B: 31 layers without attention, and MLPs of six widths;
    49.87 billion are published."""
    shares = [5.25] * 49 + [1.3125] * 10 + [1.0] * 8 + [2.625] * 6 + [0.5] * 6 + [3.28125]
    blocks = [
        {
            "attention": ATTENDS if place < 49 else NO_OP,
            "ffn": {"ffn_mult": share, "no_op": False, "replace_with_linear": False},
        }
        for place, share in enumerate(shares)
    ]
    config = {
        "architectures": ["DeciLMForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 8192,
        "intermediate_size": None,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "num_key_value_heads": None,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
    }
    model = read(tmp_path, config | {"block_configs": blocks})
    assert model.parameters / 1e9 == pytest.approx(49.87, rel=0.002)
    assert (by_kind(model), per_token(model), model.layout_mark) == (
        {"full": 49},
        49 * 2 * 8 * 128 * 2,
        "",
    )
    assert "mean width" in model.notes
    plain = {"attention": ATTENDS, "ffn": {"intermediate_size": 24_576}}
    replaced = {"attention": LINEAR, "ffn": LINEAR}
    mixed = read(tmp_path, config | {"num_hidden_layers": 2, "block_configs": [plain, replaced]})
    assert mixed.linear_parameters == pytest.approx(
        8192 * (2 * 8192 + 2 * 1024 + 3 * 24_576) + 2 * 8192**2, rel=0.001
    )
    uneven = {"attention": ATTENDS | {"n_heads_in_group": 7}, "ffn": {"no_op": True}}
    for wrong in ([plain], "plain", [plain, {}], [plain, uneven], [plain, {"attention": 1}]):
        with pytest.raises(InputError, match=r"block_configs|n_heads_in_group|attention"):
            read(tmp_path, config | {"num_hidden_layers": 2, "block_configs": wrong})


def test_heads_of_each_layer_and_caches_that_layers_share_are_counted(tmp_path: Path) -> None:
    """DeciLM 7B lists key/value heads by layer; in Hunyuan Large every second layer reads the cache
    of the one before it."""
    plain = read(tmp_path, PLAIN)
    (heads,) = {some.mixer.kv_heads for some in plain.by_kind}
    listed = read(tmp_path, PLAIN | {"num_key_value_heads_per_layer": [heads] * 12 + [1] * 12})
    assert per_token(listed) == per_token(plain) * (heads + 1) / (2 * heads)
    shared = read(tmp_path, PLAIN | {"use_cla": True, "cla_share_factor": 2})
    assert per_token(shared) == per_token(plain) / 2
    assert plain.parameters - shared.parameters == 12 * 2 * plain.hidden * heads * plain.head_dim
    assert read(tmp_path, PLAIN | {"use_cla": False, "cla_share_factor": 2}).mixers == plain.mixers


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131_072),
        ({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 8192}, 32_768),
        ({"type": "dynamic", "factor": 2.0}, 65_536),
        ({"type": "linear", "factor": 4.0}, 131_072),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 32_768),
        ({"rope_type": "longrope", "factor": 32.0}, 32_768),
        (None, 32_768),
    ],
)
def test_a_stretched_context_is_as_long_as_engines_derive_it(
    tmp_path: Path, scaling: dict[str, Any] | None, context: int
) -> None:
    assert read(tmp_path, PLAIN | {"rope_scaling": scaling}).max_context == context
    parameters = {"rope_theta": 1e6, **(scaling or {})}
    assert read(tmp_path, PLAIN | {"rope_parameters": parameters}).max_context == context
