"""``tonnage serve --engine openvino``: a real model on this machine's CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.serve.openvino.engines import OpenvinoServed

EXTRA = "needs OpenVINO GenAI; install the extra: pip install 'tonnage[openvino]'"
PRECISIONS = ("auto", "fp32")


def serve_openvino(
    *,
    model: str | Path | None = None,
    precision: str = "auto",
    max_batch_size: int = 32,
    max_num_tokens: int = 256,
    kv_cache_gb: int = 1,
    prefix_caching: bool = True,
    threads: int = 0,
    max_model_len: int | None = None,
    default_osl: int = 0,
    max_waiting: int = 0,
    served_model_name: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
) -> OpenvinoServed:
    """Load a model; what to serve.

    Args:
        model: a GGUF file, or a folder with a model in OpenVINO's format.
        precision: "auto", or "fp32" for weights and KV cache alike.
        max_batch_size: requests that share a step.
        max_num_tokens: tokens of a step.
        kv_cache_gb: memory of the KV cache in GB.
        prefix_caching: whether blocks of equal prompt beginnings are shared.
        threads: CPU threads; 0 for OpenVINO's choice.
        max_model_len: prompt plus output at most (default: what the model's file says).
        default_osl: output tokens of a request that sets no limit; 0 for as many as the context leaves.
        max_waiting: requests that may wait when another comes; 0 for no limit.
        served_model_name: the name that clients use (default: the file's).
        host, port: where to listen.

    Raises:
        InputError: anything that cannot be used, in one line.
    """
    import importlib.util

    if model is None:
        raise InputError(f"{option('model')}: is needed; give a GGUF file, or a folder with a model in OpenVINO's format")
    if precision not in PRECISIONS:
        raise InputError(f"{option('precision')}: '{precision}' is not served by OpenVINO; write {' or '.join(PRECISIONS)}")
    _check_whole(1, max_batch_size=max_batch_size, max_num_tokens=max_num_tokens, kv_cache_gb=kv_cache_gb)
    _check_whole(0, threads=threads, default_osl=default_osl, max_waiting=max_waiting)
    if importlib.util.find_spec("openvino_genai") is None:
        raise InputError(f"{option('engine')}: openvino {EXTRA}")
    from tonnage.serve.openvino.engines import OpenvinoServed, context_of
    from tonnage.serve.openvino.pipeline import Pipeline, Settings

    path = Path(model)
    if max_model_len is not None:
        _check_whole(2, max_model_len=max_model_len)
    context = context_of(path) if max_model_len is None or not path.exists() else max_model_len
    chosen: Literal["auto", "fp32"] = "fp32" if precision == "fp32" else "auto"
    settings = Settings(
        model=path,
        max_batch_size=max_batch_size,
        max_num_tokens=max_num_tokens,
        kv_cache_gb=kv_cache_gb,
        prefix_caching=prefix_caching,
        precision=chosen,
        threads=threads,
    )
    return OpenvinoServed(
        pipeline=Pipeline(settings),
        model=served_model_name or path.stem,
        max_context=context,
        default_osl=default_osl,
        most_waiting=max_waiting,
        host=host,
        port=port,
    )


def _check_whole(least: int, **numbers: int) -> None:
    for name, value in numbers.items():
        if value < least:
            raise InputError(f"{option(name)}: {value} is not possible; write a whole number, {least} or more")
