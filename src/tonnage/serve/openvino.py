"""A real model on the CPU: OpenVINO GenAI's continuous batching behind the OpenAI API (the extra
``openvino``).

The pipeline has its own thread, the only one that calls ``step``.
"""

from __future__ import annotations

import asyncio
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tonnage.errors import InputError, TonnageError, option
from tonnage.serve.answer import Answer, Piece
from tonnage.serve.app import Service
from tonnage.serve.dialect import Refused
from tonnage.serve.metrics import Load, Metrics
from tonnage.serve.request import Asked, Limits, Sampling
from tonnage.serve.tokens import Fours, Message, Prompt

BROKEN = "\ufffd"
# Tokens, at most, that may follow the first byte of a character before it is whole, in a byte-level
# vocabulary
MORE = 3


class Detokenizer:
    """Decodes the output of one request; a character whose bytes are not all there yet is waited
    for.

    A token's text depends on the one before it (a leading space), so that each step decodes from
    the last place where whole characters ended, and gives out what is new.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """Wait for the first token; ``decode`` returns the text of a sequence of tokens."""
        self._decode = decode
        self._ids: list[int] = []
        self._begin = self._read = 0
        self._given = 0  # characters of the present window
        # tokens since a character was broken for the first time; -1 while none is
        self._waited = -1

    def take(self, ids: Sequence[int], *, last: bool = False) -> str:
        """The text of further tokens; behind the ``last`` a broken character is given out as it
        is.
        """
        self._ids += ids
        before = (
            self._decode(self._ids[self._begin : self._read]) if self._read > self._begin else ""
        )
        text = (
            self._decode(self._ids[self._begin :])[len(before) :]
            if len(self._ids) > self._begin
            else ""
        )
        whole = text.rstrip(BROKEN)
        goes_on = len(whole) > self._given
        self._waited = 0 if goes_on or self._waited < 0 else self._waited + len(ids)
        if whole != text and not last and self._waited < MORE:
            piece, self._given = whole[self._given :], max(self._given, len(whole))
            return piece
        piece = text[self._given :]
        if text:
            self._begin, self._read, self._given, self._waited = self._read, len(self._ids), 0, -1
        return piece


Deliveries = list[tuple["Work", Piece]]


@dataclass(slots=True, eq=False, kw_only=True)
class Work:
    """One answer that the pipeline makes."""

    ids: tuple[int, ...]  # the prompt
    config: Any  # an ``openvino_genai.GenerationConfig``
    # tokens at which it ends, whose text is not given out; unlike OpenVINO GenAI's own they count
    # with ``ignore_eos``, too
    stop_ids: frozenset[int]
    take: Callable[[Piece], None]  # gets its pieces, on the thread that ``deliver`` brings them to
    detokenizer: Detokenizer  # of its output
    handle: Any = None  # of the pipeline, once it has begun
    ended: bool = False


class Pipeline:
    """A model that is loaded, and the thread that runs it."""

    def __init__(self, settings: Settings) -> None:
        """Load a model; the thread is not started. Raises InputError: OpenVINO GenAI cannot load
        the model.
        """
        import openvino_genai

        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs, scheduler.max_num_batched_tokens = (
            settings.max_batch_size,
            settings.max_num_tokens,
        )
        scheduler.cache_size, scheduler.enable_prefix_caching = (
            settings.kv_cache_gb,
            settings.prefix_caching,
        )
        scheduler.dynamic_split_fuse = True
        try:
            self._pipeline = openvino_genai.ContinuousBatchingPipeline(
                str(settings.model), scheduler, "CPU", _properties(settings)
            )
        except RuntimeError as error:
            why = " ".join(str(error).split())
            raise InputError(
                f"{option('model')}: OpenVINO GenAI cannot load {settings.model}: {why}"
            ) from None
        # an ``openvino_genai.Tokenizer``; it may be used from any thread
        self.tokenizer = self._pipeline.get_tokenizer()
        self.broken = ""  # why it runs no more; "" while it does
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._works: list[Work] = []
        self._number = 0
        self._deliver: Callable[[Deliveries], None] = _lost
        self._thread = threading.Thread(target=self._run, daemon=True, name="openvino")

    def start(self, deliver: Callable[[Deliveries], None]) -> None:
        """Start the thread, on which ``deliver`` gets the pieces of each step; it must bring them
        to the thread where they are taken.
        """
        self._deliver = deliver
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present step."""
        self._commands.put(None)
        self._thread.join(timeout=30)

    def submit(self, work: Work) -> None:
        """Start an answer; may be called from any thread."""
        self._commands.put(lambda: self._begin(work))

    def cancel(self, work: Work) -> None:
        """Make no more of an answer; from any thread."""
        self._commands.put(lambda: self._cancel(work))

    def load(self) -> Load:
        """The requests and blocks that the pipeline holds at this moment."""
        engine_metrics, live = self._pipeline.get_metrics(), len(self._works)
        # the pipeline counts those of its last step
        running = min(int(engine_metrics.scheduled_requests), live)
        waiting = live - running + self._commands.qsize()
        return Load(
            engine="0",
            running=running,
            waiting=waiting,
            kv_used=float(engine_metrics.cache_usage) / 100 if live else 0.0,
        )

    def _run(self) -> None:
        while True:
            try:
                command = self._commands.get(block=not self._works)
            except queue.Empty:
                self._step()
                continue
            if command is None:
                return
            command()

    def _begin(self, work: Work) -> None:
        import openvino

        if work.ended:
            return
        try:
            if self.broken:
                raise TonnageError(self.broken)
            work.handle = self._pipeline.add_request(
                self._number, openvino.Tensor(np.array([work.ids], dtype=np.int64)), work.config
            )
        except (RuntimeError, TonnageError) as error:
            self._deliver(
                [(work, Piece(error=f"the engine cannot answer: {' '.join(str(error).split())}"))]
            )
            return
        self._number += 1
        self._works.append(work)

    def _cancel(self, work: Work) -> None:
        work.ended = True
        if work in self._works:
            self._works.remove(work)
            work.handle.cancel()
            if not self._works:
                self._step()  # lets the pipeline drop it, and with it its blocks

    def _step(self) -> None:
        """Run one step of the engine and send its tokens on."""
        try:
            if self._pipeline.has_non_finished_requests():
                self._pipeline.step()
        except RuntimeError as error:
            self.broken = f"the engine has failed: {' '.join(str(error).split())}"
            self._deliver([(work, Piece(error=self.broken)) for work in self._works])
            self._works.clear()
            return
        deliveries: Deliveries = []
        for work in list(self._works):
            piece = self._piece(work)
            if piece is None:
                continue
            deliveries.append((work, piece))
            if piece.finish or piece.error:
                work.ended = True
                self._works.remove(work)
        if deliveries:
            self._deliver(deliveries)

    def _piece(self, work: Work) -> Piece | None:
        """The piece that a step added to one answer; None where it added nothing."""
        from openvino_genai import GenerationFinishReason, GenerationStatus

        ids: list[int] = []
        finish = ""
        while work.handle.can_read():
            for output in work.handle.read().values():
                ids += output.generated_ids
                if output.finish_reason != GenerationFinishReason.NONE:
                    finish = (
                        "length"
                        if output.finish_reason == GenerationFinishReason.LENGTH
                        else "stop"
                    )
        stop = next(
            (place for place, identifier in enumerate(ids) if identifier in work.stop_ids), None
        )
        if stop is not None:
            work.handle.cancel()
            return Piece(
                text=work.detokenizer.take(ids[:stop], last=True), tokens=stop + 1, finish="stop"
            )
        status = work.handle.get_status()
        if not finish and status == GenerationStatus.IGNORED:
            return Piece(
                error=(
                    f"a request of {len(work.ids)} prompt tokens does not fit the KV cache of this"
                    " engine"
                )
            )
        if not finish and status == GenerationStatus.FINISHED:
            finish = "stop"
        if not ids and not finish:
            return None
        return Piece(
            text=work.detokenizer.take(ids, last=bool(finish)), tokens=len(ids), finish=finish
        )

    def text(self, ids: Sequence[int]) -> str:
        """The text of some tokens; from any thread."""
        return str(self.tokenizer.decode(list(ids)))


