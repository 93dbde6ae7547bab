"""The question of ``tonnage bench``, checked before anything is sent."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import attainments, lengths_of, whole_numbers
from tonnage.api.question.loads import loads_of, recording_from
from tonnage.bench.arguments import BenchArguments, Length
from tonnage.bench.benchmark import Wanted
from tonnage.bench.connection import Setup, Target, parse_url, request_head
from tonnage.bench.conversations import read_conversations
from tonnage.bench.endpoints import find_endpoint, model_path
from tonnage.bench.infer import SERVICE as GRPC
from tonnage.bench.infer import Tensors, model_metadata, tensors
from tonnage.bench.load import PATTERNS, Question, Talk
from tonnage.bench.prompts import FilePrompts, Prompts, TokenizerFile, prompts, read_prompts
from tonnage.bench.scrape import DriverGpus, fetch, samples
from tonnage.bench.tiers import TIERS, parse_tier
from tonnage.bench.validity import PERCENTILES
from tonnage.errors import InputError, UnknownName, option
from tonnage.formats.sessions import read_sessions
from tonnage.formats.tool_format import check_export
from tonnage.spec.deployment import METRICS, Slo, parse_limit
from tonnage.spec.sessions import parse_pause
from tonnage.spec.workload import (
    Arrivals,
    ClosedLoop,
    Lengths,
    OpenLoop,
    Pairs,
    Process,
    TraceArrivals,
)
from tonnage.spec.written_numbers import number_of
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.spec.prices import Prices
    from tonnage.spec.recorded_sessions import RecordedSessions


MOST_WORKERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A requested measurement, checked, and not begun yet."""

    setup: Setup  # the server, and how to ask it
    questions: tuple[Question, ...]  # the loads, one after another
    wanted: Wanted  # what is to be said of each
    scenario: dict[str, Any]  # the arguments, for the run folders
    metrics_urls: tuple[str, ...] = ()  # pages of Prometheus metrics to read while a load runs
    exports: tuple[str, ...] = ()  # formats of other tools that each run folder is written in, too
    gpus: DriverGpus | None = None  # of this machine, read while a load runs; None for none

    def folder(self, output: Path, question: Question) -> Path:
        """The folder that one load is written to: the output itself, or one inside it for each
        point of a sweep.
        """
        if len(self.questions) == 1:
            return output
        load = question.arrivals
        items = (
            f"items-{question.isl.mean:g}-"
            if len({bench_question.isl for bench_question in self.questions}) > 1
            else ""
        )
        return output / (
            items
            + (
                f"concurrency-{load.concurrency}"
                if isinstance(load, ClosedLoop)
                else f"rate-{load.rate:g}"
            )
        )


