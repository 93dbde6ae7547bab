"""Current engines: which rows of ``silicon_sample.csv`` are used and how, and the terms fitted on
them.
"""
