"""What ``compress`` wrote, loaded by vLLM on the CPU, which names its method and answers as
transformers does (./check --compress)."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compress.conftest import Made
from tests.engines.vllm_server import as_vllm, python
from tonnage.compress.recipes import LLM_COMPRESSOR, MODELOPT
from tonnage.compress.run import python_of

pytestmark = pytest.mark.compress

METHODS = {LLM_COMPRESSOR: "compressed-tensors", MODELOPT: "modelopt"}
ANSWERED = [
    *(("llama", form, LLM_COMPRESSOR) for form in ("fp8", "int8", "w4a16-gptq", "kv-fp8")),
    *(("windows", form, LLM_COMPRESSOR) for form in ("fp8", "w4a16-gptq", "kv-fp8")),
    *((model, "2:4", MODELOPT) for model in ("llama", "windows", "experts")),
]
"""Models, formats and tools that vLLM 0.32 runs on a CPU."""


TOKENS = 200
ENGINE = """
import json, os, sys
from pathlib import Path
from vllm import LLM, SamplingParams
text, tokens = Path(sys.argv[1]).read_text(), int(sys.argv[2])
for folder in sys.argv[3:]:  # each in a process of its own, forked after the imports, which take most of the time
    if os.fork():
        os.wait()
        continue
    for stream in (1, 2):
        os.dup2(os.open(folder + ".log", os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
    try:
        llm = LLM(model=folder, enforce_eager=True, dtype="bfloat16", max_model_len=512, max_num_seqs=1, distributed_executor_backend="uni")
        ids = llm.get_tokenizer()(text)["input_ids"][:tokens]
        asked = SamplingParams(max_tokens=8, temperature=0, prompt_logprobs=0)
        said = llm.generate([{"prompt_token_ids": ids}], asked, use_tqdm=False)[0]
        logs = [one[token].logprob for one, token in zip(said.prompt_logprobs[1:], ids[1:])]
        found = {"answer": said.outputs[0].text, "logs": logs}
    except Exception as error:
        found = {"refused": f"{type(error).__name__}: {error}"}
    Path(folder + ".answer").write_text(json.dumps(found))
    os._exit(0)
"""

READ = """
import json, sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
text, tokens, found = Path(sys.argv[1]).read_text(), int(sys.argv[2]), {}
for folder in sys.argv[3:]:
    row = torch.tensor([AutoTokenizer.from_pretrained(folder)(text)["input_ids"][:tokens]])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        logs = model(row, use_cache=False).logits[0, :-1].float().log_softmax(-1)
    found[folder] = logs.gather(1, row[0, 1:, None])[:, 0].tolist()
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What vLLM did with a folder: its log, its reason if it refused, its answer, and the log
    probabilities of a text's tokens."""

    log: str
    refused: str = ""
    answer: str = ""
    logs: tuple[float, ...] = ()


@pytest.fixture(scope="module")
def loaded(
    models: Path, made: Made, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str, str], Loaded]:
    """Every checkpoint of the tables above, loaded by vLLM."""
    keys = ANSWERED
    folders = {key: str(made(*key).folder) for key in keys}
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PYTHONPATH": str(as_vllm(tmp_path_factory.mktemp("vllm"))),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    words = [str(python()), "-c", ENGINE, str(models / "held.txt"), str(TOKENS), *folders.values()]
    subprocess.run(words, check=True, env=environment, timeout=1800)
    return {
        key: Loaded(
            log=Path(f"{folder}.log").read_text(errors="replace"),
            **json.loads(Path(f"{folder}.answer").read_text()),
        )
        for key, folder in folders.items()
    }


@pytest.fixture(scope="module")
def read(models: Path, made: Made) -> dict[tuple[str, str, str], list[float]]:
    """The log probabilities that transformers finds for the same text's tokens, by what was
    loaded."""
    folders = {key: str(made(*key).folder) for key in ANSWERED}
    words = [
        str(python_of(LLM_COMPRESSOR, print)),
        "-c",
        READ,
        str(models / "held.txt"),
        str(TOKENS),
        *folders.values(),
    ]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=1800)
    found = json.loads(done.stdout.splitlines()[-1])
    return {key: found[folder] for key, folder in folders.items()}


def apart(one: list[float] | tuple[float, ...], other: list[float]) -> float:
    """How far two lists of log probabilities are apart, over how far the second is spread."""
    middle = sum(other) / len(other)
    return math.dist(one, other) / math.dist(other, [middle] * len(other))


@pytest.mark.parametrize("key", ANSWERED, ids="-".join)
def test_vllm_names_the_method_and_answers_as_transformers_does(
    loaded: dict[tuple[str, str, str], Loaded],
    read: dict[tuple[str, str, str], list[float]],
    key: tuple[str, str, str],
) -> None:
    model, form, tool = key
    found = loaded[key]
    assert not found.refused
    assert found.answer
    named = re.search(r"quantization=([\w-]+)", found.log)
    assert named is not None
    # a checkpoint with zeros is one in 16 bits
    assert named[1] == ("None" if form == "2:4" else METHODS[tool])
    print(f"{model} {form}: {named[1]}, apart {apart(found.logs, read[key]):.3f}")
    assert apart(found.logs, read[key]) < 0.1
