from dataclasses import replace

from tests.deployments import deployment
from tonnage.perf import step_terms as at
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model


def test_cuda_graphs_spare_latent_attention_what_launching_it_costs() -> None:
    d = deployment(model="kimi-k2.5", gpu="b200-sxm-180gb", precision="nvfp4+experts", tp=8, engine="vllm")
    wide = replace(d, knobs=replace(d.knobs, graph_tokens=2048))
    plain, graphed = (step_model(each).coefficients for each in (d, wide))
    assert (plain[at.GRAPHED_TO], graphed[at.GRAPHED_TO]) == (512, 2048)
    assert plain[at.EAGER] == graphed[at.EAGER] > 0
    assert step_seconds(plain, 1024, 1, 0, 0, 0) > step_seconds(graphed, 1024, 1, 0, 0, 0) + plain[at.EAGER] - 1e-12
    assert step_seconds(plain, 4096, 1, 0, 0, 0) == step_seconds(graphed, 4096, 1, 0, 0, 0)
    assert step_model(deployment(engine="vllm")).coefficients[at.EAGER] == 0.0


def test_only_tensorrt_llm_saves_what_it_spends_on_handing_out_tokens_when_it_is_called_from_its_own_process() -> None:
    """Served and in its own process it was measured apart: some 6 µs a sequence and step of a dense model, less where experts hide it."""
    saved = {}
    for engine, model in (("tensorrt-llm", "llama-3.1-8b"), ("tensorrt-llm", "qwen3-30b-a3b"), ("vllm", "llama-3.1-8b")):
        served = step_model(deployment(engine=engine, model=model))
        saved[engine, model] = (served.seconds(0, 0, 256, 0, 0) - served.in_process.seconds(0, 0, 256, 0, 0)) / 256
    assert 4e-6 < saved["tensorrt-llm", "llama-3.1-8b"] < 9e-6
    assert 0 < saved["tensorrt-llm", "qwen3-30b-a3b"] < saved["tensorrt-llm", "llama-3.1-8b"]
    assert saved["vllm", "llama-3.1-8b"] == 0
