"""Text to tokens; run by Triton's Python backend."""

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
        self.tokenizer = Tokenizer.from_file(os.path.join(os.path.dirname(args["model_repository"]), said))

    def execute(self, requests):
        """Each request has rows of one text and the tokens wanted; rows are padded with 0 behind their end."""
        found = []
        for request in requests:
            texts = triton.get_input_tensor_by_name(request, "TEXT").as_numpy()
            wanted = triton.get_input_tensor_by_name(request, "MAX_TOKENS").as_numpy().astype(np.int32)
            rows = [self.tokenizer.encode(text.decode("utf-8")).ids for text in texts[:, 0]]
            lengths = np.array([[len(row)] for row in rows], dtype=np.int32)
            ids = np.zeros((len(rows), int(lengths.max())), dtype=np.int32)
            for place, row in enumerate(rows):
                ids[place, : len(row)] = row
            tensors = {"INPUT_IDS": ids, "INPUT_LENGTHS": lengths, "REQUEST_OUTPUT_LEN": wanted}
            found.append(triton.InferenceResponse([triton.Tensor(name, value) for name, value in tensors.items()]))
        return found
