"""What carries a load: one instance or a fleet, simulated under it, and the highest load inside the
limits.
"""
