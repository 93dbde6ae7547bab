"""llm-d: the engine's pods in an ``InferencePool``, with its endpoint picker behind a gateway."""
