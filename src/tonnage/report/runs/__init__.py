"""Runs as documents, measured, simulated or imported: what is read of their folders, their figures, and the report."""
