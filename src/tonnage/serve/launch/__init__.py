"""Real engines on this machine: which of them can run a model here, which is chosen, and the exact command that starts it."""
