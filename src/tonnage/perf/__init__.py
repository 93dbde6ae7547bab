"""How long one step of an engine takes, and what fits in GPU memory."""
