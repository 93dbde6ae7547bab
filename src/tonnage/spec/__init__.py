"""Frozen values of hardware, models and questions; nothing here reads a clock or a network."""