def _lost(deliveries: Deliveries) -> None:
    raise RuntimeError("the pipeline was not started")


def _properties(settings: Settings) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if settings.precision == "fp32":
        properties |= {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    if settings.threads:
        properties["INFERENCE_NUM_THREADS"] = settings.threads
    return properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings with which OpenVINO GenAI runs a model."""

    model: Path  # a GGUF file, or a folder with a model in OpenVINO's format
    max_batch_size: int = 32  # requests that share a step
    max_num_tokens: int = 256  # tokens of a step; longer prompts are read in parts
    kv_cache_gb: int = 1  # memory of the KV cache in GB
    prefix_caching: bool = True  # whether blocks of equal prompt beginnings are shared
    # of weights and KV cache in computation; "auto" is OpenVINO's choice for this processor
    precision: Literal["auto", "fp32"] = "auto"
    threads: int = 0  # CPU threads; 0 for OpenVINO's choice


SEEDS = 2**31


class OpenvinoReader:
    """Makes prompts with the model's own tokenizer and chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = len(tokenizer.get_vocab())

    def text(self, text: str, *, special: bool = True) -> Prompt:
        """Encode a text, with the special tokens that the model wants before it."""
        return self._prompt(self._tokenizer.encode(text, add_special_tokens=special))

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """Encode a chat by the template in the model's file. Raises Refused: there is none, or it
        does not take these messages.
        """
        turns = [{"role": message.role, "content": message.text} for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True)
        except RuntimeError as error:
            raise Refused(
                "the model's chat template does not take these messages:"
                f" {' '.join(str(error).split())}"
            ) from None
        return self._prompt(self._tokenizer.encode(text, add_special_tokens=False))

    def ids(self, ids: Sequence[int]) -> Prompt:
        """Accept token ids as they are. Raises Refused: ids beyond the vocabulary."""
        if max(ids) >= self._vocabulary:
            raise Refused(
                f"prompt: token id {max(ids)} is out of vocabulary, which has {self._vocabulary}"
                " tokens",
                param="prompt",
            )
        return Prompt(ids=tuple(ids))

    @staticmethod
    def _prompt(encoded: Any) -> Prompt:
        ids = tuple(int(identifier) for identifier in encoded.input_ids.data.reshape(-1))
        if not ids:
            raise Refused("the prompt is empty")
        return Prompt(ids=ids)


class OpenvinoEngines:
    """One instance of a real model, as the application sees it."""

    def __init__(self, pipeline: Pipeline, model: str, loop: asyncio.AbstractEventLoop) -> None:
        """Start the pipeline of a loaded model; its pieces are taken on the loop's thread."""
        self._pipeline = pipeline
        self.metrics = Metrics(lambda: [self._pipeline.load()], model)
        pipeline.start(lambda deliveries: _on(loop, deliveries))

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

    def answers(self, wish: Asked) -> list[Answer]:
        """An answer for each choice to each prompt, not begun yet. Raises Refused: sampling that
        OpenVINO GenAI does not take.
        """
        answers = []
        for prompt in wish.prompts:
            for choice in range(wish.choices):
                config = generation_config(wish.sampling, wish.osl, choice)
                source = OpenvinoSource(
                    self._pipeline, prompt.ids, config, frozenset(wish.sampling.stop_token_ids)
                )
                answers.append(
                    Answer(source=source, metrics=self.metrics, asked=wish, prompt=prompt)
                )
        return answers


class OpenvinoSource:
    """One answer in the pipeline, which does not say when it had a slot, what it lost, and what was
    cached.
    """

    engine, slot_at, front_end_s, preemptions, cached = "0", None, 0.0, 0, 0

    def __init__(
        self, pipeline: Pipeline, ids: tuple[int, ...], config: Any, stop_ids: frozenset[int]
    ) -> None:
        """Prepare; generation has not started, and ends at ``stop_ids``."""
        self._pipeline, self._ids, self._config, self._stop_ids = pipeline, ids, config, stop_ids
        self._work: Work | None = None

    def begin(self, answer: Answer) -> None:
        """Give the prompt to the pipeline."""
        detokenizer = Detokenizer(self._pipeline.text)
        self._work = Work(
            ids=self._ids,
            config=self._config,
            stop_ids=self._stop_ids,
            take=answer.take,
            detokenizer=detokenizer,
        )
        self._pipeline.submit(self._work)

    def end(self) -> None:
        """Let the pipeline drop it if it has not ended."""
        if self._work is not None and not self._work.ended:
            self._pipeline.cancel(self._work)


def generation_config(sampling: Sampling, osl: int, choice: int) -> Any:
    """An ``openvino_genai.GenerationConfig``; each ``choice``, from 0, has its own seed. Raises
    Refused: what it does not take.
    """
    import openvino_genai

    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.min_new_tokens = osl, sampling.min_tokens
    config.ignore_eos = sampling.ignore_eos
    config.repetition_penalty = sampling.repetition_penalty
    config.presence_penalty, config.frequency_penalty = (
        sampling.presence_penalty,
        sampling.frequency_penalty,
    )
    if sampling.temperature > 0:
        config.do_sample = True
        config.temperature, config.top_p, config.min_p = (
            sampling.temperature,
            sampling.top_p,
            sampling.min_p,
        )
        if sampling.top_k:
            config.top_k = sampling.top_k
        config.rng_seed = (
            random.randrange(SEEDS) if sampling.seed is None else sampling.seed + choice
        ) % SEEDS
    try:
        config.validate()
    except RuntimeError as error:
        raise Refused(" ".join(str(error).split())) from None
    return config


def _on(loop: asyncio.AbstractEventLoop, deliveries: Deliveries) -> None:
    """Bring pieces to the loop's thread; a loop that has ended takes none."""

    def take() -> None:
        for work, piece in deliveries:
            work.take(piece)

    if not loop.is_closed():
        loop.call_soon_threadsafe(take)


KEY = "max_position_embeddings"


def context_of(model: Path) -> int:
    """Prompt plus output tokens at most, as a GGUF file or a folder's config.json says. Raises
    InputError: it does not say it.
    """
    if not model.exists():
        raise InputError(
            f"{option('model')}: {model} does not exist; give a GGUF file, or a folder with a model"
            " in OpenVINO's format"
        )
    try:
        if model.is_dir():
            config = json.loads((model / "config.json").read_text(encoding="utf-8"))
            context = int(config.get(KEY) or (config.get("text_config") or {}).get(KEY) or 0)
        else:
            from gguf import GGUFReader

            fields = GGUFReader(model).fields
            field = fields.get(f"{fields['general.architecture'].contents()}.context_length")
            context = 0 if field is None else int(field.contents())
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"{option('model')}: {model} cannot be read as a model ({error})"
        ) from None
    if context < 1:
        raise InputError(
            f"{option('model')}: {model} does not say how long a context it allows; give"
            f" {option('max_model_len')}"
        )
    return context


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenvinoServed:
    """One instance of a real model."""

    pipeline: Pipeline  # with the model loaded
    model: str  # the name that clients use
    max_context: int  # longest prompt plus output
    # output tokens of a request that sets no limit; 0 for as many as the context leaves
    default_osl: int
    most_waiting: int  # requests that may wait when another comes; 0 for no limit
    host: str  # and port: where the server listens; port 0 takes a free one
    port: int

    def build(self, loop: asyncio.AbstractEventLoop) -> Service:
        """The service on an event loop, with the pipeline's thread started."""
        return Service(
            engines=OpenvinoEngines(self.pipeline, self.model, loop),
            reader=OpenvinoReader(self.pipeline.tokenizer),
            tokens=Fours(0),
            limits=Limits(
                models=(self.model,),
                max_context=self.max_context,
                default_osl=self.default_osl,
                real=True,
            ),
            most_waiting=self.most_waiting,
            started=int(time.time()),
        )
