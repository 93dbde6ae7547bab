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
        """Each request has rows of one text and the tokens wanted; rows are padded with 0 behind their end."""
        return [self.answer(request) for request in requests]

    def answer(self, request):
        """Tokens, what ends the answer, and how long it may be."""
        texts, wanted = self.given(request, "TEXT"), self.given(request, "MAX_TOKENS").astype(np.int32)
        rows = [self.tokenizer.encode(text.decode("utf-8")).ids for text in texts[:, 0]]
        lengths = np.array([[len(row)] for row in rows], dtype=np.int32)
        ids = np.zeros((len(rows), int(lengths.max())), dtype=np.int32)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        ends = np.full((len(rows), 1), self.ends[0] if self.ends else -1, dtype=np.int32)
        end = self.given(request, "END_ID", ends).astype(np.int32)
        pad = self.given(request, "PAD_ID", end if self.pad is None else np.full_like(end, self.pad)).astype(np.int32)
        words = self.given(request, "STOP_WORDS", np.zeros((len(rows), 0), dtype=object))
        stops = self.stops([[word.decode("utf-8") for word in row if word] for row in words])
        tensors = {"INPUT_IDS": ids, "INPUT_LENGTHS": lengths, "REQUEST_OUTPUT_LEN": wanted}
        tensors |= {"STOP_WORDS_IDS": stops, "OUT_END_ID": end, "OUT_PAD_ID": pad}
        return triton.InferenceResponse([triton.Tensor(name, value) for name, value in tensors.items()])

    def given(self, request, name, otherwise=None):
        """An input of a request, which may lack an optional one."""
        tensor = triton.get_input_tensor_by_name(request, name)
        return otherwise if tensor is None else tensor.as_numpy()

    def stops(self, rows):
        """Stop words in the form that the engine takes: the tokens in a row, and below them where each word ends.

        The model's further end tokens are words of one token. The row of ends is filled up with -1.
        """
        words = [[*[[token] for token in self.ends[1:]], *[self.tokenizer.encode(word, add_special_tokens=False).ids for word in row]]
                 for row in rows]
        width = max(1, *(sum(map(len, row)) for row in words))
        made = np.zeros((len(words), 2, width), dtype=np.int32)
        made[:, 1] = -1
        for place, row in enumerate(words):
            flat = [token for word in row for token in word]
            made[place, 0, : len(flat)] = flat
            made[place, 1, : len(row)] = np.cumsum([len(word) for word in row])
        return made
