"""Measurements of the models and accelerators of 2026: rules of the points, how they are scored,
and what is fitted to them.
"""
