"""Recorded traffic, described and fitted: its lengths, its arrivals, the prefixes that its prompts
share.

It knows what was recorded (``spec``, ``results``) and nothing of models, engines or the simulator.
"""
