"""The record that a run leaves behind, simulated or measured, and what is computed from it."""
