"""``tonnage bench``: a live endpoint measured, and the client's own self-test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from tonnage.errors import DONE, NO_ANSWER, InputError

LOAD = Group("Load", sort_key=1)
SERVER = Group("Server", sort_key=2)
VERDICT = Group("Verdict", sort_key=3)
TEST = Group("Self-test (tonnage bench selftest)", sort_key=4)

Flag = Annotated[bool, Parameter(negative=())]
LoadText = Annotated[str | None, Parameter(group=LOAD)]
LoadCount = Annotated[int | None, Parameter(group=LOAD)]
Texts = Annotated[list[str] | None, Parameter(group=SERVER, negative=())]
TestFlag = Annotated[bool, Parameter(group=TEST, negative=())]
TestText = Annotated[str | None, Parameter(group=TEST)]
TestCount = Annotated[int | None, Parameter(group=TEST)]


def bench(
    action: Literal["selftest"] | None = None,
    /,
    *,
    url: Annotated[str | None, Parameter(group=SERVER)] = None,
    model: Annotated[str | None, Parameter(group=SERVER)] = None,
    endpoint_type: Annotated[str | None, Parameter(group=SERVER)] = None,
    streaming: Annotated[bool | None, Parameter(group=SERVER)] = None,
    isl: LoadText = None,
    osl: LoadText = None,
    concurrency: LoadText = None,
    request_rate: LoadText = None,
    arrival_pattern: Annotated[Literal["poisson", "constant", "gamma", "burst"] | None, Parameter(group=LOAD)] = None,
    cv: Annotated[float | None, Parameter(group=LOAD)] = None,
    burst_size: LoadCount = None,
    trace: LoadText = None,
    request_count: LoadCount = None,
    benchmark_duration: LoadText = None,
    benchmark_grace_period: LoadText = None,
    warmup_request_count: LoadCount = None,
    ramp: LoadText = None,
    tokenizer: Annotated[Path | None, Parameter(group=LOAD)] = None,
    characters_per_token: Annotated[float | None, Parameter(group=LOAD)] = None,
    shared_prefix: LoadCount = None,
    prompt_file: Annotated[Path | None, Parameter(group=LOAD)] = None,
    pin_output: Annotated[bool | None, Parameter(group=SERVER)] = None,
    extra_inputs: Texts = None,
    header: Texts = None,
    api_key_env: Annotated[str | None, Parameter(group=SERVER)] = None,
    ca_file: Annotated[Path | None, Parameter(group=SERVER)] = None,
    request_timeout: Annotated[str | None, Parameter(group=SERVER)] = None,
    reuse_connections: Annotated[bool | None, Parameter(group=SERVER)] = None,
    workers: LoadCount = None,
    percentiles: Annotated[list[int] | None, Parameter(group=VERDICT, negative=(), consume_multiple=True)] = None,
    slo: Annotated[list[str] | None, Parameter(group=VERDICT, negative=())] = None,
    find_max: Annotated[bool, Parameter(group=LOAD, negative=())] = False,
    max_error_rate: Annotated[float | None, Parameter(group=VERDICT)] = None,
    metrics_url: Texts = None,
    selftest: Annotated[bool, Parameter(group=VERDICT)] = True,
    seed: Annotated[int | None, Parameter(group=LOAD)] = None,
    tokens: bool = True,
    export: Annotated[list[Literal["genai-perf", "aiperf", "vllm"]] | None, Parameter(negative=())] = None,
    artifact_dir: Path | None = None,
    json: Flag = False,
    serve: TestFlag = False,
    port: TestCount = None,
    ttft: TestText = None,
    itl: TestText = None,
    tokens_per_event: TestCount = None,
    slots: TestCount = None,
    freeze_at: TestText = None,
    freeze_for: TestText = None,
    fault: Annotated[Literal["none", "429", "500", "cut", "error", "hang", "close"] | None, Parameter(group=TEST)] = None,
    fault_every: TestCount = None,
    streams: TestText = None,
) -> int:
    """Measure a live endpoint: latencies, throughput, and whether the measurement can be believed.

    Parameters
    ----------
    action
        selftest measures the client itself against a server with a known schedule, instead of an endpoint.
    url
        The server, such as 127.0.0.1:8000.
    model
        The name that the server knows the model by.
    endpoint_type
        chat, completions, responses, embeddings or generate (default: chat).
    streaming
        Whether replies are streamed (default: on).
    isl
        Prompt length in tokens: 2000, 2000+-500, lognormal:2000,500 or uniform:1600-2000.
    osl
        Output length in tokens, in the same forms.
    concurrency
        Closed loop: clients with one request in flight each; several with commas make a sweep.
    request_rate
        Open loop: requests per second; several with commas make a sweep.
    arrival_pattern
        Arrivals of the open loop (default: poisson).
    cv
        Standard deviation of the gaps over their mean, for gamma arrivals.
    burst_size
        Requests that come at the same moment, for arrivals in bursts (default: 8).
    trace
        File of recorded requests, sent as they came.
    request_count
        Requests per load.
    benchmark_duration
        Send for so long instead of a number of requests, such as 60s.
    benchmark_grace_period
        Wait so long for what is in flight after that; the rest counts as unfinished (default: 30s).
    warmup_request_count
        Requests before each load that are not recorded.
    ramp
        Let the clients of a closed loop begin one after another over so long, such as 10s.
    tokenizer
        A local tokenizer.json: prompts then have exact lengths.
    characters_per_token
        What stands for a token of a prompt without a tokenizer (default: 4).
    shared_prefix
        Tokens at the beginning that all prompts share.
    prompt_file
        Prompts to send as they stand, in order: one a line (.txt), objects with a text (.jsonl), or ShareGPT's .json.
    pin_output
        Hold outputs at their length by min_tokens and ignore_eos, which hosted services refuse (default: on).
    extra_inputs
        A further field of every request, such as temperature:0; may be repeated.
    header
        A further header of every request, such as "X-Team: a"; may be repeated.
    api_key_env
        The environment variable that holds the API key (default: OPENAI_API_KEY).
    ca_file
        Certificates to trust, in PEM, instead of the system's.
    request_timeout
        Time limit of one request (default: 10min).
    reuse_connections
        Keep connections for further requests (default: on).
    workers
        Client processes, with one clock and one record (default: 1).
    percentiles
        Percentiles that there must be samples enough for, at a confidence of 0.99: 50, 90, 95 or 99.
    slo
        A limit that goodput is counted against, such as "ttft p95<=500ms"; may be repeated.
    find_max
        Search the highest load inside the --slo, beginning at the one given; at most 12 runs.
    metrics_url
        A page of Prometheus metrics to read once a second; may be repeated (default: the server's own /metrics, if it has one).
    max_error_rate
        Share of requests that may fail in a valid run (default: 0.01).
    selftest
        Measure the client against the exact server first, for some seconds.
    seed
        Of every random draw (default: 0).
    tokens
        Keep the moments of single tokens in tokens.parquet.
    export
        Write the run folder in another tool's files, too: genai-perf, aiperf or vllm; may be repeated.
    artifact_dir
        Write a run folder (a sweep: one per load): requests, gaps, tokens, summary, run, scenario, provenance.
    json
        Print one JSON object; a sweep prints {"points": […]}.
    serve
        Serve the exact server until Ctrl-C instead of testing.
    port
        Where it listens, on 127.0.0.1 (default: any free port).
    ttft
        Its time to the first token (default: 50ms).
    itl
        Its time between two tokens (default: 10ms).
    tokens_per_event
        How many tokens one of its events carries (default: 1).
    slots
        How many requests it serves at once; the others wait (default: no limit).
    freeze_at
        How long after the first request it freezes, such as 10s.
    freeze_for
        How long it does nothing then.
    fault
        What happens to every --fault-every-th request.
    fault_every
        How often that happens.
    streams
        Requests in flight of the self-test; several with commas (default: 1,64,256).
    """
    test = {
        "port": port,
        "ttft": ttft,
        "itl": itl,
        "tokens_per_event": tokens_per_event,
        "slots": slots,
        "freeze_at": freeze_at,
        "freeze_for": freeze_for,
        "fault": fault,
        "fault_every": fault_every,
    }
    asked = {
        "url": url,
        "model": model,
        "endpoint_type": endpoint_type,
        "streaming": streaming,
        "isl": isl,
        "osl": osl,
        "concurrency": concurrency,
        "request_rate": request_rate,
        "arrival_pattern": arrival_pattern,
        "cv": cv,
        "burst_size": burst_size,
        "trace": trace,
        "request_count": request_count,
        "benchmark_duration": benchmark_duration,
        "benchmark_grace_period": benchmark_grace_period,
        "warmup_request_count": warmup_request_count,
        "ramp": ramp,
        "tokenizer": tokenizer,
        "characters_per_token": characters_per_token,
        "shared_prefix": shared_prefix,
        "prompt_file": prompt_file,
        "pin_output": pin_output,
        "extra_inputs": extra_inputs,
        "header": header,
        "api_key_env": api_key_env,
        "ca_file": ca_file,
        "request_timeout": request_timeout,
        "reuse_connections": reuse_connections,
        "workers": workers,
        "percentiles": percentiles,
        "slo": slo,
        "max_error_rate": max_error_rate,
        "metrics_url": metrics_url,
        "seed": seed,
        "export": export,
    }
    if export and artifact_dir is None:
        raise InputError("--export: needs a folder to write to; add --artifact-dir")
    if action == "selftest":
        _refuse({**asked, "artifact_dir": artifact_dir}, "belongs to the measurement of an endpoint, not to the self-test")
        return _selftest(test, serve, streams, json)
    _refuse({**test, "serve": serve or None, "streams": streams}, "belongs to the self-test: tonnage bench selftest")
    given = {name: value for name, value in asked.items() if value is not None} | {"tokens": tokens}
    return (_find_max if find_max else _measure)(given, artifact_dir, selftest, json)


def _refuse(flags: dict[str, Any], why: str) -> None:
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')}: {why}")


def _prepared(asked: dict[str, Any]) -> Any:
    missing = [f"--{name}" for name in ("url", "model") if name not in asked]
    if missing:
        raise InputError(f"{', '.join(missing)}: missing; for example --url http://127.0.0.1:8000 --model llama-3.1-8b")
    from tonnage.api import bench as api

    return api.prepare_bench(**asked)


def _find_max(asked: dict[str, Any], output: Path | None, selftest: bool, as_json: bool) -> int:
    if "request_count" not in asked:
        asked.setdefault("benchmark_duration", "20s")
    prepared = _prepared(asked)
    from tonnage.api import bench as api
    from tonnage.cli.live_view import live_view
    from tonnage.cli.provenance import provenance

    found = api.run_find_max(prepared, output=output, selftest=selftest, provenance=provenance(asked.get("seed", 0)), watch=live_view)
    if as_json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(found.to_json()))
    else:
        from tonnage.cli.show_bench import show_maximum

        print(show_maximum(found))
    return DONE if found.load == found.load and not found.client_limited else NO_ANSWER


def _measure(asked: dict[str, Any], output: Path | None, selftest: bool, as_json: bool) -> int:
    prepared = _prepared(asked)
    from tonnage.api import bench as api
    from tonnage.cli.live_view import live_view
    from tonnage.cli.provenance import provenance

    runs = api.run_bench(prepared, output=output, selftest=selftest, provenance=provenance(asked.get("seed", 0)), watch=live_view)
    if as_json:
        from tonnage.results.store import json_text

        points = [run.to_json() for run in runs]
        sys.stdout.write(json_text(points[0] if len(points) == 1 else {"points": points}))
    else:
        from tonnage.cli.show_bench import show_bench

        print(show_bench(runs))
    return NO_ANSWER if any(run.validity.reasons for run in runs) else DONE


def _selftest(test: dict[str, Any], serve: bool, streams: str | None, as_json: bool) -> int:
    from tonnage.api import bench as api

    given = {name: value for name, value in test.items() if value is not None}
    if serve:
        _refuse({"streams": streams}, "belongs to the test; leave it out or leave out --serve")
        api.serve_exactly(**given)
        return DONE
    _refuse(test, "belongs to the server; add --serve")
    tests = api.bench_selftest(streams=streams or "1,64,256")
    if as_json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text({"selftests": [test.to_json() for test in tests]}))
        return DONE
    from tonnage.cli.show_bench import show_selftest

    print(show_selftest(tests))
    return DONE
