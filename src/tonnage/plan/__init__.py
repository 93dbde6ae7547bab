"""The plan as typed values: what was chosen, what else was possible, and why the rest was not."""
