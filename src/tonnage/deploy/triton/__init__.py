"""Triton: a model repository, which tritonserver serves with vLLM's backend or with TensorRT-LLM's behind a tokenizer of its own."""
