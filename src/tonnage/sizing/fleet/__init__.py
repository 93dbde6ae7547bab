"""Statements about the chosen fleet: at its peak, behind routers, while some fail, over the hours
of a day, in two pools.
"""