def prepare_bench(**asked: Any) -> Bench:
    """Everything about a measurement checked, before anything is sent. Raises InputError: anything
    that cannot be used, in one line.
    """
    a = BenchArguments(**asked)
    isl, osl = _around(a.isl, a.isl_stddev, "isl"), _around(a.osl, a.osl_stddev, "osl")
    a = replace(a, isl=isl, osl=osl)
    target = parse_url(a.url, "grpc")
    infers = a.endpoint_type == "infer"
    if target.grpc and (not infers or a.extra_inputs):
        lacks = (
            f"{option('endpoint_type')} infer"
            if not infers
            else f"no {option('extra_inputs')}, which are JSON"
        )
        raise InputError(
            f"{option('url')}: gRPC has {lacks}; or give the server's address for HTTP"
        )
    streaming = a.streaming and not infers
    extra, omitted = _extra(a.extra_inputs), _omitted(a.omit_inputs, infers)
    endpoint = find_endpoint(
        a.endpoint_type,
        model=a.model,
        streaming=streaming,
        pinned=a.pin_output,
        extra=extra,
        omitted=omitted,
    )
    arrivals, pairs = _arrivals(a)
    a, items = _inference(a, infers)
    sent_prompts = _contents(a, target, infers)
    talk = _talk(a, sent_prompts) if not isinstance(sent_prompts, Tensors) else None
    if talk is not None:
        endpoint.talk((), "", 1)
        if isinstance(arrivals[0], OpenLoop) and arrivals[0].in_flight:
            raise InputError(
                f"{option('concurrency')}: with {option('request_rate')} it caps single requests;"
                " give one of them"
            )
    question = _question(
        a, arrivals[0], pairs, sent_prompts, talk, embeds=infers or endpoint.kind == "embeddings"
    )
    if a.export and not (a.tokens and streaming):
        raise InputError(
            f"{option('export')}: needs the moments of single tokens; stream the replies and keep"
            f" {option('tokens')}"
        )
    headers = _headers(a.header)
    setup = Setup(
        target=target,
        endpoint=endpoint,
        prompts=sent_prompts,
        head=request_head(
            target,
            f"{GRPC}/ModelInfer" if target.grpc else endpoint.path,
            key=os.environ.get(a.api_key_env, ""),
            headers=headers,
        ),
        timeout_s=_positive("request_timeout", a.request_timeout),
        tls=_tls(target, a.ca_file),
        reuse=a.reuse_connections,
        ca_file=a.ca_file,
        workers=_workers(a.workers, arrivals, talk),
        talks=talk is not None,
        warmup=checked_count("warmup_request_count", a.warmup_request_count, least=0) or 0,
        headers=tuple(name for name, _ in headers),
    )
    return Bench(
        setup=setup,
        questions=tuple(
            _with(replace(question, isl=size), load)
            for size in items or (question.isl,)
            for load in arrivals
        ),
        wanted=_report_options(a, has_output=endpoint.has_output),
        scenario={
            # a client cannot see these; the reader of the run gives them
            **dict.fromkeys(("gpu", "precision", "tp", "engine")),
            "url": _address(target),
            "model": setup.endpoint.model,
            "endpoint_type": setup.endpoint.kind,
            "streaming": setup.endpoint.streaming,
            "isl": str(question.isl) if question.listed is None else "of the prompts",
            "osl": str(question.osl) if question.listed is None else "of the prompts",
            **({} if question.talk is None else _talk_scenario(question.talk)),
            "requests": question.requests,
            "seconds": question.seconds,
            "warmup_requests": setup.warmup,
            "seed": question.seed,
        },
        metrics_urls=_pages(target, a.metrics_url),
        exports=tuple(check_export(name) for name in a.export),
        gpus=DriverGpus() if a.gpu_metrics else None,
    )


def _report_options(a: BenchArguments, *, has_output: bool) -> Wanted:
    return Wanted(
        percentiles=_percentiles(a.percentiles),
        error_rate=a.max_error_rate,
        slo=_slo(a),
        tokens=a.tokens,
        tiers=tuple(map(parse_tier, a.tier)) or (TIERS if a.sessions is not None else ()),
        priced=_priced(a, has_output=has_output),
        seed=a.seed,
    )


# What only endpoints that take text have
OF_TEXT = (
    "isl",
    "osl",
    "trace",
    "conversation_num",
    "conversation_turns",
    "conversation_file",
    "sessions",
    "tokenizer",
    "prompt_file",
)


def _around(mean: Length, deviation: float | None, name: str) -> Length:
    """A length around its mean. Raises InputError: a standard deviation without a mean."""
    if deviation is None:
        return mean
    if mean is None or number_of(str(mean)) is None:
        raise InputError(
            f"{option(f'{name}_stddev')}: goes with a mean alone; give {option(name)} a number, or"
            f" write {option(name)} 2000+-500"
        )
    return f"{mean}+-{deviation:g}" if deviation else mean


def _inference(a: BenchArguments, infers: bool) -> tuple[BenchArguments, tuple[Lengths, ...]]:
    """The question in the terms of a text, whose length is that of the items; and each number of
    items.
    """
    if not infers:
        for name in ("items", "tensor", "binary_tensors"):
            if getattr(a, name) not in (None, (), [], False):
                raise InputError(
                    f"{option(name)}: belongs to an inference; add {option('endpoint_type')} infer"
                )
        return a, ()
    for name in OF_TEXT:
        if getattr(a, name) is not None:
            raise InputError(
                f"{option(name)}: an inference has no tokens; give {option('items')} of a request,"
                " such as 8"
            )
    items = whole_numbers(1 if a.items is None else a.items, option("items"))
    return replace(a, isl=items[0]), tuple(
        lengths_of(f"exact:{count}", option("items")) for count in items
    )


