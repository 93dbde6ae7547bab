"""Which deployment: every one that a question allows, pruned by closed forms, contested by
simulation, tuned.
"""
