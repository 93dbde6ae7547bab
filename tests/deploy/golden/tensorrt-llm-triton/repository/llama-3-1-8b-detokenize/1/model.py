"""Tokens to text; run by Triton's Python backend."""

import json
import os

import numpy as np
import triton_python_backend_utils as triton
from tokenizers import Tokenizer


class TritonPythonModel:
    """Holds the tokenizer."""

    def initialize(self, args):
        """Read the tokenizer, whose path is relative to the repository."""
        said = json.loads(args["model_config"])["parameters"]["tokenizer"]["string_value"]
        path = os.path.join(os.path.dirname(args["model_repository"]), said)
        self.tokenizer = Tokenizer.from_file(path)
        self.ends, self.pad = [], None
        for name in ("generation_config.json", "config.json"):
            if not self.ends and os.path.exists(os.path.join(os.path.dirname(path), name)):
                with open(os.path.join(os.path.dirname(path), name), encoding="utf-8") as file:
                    told = json.load(file)
                ends = told.get("eos_token_id")
                self.ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
                self.pad = told.get("pad_token_id")

    def execute(self, requests):
        """Each request has rows of beams of tokens, and how many tokens of each count."""
        found = []
        for request in requests:
            ids = triton.get_input_tensor_by_name(request, "OUTPUT_IDS").as_numpy()
            lengths = triton.get_input_tensor_by_name(request, "SEQUENCE_LENGTH").as_numpy()
            texts = [
                [self.tokenizer.decode(beam[:count].tolist()).encode("utf-8") for beam, count in zip(row, counts, strict=True)]
                for row, counts in zip(ids, lengths, strict=True)
            ]
            found.append(triton.InferenceResponse([triton.Tensor("TEXT_OUTPUT", np.array(texts, dtype=object))]))
        return found