def _contents(a: BenchArguments, target: Target, infers: bool) -> Prompts | FilePrompts | Tensors:
    if infers:
        page, called = _address(target) + model_path(a.model), a.model if target.grpc else ""
        metadata = model_metadata(target.host, target.port, a.model) if target.grpc else fetch(page)
        return tensors(
            page,
            metadata,
            written=tuple(a.tensor),
            binary=a.binary_tensors,
            seed=a.seed,
            called=called,
        )
    return _prompts(a.prompt_file, a.tokenizer, a.characters_per_token, a.shared_prefix, a.seed)


def _address(target: Target) -> str:
    return f"{'grpc' if target.grpc else 'https' if target.tls else 'http'}://{target.authority}{target.path}"


def _talk(a: BenchArguments, contents: Prompts | FilePrompts) -> Talk | None:
    names = (
        "conversation_num",
        "conversation_turns",
        "conversation_turn_delay",
        "conversation_file",
        "sessions",
    )
    flags = [name for name in names if getattr(a, name) is not None]
    if not flags:
        return None
    for name in ("prompt_file", "trace", "request_count", "burst_size"):
        if getattr(a, name) is not None:
            raise InputError(
                f"{option(name)}: belongs to single requests; leave it out beside"
                f" {option(flags[0])}"
            )
    file, sessions = None, None if a.sessions is None else _sessions(a, a.sessions)
    if sessions is not None:
        pass
    elif a.conversation_file is not None:
        if a.conversation_turns is not None or a.isl is not None:
            raise InputError(
                f"{option('conversation_file')}: says the turns and their lengths; leave out the"
                " other"
            )
        file = read_conversations(
            a.conversation_file, counter=contents.counter, characters=contents.characters
        )
        if a.osl is None and not all(turn.osl for turn in file.turns):
            raise InputError(
                f"{option('osl')}: missing; the file does not say how long the answers are, for"
                " example 200"
            )
    elif a.conversation_turns is None:
        raise InputError(
            f"{option('conversation_turns')}: missing; give how many turns a conversation has, for"
            " example 4 or uniform:2-6"
        )
    count = checked_count("conversation_num", a.conversation_num, least=1)
    if file is None and sessions is None and count is None and a.benchmark_duration is None:
        raise InputError(
            f"{option('conversation_num')}: missing; give how many, or a"
            f" {option('benchmark_duration')} such as 60s"
        )
    return Talk(
        turns=lengths_of(
            1 if a.conversation_turns is None else a.conversation_turns,
            option("conversation_turns"),
        ),
        file=file,
        sessions=sessions,
        pause=parse_pause(a.conversation_turn_delay or "0s", option("conversation_turn_delay")),
        count=(
            len(sessions)
            if sessions is not None and count is None and a.benchmark_duration is None
            else count
        ),
        pinned=a.osl is not None,
    )


def _sessions(a: BenchArguments, path: str) -> RecordedSessions:
    for name in (
        "isl",
        "osl",
        "conversation_turns",
        "conversation_turn_delay",
        "conversation_file",
        "ramp",
    ):
        if getattr(a, name) is not None:
            raise InputError(
                f"{option(name)}: recorded sessions have their own; leave it out beside"
                f" {option('sessions')}"
            )
    if a.shared_prefix:
        raise InputError(
            f"{option('shared_prefix')}: recorded sessions share what they did; leave it out beside"
            f" {option('sessions')}"
        )
    recorded_sessions = read_sessions(path, option("sessions"))
    if recorded_sessions is None or not recorded_sessions.block_tokens:
        problem = (
            "is no file of recorded sessions"
            if recorded_sessions is None
            else "does not name the blocks of its prompts (hash_ids)"
        )
        raise InputError(
            f"{option('sessions')}: {path} {problem}; give WEKA's, Dynamo's or AIPerf's"
            " (docs/workload.md)"
        )
    return recorded_sessions


