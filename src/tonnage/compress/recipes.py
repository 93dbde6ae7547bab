"""Number formats that ``compress`` writes, and the script of a tool that writes each: what
``--dry-run`` prints is what runs.

A script has constants at its top, ``compressed()``, which returns the model in the format, and
``write(model)``. Sources of the calls and names: llm-compressor 0.14.0.1 and Model Optimizer
0.47.0, the packages themselves, read on 2026-11-25.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LLM_COMPRESSOR, MODELOPT = "llm-compressor", "modelopt"

# The tools, by what ``--tool`` calls them, with the package of each
TOOLS = {LLM_COMPRESSOR: "llmcompressor", MODELOPT: "nvidia-modelopt"}
# Calibration windows at most, and tokens of one: the defaults of llm-compressor's examples
SAMPLES, LENGTH = 512, 2048

KEPT = ("re:.*lm_head", "re:.*embed.*", r"re:.*\.gate$", "re:.*router.*", "re:.*vision.*")
"""What stays in 16 bits, as ``spec.precision`` counts it: output head, embeddings, expert routers,
and encoders of images."""

_QUANTIZATION = "from llmcompressor.modifiers.quantization import QuantizationModifier"
_GPTQ = "from llmcompressor.modifiers.gptq import GPTQModifier"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A number format that ``compress`` writes."""

    name: str  # value of ``--format``
    precision: str  # the same as ``spec.precision`` writes it, which is what a plan assumes
    # llm-compressor's scheme where no calibration is needed: the safetensors are converted without
    # loading the model
    scheme: str = ""
    # llm-compressor's modifiers where it calibrates, as Python, with the imports that they need
    modifiers: str = ""
    imports: tuple[str, ...] = ()
    config: str = ""  # Model Optimizer's configuration, as Python; empty where it has none
    # quantisation method of the checkpoint (``quantisation.yaml``), by tool
    methods: dict[str, str]

    def calibrated(self, tool: str) -> bool:
        """Whether the tool needs a text for it."""
        return tool == MODELOPT or not self.scheme


_BOTH = {LLM_COMPRESSOR: "compressed-tensors", MODELOPT: "modelopt"}
_INT4 = {LLM_COMPRESSOR: "compressed-tensors", MODELOPT: "modelopt-int4"}

FORMATS = {
    form.name: form
    for form in (
        Format(
            name="fp8",
            precision="fp8",
            scheme="FP8_DYNAMIC",
            config="mtq.FP8_DEFAULT_CFG",
            methods={LLM_COMPRESSOR: "compressed-tensors-fp8", MODELOPT: "modelopt"},
        ),
        Format(
            name="fp8-block",
            precision="fp8",
            scheme="FP8_BLOCK",
            methods={LLM_COMPRESSOR: "compressed-tensors-fp8"},
        ),
        Format(
            name="int8",
            precision="int8-sq",
            modifiers=(
                '[SmoothQuantModifier(smoothing_strength=0.8), GPTQModifier(targets="Linear",'
                ' scheme="W8A8", ignore=KEPT)]'
            ),
            imports=(
                _GPTQ,
                "from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier",
            ),
            methods={LLM_COMPRESSOR: "compressed-tensors"},
        ),
        Format(
            name="w4a16-awq",
            precision="awq",
            modifiers=(
                '[AWQModifier(), QuantizationModifier(targets="Linear", scheme="W4A16_ASYM",'
                " ignore=KEPT)]"
            ),
            imports=(
                _QUANTIZATION,
                "from llmcompressor.modifiers.transform.awq import AWQModifier",
            ),
            config="mtq.INT4_AWQ_CFG",
            methods=_INT4,
        ),
        Format(
            name="w4a16-gptq",
            precision="gptq",
            modifiers='[GPTQModifier(targets="Linear", scheme="W4A16", ignore=KEPT)]',
            imports=(_GPTQ,),
            methods={LLM_COMPRESSOR: "compressed-tensors"},
        ),
        Format(
            name="w4a8",
            precision="w4a8",
            modifiers='[GPTQModifier(targets="Linear", scheme="W4AFP8", ignore=KEPT)]',
            imports=(_GPTQ,),
            config="mtq.W4A8_AWQ_BETA_CFG",
            methods=_INT4,
        ),
        Format(
            name="nvfp4",
            precision="nvfp4",
            modifiers='[QuantizationModifier(targets="Linear", scheme="NVFP4", ignore=KEPT)]',
            imports=(_QUANTIZATION,),
            config="mtq.NVFP4_DEFAULT_CFG",
            methods=_BOTH,
        ),
        Format(
            name="mxfp4",
            precision="mxfp4",
            scheme="MXFP4",
            methods={LLM_COMPRESSOR: "compressed-tensors"},
        ),
        Format(
            name="kv-fp8",
            precision="bf16+kv-fp8",
            # else a tied output head is written apart, which vLLM refuses
            modifiers=(
                '[QuantizationModifier(ignore=KEPT, kv_cache_scheme={"num_bits": 8, "type":'
                ' "float", "strategy": "tensor", "dynamic": False, "symmetric": True})]'
            ),
            imports=(_QUANTIZATION,),
            config=(
                'mtq.utils.update_quant_cfg_with_kv_cache_quant({"quant_cfg": None},'
                ' mtq.FP8_KV_CFG["quant_cfg"])'
            ),
            methods=_BOTH,
        ),
        Format(name="2:4", precision="bf16+2:4", config="sparsegpt", methods={MODELOPT: "none"}),
    )
}
"""Formats by name. A 2:4 checkpoint is one in 16 bits with two zeros in every four weights."""

