import pytest

from tests.deployments import deployment
from tonnage.perf import provenance
from tonnage.perf.provenance import coefficient_source, marks
from tonnage.perf.terms_file import shipped


def test_marks_say_what_was_not_measured() -> None:
    assert marks(deployment()) == ()
    assert marks(deployment(engine="tensorrt-llm-0.15", gpu="a100-pcie-80gb")) == ()
    assert marks(deployment(engine="vllm")) == ()
    assert "vllm" in " ".join(marks(deployment(engine="vllm", gpu="a100-pcie-80gb")))
    (transferred,) = marks(deployment(gpu="h100-pcie-80gb"))
    assert "transferred" in transferred
    (roofline,) = marks(deployment(gpu="mi300x"))
    assert "datasheet" in roofline
    assert "no 16-bit measurements" in marks(deployment(gpu="b200-sxm-180gb", precision="fp16"))[0]
    assert "transferred from B200" in marks(deployment(gpu="gb200-186gb"))[0]
    assert marks(deployment(gpu="l40s", precision="fp16")) == ()  # Mixtral was measured on it


def test_a_precision_that_was_not_measured_on_a_measured_gpu_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    own = dict(shipped()["gpus"]["l40s"])
    del own["compute_16"]
    changed = {**shipped(), "gpus": {**shipped()["gpus"], "l40s": own}}
    monkeypatch.setattr(provenance, "shipped", lambda: changed)
    (mark,) = marks(deployment(gpu="l40s", precision="fp16"))
    assert mark == "l40s: no 16-bit measurements; efficiency transferred from the Ada generation"


def test_the_source_names_file_date_and_rows() -> None:
    assert coefficient_source("nim").startswith("perf/coefficients/terms.json of 2026-11-21")
    assert "trtllm_throughput.csv" in coefficient_source("tensorrt-llm-0.15")
    assert "silicon_sample.csv" in coefficient_source("vllm")


def test_latent_attention_is_marked_as_not_fitted() -> None:
    assert (
        marks(deployment(model="deepseek-v3", precision="fp8", tp=8))[-1]
        == "deepseek-v3: latent attention estimated from the datasheet, not fitted"
    )
    assert marks(deployment(model="llama-4-scout", precision="fp8", tp=8)) == ()
