"""Names of metrics, errors and models as each engine has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.formats.prometheus import SIGNALS, Page
from tonnage.serve.answer import StopTexts
from tonnage.serve.dialect import DIALECTS, Refused
from tonnage.serve.metrics import Ended, Load, Metrics
from tonnage.serve.request import Asked, Kind, Limits, asked_of
from tonnage.serve.tokens import PER_CHAT, PER_MESSAGE, Fours, TokenReader
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.interfaces import Interface, find_interface
from tonnage.watch.expected import counts_of, signals_on

LOADS = [
    Load(engine="0", running=3, waiting=5, kv_used=0.25, preemptions=2),
    Load(engine="1", running=1, waiting=0, kv_used=0.75),
]
ENDED = Ended(
    engine="1",
    finish="length",
    whole_s=2.0,
    decode_s=1.5,
    queue_s=0.1,
    isl=100,
    osl=31,
    asked_osl=31,
    choices=1,
    preemptions=1,
)


def newest(family: str) -> Interface:
    found = find_interface(find_engine(family).name)
    assert found is not None
    return found


def page(name: str) -> str:
    metrics = Metrics(lambda: LOADS, "m", DIALECTS[name].published)
    metrics.tokens("1", 0, 1, 0.5, 0.5)
    metrics.tokens("1", 1, 1, 0.55, 0.05)
    metrics.ended(ENDED)
    metrics.refused()
    return metrics.text().decode()


@pytest.mark.parametrize("name", list(SIGNALS))
def test_the_names_and_bounds_are_those_that_watch_and_the_alerts_of_deploy_read(name: str) -> None:
    """Whoever reads a real engine's page reads that of the simulated one, with no name that is told
    apart."""
    signals, published = SIGNALS[name], DIALECTS[name].published
    assert signals.path == published.path
    mine = dict(published.histograms.values())
    for histogram in signals.histograms.values():
        assert set(newest(name).buckets[histogram]) <= set(mine[histogram])
    found = Page(page(name))
    assert signals_on(found) is signals
    counts = counts_of(found, signals)
    for value, expected in (
        (counts.running, 4),
        (counts.waiting, 5),
        (counts.kv_used, 0.5),
        (counts.prompt_tokens, 100),
    ):
        assert value in (None, expected)
    assert counts.histograms["e2e"].mean == pytest.approx(2.0)
    assert counts.histograms["ttft"].mean == pytest.approx(0.5)


def test_vllms_page_has_what_its_dashboard_shows() -> None:
    text = page("vllm")
    for line in (
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
        'vllm:num_preemptions_total{engine="0",model_name="m"} 2.0',
        'vllm:request_success_total{engine="1",finished_reason="length",model_name="m"} 1.0',
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 0.0',
        'vllm:request_queue_time_seconds_sum{engine="1",model_name="m"} 0.1',
        'vllm:request_prefill_time_seconds_sum{engine="1",model_name="m"} 0.4',
        'vllm:request_decode_time_seconds_sum{engine="1",model_name="m"} 1.5',
        'vllm:request_time_per_output_token_seconds_sum{engine="1",model_name="m"} 0.05',
        'vllm:request_prompt_tokens_bucket{engine="1",le="100.0",model_name="m"} 1.0',
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 1.0',
    ):
        assert line.rpartition(" ")[0] in text, line
        value = next(
            float(one.split()[-1])
            for one in text.splitlines()
            if one.startswith(line.rpartition(" ")[0])
        )
        assert value == pytest.approx(float(line.split()[-1]))


def test_errors_are_worded_as_each_engine_words_them() -> None:
    error = Refused("no", status=404, kind="NotFoundError", param="model")
    assert error.to_json(DIALECTS["vllm"]) == {
        "error": {"message": "no", "type": "NotFoundError", "param": "model", "code": 404}
    }
    for name in ("tensorrt-llm", "sglang"):
        flat = {
            "object": "error",
            "message": "no",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }
        assert error.to_json(DIALECTS[name]) == flat


def test_models_belong_to_the_engine() -> None:
    cards = {name: one.model("m", 7, 1_000) for name, one in DIALECTS.items()}
    assert cards["sglang"] == {
        "id": "m",
        "object": "model",
        "created": 7,
        "owned_by": "sglang",
        "root": "m",
        "parent": None,
        "max_model_len": 1_000,
    }
    assert cards["tensorrt-llm"] == {
        "id": "m",
        "object": "model",
        "created": 7,
        "owned_by": "tensorrt_llm",
    }
    assert cards["vllm"]["permission"][0]["object"] == "model_permission"


# What a body of the API asks for; what is refused, and how, is in
# tests/engines/test_conformance.py.

READER = TokenReader(Fours(8_000))


def read(kind: Kind, body: Any, max_context: int = 1000, **more: Any) -> Asked:
    limits = Limits(models=("m",), max_context=max_context, vocabulary=8_000, **more)
    return asked_of(kind, body, reader=READER, limits=limits)


def test_a_chat_counts_its_messages_and_what_a_template_adds() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "one two three"}]},
        ],
        "max_completion_tokens": 7,
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop": "x",
        "n": 2,
    }
    asked = read("chat", body)
    assert asked.isl == 2 + 4 + 2 * PER_MESSAGE + PER_CHAT
    assert (asked.osl, asked.choices, asked.stream, asked.usage, asked.stop) == (
        7,
        2,
        True,
        True,
        ("x",),
    )


def test_an_output_that_the_context_cuts_short_is_as_long_as_it_leaves_room_for() -> None:
    """vLLM 0.32 answered 2,000 tokens after a prompt of 100 with 1,948, in a context of 2,048."""
    assert (
        read("completions", {"prompt": list(range(90)), "max_tokens": 20}, max_context=100).osl
        == 10
    )
    assert (
        read("completions", {"prompt": list(range(90)), "max_tokens": 10}, max_context=100).osl
        == 10
    )
    assert read("completions", {"prompt": [1] * 300}).osl == 16
    assert read("chat", {"messages": [{"role": "user", "content": "x" * 400}]}).osl == 1000 - 106
    assert read("chat", {"messages": [{"role": "user", "content": "x"}]}, default_osl=64).osl == 64


def test_a_chat_that_goes_on_begins_with_the_tokens_of_what_was_said() -> None:
    first = [{"role": "user", "content": "one two three"}]
    then = [
        *first,
        {"role": "assistant", "content": " day way"},
        {"role": "user", "content": "four"},
    ]
    before, after = (read("chat", {"messages": said}).prompts[0].ids for said in (first, then))
    assert after[: len(before)] == before


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = [
    *(
        "prompt",
        "messages",
        "max_tokens",
        "temperature",
        "top_k",
        "seed",
        "min_tokens",
        "stop_token_ids",
        "tools",
        "logprobs",
    ),
    *(
        "n",
        "stream",
        "stream_options",
        "stop",
        "user",
        "model",
        "tool_choice",
        "response_format",
        "structured_outputs",
        "logit_bias",
    ),
]


@given(
    kind=st.sampled_from(["chat", "completions"]),
    body=st.dictionaries(st.sampled_from(NAMES), JSON) | JSON,
)
def test_any_body_is_understood_or_refused(kind: Kind, body: Any) -> None:
    try:
        asked = read(kind, body)
    except Refused as error:
        status = error.status
    else:
        assert min(one.tokens for one in asked.prompts) >= 1
        assert asked.osl >= 1
        return
    assert status in (400, 404)


@pytest.mark.parametrize(
    "field",
    [
        {"logprobs": 3},
        {"response_format": {"type": "json_object"}},
        {"echo": True},
        {"structured_outputs": {"regex": "a"}},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_real_engine_refuses_what_it_does_not_heed(field: dict[str, Any]) -> None:
    body = {"prompt": "x", **field}
    assert read("completions", body).osl == 16
    with pytest.raises(Refused) as refused:
        read("completions", body, real=True)
    assert refused.value.param in field


# A text ends where a stop text begins, however it is cut into pieces.

LETTERS = st.text("ab", max_size=12)


@given(
    pieces=st.lists(LETTERS, max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_pieces_give_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    texts, given_out = StopTexts(stops), ""
    whole = "".join(pieces)
    for i, piece in enumerate(pieces):
        given_out += texts.take(piece)
        if texts.found:
            break
        # Nothing given out may have to be taken back, and no more is held than may begin a stop
        # text.
        assert whole.startswith(given_out)
        assert len("".join(pieces[: i + 1])) - len(given_out) < max(
            (len(stop) for stop in stops), default=1
        )
    given_out += texts.rest()
    # A stop text ends the text as soon as it is complete; of those that one piece completes, the
    # one that begins first counts.
    seen = ""
    expected = whole
    for piece in pieces:
        seen += piece
        begins = [place for stop in stops if (place := seen.find(stop)) >= 0]
        if begins:
            expected = seen[: min(begins)]
            break
    assert given_out == expected
