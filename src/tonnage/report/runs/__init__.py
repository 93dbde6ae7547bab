"""Runs as documents, measured, simulated or imported: their folders, their figures, and the
report.
"""