def _question(
    a: BenchArguments,
    load: Arrivals,
    pairs: Pairs | None,
    contents: Prompts | FilePrompts | Tensors,
    talk: Talk | None,
    *,
    embeds: bool,
) -> Question:
    """The load as it was requested, with lengths from flags, a trace, or the prompts of a file."""
    osl = 1 if embeds and a.osl is None else a.osl
    listed = _listed(contents, a.isl, osl) if isinstance(contents, FilePrompts) else None
    has_lengths = (
        pairs is not None
        or listed is not None
        or (talk is not None and (talk.file is not None or talk.sessions is not None))
    )
    if not has_lengths and (a.isl is None or osl is None):
        raise InputError(
            f"{option('isl')}, {option('osl')}: missing; give the lengths in tokens, for example"
            " 1000 and 200"
        )
    requests = checked_count("request_count", a.request_count, least=1)
    if requests is None and a.benchmark_duration is None and a.trace is None and talk is None:
        raise InputError(
            f"{option('request_count')}: missing; give how many requests, or a"
            f" {option('benchmark_duration')} such as 60s"
        )
    return Question(
        isl=lengths_of(1 if a.isl is None else a.isl, option("isl")),
        osl=lengths_of(1 if osl is None else osl, option("osl")),
        pairs=pairs if a.isl is None and osl is None else None,
        listed=listed,
        arrivals=load,
        burst=_burst(a.arrival_pattern, a.burst_size, load),
        requests=requests,
        seconds=(
            None
            if a.benchmark_duration is None
            else _positive("benchmark_duration", a.benchmark_duration)
        ),
        grace_s=parse_duration(a.benchmark_grace_period, option("benchmark_grace_period")),
        ramp_s=0.0 if a.ramp is None else parse_duration(a.ramp, option("ramp")),
        seed=checked_count("seed", a.seed, least=0) or 0,
        talk=talk,
    )


def _prompts(
    file: Path | None, tokenizer: Path | None, characters: float, shared: int, seed: int
) -> Prompts | FilePrompts:
    if not 0.5 <= characters <= 100:
        raise InputError(
            f"{option('characters_per_token')}: {characters:g} is not possible; English text has"
            " about 4"
        )
    if file is None:
        return prompts(seed=seed, tokenizer=tokenizer, characters=characters, shared_tokens=shared)
    if shared:
        raise InputError(
            f"{option('shared_prefix')}: prompts of a file are sent as they stand; leave it out"
        )
    return read_prompts(
        file,
        counter=TokenizerFile(tokenizer) if tokenizer is not None else None,
        characters=characters,
    )


