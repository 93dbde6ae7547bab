"""Readers of the files that other load clients write, one module per tool."""
