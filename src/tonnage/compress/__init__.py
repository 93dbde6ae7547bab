"""A checkpoint made narrower by another tool, and judged next to the original; no quantisation code
of Tonnage's own.
"""
