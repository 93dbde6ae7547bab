"""The pipeline as what answers the API: prompts by its tokenizer and template, sampling by its configuration."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.serve.answer import Answer
from tonnage.serve.app import Service
from tonnage.serve.dialect import Refused
from tonnage.serve.metrics import Load, Metrics
from tonnage.serve.openvino.pipeline import Deliveries, Detokenizer, Pipeline, Work
from tonnage.serve.request import Limits
from tonnage.serve.tokens import Fours, Message, Prompt

if TYPE_CHECKING:
    from tonnage.serve.request import Asked, Sampling


SEEDS = 2**31


class OpenvinoReader:
    """Makes prompts with the model's own tokenizer and chat template."""

    def __init__(self, tokenizer: Any) -> None:
        """Use an ``openvino_genai.Tokenizer``."""
        self._tokenizer = tokenizer
        self._vocabulary = len(tokenizer.get_vocab())

    def text(self, text: str, *, special: bool = True) -> Prompt:
        """Of a text, with the special tokens that the model wants before it."""
        return self._prompt(self._tokenizer.encode(text, add_special_tokens=special))

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """Of a chat, with the template that the model's file holds. Raises Refused: there is none, or it does not take these messages."""
        said = [{"role": message.role, "content": message.text} for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(said, add_generation_prompt=True)
        except RuntimeError as error:
            raise Refused(f"the model's chat template does not take these messages: {' '.join(str(error).split())}") from None
        return self._prompt(self._tokenizer.encode(text, add_special_tokens=False))

    def ids(self, ids: Sequence[int]) -> Prompt:
        """Of token ids. Raises Refused: ids beyond the vocabulary."""
        if max(ids) >= self._vocabulary:
            raise Refused(f"prompt: token id {max(ids)} is out of vocabulary, which has {self._vocabulary} tokens", param="prompt")
        return Prompt(ids=tuple(ids))

    @staticmethod
    def _prompt(encoded: Any) -> Prompt:
        ids = tuple(int(one) for one in encoded.input_ids.data.reshape(-1))
        if not ids:
            raise Refused("the prompt is empty")
        return Prompt(ids=ids)


class OpenvinoEngines:
    """One instance of a real model, as the application sees it.

    Attributes:
        metrics: of the server.
    """

    def __init__(self, pipeline: Pipeline, model: str, loop: asyncio.AbstractEventLoop) -> None:
        """Start the pipeline of a loaded model; its pieces are taken on the loop's thread."""
        self._pipeline = pipeline
        self.metrics = Metrics(self._loads, model)
        pipeline.start(lambda made: _on(loop, made))

    @property
    def waiting(self) -> int:
        """Requests in the pipeline's queue."""
        return self._pipeline.load().waiting

    @property
    def broken(self) -> str:
        """Why it answers no more; "" while it does."""
        return self._pipeline.broken

    def close(self) -> None:
        """End the pipeline's thread."""
        self._pipeline.stop()

    def answers(self, asked: Asked) -> list[Answer]:
        """An answer for each choice to each prompt, not begun yet.

        Raises:
            Refused: sampling parameters that OpenVINO GenAI does not take.
        """
        answers = []
        for prompt in asked.prompts:
            for choice in range(asked.choices):
                config = generation_config(asked.sampling, asked.osl, choice)
                source = OpenvinoSource(self._pipeline, prompt.ids, config, frozenset(asked.sampling.stop_token_ids))
                answers.append(Answer(source=source, metrics=self.metrics, asked=asked, prompt=prompt))
        return answers

    def _loads(self) -> Iterator[Load]:
        yield self._pipeline.load()


class OpenvinoSource:
    """One answer in the pipeline."""

    def __init__(self, pipeline: Pipeline, ids: tuple[int, ...], config: Any, stop_ids: frozenset[int]) -> None:
        """Not begun yet; ends at ``stop_ids``."""
        self._pipeline, self._ids, self._config, self._stop_ids = pipeline, ids, config, stop_ids
        self._work: Work | None = None

    @property
    def engine(self) -> str:
        """There is one pipeline."""
        return "0"

    @property
    def slot_at(self) -> float | None:
        """The pipeline does not say it."""
        return None

    @property
    def preemptions(self) -> int:
        """The pipeline does not say it."""
        return 0

    @property
    def cached(self) -> int:
        """The pipeline does not say it."""
        return 0

    def begin(self, answer: Answer) -> None:
        """Give the prompt to the pipeline."""
        detokenizer = Detokenizer(self._pipeline.text)
        self._work = Work(ids=self._ids, config=self._config, stop_ids=self._stop_ids, take=answer.take, detokenizer=detokenizer)
        self._pipeline.submit(self._work)

    def end(self) -> None:
        """Let the pipeline drop it if it has not ended."""
        if self._work is not None and not self._work.ended:
            self._pipeline.cancel(self._work)


def generation_config(sampling: Sampling, osl: int, choice: int) -> Any:
    """An ``openvino_genai.GenerationConfig``; each ``choice``, from 0, has its own seed. Raises Refused: what it does not take."""
    import openvino_genai

    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.min_new_tokens = osl, sampling.min_tokens
    config.ignore_eos = sampling.ignore_eos
    config.repetition_penalty = sampling.repetition_penalty
    config.presence_penalty, config.frequency_penalty = sampling.presence_penalty, sampling.frequency_penalty
    if sampling.temperature > 0:
        config.do_sample = True
        config.temperature, config.top_p, config.min_p = sampling.temperature, sampling.top_p, sampling.min_p
        if sampling.top_k:
            config.top_k = sampling.top_k
        config.rng_seed = (random.randrange(SEEDS) if sampling.seed is None else sampling.seed + choice) % SEEDS
    try:
        config.validate()
    except RuntimeError as error:
        raise Refused(" ".join(str(error).split())) from None
    return config


def _on(loop: asyncio.AbstractEventLoop, made: Deliveries) -> None:
    """Bring pieces to the loop's thread; a loop that has ended takes none."""

    def take() -> None:
        for work, piece in made:
            work.take(piece)

    if not loop.is_closed():
        loop.call_soon_threadsafe(take)


# How long a context a model file allows.


KEY = "max_position_embeddings"


def context_of(model: Path) -> int:
    """Prompt plus output tokens at most, as a GGUF file or the config.json of a folder says.

    Raises:
        InputError: no such file, or one that does not say it.
    """
    if not model.exists():
        raise InputError(f"{option('model')}: {model} does not exist; give a GGUF file, or a folder with a model in OpenVINO's format")
    try:
        found = _of_folder(model) if model.is_dir() else _of_gguf(model)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(f"{option('model')}: {model} cannot be read as a model ({error})") from None
    if found < 1:
        raise InputError(f"{option('model')}: {model} does not say how long a context it allows; give {option('max_model_len')}")
    return found


def _of_folder(model: Path) -> int:
    said = json.loads((model / "config.json").read_text(encoding="utf-8"))
    inner = said.get("text_config") or {}
    return int(said.get(KEY) or inner.get(KEY) or 0)


def _of_gguf(model: Path) -> int:
    from gguf import GGUFReader

    fields = GGUFReader(model).fields
    architecture = str(fields["general.architecture"].contents())
    field = fields.get(f"{architecture}.context_length")
    return 0 if field is None else int(field.contents())


# A real model that is served, and where.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenvinoServed:
    """One instance of a real model.

    Attributes:
        pipeline: with the model loaded.
        model: the name that clients use.
        max_context: longest prompt plus output.
        default_osl: output tokens of a request that sets no limit; 0 for as many as the context leaves.
        most_waiting: requests that may wait when another comes; 0 for no limit.
        host, port: where the server listens; port 0 takes a free one.
    """

    pipeline: Pipeline
    model: str
    max_context: int
    default_osl: int
    most_waiting: int
    host: str
    port: int

    def build(self, loop: asyncio.AbstractEventLoop) -> Service:
        """The service on an event loop, with the pipeline's thread started."""
        return Service(
            engines=OpenvinoEngines(self.pipeline, self.model, loop),
            reader=OpenvinoReader(self.pipeline.tokenizer),
            tokens=Fours(0),
            limits=Limits(models=(self.model,), max_context=self.max_context, default_osl=self.default_osl, real=True),
            most_waiting=self.most_waiting,
            started=int(time.time()),
        )
