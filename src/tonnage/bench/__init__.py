"""A live endpoint, measured: load, wire, record, and a verdict on whether the measurement can be
believed.
"""
