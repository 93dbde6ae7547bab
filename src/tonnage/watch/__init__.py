"""A running deployment next to its plan: what its metrics pages say, what the simulator makes of
the same load, how much is left.
"""
