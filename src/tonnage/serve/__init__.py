"""Engines behind the OpenAI API: so far the simulated one, which answers when real GPUs would."""
