"""Frozen values that say what exists and what is asked; nothing here reads a clock or a network."""