def _listed(
    contents: FilePrompts, isl: object, osl: str | float | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lengths of the prompts of a file, and of their outputs as the file or ``osl`` says."""
    if isl is not None:
        raise InputError(
            f"{option('isl')}: prompts of a file have the length that they have; leave it out"
        )
    if osl is None and not all(contents.osl):
        raise InputError(
            f"{option('osl')}: missing; the file does not say how long the outputs are, for"
            " example 200"
        )
    if osl is None:
        return contents.isl, contents.osl
    import numpy as np

    drawn = lengths_of(osl, option("osl")).draw(len(contents.isl), np.random.default_rng(0))
    return contents.isl, tuple(int(value) for value in drawn)


def _arrivals(a: BenchArguments) -> tuple[tuple[Arrivals, ...], Pairs | None]:
    """The loads, and the pairs of lengths of a trace."""
    load_flags = [
        name for name in ("concurrency", "request_rate", "trace") if getattr(a, name) is not None
    ]
    capped = load_flags == ["concurrency", "request_rate"]
    if len(load_flags) != 1 and not capped:
        names = ", ".join(option(name) for name in ("concurrency", "request_rate", "trace"))
        raise InputError(
            f"{names}: give one of them, such as a concurrency of 16, or a rate with the most"
            " requests in flight"
        )
    pattern = a.arrival_pattern
    if pattern not in PATTERNS:
        raise UnknownName("arrival pattern", pattern, PATTERNS)
    if a.trace is not None:
        recording = recording_from(a.trace, option("trace"), a.trace_unit)
        return (TraceArrivals(recording=recording, lengths=False),), recording.pairs()
    if a.concurrency is not None and not capped:
        return (
            tuple(
                ClosedLoop(concurrency=n)
                for n in whole_numbers(a.concurrency, option("concurrency"))
            ),
            None,
        )
    process: Process = (
        "constant" if pattern == "constant" else "gamma" if pattern == "gamma" else "poisson"
    )
    return tuple(loads_of(a.concurrency, a.request_rate or "", process, a.cv, 0.0)), None


def _workers(count: int, loads: Sequence[Arrivals], talk: Talk | None) -> int:
    """Client processes: not more than the smallest load has clients."""
    if talk is not None and count != 1:
        raise InputError(
            f"{option('workers')}: conversations are held by one client process; leave it out"
        )
    checked = checked_count("workers", count, least=1) or 1
    if checked > MOST_WORKERS:
        raise InputError(
            f"{option('workers')}: {checked} are more than {MOST_WORKERS}; one for each core is"
            " enough"
        )
    clients = (
        load.concurrency if isinstance(load, ClosedLoop) else load.in_flight
        for load in loads
        if not isinstance(load, TraceArrivals)
    )
    return min([checked, *filter(None, clients)])


def _pages(target: Target, urls: Sequence[str]) -> tuple[str, ...]:
    """Pages to read while a load runs; without any named, the server's own where it has metrics
    that are known.
    """
    if list(urls) == ["none"]:
        return ()
    if urls:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise InputError(
                    f"{option('metrics_url')}: '{url}' is not a URL; write for example"
                    " http://127.0.0.1:8002/metrics"
                )
        return tuple(urls)
    if target.grpc:
        return ()
    metrics_url = f"{'https' if target.tls else 'http'}://{target.authority}/metrics"
    return (metrics_url,) if samples(fetch(metrics_url, timeout_s=1.0)) else ()


def _with(question: Question, load: Arrivals) -> Question:
    if isinstance(load, TraceArrivals):
        load = replace(load, lengths=question.pairs is not None)
        count = question.requests or len(load.recording)
        return replace(
            question, arrivals=load, pairs=None, requests=min(count, len(load.recording))
        )
    return replace(question, arrivals=load)


def _burst(pattern: str, size: int | None, load: Arrivals) -> int:
    if pattern != "burst":
        if size is not None:
            raise InputError(
                f"{option('burst_size')}: belongs to arrivals in bursts; set"
                f" {option('arrival_pattern')} to burst"
            )
        return 0
    if not isinstance(load, OpenLoop):
        raise InputError(f"{option('arrival_pattern')}: bursts need a {option('request_rate')}")
    return checked_count("burst_size", 8 if size is None else size, least=2) or 0


def checked_count(name: str, value: int | None, *, least: int) -> int | None:
    """A whole number that is not below the least. Raises InputError: it is, or it is above 10⁹."""
    if value is not None and not least <= value <= 10**9:
        raise InputError(
            f"{option(name)}: {value} is not possible; write a whole number from {least}"
        )
    return value


def _positive(name: str, text: str) -> float:
    seconds = parse_duration(text, option(name))
    if seconds <= 0:
        raise InputError(f"{option(name)}: '{text}' is no time; write for example 60s")
    return seconds


def _percentiles(values: Sequence[int]) -> tuple[int, ...]:
    for value in values:
        if value not in PERCENTILES:
            raise InputError(
                f"{option('percentiles')}: {value} is not one of {', '.join(map(str, PERCENTILES))}"
            )
    return tuple(values)


def _slo(a: BenchArguments) -> Slo:
    """Limits such as "ttft p95<=500ms", and those on joint attainment."""
    limits = list(attainments(a.attain))
    for text in a.slo:
        name, _, rest = text.strip().partition(" ")
        metric = next((m for m in METRICS if m == name.lower()), None)
        if metric is None or not rest.strip():
            raise InputError(
                f"{option('slo')}: '{text}' is not a limit; write for example \"ttft p95<=500ms\""
            )
        limits.append(parse_limit(metric, rest))
    return tuple(limits)


def _extra(texts: Sequence[str]) -> dict[str, Any]:
    import json

    extra_fields: dict[str, Any] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name:
            raise InputError(
                f"{option('extra_inputs')}: '{text}' is not a field; write name:value, such as"
                " temperature:0"
            )
        try:
            extra_fields[name] = json.loads(value)
        except ValueError:
            extra_fields[name] = value
    return extra_fields


def _priced(a: BenchArguments, *, has_output: bool) -> Callable[[Summary], dict[str, Any]] | None:
    """What makes the cost of a run from its rates: the hardware is named, or a plan's, and so are
    the prices. Raises InputError.
    """
    named = [name for name in ("gpus", "prices", "price") if getattr(a, name)]
    if a.gpu is None and a.plan is None:
        if named:
            raise InputError(
                f"{option(named[0])}: names no hardware; add {option('gpu')} such as h100, or a"
                f" {option('plan')}"
            )
        return None
    if not has_output:
        raise InputError(
            f"{option('gpu')}: a cost is split over tokens, and {a.endpoint_type} has none; leave"
            " it out"
        )
    from tonnage.api.question.objectives import overrides_of, with_prices
    from tonnage.report.plans.plan_document import read_plans
    from tonnage.spec.catalog import find_gpu, system_of
    from tonnage.spec.catalog.price_list import catalog_prices

    base: Any = a.prices
    gpus = checked_count("gpus", a.gpus, least=1)
    if a.plan is not None:
        plan = read_plans(a.plan)[0]
        choice = plan.choice
        if choice is None or a.gpu is not None:
            wrong = (
                "chose nothing" if choice is None else f"says the GPU; leave out {option('gpu')}"
            )
            raise InputError(
                f"{option('plan')}: {a.plan} {wrong}"
                + ("; give the GPU in its place" if choice is None else "")
            )
        if base is None and plan.asked is not None:
            base, _ = overrides_of(plan.asked)
        hardware = (
            choice.gpu,
            choice.system,
            gpus or sum(pool.instances * pool.parallelism.gpus for pool in choice.pools),
        )
    else:
        gpu = find_gpu(a.gpu or "")
        hardware = gpu.name, system_of(gpu).name, gpus or 1
    prices = catalog_prices().with_overrides(with_prices(base, list(a.price)), a.prices or "prices")
    return partial(_cost, hardware, prices)


def _cost(hardware: tuple[str, str, int], prices: Prices, summary: Summary) -> dict[str, Any]:
    """The cost of a run's hardware for an hour, and for its tokens at the rates of the run, owned
    and rented.
    """
    from tonnage.cost.plan_cost import cost_of_run
    from tonnage.plan.cost import HOURS_PER_YEAR
    from tonnage.report.plans.cost import no_cost_text

    rate = summary.requests_per_second
    tokens = summary.input_tokens_per_second / rate, summary.output_tokens_per_second / rate
    ways = []
    for way in cost_of_run(rate, tokens, hardware, prices):
        usd = way.total_usd_per_year
        ways.append(
            {
                "where": way.where,
                "usd_per_hour": None if usd is None else usd / HOURS_PER_YEAR,
                "usd_per_million_input_tokens": way.usd_per_million_input_tokens,
                "usd_per_million_output_tokens": way.usd_per_million_output_tokens,
                "usd_per_1000_requests": way.usd_per_1000_requests,
                "how": (
                    [f"{part.name}: {part.how}" for part in way.parts]
                    if way.reason is None
                    else [no_cost_text(way.reason)]
                ),
            }
        )
    ratio = prices.output_to_input_price_ratio.value
    split = (
        "an hour of the hardware over the tokens of an hour at the run's rates; an output token"
        f" counts for {ratio:g} input tokens"
    )
    return {"gpu": hardware[0], "gpus": hardware[2], "ways": ways, "definition": split}


def _omitted(names: Sequence[str], infers: bool) -> Sequence[str]:
    if names and infers:
        raise InputError(
            f"{option('omit_inputs')}: an inference has no field that can be left out; leave the"
            " option out"
        )
    for name in names:
        if not name.replace("_", "").isalnum():
            raise InputError(
                f"{option('omit_inputs')}: '{name}' is no name of a field; write one, such as"
                " stream_options"
            )
    return names


def _headers(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    headers = []
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.replace("-", "").isalnum():
            raise InputError(f"{option('header')}: '{name}' is not a header; write 'Name: value'")
        headers.append((name, value.strip()))
    return tuple(headers)


def _tls(target: Target, ca_file: Path | None) -> ssl.SSLContext | None:
    if not target.tls:
        if ca_file is not None:
            raise InputError(
                f"{option('ca_file')}: the server's address is not https; leave it out"
            )
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InputError(
            f"{option('ca_file')}: {ca_file} cannot be used ({error.strerror or error}); give"
            " certificates in PEM"
        ) from None


def _talk_scenario(talk: Talk) -> dict[str, Any]:
    pause = f"{'exponential:' if talk.pause.exponential else ''}{talk.pause.mean_s:g}s"
    if talk.sessions is not None:
        return {
            "conversations": {
                "number": talk.count,
                "sessions": talk.sessions.source,
                "pause": "as recorded",
            }
        }
    source = {"file": talk.file.source} if talk.file is not None else {"turns": str(talk.turns)}
    return {"conversations": {"number": talk.count, **source, "pause": pause}}
