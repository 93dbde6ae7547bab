"""GenAI-Perf's ``profile_export.json`` (0.0.16, written by perf_analyzer): raw responses with their stamps, in nanoseconds.

It holds the text of every request and response and no counts of tokens: those are the server's, where it sent usage; else those of a
tokenizer, where one is given; else an event with output counts as one token, and a prompt has none. A response that holds several events
is one moment, as GenAI-Perf takes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.bench.endpoints import Endpoint, find_endpoint
from tonnage.bench.imports.past_request import PastRequest, PastRun, number
from tonnage.bench.wire.broken import BrokenReply
from tonnage.bench.wire.event_stream import EventStream
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.bench.prompts import TokenizerFile

KINDS = {"v1/chat/completions": "chat", "v1/completions": "completions", "v1/responses": "responses"}
"""Our kind of endpoint by the end of the path that GenAI-Perf writes; others are taken for chat where they look like it."""

DONE = b"[DONE]"


def is_genai_perf(document: Any) -> bool:
    """Whether a parsed file is GenAI-Perf's raw export."""
    return isinstance(document, dict) and isinstance(document.get("experiments"), list) and "service_kind" in document


def read(path: Path, document: dict[str, Any], counter: TokenizerFile | None) -> list[PastRun]:
    """One run for each experiment of the file.

    Args:
        path: the file, for messages.
        document: its content.
        counter: counts tokens where the server did not.

    Raises:
        InputError: a service that is not OpenAI's API, or a request that is damaged.
    """
    if document["service_kind"] != "openai":
        raise InputError(f"{path}: holds requests to '{document['service_kind']}'; only those to OpenAI's API are read")
    kind = next((ours for theirs, ours in KINDS.items() if str(document.get("endpoint") or "").endswith(theirs)), "chat")
    runs = []
    for at, experiment in enumerate(document["experiments"], start=1):
        where = f"{path}, experiment {at}"
        try:
            said, requests = experiment["experiment"], experiment["requests"]
            found = [_request(entry, kind, counter, f"{where}, request {n}") for n, entry in enumerate(requests, start=1)]
            value = float(said["value"])
            clients, rate = (int(value), 0.0) if said["mode"] == "concurrency" else (0, value)
            model = next((one.model for one in found if one.model), "")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{where}: is not as GenAI-Perf writes it ({' '.join(str(error).split())[:80]})") from None
        past = sorted((one.request for one in found), key=lambda request: request.sent_ns)
        runs.append(PastRun(tool="genai-perf", model=model, concurrency=clients, rate=rate, requests=tuple(past)))
    return runs


@dataclass(frozen=True, slots=True)
class _Found:
    """A request, and the model that it named."""

    request: PastRequest
    model: str


def _request(entry: dict[str, Any], kind: str, counter: TokenizerFile | None, where: str) -> _Found:
    payload = json.loads(entry["request_inputs"]["payload"])
    sent = round(number(entry["timestamp"], f"{where}, timestamp"))
    endpoint = find_endpoint(kind, model="", streaming=bool(payload.get("stream")))
    model = str(payload.get("model") or "")
    try:
        answer = _read(endpoint, entry)
    except BrokenReply as error:
        return _Found(_failed(sent, str(error)), model)
    if answer.error or not answer.moments:
        return _Found(_failed(sent, answer.error or "no output"), model)
    isl, osl = answer.prompt, answer.tokens
    if isl < 0:
        isl = counter.count(_asked(payload)) if counter is not None else 0
    if osl < 0:
        osl = counter.count(answer.text) if counter is not None else len(answer.moments)
    return _Found(PastRequest(due_ns=sent, sent_ns=sent, events_ns=tuple(answer.moments), isl=isl, osl=osl), model)


def _failed(sent: int, why: str) -> PastRequest:
    return PastRequest(due_ns=sent, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome=" ".join(why.split())[:60] or "failed")


@dataclass(slots=True)
class _Answer:
    """What the responses of one request say together."""

    moments: list[int]
    text: str = ""
    tokens: int = -1
    prompt: int = -1
    error: str = ""


def _read(endpoint: Endpoint, entry: dict[str, Any]) -> _Answer:
    """The responses of one request, read as our client reads them.

    Raises:
        BrokenReply: one is not of the endpoint's shape.
    """
    stream, answer = EventStream(), _Answer([])
    for stamp, response in zip(entry["response_timestamps"], entry["response_outputs"], strict=True):
        data = str(response["response"]).encode("utf-8", "replace")
        documents = stream.feed(data) if endpoint.streaming else [data]
        before = len(answer.text)
        for document in documents:
            if document and document != DONE:
                _take(endpoint, document, answer)
        if len(answer.text) > before:
            answer.moments.append(round(stamp))
    for document in stream.end():
        if document != DONE:
            _take(endpoint, document, answer)
    return answer


def _take(endpoint: Endpoint, document: bytes, answer: _Answer) -> None:
    try:
        value = json.loads(document)
        delta = endpoint.event(value) if endpoint.streaming else endpoint.whole(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BrokenReply("an answer that is not JSON of the endpoint's shape") from None
    answer.text += delta.text
    answer.tokens, answer.prompt = max(answer.tokens, delta.tokens), max(answer.prompt, delta.prompt)
    answer.error = answer.error or delta.error


def _asked(payload: dict[str, Any]) -> str:
    """The text of a request's prompt: GenAI-Perf joins the messages with blanks before it counts."""
    if isinstance(payload.get("messages"), list):
        return " ".join(str(message.get("content", "")) for message in payload["messages"])
    return str(payload.get("prompt", payload.get("input", "")))
