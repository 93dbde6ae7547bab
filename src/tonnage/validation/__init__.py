"""Predictions against measurements: tables of measured rows, their errors by group, step models side by side."""
