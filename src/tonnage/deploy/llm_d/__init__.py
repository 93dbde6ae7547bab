"""llm-d: vLLM's pods in an ``InferencePool``, with its endpoint picker behind a gateway."""
