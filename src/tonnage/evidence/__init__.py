"""Predictions held against measurements: scored, compared, replayed, and calibrated on a user's own
points.
"""
