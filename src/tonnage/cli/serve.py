"""``tonnage serve``: the OpenAI API of a model on GPUs that you do not have, timed by the simulator."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from tonnage.cli.flags import about, flags_of, given, with_flags
from tonnage.cli.progress import compile_if_needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served, and where."""

    model: str | None = about("Catalog id, or the path of a Hugging Face config.json.")
    gpu: str | None = about("GPU id (default: h100-sxm-80gb).")
    precision: str | None = about("Number format (default: the format that the model is published in, fp16 for 16 bits).")
    tp: int | None = about("Tensor-parallel degree (default: 1).")
    plan: Path | None = about("A plan that tonnage size --output wrote: its choice is served.")
    rules: str | None = about("Engine preset whose scheduler and step times are simulated (default: the newest of vLLM).")
    instances: int | None = about("Engines behind one router (default: 1, or what the plan says).")
    router: str | None = about("Router between the instances: round-robin, random, power-of-two and others (default: least-outstanding).")
    speed: float | None = about("How many times as fast as a clock on the wall the simulated time runs (default: 1).")
    tokenizer: Path | None = about("Local tokenizer.json that counts prompts; without one, 4 characters are a token.")
    default_osl: int | None = about("Output tokens of a request that sets no limit (default: 128).")
    max_waiting: int | None = about("Requests that may wait when another comes; further ones get 503 (default: no limit).")
    served_model_name: str | None = about("Name that clients use for the model (default: its catalog id).")
    coefficients: Path | None = about("File that tonnage calibrate wrote; its factors are applied to the shipped terms.")
    host: str | None = about("Address to listen on (default: 127.0.0.1).")
    port: int | None = about("Port to listen on; 0 takes a free one (default: 8000).")


@with_flags(*flags_of(Served))
def serve(
    *,
    engine: Annotated[
        Literal["simulated"], Parameter(help="What answers: simulated, so far; real engines come later.", show_default=False)
    ] = "simulated",
    **asked: Any,
) -> None:
    """Serve the OpenAI API of a model and GPUs that are not there: tokens arrive when the simulated engine makes them.

    Chat completions, completions (texts or token ids), models, health and Prometheus metrics by vLLM's names; the words of the answers
    mean nothing. Ends on Ctrl-C or SIGTERM, when running streams have ended or after 10 seconds.
    """
    from tonnage import api
    from tonnage.serve.server import serve as run
    from tonnage.simulator.kernel import warm_up

    served = api.serve_simulated(**given(asked))
    compile_if_needed()
    warm_up()  # also loads what another process compiled, so that the first request does not wait for it
    kind = "instance" if served.instances == 1 else f"instances behind {served.router}"

    def ready(port: int) -> None:
        where = f"http://{served.host}:{port}/v1"
        print(f"tonnage: {served.instances} simulated {kind} of {served.model} on {where}", file=sys.stderr, flush=True)

    run(served, ready)
