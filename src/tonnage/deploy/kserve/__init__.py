"""KServe: the plan as an ``LLMInferenceService``, which runs vLLM behind llm-d's scheduler."""