_HEAD = """{description!r}

from pathlib import Path

{imports}

MODEL = {model!r}
OUTPUT = {output!r}
"""

_FREE = '''KEPT = {kept!r}


def compressed():
    """The safetensors are converted file by file; there is no model to return."""
    model_free_ptq(model_stub=MODEL, save_directory=OUTPUT, scheme={scheme!r}, ignore=KEPT)


def write(model):
    """Everything is written already."""
'''

_WINDOWS = '''TEXT = {text!r}
SAMPLES, LENGTH = {samples}, {length}
tokenizer = AutoTokenizer.from_pretrained(MODEL)


def windows():
    """The calibration text in windows of LENGTH tokens; one shorter window where the text has fewer."""
    ids = tokenizer(Path(TEXT).read_text(encoding="utf-8"))["input_ids"]
    starts = range(0, max(1, len(ids) - LENGTH + 1), LENGTH)
    return [ids[start : start + LENGTH] for start in starts][:SAMPLES]
'''  # noqa: E501

_ONESHOT = '''KEPT = {kept!r}
RECIPE = {modifiers}


def compressed():
    """The model after calibration, layer by layer."""
    with load_quantizable_moe():
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
    found = windows()
    data = Dataset.from_dict({{"input_ids": found, "attention_mask": [[1] * len(one) for one in found]}})
    oneshot(model=model, dataset=data, recipe=RECIPE, max_seq_length=LENGTH, num_calibration_samples=len(found))
    return model


def write(model):
    """The checkpoint in the format of compressed-tensors."""
    model.save_pretrained(OUTPUT, save_compressed=True)
    tokenizer.save_pretrained(OUTPUT)
'''  # noqa: E501

_MODELOPT = '''

def forward(model):
    """The model sees the calibration text."""
    for ids in windows():
        with torch.no_grad():
            model(torch.tensor([ids], device=model.device))


def compressed():
    """The model after calibration."""
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto", device_map="auto" if torch.cuda.is_available() else None)
    {call}
    return model


def write(model):
    """The checkpoint in Hugging Face's form."""
    {export}
    tokenizer.save_pretrained(OUTPUT)
'''  # noqa: E501

_MAIN = """

if __name__ == "__main__":
    write(compressed())
"""

_LOADED = "from transformers import AutoModelForCausalLM, AutoTokenizer"


def script(
    form: Format, tool: str, *, model: str, output: str, text: str, name: str = "recipe.py"
) -> str:
    """The tool's own script, as Python; the calibration text is not read where the format needs
    none.
    """
    body, imports = "", []
    if tool == LLM_COMPRESSOR and form.scheme:
        imports, body = ["from llmcompressor import model_free_ptq"], _FREE
    elif tool == LLM_COMPRESSOR:
        imports = [
            "from datasets import Dataset",
            "from llmcompressor import oneshot",
            *form.imports,
        ]
        imports += [
            "from llmcompressor.modeling.moe.linearize import load_quantizable_moe",
            _LOADED,
        ]
        body = _WINDOWS + _ONESHOT
    elif form.config == "sparsegpt":
        imports, body = (
            ["import modelopt.torch.sparsity as mts", "import torch", _LOADED],
            _WINDOWS + _MODELOPT,
        )
    else:
        imports = [
            "import modelopt.torch.quantization as mtq",
            "import torch",
            "from modelopt.torch.export import export_hf_checkpoint",
        ]
        imports, body = [*imports, _LOADED], _WINDOWS + _MODELOPT
    call = f"model = mtq.quantize(model, {form.config}, forward)"
    export = "export_hf_checkpoint(model, export_dir=OUTPUT)"
    if form.config == "sparsegpt":
        call = (
            'collect = {"data_loader": [torch.tensor([ids]) for ids in windows()], "collect_func":'
            ' lambda ids: ids.to(model.device)}\n    model = mts.sparsify(model, "sparsegpt",'
            " config=collect)"
        )
        export = (
            "found = mts.export(model)\n"
            "    found.tie_weights()  # the export copies a tied output head, which vLLM refuses\n"
            "    found.save_pretrained(OUTPUT)"
        )
    title = f"{form.name} of {Path(model).name}, by {TOOLS[tool]}"
    return (_HEAD + body + _MAIN).format(
        description=f"{title}; made by tonnage compress, to be run where the GPU is: python {name}",
        imports="\n".join(imports),
        model=model,
        output=output,
        kept=list(KEPT),
        scheme=form.scheme,
        modifiers=form.modifiers,
        text=text,
        samples=SAMPLES,
        length=LENGTH,
        call=call,
        export=export,
    )
