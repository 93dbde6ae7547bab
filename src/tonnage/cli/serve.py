"""``tonnage serve``: the OpenAI API of a model on GPUs that you do not have, timed by the simulator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tonnage.cli.progress import compile_if_needed


def serve(
    *,
    model: Annotated[str | None, Parameter(help="Catalog id, or the path of a Hugging Face config.json.")] = None,
    gpu: Annotated[str | None, Parameter(help="GPU id (default: h100-sxm-80gb).")] = None,
    precision: Annotated[str | None, Parameter(help="Number format (default: fp16).")] = None,
    tp: Annotated[int | None, Parameter(help="Tensor-parallel degree (default: 1).")] = None,
    plan: Annotated[Path | None, Parameter(help="A plan that tonnage size --output wrote: its choice is served.")] = None,
    engine: Annotated[
        Literal["simulated"], Parameter(help="What answers: simulated, so far; real engines come later.", show_default=False)
    ] = "simulated",
    rules: Annotated[
        str | None, Parameter(help="Engine preset whose scheduler and step times are simulated (default: the newest of vLLM).")
    ] = None,
    instances: Annotated[int | None, Parameter(help="Engines behind one router (default: 1, or what the plan says).")] = None,
    router: Annotated[str, Parameter(help="Router between the instances; round-robin, random, power-of-two and others.")] = (
        "least-outstanding"
    ),
    speed: Annotated[float, Parameter(help="How many times as fast as a clock on the wall the simulated time runs.")] = 1.0,
    tokenizer: Annotated[
        Path | None, Parameter(help="Local tokenizer.json that counts prompts; without one, 4 characters are a token.")
    ] = None,
    default_osl: Annotated[int, Parameter(help="Output tokens of a request that sets no limit.")] = 128,
    max_waiting: Annotated[int, Parameter(help="Requests that may wait when another comes; further ones get 503; 0 for no limit.")] = 0,
    served_model_name: Annotated[str | None, Parameter(help="Name that clients use for the model (default: its catalog id).")] = None,
    coefficients: Annotated[Path | None, Parameter(help="File that tonnage calibrate wrote; its factors are applied.")] = None,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes a free one.")] = 8000,
) -> None:
    """Serve the OpenAI API of a model and GPUs that are not there: tokens arrive when the simulated engine makes them.

    Chat completions, completions (texts or token ids), models, health and Prometheus metrics by vLLM's names; the words of the answers
    mean nothing. Ends on Ctrl-C or SIGTERM, when running streams have ended or after 10 seconds.
    """
    from tonnage import api
    from tonnage.serve.server import serve as run

    served = api.serve_simulated(
        model=model,
        gpu=gpu,
        precision=precision,
        tp=tp,
        plan=plan,
        rules=rules,
        instances=instances,
        router=router,
        speed=speed,
        tokenizer=tokenizer,
        default_osl=default_osl,
        max_waiting=max_waiting,
        served_model_name=served_model_name,
        coefficients=coefficients,
        host=host,
        port=port,
    )
    compile_if_needed()
    kind = "instance" if served.instances == 1 else f"instances behind {router}"

    def ready(port: int) -> None:
        print(f"tonnage: {served.instances} simulated {kind} of {served.model} on http://{host}:{port}/v1", file=sys.stderr, flush=True)

    run(served, ready)
